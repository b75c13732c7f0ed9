"""Two versions, task by task, and the finding that goes along with what was lost."""

import json

import numpy as np
import pyarrow as pa
import pytest

from ascribe import StepTable
from ascribe.decisions.changed import GATE, compare_files, failing_of, terms_of
from ascribe.steps.files import Rollouts

TASKS = 30


def version(seed: int, bad: float) -> Rollouts:
    """Three attempts at each task; those that call ``drop``, a share of them, mostly lose."""
    rng, rows = np.random.default_rng(seed), []
    for task in range(TASKS):
        for attempt in range(3):
            called = rng.random() < bad
            won = rng.random() < (0.1 if called else 0.9)
            calls = ["look", "drop" if called else "look", f"end{rng.integers(9)}"]
            rows += [
                {"group": f"task {task}", "trajectory": f"{seed} {task} {attempt}", "step": step}
                | {"state": "start" if step == 0 else f"{seed} {task} {attempt} {step}"}
                | {"action": json.dumps({"name": name, "arguments": {"n": step + 10 * attempt}})}
                | {"reward": float(won and step == 2)}
                for step, name in enumerate(calls)
            ]
    nothing = pa.table({})
    return Rollouts(StepTable.from_dicts(rows), nothing, nothing)


def test_the_finding_behind_the_loss_is_told() -> None:
    found = compare_files(version(1, bad=0.1), version(2, bad=0.6))
    assert found.finding is not None
    assert "`drop`" in found.finding.worse.action
    explained = [each for each in found.lost if each.explained]
    assert 5 < len(explained) <= len(found.lost)
    assert all(each.rise < 0 for each in found.lost)
    assert [each.rise for each in found.lost] == sorted(each.rise for each in found.lost)
    assert len(found.lost) + len(found.gained) + found.same == TASKS
    said, failed = found.verdict()
    assert failed
    assert said.startswith(f"failed: {GATE}: over 30 tasks")


def test_what_both_versions_do_alike_explains_nothing() -> None:
    found = compare_files(version(3, bad=0.4), version(4, bad=0.4))
    assert not found.verdict()[1]
    assert found.verdict("drop > 2")[0].startswith("passed: drop > 2 holds neither")
    told = [each for each in (found.finding,) if each is not None]
    assert all("`drop`" in each.worse.action for each in told)


def test_counts_are_those_of_the_tasks() -> None:
    old, new = version(5, bad=0.2), version(6, bad=0.5)
    found = compare_files(old, new)
    won = [dict.fromkeys((f"task {n}" for n in range(TASKS)), 0.0) for _ in range(2)]
    for side, rollouts in zip(won, (old, new), strict=True):
        for row in rollouts.table.to_dicts():
            side[str(row["group"])] += float(str(row["reward"]))
    for each in (*found.lost, *found.gained):
        assert (each.old, each.new) == ((won[0][each.task], 3), (won[1][each.task], 3))
    assert found.same == sum(won[0][task] == won[1][task] for task in won[0])


def test_sessions_of_one_name_in_both_files_stay_apart() -> None:
    old, new = version(7, bad=0.2), version(7, bad=0.2)
    found = compare_files(old, new, names=("a", "b"))
    assert found.found.sessions == 6 * TASKS
    assert (found.lost, found.gained, found.same) == ((), (), TASKS)


def test_a_condition_names_what_there_is() -> None:
    assert terms_of("drop > 0.1 and q < 1e-2", 2) == [("drop", ">", 0.1), ("q", "<", 0.01)]
    with pytest.raises(ValueError, match="no name in --fail-if 'success'"):
        terms_of("success > 0.1", 2)
    with pytest.raises(ValueError, match="cannot read the condition"):
        terms_of("drop", 2)
    assert failing_of([("drop", ">", 0.1)], [{"drop": None}, {"drop": 0.2}]) == [{"drop": 0.2}]
