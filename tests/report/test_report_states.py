"""The funnel counts what a loop over all pairs counts; samples are whole groups, evenly spaced."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import StepTable
from ascribe.estimators import BiGPO
from ascribe.estimators.situations import partners, state_views, whole_groups
from ascribe.steps.check import arrange
from tests.report.toys import Row, credited, sound


@given(st.lists(st.tuples(*[st.integers(-1, 3)] + 3 * [st.integers(0, 3)]), max_size=30))
def test_partners_are_those_that_differ_in_everything(rows: list[tuple[int, ...]]) -> None:
    labels, *differ = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    for used in range(4):
        expected = [
            sum(
                a[0] >= 0 and a[0] == b[0] and all(a[k] != b[k] for k in range(1, used + 1))
                for b in rows
            )
            for a in rows
        ]
        assert partners(labels, 4, differ[:used]).tolist() == expected


def stages(rows: list[Row]) -> dict[str, list[tuple[int, int | None]]]:
    found = credited(rows)
    views = state_views(found.table, found.recipe, found.credit.terms["step"].labels)
    return {
        view.name: [(stage["steps"], stage["pairs"]) for stage in view.stages] for view in views
    }


def test_the_funnel_of_sound_rows() -> None:
    # 6 tasks, 5 rooms, 4 trajectories: 30 states of 4 steps. In two of three rooms two of four
    # trajectories do otherwise, in the third one of four; half of the trajectories succeed.
    exact = stages(sound())["exact"]
    assert exact[:3] == [(120, None), (120, None), (120, 30 * 6)]
    rows = sound()
    pairs = [
        (a, b)
        for number, a in enumerate(rows)
        for b in rows[:number]
        if a["state"] == b["state"] and a["action"] != b["action"]
    ]
    assert exact[3][1] == len(pairs)
    won = {a["trajectory"]: int(a["trajectory"][-1]) % 2 for a in rows}
    differ = [1 for a, b in pairs if won[a["trajectory"]] != won[b["trajectory"]]]
    assert exact[4][1] == len(differ)


def test_clusters_join_what_differs_by_a_letter() -> None:
    rooms = (
        "A kitchen: pots, pans, a stove.",
        "Outside it rains; a garden gate.",
        "Books, books, and a ladder.",
        "The cellar is dark and smells.",
        "You wake up in an attic.",
    )
    rows = [row | {"state": rooms[row["step"]]} for row in sound()]
    for row in rows:
        if row["trajectory"].endswith("0"):
            row["state"] = f"{row['state']}!"
    found = stages(rows)
    assert found["clustered by n-grams"][2][1] == 30 * 6  # all four trajectories meet
    assert found["exact"][2][1] == 30 * 3  # three of them do


def test_the_clusters_of_a_recipe_are_shown_as_they_are() -> None:
    found = credited(sound(), BiGPO(fingerprint="ngram", radius=0.25))
    labels = found.credit.terms["step"].labels
    exact, clustered = state_views(found.table, found.recipe, labels)
    assert clustered.name == "clustered"
    sizes = np.bincount(labels)
    assert clustered.alone == (sizes == 1).sum() / sizes.sum()
    assert exact.steps == clustered.steps == len(found.table)


def test_steps_without_states_form_no_pairs() -> None:
    rows = [row | {"state": None} for row in sound()]
    assert stages(rows)["exact"][1:] == [(0, None), (0, 0), (0, 0), (0, 0)]


# Samples.


@pytest.mark.parametrize("most", [1, 19, 20, 45, 119, 120, 1000])
def test_a_sample_is_whole_groups(most: int) -> None:
    table = StepTable.from_dicts(sound())
    rows = whole_groups(table, most)
    groups, counted = np.unique(table.group.codes[rows], return_counts=True)
    if most < 20:
        assert groups.size == 1
        lengths = np.unique(table.trajectory.codes[rows], return_counts=True)[1]
        assert (lengths == 5).all()
        assert rows.size == max(most // 5, 1) * 5
    else:
        assert (counted == 20).all()
        assert rows.size == min(most // 20, 6) * 20


def test_a_sample_lies_evenly() -> None:
    table = StepTable.from_dicts(sound(groups=64, size=2, length=2))
    rows = whole_groups(table, 32)
    places = np.unique(arrange(table).group[np.isin(arrange(table).rows, rows)])
    assert places.tolist() == list(range(0, 64, 8))


def test_the_row_order_does_not_matter() -> None:
    rows = sound()
    assert stages(rows) == stages(rows[::-1])
