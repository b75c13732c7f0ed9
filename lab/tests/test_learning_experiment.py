"""The learning experiment: its statistics by brute force, its runs paired and resumable."""

import copy
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.engine

torch = pytest.importorskip("torch", reason="needs the extra actor")
pytest.importorskip("transformers", reason="needs the extra actor")

from experiments import learning_loop as loop  # noqa: E402
from experiments.learning_first import learning_experiment as experiment  # noqa: E402
from experiments.learning_first import learning_page as page  # noqa: E402

ROOT = Path(__file__).parents[2]
COMMITTED = page.RESULTS / "learning_experiment.jsonl"


# The page.


def test_the_page_is_what_the_results_say() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text


def test_the_page_says_what_the_curves_give() -> None:
    """From the curves alone: means over seeds, with intervals by Student's t (10 degrees)."""
    curves: dict[tuple[str, str], dict[int, list[float]]] = {}
    for line in page.read_lines(COMMITTED.with_suffix("") / "curve.jsonl"):
        if line["seed"] < 200:
            held_out = line["held_out"]
            area = (sum(held_out) - (held_out[0] + held_out[-1]) / 2) / (len(held_out) - 1)
            key = f"{line['environment']}/{line['start']}", line["arm"]
            curves.setdefault(key, {})[line["seed"]] = area

    def shown(first: str, second: str, *places: str) -> str:
        seeds = sorted(curves["sokoban/weak", "gigpo"])
        apart = np.array(
            [
                np.mean([curves[p, first][seed] - curves[p, second][seed] for p in places])
                for seed in seeds
            ]
        )
        assert len(seeds) == 11
        half = 2.2281 * apart.std(ddof=1) / 11**0.5
        ends = (apart.mean(), apart.mean() - half, apart.mean() + half)
        return "{} ({} to {})".format(*(f"{end:+.3f}" for end in ends))

    everywhere = [f"{e}/{start}" for e in ("textcraft", "sokoban") for start in ("weak", "strong")]
    weak, sokoban = everywhere[::2], everywhere[2:]
    text = page.PAGE.read_text(encoding="utf-8")
    primary = shown("sbc", "gigpo", *sokoban).replace("+", "")
    assert f"In Sokoban, `sbc` learned faster than `gigpo`: by {primary} in mean" in text
    assert f"Over both environments it is {shown('sbc', 'gigpo', *everywhere)}, p" in text
    pointless = shown("sbc, random groups", "grpo", *weak)
    assert f"(random groups), `sbc` minus `grpo` is {pointless}." in text
    assert f"`returns` minus `gigpo`: {shown('returns', 'gigpo', *everywhere)}" in text
    assert f"`sbc` minus `returns`: {shown('sbc', 'returns', *everywhere)}" in text
    added = "returns, discount 0.9"
    for place in weak:
        assert f"changes `returns` by {shown(added, 'returns', place)}" in text
        assert f"`sbc` minus that is {shown('sbc', added, place)}" in text


@pytest.mark.slow
@pytest.mark.skipif(not COMMITTED.exists(), reason="the runs are under way")
def test_the_results_are_what_the_curves_say(tmp_path: Path) -> None:
    out = tmp_path / COMMITTED.name
    command = [sys.executable, "-m", experiment.__name__, "--minutes", "0"]
    command += ["--curves", str(COMMITTED.with_suffix("") / "curve.jsonl"), "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    kept, found = (page.read_lines(path)[1:] for path in (COMMITTED, out))
    values = [[line.pop("value") for line in lines] for lines in (kept, found)]
    assert found == kept
    assert values[1] == pytest.approx(values[0], rel=1e-9)


# Runs.


@pytest.fixture(scope="module")
def policy() -> object:
    torch.set_num_threads(1)
    return loop.clone("textcraft", loop.Start(0.5, 3), 1)


def test_log_probabilities_of_the_sampler_are_those_of_transformers(policy: object) -> None:
    steps, _ = loop.play_policy(policy, loop.TextCraft, (0, 5), 1, "plain")
    for step in steps[::5]:
        with torch.no_grad():
            out = policy(torch.tensor([step.prompt + step.tokens]), output_hidden_states=True)
        logps = out.logits[0, :-1].log_softmax(-1)[-len(step.tokens) :]
        said = logps.gather(1, torch.tensor(step.tokens)[:, None])[:, 0]
        np.testing.assert_allclose(step.logps, said, atol=1e-5)
        hidden = out.hidden_states[loop.LAYER][0, len(step.prompt) - 1]
        np.testing.assert_allclose(step.fingerprint, hidden, atol=1e-5)


@pytest.mark.parametrize("name", loop.WORLDS)
def test_demonstrations_win_and_are_in_the_vocabulary(name: str) -> None:
    import random

    world, rng = loop.WORLDS[name], random.Random(0)

    def choose(rows: list[loop.Step], worlds: list[object], _: object) -> None:
        for row, one in zip(rows, worlds, strict=True):
            row.action = one.demonstrate(rng, 0.0)
            row.tokens = world.tokens.encode(row.action)
            assert world.tokens.decode(row.tokens) == row.action
            assert len(row.tokens) <= world.longest
            assert 1 not in row.prompt + row.tokens

    assert loop.play(world, world.tasks, 1, "expert", choose)[1] == 1.0


def test_two_runs_are_the_same_and_sizes_are_equal(policy: object) -> None:
    run = loop.Run("sokoban", loop.recipe("gigpo"), 1e-3, 5, 1, 1, 32)
    start = loop.new_policy(loop.SokobanRoom, 0)
    first, second = (list(run.train(copy.deepcopy(start))) for _ in range(2))
    assert first == second
    other = list(replace(run, recipe=loop.recipe("grpo")).train(copy.deepcopy(start)))
    assert [line.get("success") for line in other] == [line.get("success") for line in first]


def test_a_seed_that_is_finished_in_part_is_left_out() -> None:
    design = experiment.QUICK
    rates = {(cell[0], name): 1e-3 for cell in design.cells for name in design.recipes}
    units = experiment.tuning(design) + experiment.comparison(design, rates)
    lines = [
        {"environment": unit.cell[0], "start": unit.cell[1], "arm": arm, "rate": rate}
        | {"seed": unit.seed, "held_out": [0.0, 1.0 - rate]}
        for unit in units
        for arm, rate in unit.runs
    ]
    assert len(experiment.of_complete_seeds(design, lines)) == len(lines)
    last = experiment.of_complete_seeds(design, lines[:-1])
    assert {line["seed"] for line in last} == {*design.tuning_seeds, design.seeds[0]}
    few = experiment.of_complete_seeds(design, lines[:1])
    assert few == lines[:1]


def test_finished_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design = replace(experiment.QUICK, cloning=0, held_out=8, cells=(("sokoban", "weak"),))
    units = experiment.tuning(design)
    run = partial(experiment.run_unit, design, tmp_path)
    experiment.run_units(partial(run, float("inf")), units, 1)
    files = sorted(tmp_path.glob("*.json"))
    assert len(files) == 4
    before = [json.loads(file.read_text()) for file in files]
    monkeypatch.setattr(loop, "clone", None)
    experiment.run_units(partial(run, float("inf")), units, 1)
    files[0].unlink()
    experiment.run_units(partial(run, 0.0), units, 1)
    assert experiment.finished(tmp_path) == before[1:]
