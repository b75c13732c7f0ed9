"""The numbers of a report, against plain counting."""

from collections import defaultdict

import pytest

from ascribe.estimators import GRPO, GiGPO
from ascribe.reports.facts import ALL, EQUAL, MOST_FAMILIES, PENALTIES, UNKNOWN
from tests.report.toys import Row, credited, facts, sound


def test_success_and_returns_by_family() -> None:
    rows = sound()
    for row in rows:
        if row["family"] == "hard" and row["trajectory"][-1] == "0":
            row["reward"] = 0.0
    families = {each["family"]: each for each in facts(rows).tables["families"]}
    assert [(name, each["success"]) for name, each in families.items()] == [
        ("easy", 0.5),
        ("hard", 0.25),
        (ALL, 0.375),
    ]
    assert (families["easy"]["tasks"], families["easy"]["episodes"]) == (3, 12)
    hard = families["hard"]
    assert hard["low"] < 0.25 < hard["high"]
    assert (hard["mean_return"], hard["turns"], hard["valid"]) == (0.25, 5.0, 1.0)


def test_a_task_counts_once_however_often_it_is_played() -> None:
    rows = sound(groups=1, size=2)
    rows += [row | {"reward": 0.0} for row in sound(groups=2, size=8) if row["group"] == "task 1"]
    assert facts(rows).everything["success"] == pytest.approx(0.25)


def test_a_column_says_who_won() -> None:
    rows = [row | {"won": row["step"] == 4 and row["trajectory"][-1] == "3"} for row in sound()]
    found = facts(rows)
    assert found.success_by_column
    assert found.everything["success"] == 0.25


def test_without_families_there_is_one() -> None:
    rows = [{name: value for name, value in row.items() if name != "family"} for row in sound()]
    assert [each["family"] for each in facts(rows).tables["families"]] == [UNKNOWN, ALL]


def test_many_families_are_put_together() -> None:
    rows = [row | {"family": row["group"]} for row in sound(groups=40, length=2)]
    names = [each["family"] for each in facts(rows).tables["families"]]
    assert len(names) == MOST_FAMILIES + 2
    assert "16 more families" in names


def test_outcomes_of_groups() -> None:
    rows = sound()
    paid = {"task 0": 0.0, "task 2": 1.0}
    for row in rows:
        if row["group"] in paid:
            row["reward"] = paid[row["group"]] * (row["step"] == 4)
    found = {
        (each["family"], each["outcome"]): each["groups"] for each in facts(rows).tables["outcomes"]
    }
    assert found == {
        ("easy", "all fail"): 1,
        ("easy", "all succeed"): 1,
        ("easy", "returns differ"): 1,
        ("hard", "returns differ"): 3,
    }


def test_the_gradient_by_length_is_the_share_of_credit() -> None:
    rows = [row for row in sound(length=8) if row["trajectory"][-1] in "01" or row["step"] < 3]
    rows = [row | {"terminated": False} for row in rows]
    found, credit = facts(rows, GRPO()), credited(rows, GRPO()).credit
    size: dict[str, float] = defaultdict(float)
    for row, value in zip(rows, credit.advantage, strict=True):
        size["8" if row["trajectory"][-1] in "01" else "3"] += abs(value)
    total = sum(size.values())
    lengths = found.tables["lengths"]
    assert {each["length"]: each["gradient"] for each in lengths} == pytest.approx(
        {name: value / total for name, value in size.items()}
    )
    assert [each["trajectories"] for each in lengths] == [0.5, 0.5]
    assert sum(each["steps"] for each in lengths) == pytest.approx(1.0)


def test_many_lengths_are_put_into_bins() -> None:
    rows: list[Row] = []
    for length in range(1, 41):
        rows += [
            row | {"group": f"g{length}", "trajectory": f"g{length}/{row['trajectory']}"}
            for row in sound(groups=1, size=2, length=length)
        ]
    found = facts(rows).tables["lengths"]
    assert len(found) == 8
    assert found[0]["length"].startswith("1–")
    assert found[-1]["length"].endswith("–40")
    # 40 lengths in 8 bins: 5 each, or one more or less.
    assert all(4 / 40 <= each["trajectories"] <= 6 / 40 for each in found)
    assert sum(each["trajectories"] for each in found) == pytest.approx(1.0)


def with_gradient_in_the_first_task() -> list[Row]:
    """Of four tasks, only the first has a success."""
    rows = sound(groups=4, length=3)
    return [row | {"reward": 0.0} if row["group"] != "task 0" else row for row in rows]


@pytest.mark.parametrize("order", [1, -1])
def test_trajectories_of_one_length_have_no_longest_quarter(order: int) -> None:
    rows = with_gradient_in_the_first_task()
    assert facts(rows[::order]).longest_quarter == pytest.approx(0.25)
    assert facts([row for row in rows if row["trajectory"] == "task 0/0"]).longest_quarter == 0.0


def test_those_that_tie_share_the_last_places_of_the_longest_quarter() -> None:
    rows = [
        row | {"terminated": False}
        for row in sound(groups=4, length=4)
        if row["step"] < 3 or row["trajectory"] in ("task 0/0", "task 3/1")
    ]
    credit = credited(rows, GRPO()).credit
    size: dict[str, float] = defaultdict(float)
    for row, value in zip(rows, credit.advantage, strict=True):
        size[row["trajectory"]] += abs(value)
    longest = size.pop("task 0/0") + size.pop("task 3/1")
    # 16 trajectories: two longer ones, and 14 for the two places that are left.
    wanted = (longest + sum(size.values()) * 2 / 14) / (longest + sum(size.values()))
    assert facts(rows, GRPO()).longest_quarter == pytest.approx(wanted)


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
