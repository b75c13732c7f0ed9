"""The table itself: coded text, parts of it, and the one canonical order."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import StepTable, TableError, recipe
from ascribe.steps.check import arrange
from ascribe.steps.table import Coded
from tests.conftest import Row, good_rows

pytestmark = pytest.mark.unit

TEXTS = st.lists(st.none() | st.sampled_from(["", "a", "b", "ab", "Ä", "z"]) | st.text(max_size=3))


@given(TEXTS)
def test_coded_text_is_the_text(texts: list[str | None]):
    coded = Coded.encode(texts)
    assert coded.texts() == texts
    assert len(coded) == len(texts)
    assert list(coded.values) == list(dict.fromkeys(text for text in texts if text is not None))


@given(TEXTS, st.randoms())
def test_ordered_codes_do_not_depend_on_row_order(texts: list[str | None], random: Random):
    ordered = Coded.encode(texts).ordered()
    assert ordered.texts() == texts
    shuffled = random.sample(texts, len(texts))
    again = Coded.encode(shuffled).ordered()
    assert list(again.values) == list(ordered.values)
    assert again.texts() == shuffled


def test_names_that_end_in_numbers_are_ordered_as_numbers():
    names = [f"task/{number}" for number in range(12)]
    ordered = [names[0], "task/01", *names[1:], "task/x", f"task{'9' * 5000}"]
    assert list(Coded.encode(ordered[::-1]).ordered().values) == [ordered[-1], *ordered[:-1]]
    # Algorithm 1 of BiPACE goes through trajectories in this order: the sixth, not the eighth.
    rows = [
        {"group": "g", "trajectory": f"g/{n}", "step": 0, "state": "s", "action": "a"}
        | {"reward": float(n)}
        for n in reversed(range(12))
    ]
    assert arrange(StepTable.from_dicts(rows)).reward.tolist() == list(map(float, range(12)))


@given(TEXTS, st.data())
def test_used_leaves_out_what_no_row_has(texts: list[str | None], data: st.DataObject):
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1))) if texts else []
    part = Coded.encode(texts).take(np.array(rows, dtype=np.int64))
    used = part.used()
    assert used.texts() == part.texts() == [texts[row] for row in rows]
    assert set(used.values) == set(used.texts()) - {None}
    assert used.used() is used


def test_take_by_number_and_by_mask():
    table = StepTable.from_dicts(good_rows())
    rows = [7, 3, 3, 40]
    assert table.take(np.array(rows)).to_dicts() == [good_rows()[row] for row in rows]
    mask = np.zeros(len(table), dtype=bool)
    mask[[3, 7]] = True
    assert table.take(mask).to_dicts() == [good_rows()[3], good_rows()[7]]
    assert len(table.take(np.empty(0, dtype=np.int64))) == 0


def test_repr_counts_what_is_there():
    table = StepTable.from_dicts(good_rows())
    assert repr(table) == "StepTable(50 rows, 4 groups, 13 trajectories, 10 states)"
    part = table.take(np.arange(3))
    assert repr(part) == "StepTable(3 rows, 1 group, 1 trajectory, 3 states)"


def test_arranged_is_by_group_trajectory_and_step():
    rows = good_rows()
    order = list(range(len(rows)))
    Random(1).shuffle(order)
    table = StepTable.from_dicts([rows[number] for number in order])
    arranged = arrange(table)
    placed = [rows[order[row]] for row in arranged.rows]
    assert placed == [row for row in rows if not row["padding"]]
    assert arranged.group_count == 3
    assert arranged.trajectory_count == 12
    assert arranged.reward.tolist() == [row["reward"] for row in placed]
    assert arranged.step.tolist() == [row["step"] for row in placed]
    assert arranged.valid.tolist() == [row["valid"] for row in placed]
    assert [row["step"] for row in placed if row["step"] == 0] == [0] * 12
    assert [placed[start]["step"] for start in arranged.starts] == [0] * 12
    cut = {row["trajectory"] for row in rows if row["truncated"]}
    assert arranged.truncated.tolist() == [row["trajectory"] in cut for row in placed]
    names = [placed[start]["group"] for start in arranged.starts]
    assert [sorted(set(names))[g] for g in arranged.group_of_trajectory] == names


@given(st.randoms())
def test_row_order_has_no_meaning(random: Random):
    rows = good_rows()
    order = random.sample(range(len(rows)), len(rows))
    plain = recipe("gigpo")(StepTable.from_dicts(rows))
    shuffled = recipe("gigpo")(StepTable.from_dicts([rows[number] for number in order]))
    assert shuffled.advantage.tobytes() == plain.advantage[order].tobytes()
    assert shuffled.reason.tobytes() == plain.reason[order].tobytes()


def test_back_puts_values_where_they_came_from():
    table = StepTable.from_dicts(list(reversed(good_rows())))
    arranged = arrange(table)
    back = arranged.to_table_order(arranged.reward, len(table), -1.0)
    due = [-1.0 if row["padding"] else row["reward"] for row in reversed(good_rows())]
    assert back.tolist() == due


def spoilt(**values: object) -> list[Row]:
    rows = good_rows()
    rows[4].update(values)
    return rows


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (spoilt(reward=float("inf")), "non_finite_reward"),
        (spoilt(reward=-2e100), "reward_too_large"),
        (spoilt(step=0), "duplicate_step"),
        (spoilt(step=2**62), "gap_in_steps"),
        (spoilt(step=-1), "negative_step"),
        (spoilt(group=None), "missing_group"),
        (spoilt(trajectory=None), "missing_trajectory"),
        (spoilt(group="tâche 2"), "trajectory_in_two_groups"),
        (spoilt(terminated=True), "steps_after_end"),
        ([row | {"padding": True} for row in good_rows()], "empty_table"),
    ],
)
def test_rows_without_a_right_answer_are_refused(rows: list[Row], kind: str):
    with pytest.raises(TableError, match=f"fatal {kind}"):
        arrange(StepTable.from_dicts(rows))


def test_largest_reward_is_still_credited():
    rows = good_rows()
    rows[4]["reward"] = 1e100
    assert np.isfinite(recipe("gigpo")(StepTable.from_dicts(rows)).advantage).all()
