"""The recommended row of a table."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import StepTable
from ascribe.estimators.situations import LONG, SITUATIONS, place
from tests.strategies import STATES, padding_rows, step_tables

WORDS = ("oak", "elm", "ash", "fir", "yew", "bay", "fig", "box")


def rollouts(size: int, length: int, state: str, iterations: int = 1) -> StepTable:
    """Four tasks in which each second rollout succeeds.

    ``state`` is a format string over the step number, the numbers of the rollout and its row, and
    a text of random words.
    """
    random, rows = Random(0), list[dict[str, Any]]()
    for iteration, task, number, step in product(
        range(iterations), range(4), range(size), range(length)
    ):
        words = " ".join(random.choice(WORDS) for _ in range(12))
        row = {"group": f"task {task}", "trajectory": f"{task}, {number}", "step": step}
        text = state.format(step=step, row=len(rows), number=number, words=words)
        won = (number + task + iteration) % 2 == 0 and step == length - 1
        row |= {"state": text, "action": ("a", "b")[number % 2], "reward": float(won)}
        rows.append(row | {"iteration": iteration})
    return StepTable.from_dicts(rows)


ROOM, CLOCK, WEB = "room {step}", "room {step} at 2026-01-02T03:04:{row:02d}Z", "{words}"
CASES = {
    "states recur": (rollouts(8, 6, ROOM), "recur", "sbc"),
    "a clock": (rollouts(2, 6, CLOCK), "recur under a key", "sbc after ascribe states"),
    "short": (rollouts(4, 6, WEB), "do not recur", "returns and gamma 0.89"),
    "long": (rollouts(4, LONG, WEB), "do not recur", "returns and gamma 0.978"),
    "states recur, long": (rollouts(8, 40, ROOM), "recur", "sbc and gamma 0.983"),
    "one step": (rollouts(8, 1, ROOM), "recur", "grpo"),
    "one rollout": (rollouts(1, 6, WEB), "do not recur", "returns with memory"),
    "one rollout, often": (rollouts(1, 6, ROOM, 5), "recur", "sbc with memory"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_in_its_row(name: str) -> None:
    table, states, advice = CASES[name]
    placed = place(table)
    assert placed.states == states
    assert placed.advice == f"use {advice}"
    (line,) = placed.sentences(None)
    assert line.startswith(f"Advice: use {advice}. States {states} (")
    assert line.endswith(" per episode.")


def test_the_discount_is_said_beside_the_row() -> None:
    placed = place(CASES["long"][0])
    row, discount = placed.sentences(0.95)
    assert (row,) == placed.sentences(None)
    assert discount == placed.discount.compared(0.95)


def test_rows_without_a_state_do_not_recur() -> None:
    table = rollouts(8, 6, ROOM)
    codes = np.full(len(table), -1)
    assert place(replace(table, state=replace(table.state, codes=codes))).alone == 1.0


def test_every_row_is_the_first_that_fits_somewhere_and_one_always_fits() -> None:
    first = [
        next(row for row in SITUATIONS if row.fits(states, rollouts, steps))
        for states in ("recur", "recur under a key", "do not recur")
        for rollouts in (1, 2, 8, 1000)
        for steps in (1, 2, LONG - 1, LONG, 10_000)
    ]
    assert set(first) == set(SITUATIONS)
    docs = Path(__file__).parents[1] / "docs"
    assert all((docs / f"{row.page}.md").exists() for row in SITUATIONS)


@given(st.data(), st.integers(0, 2**32))
def test_neither_order_nor_padding_changes_the_row(data: st.DataObject, seed: int) -> None:
    table, random = data.draw(step_tables(states=STATES, padding=False)), Random(seed)
    rows = [{"padding": False, "truncated": False} | row for row in table.to_dicts()]
    rows += padding_rows(rows, random, random.randint(1, 6))
    random.shuffle(rows)
    assert place(StepTable.from_dicts(rows)) == place(table)
