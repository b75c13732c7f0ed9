"""Groups of 8, 8, 8 and 3 trajectories are told, although nobody declared a size."""

from typing import Any

import pytest

from ascribe import ProblemKind, StepTable, check, select

SIZES = {ProblemKind.UNEVEN_GROUPS, ProblemKind.PARTIAL_GROUP, ProblemKind.OVERFULL_GROUP}


def table(*sizes: int, **columns: Any) -> StepTable:
    rows = [(g, t) for g, size in enumerate(sizes) for t in range(size)]
    return StepTable.from_columns(
        {
            "group": [f"g{g}" for g, _ in rows],
            "trajectory": [f"g{g}/{t}" for g, t in rows],
            "step": [0] * len(rows),
            "state": [f"s{g}" for g, _ in rows],
            "action": [f"a{t}" for _, t in rows],
            "reward": [float(t % 2) for _, t in rows],
        }
        | columns
    )


def problems(steps: StepTable, group_size: int | None = None) -> dict[str, str]:
    found = check(steps, group_size=group_size).problems
    return {p.kind.label: p.detail for p in found if p.kind in SIZES}


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((8, 8, 8, 3), "'g3'"),
        ((8, 3), "'g1'"),
        ((4, 4, 7), "'g2'"),
        ((2, 3, 4, 4), "'g0', 'g1'"),
    ],
)
def test_the_odd_ones_are_named(sizes: tuple[int, ...], names: str) -> None:
    steps = table(*sizes)
    (detail,) = problems(steps).values()
    usual = max(sizes, key=lambda size: (sizes.count(size), size))
    assert detail == f"group {names} does not have {usual} trajectories, as others do"
    assert select(steps).keep.all()  # a warning: sizes may differ on purpose


def test_equal_groups_and_groups_of_one_are_not_uneven() -> None:
    assert problems(table(8, 8, 8)) == {}
    assert problems(table(1, 1)) == {}
    assert problems(table(8, 8, 1)) == {}  # group_of_one says it


def test_a_declared_size_says_it_as_an_error() -> None:
    assert list(problems(table(8, 8, 3), group_size=8)) == ["partial_group"]


def test_corrections_have_the_size_that_they_need() -> None:
    corrects = [None] * 8 + ["g0/0"] * 3
    assert problems(table(4, 4, 3, corrects=corrects)) == {}


def test_iterations_may_differ() -> None:
    assert problems(table(4, 4, 8, 8, iteration=[0] * 8 + [1] * 16)) == {}
