"""The papers' runs in ``examples/papers``: each is checked, and says where its values are from."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from ascribe_lab.train.config import ConfigError
from ascribe_lab.train.launch import check_config
from ascribe_lab.train.load import load_config
from ascribe_lab.train.verl.arguments import verl_overrides
from tests.estimators.golden import close, cut, reasons, steps, table
from tests.estimators.test_gae import valued, verl_gae

pytest.importorskip("yaml", reason="needs the extra trl or verl")

PAPERS = Path(__file__).parents[3] / "examples" / "papers"
FILES = sorted(PAPERS.rglob("*.yaml"))
RUNS = [path for path in FILES if not path.name.startswith("_")]
NUMBER = re.compile(r"^\s+[\w.]+: [-+]?[0-9]|^\s+\w+: \{\w+: [0-9]")
SOURCE = re.compile(
    r"GiGPO|BiPACE|IBPO|CCPO|PivotRL|DAPO|GSPO|HGPO|verl-agent|MATH500|LogiQA|AIME25|"
    r"one for each|thinker|not in the (paper|text)"
)


def engine(path: Path) -> str:
    """CCPO's agents have adapters of their own, which is TRL's; the others are for verl."""
    return "trl" if path.parent.name == "ccpo" else "verl"


def test_every_file_passes_a_dry_run() -> None:
    """In one process, as ``ascribe train --dry-run`` does it."""
    for path in RUNS:
        config = load_config(path).config
        assert config.output.folder == f"runs/{path.parent.name}/{path.stem}", path
        try:
            check_config(config, engine(path))
        except ValueError as error:
            raise AssertionError(f"{path}: {error}") from error


def test_every_number_says_where_it_is_from() -> None:
    for path in FILES:
        for line in path.read_text(encoding="utf-8").splitlines():
            if NUMBER.match(line):
                assert SOURCE.search(line.partition("#")[2]), f"{path}: {line}"


def test_every_table_has_its_runs() -> None:
    found = {f"{path.parent.name}/{path.stem}" for path in RUNS}
    methods = ("ppo", "rloo", "grpo", "gigpo_std", "gigpo_mean")
    tables = {
        f"gigpo/{env}_{size}_{method}"  # Table 1
        for env in ("alfworld", "webshop")
        for size in ("1.5b", "7b")
        for method in methods
    }
    tables |= {f"gigpo/webshop_1.5b_omega_{omega / 10}" for omega in (0, 2, 4, 6, 8, 12, 14)}
    tables |= {f"gigpo/search_{size}_gigpo" for size in ("3b", "7b")}
    tables |= {
        f"bipace/{env}_{size}_{method}"  # Tables 2 and 3
        for env in ("alfworld", "webshop", "textcraft")
        for size in ("1.5b", "7b")
        for method in ("bipace_q", "hgpo")
    }
    tables |= {f"bipace/alfworld_7b_radius_{radius}" for radius in ("0.05", "0.15", "0.20")}
    tables |= {f"ibpo/qwen3_32b_{arm}" for arm in ("ibpo", "gspo", "k1", "shaping_only")}
    tables |= {f"pivotrl/{domain}" for domain in ("tau2", "swe", "terminal", "browse")}
    assert tables <= found
    assert len(found) == 89


@pytest.mark.parametrize(
    ("file", "section", "key", "value"),
    [
        ("ibpo/qwen3_32b_ibpo", "evaluation", "size", 64),  # Table 4
        ("ibpo/qwen3_32b_gspo", "evaluation", "temperature", 0.6),  # Section 5
        ("ibpo/qwen3_next_80b_ibpo", "evaluation", "temperature", 0.7),
        ("ibpo/qwen3_next_80b_gspo", "evaluation", "temperature", 0.7),
        ("bipace/textcraft_7b_bipace_q", "update", "iterations", 50),  # Figure 3 and Table L.3
        ("bipace/textcraft_1.5b_bipace_q", "update", "iterations", 150),
        ("ccpo/voting_shared", "evaluation", "tasks", tuple(range(651))),  # all of LogiQA's test
        ("ccpo/qwen2.5_1.5b_ccpo", "evaluation", "tasks", tuple(range(500))),
    ],
)
def test_values_that_the_papers_state(file: str, section: str, key: str, value: object) -> None:
    config = load_config(PAPERS / f"{file}.yaml").config
    assert getattr(getattr(config, section), key) == value


@pytest.mark.parametrize(
    ("size", "layer", "radius", "iterations"), [("7b", -8, 0.1, 150), ("1.5b", -12, 0.05, 200)]
)
def test_the_values_of_bipace(size: str, layer: int, radius: float, iterations: int) -> None:
    config = load_config(PAPERS / f"bipace/alfworld_{size}_bipace_q.yaml").config
    assert config.fingerprints.layer == layer
    assert config.recipe.recipe().radius == radius  # type: ignore[attr-defined]
    assert (config.update.learning_rate, config.update.kl) == (5e-7, 0.01)
    assert config.update.iterations == iterations
    assert len(config.evaluation.tasks) == 128
    assert config.environment.options["win_reward"] == 1.0
    assert size.upper() in config.model.path


def test_an_ablation_differs_in_what_it_ablates() -> None:
    whole = load_config(PAPERS / "gigpo/alfworld_1.5b_gigpo_std.yaml").config
    without = load_config(PAPERS / "gigpo/alfworld_1.5b_without_episode.yaml").config
    assert without.recipe.parameters == {**whole.recipe.parameters, "episode_weight": 0.0}
    assert (without.update, without.rollout) == (whole.update, whole.rollout)


def test_ppo_has_a_critic_and_distinct_tasks() -> None:
    """GiGPO, E.1: 128 environments, and a learning rate of 1e-5 for the critic, which verl has."""
    config = load_config(PAPERS / "gigpo/webshop_7b_ppo.yaml").config
    assert (config.rollout.groups, config.rollout.size) == (128, 1)
    overrides = verl_overrides(config, Path("run.yaml"), Path("model"), cpu=True)
    assert overrides["critic.enable"]
    assert overrides["critic.optim.lr"] == 1e-5
    with pytest.raises(ConfigError, match="TRL has no critic: give the recipe a memory"):
        check_config(config, "trl")


# The pages of claims.

ROOT = PAPERS.parents[1]
PAGES = [folder / "README.md" for folder in sorted(PAPERS.iterdir())]
TEST = re.compile(r"`((?:lab/)?tests/[\w/]+\.py|test_\w+(?:\.py)?)`")
HOMES = [ROOT / "src" / "ascribe", ROOT / "lab" / "src" / "ascribe_lab"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_every_claim_names_tests_and_files_that_exist(page: Path) -> None:
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:1] == "|"][2:]
    assert rows
    tests = {path.name: path for path in ROOT.glob("**/tests/**/test_*.py")}
    source = "".join(path.read_text(encoding="utf-8") for path in tests.values())
    files = {path.stem for path in page.parent.glob("*.yaml")}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 5, row
        assert all(cells), row
        _, implemented, tested, _, _ = cells
        named = TEST.findall(tested)
        assert named or tested == "no test", row
        for name in named:
            if "/" in name:
                assert (ROOT / name).is_file(), name
            else:
                assert name in tests if name.endswith(".py") else f"def {name}(" in source, name
        for pattern in re.findall(r"`([\w.*]+)\.yaml`", implemented):
            assert any(fnmatch(stem, pattern) for stem in files), pattern
        for module in re.findall(r"`([a-z_]+/[\w/]+\.py)`", implemented):
            assert any((home / module).is_file() for home in HOMES), module
        for target in re.findall(r"\]\(([^)#:]+)", row):
            assert (page.parent / target).is_file(), target


@pytest.mark.unit
@pytest.mark.parametrize("name", ["alfworld_1.5b", "alfworld_7b", "webshop_1.5b", "webshop_7b"])
def test_the_files_of_ppo_learn_from_a_failure_at_the_turn_limit(name: str) -> None:
    method = load_config(PAPERS / "gigpo" / f"{name}_ppo.yaml").config.recipe.recipe()
    values = [0.5, 0.25, 0.75]
    credit = method(table([[cut(valued(steps("a", "b", "c"), *values))]]))
    assert reasons(credit.reason) == ["credited"] * 3
    close(credit.advantage, [-0.5, -0.25, -0.75])  # -V, by γ = λ = 1
    close(credit.advantage, verl_gae([0.0] * 3, values, method.gamma, method.lam))  # type: ignore[attr-defined]
