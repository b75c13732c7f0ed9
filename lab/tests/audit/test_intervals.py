"""Intervals of credits hold the exact advantage about as often as they say."""

import numpy as np
import pytest

from ascribe import recipe
from ascribe_lab.audit import WORLDS, rollouts
from ascribe_lab.audit.run import Settings


@pytest.mark.parametrize("world", ["graph", "stop"])
@pytest.mark.parametrize("name", ["grpo", "sbc"])
def test_coverage(world: str, name: str) -> None:
    settings = Settings(seed=1)
    tasks = WORLDS[world].tasks(32, settings.random(world))
    conditions = settings.conditions(world, 8)
    batch = rollouts(tasks, tasks.solve(settings.gamma), settings.random(world, 8), conditions)
    credit = recipe(name)(batch.table)
    held = {}
    for level in (0.5, 0.9):
        low, high = credit.interval(batch.table, level)
        held[level] = ((low <= batch.advantage) & (batch.advantage <= high))[credit.credited]
    assert 0.85 < np.mean(held[0.9]) < 0.95
    assert 0.45 < np.mean(held[0.5]) < 0.8
