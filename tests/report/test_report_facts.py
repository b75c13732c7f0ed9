"""The numbers of a report, against plain counting."""

from collections import defaultdict

import pytest

from ascribe.recipes import GRPO, GiGPO
from ascribe.report.facts import ALL, MOST_FAMILIES, UNKNOWN
from tests.report.toys import Row, credited, facts, sound


def test_success_and_returns_by_family() -> None:
    rows = sound()
    for row in rows:
        if row["family"] == "hard" and row["trajectory"][-1] == "0":
            row["reward"] = 0.0
    found = {each.family: each for each in facts(rows).families}
    assert list(found) == ["easy", "hard", ALL]
    assert (found["easy"].success, found["hard"].success, found[ALL].success) == (0.5, 0.25, 0.375)
    assert (found["easy"].tasks, found["easy"].episodes) == (3, 12)
    assert found["hard"].low < 0.25 < found["hard"].high
    assert (found["hard"].mean_return, found["hard"].turns, found["hard"].valid) == (0.25, 5.0, 1.0)


def test_a_task_counts_once_however_often_it_is_played() -> None:
    rows = sound(groups=1, size=2)
    rows += [row | {"reward": 0.0} for row in sound(groups=2, size=8) if row["group"] == "task 1"]
    assert facts(rows).everything.success == pytest.approx(0.25)


def test_a_column_says_who_won() -> None:
    rows = [row | {"won": row["step"] == 4 and row["trajectory"][-1] == "3"} for row in sound()]
    found = facts(rows)
    assert found.success_by_column
    assert found.everything.success == 0.25


def test_without_families_there_is_one() -> None:
    rows = [{name: value for name, value in row.items() if name != "family"} for row in sound()]
    assert [each.family for each in facts(rows).families] == [UNKNOWN, ALL]


def test_many_families_are_put_together() -> None:
    rows = [row | {"family": row["group"]} for row in sound(groups=40, length=2)]
    names = [each.family for each in facts(rows).families]
    assert len(names) == MOST_FAMILIES + 2
    assert "16 more families" in names


def test_outcomes_of_groups() -> None:
    rows = sound()
    paid = {"task 0": 0.0, "task 2": 1.0}
    for row in rows:
        if row["group"] in paid:
            row["reward"] = paid[row["group"]] * (row["step"] == 4)
    found = {(each.family, each.outcome): each.groups for each in facts(rows).outcomes}
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
    assert {each.length: each.gradient for each in found.lengths} == pytest.approx(
        {name: value / total for name, value in size.items()}
    )
    assert [each.trajectories for each in found.lengths] == [0.5, 0.5]
    assert sum(each.steps for each in found.lengths) == pytest.approx(1.0)


def test_many_lengths_are_put_into_bins() -> None:
    rows: list[Row] = []
    for length in range(1, 41):
        rows += [
            row | {"group": f"g{length}", "trajectory": f"g{length}/{row['trajectory']}"}
            for row in sound(groups=1, size=2, length=length)
        ]
    found = facts(rows).lengths
    assert len(found) == 8
    assert found[0].length.startswith("1–")
    assert found[-1].length.endswith("–40")
    # 40 lengths in 8 bins: 5 each, or one more or less.
    assert all(4 / 40 <= each.trajectories <= 6 / 40 for each in found)
    assert sum(each.trajectories for each in found) == pytest.approx(1.0)


def test_reasons_add_up_in_every_term() -> None:
    found = facts(sound(), GiGPO())
    for term in ("episode", "step"):
        assert sum(each.share for each in found.reasons if each.term == term) == pytest.approx(1)


def test_tables_are_plain_rows_with_the_same_names() -> None:
    for name, rows in facts(sound()).tables().items():
        assert all(list(row) == list(rows[0]) for row in rows), name
        for row in rows:
            assert all(isinstance(value, (str, int, float, type(None))) for value in row.values())


def test_tasks_of_one_turn_are_no_collapse() -> None:
    assert facts(sound(length=1)).collapsed == 0.0
