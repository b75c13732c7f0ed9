"""What decided a trajectory never contradicts what it earned."""

from pathlib import Path

import numpy as np
import pytest

from ascribe import StepTable, recipe
from ascribe.decisions import find_decisions
from ascribe.reports import picture
from ascribe.reports.browse import decided_by
from ascribe.reports.crediting import credit_batches
from ascribe.reports.reading import read_batches
from ascribe.steps import segments
from tests.conftest import write_jsonl
from tests.decisions.test_claims import door, stops
from tests.decisions.test_decisions import sessions

pytestmark = pytest.mark.unit


def decided(table: StepTable, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What decided each trajectory, what it earned, and the mean of its task."""
    file = write_jsonl(path / "rows.jsonl", table.to_dicts())
    credited = credit_batches(read_batches([file], fingerprints=False), recipe("grpo"))
    steps = credited.steps
    by = decided_by(find_decisions(credited.table), credited)
    returns = segments.total(steps.reward, steps.trajectory, steps.trajectory_count)
    mean = segments.mean(returns, steps.group_of_trajectory, steps.group_count)
    return by, returns, mean[steps.group_of_trajectory]


def test_a_better_side_explains_only_what_is_better(tmp_path: Path) -> None:
    rows = [*door(0, good=0.8), *door(1, good=0.8, task="other"), ("one", [("s", "a")], 1.0)]
    by, returns, mean = decided(sessions(*rows), tmp_path)
    assert (by >= 0).sum() > 30
    assert (returns[(by >= 0) & (by % 2 == 0)] > mean[(by >= 0) & (by % 2 == 0)]).all()
    assert (returns[(by >= 0) & (by % 2 == 1)] < mean[(by >= 0) & (by % 2 == 1)]).all()
    assert (by[returns == mean] == -1).all()
    # The door was right for some that lost by luck; nothing on the page explains these.
    assert (by[returns < mean] == -1).any()


def test_an_ending_decides_nothing(tmp_path: Path) -> None:
    table = stops(0)
    by, _, _ = decided(table, tmp_path)
    found = find_decisions(table).decisions
    named = [found[place // 2] for place in by.tolist() if place >= 0]
    assert not any(each.ending for each in named)


def test_the_page_counts_outcomes_without_rounding(tmp_path: Path) -> None:
    rows = [
        {"group": "t", "trajectory": f"{n}", "step": step, "state": f"{step}", "action": f"{n % 2}"}
        | {"reward": reward}
        for n in range(8)
        for step, reward in enumerate([[0.1, 0.2, -0.3], [-0.3, 0.1, 0.2]][n % 2])
    ]
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    page = picture([file], recipe("grpo"))
    assert page.facts.tables["families"][-1]["success"] == 0
    assert page.facts.diagnosis.zero_variance_groups == 1
    assert not page.decisions.decisions
