"""The example household: a simulator that keeps its word, and rollouts that look like rollouts."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ascribe import Severity, StepTable, assign, check, diagnose, recipe
from ascribe.steps.files import read, table_from_arrow
from examples import household


@pytest.fixture(scope="module")
def arrow() -> pa.Table:
    return household.rollouts()


@pytest.fixture(scope="module")
def table(arrow: pa.Table) -> StepTable:
    return table_from_arrow(arrow)


def test_the_same_seed_gives_the_same_rollouts(arrow: pa.Table) -> None:
    assert household.rollouts().equals(arrow)
    assert not household.rollouts(seed=1).equals(arrow)


def test_a_longer_file_begins_with_the_shorter_one(arrow: pa.Table) -> None:
    short = household.rollouts(groups=3)
    assert short.to_pylist() == arrow.slice(0, short.num_rows).to_pylist()


def test_nothing_is_wrong_with_the_rollouts(table: StepTable) -> None:
    worst = check(table, group_size=8).worst
    assert worst is None or worst < Severity.ERROR


def test_enough_trajectories_of_six_families(table: StepTable) -> None:
    assert table.trajectory.values.size >= 240
    assert table.family is not None
    assert set(table.family.values) == set(household.FAMILIES)


@pytest.mark.parametrize("seed", [0, 1])
def test_states_recur_as_in_alfworld(seed: int) -> None:
    table = table_from_arrow(household.rollouts(seed=seed))
    states = diagnose(table, assign(table, recipe("gigpo")).credit).states
    assert states is not None
    assert 0.20 <= states.singleton_share_of_groups <= 0.35


def test_some_tasks_fail_and_some_succeed_in_every_family(table: StepTable) -> None:
    assert table.family is not None
    last = table.terminated | table.truncated
    for number in range(6):
        rows = last & (table.family.codes == number)
        assert 0.1 < table.reward[rows].mean() < 0.95


def test_the_reward_comes_at_the_end(table: StepTable) -> None:
    assert set(table.reward.tolist()) == {0.0, 1.0}
    np.testing.assert_array_equal(table.reward == 1, table.terminated)


def test_an_invalid_action_changes_nothing(arrow: pa.Table) -> None:
    rows = arrow.to_pylist()
    pairs = [
        (now, then)
        for now, then in pairwise(rows)
        if now["trajectory"] == then["trajectory"] and not now["valid"]
    ]
    assert len(pairs) > 100
    assert all(now["world"] == then["world"] for now, then in pairs)


def test_one_state_is_told_in_several_ways(arrow: pa.Table) -> None:
    ways: dict[tuple[str, str], set[str]] = {}
    for row in arrow.to_pylist():
        ways.setdefault((row["group"], row["world"]), set()).add(row["state"])
    assert np.mean([len(texts) > 1 for texts in ways.values()]) > 0.1


def test_a_prompt_says_what_a_policy_needs(arrow: pa.Table) -> None:
    for row in arrow.slice(0, 300).to_pylist():
        prompt = row["prompt"]
        assert row["state"] in prompt
        assert "Your task: " in prompt
        assert prompt.count("You did: ") == min(row["step"], 2)
        action = row["action"].partition("<action>")[2].partition("</action>")[0]
        # Spelled with what ends a choice, so that "mug 1" is not found in "mug 12".
        possible = prompt.partition("You can: ")[2].partition(".\n")[0].split("; ")
        assert (action in possible) == row["valid"]


def test_the_house() -> None:
    house = household.House({"mug 1": "fridge 1"}, ("fridge 1", "sinkbasin 1", "desk 1"))
    task = household.Task("clean", "mug", "desk 1")
    assert str(task) == "put a clean mug on desk 1"
    assert house.do("go to fridge 1")
    assert not house.do("take mug 1 from fridge 1")
    assert house.do("open fridge 1")
    assert house.do("take mug 1 from fridge 1")
    assert house.do("go to desk 1")
    assert house.do("put mug 1 on desk 1")
    assert not house.done(task)
    assert house.do("take mug 1 from desk 1")
    assert house.do("go to sinkbasin 1")
    assert house.do("clean mug 1 with sinkbasin 1")
    assert house.do("go to desk 1")
    assert house.do("put mug 1 on desk 1")
    assert house.done(task)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_it_writes_a_file_that_ascribe_reads(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rollouts{suffix}"
    script = household.__file__
    options = ["--out", str(path), "--groups", "6", "--size", "2"]
    subprocess.run([sys.executable, str(script), *options], check=True, capture_output=True)
    rollouts = read(path)
    assert set(rollouts.carried.column_names) == {"prompt", "world"}
    assert rollouts.table.to_dicts() == table_from_arrow(household.rollouts(6, 2)).to_dicts()
