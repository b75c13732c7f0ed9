"""The files and commands for verl in examples and docs: they load, and verl knows their keys."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ascribe.engines.crediting import fingerprint_layer
from ascribe_lab.train.config import Config
from ascribe_lab.train.load import load_config
from ascribe_lab.train.resolve import resolve
from ascribe_lab.train.trl.arguments import grpo_arguments
from ascribe_lab.train.verl.arguments import ON_CPU, verl_overrides

yaml = pytest.importorskip("yaml", reason="needs the extra verl")

ROOT = Path(__file__).parents[3]
PAGE = "".join(
    (ROOT / f"docs/engines/{name}.md").read_text("utf-8") for name in ("verl", "verl_reference")
)
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples/train").glob("*.yaml"))
    if load_config(path).config.engine.verl
]
COMMANDS = re.findall(r"^python -m ascribe[\w.]*\.main_ppo.*?^```$", PAGE, re.M | re.S)
SHOWN = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SMALLEST = {"model.path": "m", "environment.name": "sokoban", "output.folder": "out"}


def overrides(config: Config) -> dict[str, Any]:
    cpu = config.engine.verl.get("trainer.device") == "cpu"
    return verl_overrides(config, Path("run.yaml"), Path("model"), cpu=cpu)


@cache
def verls_keys() -> Any:
    spec = find_spec("verl")
    if spec is None or spec.origin is None:
        pytest.skip("needs verl: scripts/make_env.sh FOLDER verl-cpu")
    file = Path(spec.origin).parent / "trainer/config/_generated_ppo_trainer.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def assert_verl_knows(names: list[str]) -> None:
    """A plain key is in verl's configuration, and a key with ``+`` is not."""
    known = verls_keys()
    wrong = [name for name in names if _is_in(known, name.lstrip("+")) == name.startswith("+")]
    assert not wrong


def _is_in(node: Any, dotted: str) -> bool:
    for part in dotted.split("."):
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def test_the_runs_of_this_machine_are_there() -> None:
    small = {"textcraft_tiny_verl", "textcraft_smollm2", "arithmetic_ibpo", "pivots_textcraft"}
    assert {path.stem for path in EXAMPLES} == small


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_run_for_verl(path: Path) -> None:
    config = load_config(path).config
    found = overrides(config)
    ranks = found["trainer.n_gpus_per_node"]
    assert config.episodes % ranks == 0
    assert ranks % found["actor_rollout_ref.rollout.tensor_model_parallel_size"] == 0
    chosen = resolve(config)
    wants = fingerprint_layer(chosen.recipe, chosen.layer) is not None
    assert wants == (chosen.recipe.name == "bipace_q")
    assert config.output.folder == f"runs/{path.stem}"
    assert f"examples/train/{path.name}" in path.read_text(encoding="utf-8")


def test_the_run_of_smollm2_is_one_for_trl_too() -> None:
    config = load_config(ROOT / "examples/train/textcraft_smollm2.yaml").config
    arguments = grpo_arguments(config)
    assert arguments["max_steps"] == config.update.iterations * config.updates_per_iteration
    assert arguments["save_steps"] * 8 == arguments["max_steps"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_verl_knows_the_keys_of_an_example(path: Path) -> None:
    assert_verl_knows(list(overrides(load_config(path).config)))


def test_verl_knows_the_keys_of_the_papers_runs() -> None:
    for path in sorted((ROOT / "examples/papers").rglob("[a-z]*.yaml")):
        config = load_config(path).config
        if config.engine.verl:
            assert_verl_knows(list(overrides(config)))


def test_the_page_shows_files() -> None:
    assert len(SHOWN) >= 2


@pytest.mark.parametrize("text", SHOWN, ids=range(len(SHOWN)))
def test_what_the_page_shows_is_for_verl(text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text, encoding="utf-8")
    found = overrides(load_config(file, SMALLEST).config)
    assert_verl_knows(list(found))


def test_verl_knows_the_keys_of_the_commands_on_the_page() -> None:
    few, on_cpu = COMMANDS
    names = re.findall(r"(?:^|[\s'])(\+?[a-z][\w.]+)=", few)
    assert names == ["algorithm.adv_estimator", "+ascribe.recipe"]
    assert "ON_CPU" in on_cpu
    assert_verl_knows([*names, *ON_CPU])


def test_verl_knows_the_keys_of_the_rooms() -> None:
    for name in ("run.sh", "cpu.sh"):
        command = (ROOT / "examples/verl_rooms" / name).read_text().partition("exec")[2]
        assert_verl_knows(re.findall(r"(?:^|[\s'])(\+?[a-z][\w.]+)=", command))
