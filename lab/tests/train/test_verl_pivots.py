"""Pivots with verl: a real run in two rounds, each on the turns that are mixed then."""

import json
from pathlib import Path

import pytest

from ascribe.steps.files import write
from ascribe_lab.pivots import extract, write_turns
from ascribe_lab.rollout import Model, Plan, Setup, arrow, play
from lab.tests.train import verl_toys as toys

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]


def candidates(folder: Path) -> Path:
    """The planner's turns for the two goals that the tiny model knows."""
    setup = Setup("textcraft", toys.OPTIONS, "plain", "serial")
    plan = Plan(12, 1, 8, tasks=toys.TASKS * 6)
    write(arrow(play(setup, Model("expert"), plan)), folder / "traces.parquet")
    write_turns(folder / "turns.jsonl", extract([folder / "traces.parquet"]).candidates)
    return folder / "turns.jsonl"


def test_pivots_are_chosen_anew_and_the_run_goes_on(tmp_path: Path) -> None:
    file = candidates(tmp_path)
    config = toys.write_config(
        tmp_path / "run.yaml",
        toys.write_tiny(tmp_path / "tiny"),
        environment={
            "name": "pivots",
            "options": {"file": str(file), "verifier": "normalised"},
            "style": "plain",
        },
        recipe__name="hgpo",
        rollout__tasks=None,
        rollout__max_turns=1,
        update__iterations=2,
        update__kl=0.01,
    )
    words = ("--every", "1", "-k", "8", "--threshold", "1")
    lines = toys.train(config, *words, command=("pivots", "train"))
    assert [line["iteration"] for line in lines] == [1, 2]
    assert all(line["ascribe/turns"] == 1 for line in lines)
    assert any(line["actor/grad_norm"] > 0 for line in lines)
    toys.assert_credited(config)
    rounds = [tmp_path / "run" / "rounds" / f"round_{number}" for number in range(2)]
    files = [(one / "pivots.jsonl").read_text(encoding="utf-8").splitlines() for one in rounds]
    chosen = [[json.loads(line) for line in file[1:-1]] for file in files]
    for pivots in chosen:
        assert pivots
        assert all(0 < one["profile"]["mean"] < 1 for one in pivots)
    # The second round asked the model that the first one left.
    assert chosen[0] != chosen[1]
