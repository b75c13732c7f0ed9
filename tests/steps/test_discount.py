"""The proposed discount: against a slow reference, and where none can be proposed."""

from dataclasses import replace
from itertools import groupby
from random import Random
from statistics import fmean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import StepTable, recipe
from ascribe.steps.discount import FEWEST, USUAL, propose_discount
from tests.strategies import padding_rows, step_tables


def episodes(lengths: list[int], won: list[bool], along: float = 0.0) -> StepTable:
    """Episodes of one task, with a reward of 1 at the end of those that were won."""
    rows = [
        {
            "group": "task",
            "trajectory": f"{number}",
            "step": step,
            "state": f"{number}, {step}",
            "action": "go",
            "reward": float(success and step == length - 1) + along,
        }
        for number, (length, success) in enumerate(zip(lengths, won, strict=True))
        for step in range(length)
    ]
    return StepTable.from_dicts(rows)


def test_the_proposal_is_half_as_long_again_as_the_successes() -> None:
    found = propose_discount(episodes([10, 20, 20, 40, 90, 90], [True] * 4 + [False] * 2))
    assert found.gamma == 0.967  # 1 - 1 / (1.5 * 20), with two digits of the difference to 1
    assert (found.successes, found.length, found.problem) == (4, 30.0, "")


def test_what_a_discount_leaves_is_said() -> None:
    found = propose_discount(episodes([100] * 8, [True, False] * 4))
    assert found.compared(0.95) == (
        "With discount 0.95, a step gets 0.0059 of a reward 100 steps later (the median length). "
        "Proposed from 4 successes: 0.9933, which gives 0.51."
    )
    assert found.compared(1.0).endswith(
        "Proposed for returns, from 4 successes: 0.9933, which gives 0.51."
    )
    assert found.too_small(0.95)
    assert not found.too_small(0.98)
    assert not found.too_small(1.0)


def test_the_usual_discount_is_that_of_the_recipes() -> None:
    assert recipe("sbc").gamma == recipe("returns").gamma == USUAL


def test_a_discount_is_not_too_small_where_a_smaller_one_is_proposed() -> None:
    """Successes are quick, and failures run into the limit."""
    found = propose_discount(episodes([5, 100] * 4, [True, False] * 4))
    assert found.gamma == 0.87
    assert not found.too_small(0.9)


def test_penalties_of_failures_do_not_count() -> None:
    table = episodes([5] * 8, [True, False] * 4)
    failed = table.trajectory.codes % 2 == 1
    assert propose_discount(replace(table, reward=table.reward - failed)).gamma == 0.87


WITHOUT = {
    "one step": (episodes([1] * 8, [True, False] * 4), "all trajectories have one step"),
    "no variation": (episodes([5] * 8, [True] * 8), "all trajectories returned the same"),
    "one trajectory": (episodes([5], [True]), "all trajectories returned the same"),
    "rewards at every step": (
        episodes([5] * 8, [True, False] * 4, along=1.0),
        "successes are not paid at their last step",
    ),
    "few successes": (
        episodes([5] * 8, [True] * (FEWEST - 1) + [False] * (9 - FEWEST)),
        f"fewer than {FEWEST} trajectories returned more than the mean",
    ),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_where_none_can_be_proposed_the_reason_is_given(name: str) -> None:
    table, problem = WITHOUT[name]
    found = propose_discount(table)
    assert (found.gamma, found.problem) == (None, problem)
    assert found.compared(0.9).endswith(f"No discount is proposed: {problem}.")


def reference(rows: list[dict[str, Any]]) -> tuple[float | None, int, float]:
    """The proposal with loops over rows, and without the reasons."""
    named = sorted((r for r in rows if not r.get("padding")), key=lambda r: r["trajectory"])
    by_name = {name: list(mine) for name, mine in groupby(named, key=lambda r: r["trajectory"])}
    returns = {name: sum(r["reward"] for r in mine) for name, mine in by_name.items()}
    better = [name for name in by_name if returns[name] > fmean(returns.values())]
    lengths = {name: len(mine) for name, mine in by_name.items()}
    ends = [max(by_name[name], key=lambda r: r["step"])["reward"] for name in better]
    at_end = sum(map(abs, ends))
    everywhere = sum(abs(r["reward"]) for name in better for r in by_name[name])
    length = median(lengths.values())
    if max(lengths.values()) == 1 or len(better) < FEWEST or at_end <= everywhere / 2:
        return None, len(better), length
    share = min(1 / (1.5 * median(lengths[name] for name in better)), 0.5)
    return round(1 - float(f"{share:.2g}"), 9), len(better), length


@given(st.data(), st.integers(0, 2**32))
def test_the_proposal_is_that_of_the_reference_in_any_order_with_any_padding(
    data: st.DataObject, seed: int
) -> None:
    table, random = data.draw(step_tables(padding=False)), Random(seed)
    rows = [{"padding": False, "truncated": False} | row for row in table.to_dicts()]
    expected = reference(rows)
    rows += padding_rows(rows, random, random.randint(1, 6))
    random.shuffle(rows)
    for each in (table, StepTable.from_dicts(rows)):
        found = propose_discount(each)
        assert (found.gamma, found.successes, found.length) == expected
