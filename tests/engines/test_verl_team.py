"""A real run of verl with a team that shares its weights, killed and taken up again."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ascribe.engines.history import FILE
from tests.engines import trl_toys
from tests.engines import verl_toys as toys

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.NEEDS_VERL]


def test_statistics_of_a_team_go_on_after_a_kill(tmp_path: Path) -> None:
    team = dict(trl_toys.guessing_team().options)
    config = toys.write_config(
        tmp_path / "run.yaml",
        toys.write_tiny(tmp_path / "model"),
        environment__name="team",
        environment__options={**team, "roles": {"1": "You are in room 1.", "2": "Go to room 2."}},
        recipe__name="ccpo",
        recipe__parameters={"minimum": 10},
        rollout__max_turns=3,
        rollout__tasks=None,
        update__iterations=3,
    )
    running = toys.start(config, SPY_SLOW="5")
    toys.wait_for((tmp_path / "spied" / "begun_00002.json").exists)
    toys.kill(running)
    assert [line["iteration"] for line in toys.metrics(config)] == [1]
    lines = toys.train(config, "--resume")
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert all(math.isfinite(line["actor/pg_loss"]) for line in lines)
    assert any(line["actor/grad_norm"] > 0 for line in lines)
    histories = toys.assert_credited(config)
    assert [history and history["samples"] for history in histories] == [8, 16, 24]
    assert [_saved(path) for path in sorted(tmp_path.rglob(FILE))] == histories  # bit for bit


def _saved(path: Path) -> Any:
    return json.loads(path.read_text())
