"""The numbers of a report, against plain counting."""

from pathlib import Path

import pytest

from ascribe import recipe
from ascribe.estimators import GRPO, GiGPO
from ascribe.reports import picture
from ascribe.reports.facts import EQUAL, PENALTIES
from tests.conftest import write_jsonl
from tests.report.toys import Row, facts, sound


def test_a_task_counts_once_however_often_it_is_played() -> None:
    rows = sound(groups=1, size=2)
    rows += [row | {"reward": 0.0} for row in sound(groups=2, size=8) if row["group"] == "task 1"]
    assert facts(rows).everything["success"] == pytest.approx(0.25)


def test_a_column_says_who_won() -> None:
    rows = [row | {"won": row["step"] == 4 and row["trajectory"][-1] == "3"} for row in sound()]
    assert facts(rows).everything["success"] == 0.25


def test_outcomes_of_groups() -> None:
    rows = sound()
    paid = {"task 0": 0.0, "task 2": 1.0}
    for row in rows:
        if row["group"] in paid:
            row["reward"] = paid[row["group"]] * (row["step"] == 4)
    found = {each["outcome"]: each["groups"] for each in facts(rows).tables["outcomes"]}
    assert found == {"all fail": 1, "all succeed": 1, "returns differ": 4}


def test_reasons_add_up_in_every_term() -> None:
    found = facts(sound(), GiGPO())
    for term in ("episode", "step"):
        shares = [each["share"] for each in found.tables["reasons"] if each["term"] == term]
        assert sum(shares) == pytest.approx(1)


def test_tables_are_plain_rows_with_the_same_names() -> None:
    for name, rows in facts(sound()).tables.items():
        assert all(list(row) == list(rows[0]) for row in rows), name
        for row in rows:
            assert all(isinstance(value, (str, int, float, type(None))) for value in row.values())


def test_tasks_of_one_turn_are_no_collapse() -> None:
    assert facts(sound(length=1)).collapsed == 0.0


@pytest.mark.parametrize(
    "by", [GiGPO(scope="batch"), GiGPO.preset("trinity"), GiGPO.preset("roll")]
)
def test_a_state_of_many_tasks_is_no_collapse_of_one(by: GiGPO) -> None:
    rows = [row | {"state": f"room {row['step']}"} for row in sound(groups=5, length=4)]
    assert facts(rows, by).collapsed == 0.0
    one = [row | {"state": "a room"} if row["group"] == "task 0" else row for row in rows]
    assert facts(one, by).collapsed == pytest.approx(0.2)


def test_steps_without_signal_by_the_outcome_of_their_task() -> None:
    """Task 0 fails whole, task 1 succeeds whole, and in task 2 one state was passed by alike."""
    rows = sound(groups=3)
    for row in rows:
        if row["group"] != "task 2":
            row["reward"] = float(row["step"] == 4 and row["group"] == "task 1")
        elif row["step"] == 3:
            row["state"] = f"task 2, {'good' if row['trajectory'][-1] in '02' else 'bad'} room"
    found = facts(rows, GiGPO(gamma=1.0))
    assert found.main_term == "step"
    assert {name: steps for name, steps in found.equal_steps.items() if steps} == {
        "all fail": 20,
        "all succeed": 20,
        "returns differ": 4,
    }
    assert facts(rows, GRPO()).main_term == "episode"
    assert facts(rows, GRPO()).equal_steps["returns differ"] == 0


def with_invalid_actions() -> list[Row]:
    """In two tasks of six, all succeed; in the first, some by way of an invalid action."""
    return [
        row
        | {"valid": (row["group"], row["step"], row["trajectory"][-1]) != ("task 0", 1, "3")}
        | ({"reward": float(row["step"] == 4)} if row["group"] in ("task 0", "task 1") else {})
        for row in sound()
    ]


@pytest.mark.parametrize(
    ("by", "equal", "fined"),
    [(GiGPO(), 2, 0), (GiGPO(invalid_penalty=0.1), 1, 1), (GiGPO.preset("verl-agent"), 1, 1)],
)
def test_a_group_of_equal_returns_is_told_once(by: GiGPO, equal: int, fined: int) -> None:
    found = facts(with_invalid_actions(), by)
    told = {each["kind"] for each in found.tables["problems"]}
    assert told.isdisjoint({"equal_returns", "only_penalties_differ"})
    assert found.groups_with(*EQUAL) == equal
    assert found.groups_with(PENALTIES) == fined
    assert [each["equal_groups"] for each in found.tables["iterations"]] == [
        pytest.approx(equal / 6)
    ]


def test_outcomes_are_counted_without_rounding(tmp_path: Path) -> None:
    rows = [
        {"group": "t", "trajectory": f"{n}", "step": step, "state": f"{step}", "action": f"{n % 2}"}
        | {"reward": reward}
        for n in range(8)
        for step, reward in enumerate([[0.1, 0.2, -0.3], [-0.3, 0.1, 0.2]][n % 2])
    ]
    page = picture([write_jsonl(tmp_path / "rows.jsonl", rows)], recipe("grpo"))
    assert page.facts.everything["success"] == 0
    assert page.facts.diagnosis.zero_variance_groups == 1
    assert not page.decisions.decisions
