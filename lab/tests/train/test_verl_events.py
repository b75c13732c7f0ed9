"""Recipe ``events`` in verl: two iterations of TextCraft, credit by hand, memory in the state."""

import os
from pathlib import Path

import numpy as np
import pytest

from ascribe import recipe
from ascribe.steps.files import read
from lab.tests.train import verl_toys as toys

os.environ.setdefault("VERL_PLATFORM", "cpu")
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]


def test_two_iterations_by_hand(tmp_path: Path) -> None:
    chosen = {"name": "events", "parameters": {"memory": 0.5, "shuffles": 2}}
    config = toys.write_config(
        tmp_path / "run.yaml",
        toys.write_tiny(tmp_path / "model"),
        recipe=chosen,
        update__iterations=2,
        rollout__size=8,
    )
    lines = toys.train(config)
    histories = toys.assert_credited(config)
    assert [history["iteration"] for history in histories if history] == [1, 2]
    assert all("ascribe/credit/events_evidence" in line for line in lines)
    told_apart = []
    for path in toys.dumped(config):
        credit = recipe("events", memory=0.5, shuffles=0)(read(path).table)
        told_apart.append(np.abs(credit.terms["events"].values).max())
    assert max(told_apart) > 0.1
