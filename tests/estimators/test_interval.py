"""Intervals of the true advantage: against conditioning by matrices, and what must hold of them.

Code: src/ascribe/estimators/interval.py. Page: docs/decisions.md.
"""

import math
from collections import defaultdict
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import Credit, StepTable, recipe
from ascribe.estimators import interval
from tests.strategies import TEXTS, padding_rows, step_tables

seeds = st.integers(0, 2**32 - 1)


def played(seed: int, sessions: int = 8, tasks: int = 3, steps: int = 5) -> StepTable:
    """Sessions that walk among three rooms; in each, one of four actions pays more often."""
    random = Random(seed)
    rows = []
    for task in range(tasks):
        good = [random.randrange(4) for _ in range(3)]
        for session in range(sessions):
            for step in range(steps):
                room, action = random.randrange(3), random.randrange(4)
                paid = float(random.random() < (0.7 if action == good[room] else 0.2))
                place = {"group": f"t{task}", "trajectory": f"t{task}-{session}", "step": step}
                rows.append(place | {"state": f"r{room}", "action": f"a{action}", "reward": paid})
    return StepTable.from_dicts(rows)


def slow_interval(table: StepTable, level: float, gamma: float) -> tuple[list[float], list[float]]:
    """The docstring of ``posterior_interval``, in loops and matrices."""
    rows = table.to_dicts()
    by_session = defaultdict(list)
    for place, row in enumerate(rows):
        by_session[row["group"], row["trajectory"]].append((row["step"], place))
    returned = {}
    for steps in by_session.values():
        later = 0.0
        for _, place in sorted(steps, reverse=True):
            later = returned[place] = rows[place]["reward"] + gamma * later
    key = [(row["group"], row["state"], row["action"], row["trajectory"]) for row in rows]
    visits = defaultdict(list)
    for place, each in enumerate(key):
        visits[each].append(returned[place])
    y = {each: sum(values) / len(values) for each, values in visits.items()}
    for task in {each[0] for each in y}:
        members = [each for each in y if each[0] == task]
        mean = sum(y[each] for each in members) / len(members)
        y |= {each: y[each] - mean for each in members}

    def others(own):
        return [each for each in y if each[:2] == own[:2] and each[3] != own[3]]

    squares = defaultdict(list)
    for own, value in y.items():
        if peers := [y[each] for each in others(own)]:
            n = len(peers)
            squares[own[0]].append((value - sum(peers) / n) ** 2 * n / (n + 1))
    every = [square for of_task in squares.values() for square in of_task]
    pooled = sum(every) + sum(value**2 for value in y.values()) / len(y)
    pooled /= len(every) + 1
    extra = interval.OWN_TASK
    v = {
        task: (sum(squares[task]) + extra * pooled) / (len(squares[task]) + extra)
        for task in {each[0] for each in y}
    }

    estimates, sizes, noise = [], [], []
    for own, value in y.items():
        same = [y[each] for each in others(own) if each[2] == own[2]]
        rest = [y[each] for each in others(own) if each[2] != own[2]]
        if same and rest:
            contrast = sum(same) / len(same) - sum(rest) / len(rest)
            estimates.append(value * contrast / v[own[0]])
            sizes.append(value**2 / v[own[0]])
            noise.append(1 / len(same) + 1 / len(rest))
    weights = []
    for rho in interval.GRID:
        weight = -0.5 * (math.log(rho / interval.SHARE) / interval.SPREAD) ** 2
        if count := len(estimates):
            error = 2 * sum(sizes) / count * sum(noise) / count**2
            weight -= 0.5 * (rho - sum(estimates) / count) ** 2 / error
        weights.append(weight)
    weights = [math.exp(weight - max(weights)) for weight in weights]
    rho = sum(w * g for w, g in zip(weights, interval.GRID, strict=True)) / sum(weights)

    z = {0.9: 1.6448536269514722, 0.5: 0.6744897501960817}[level]
    bounds = {}
    for task, state in {each[:2] for each in y}:
        seen = [each for each in y if each[:2] == (task, state)]
        actions = sorted({each[2] for each in seen})
        # Unknowns: μ, u of each action that was taken, u of one that was not.
        unknown = np.diag([v[task]] + [rho * v[task]] * (len(actions) + 1))
        design = np.zeros((len(seen), len(actions) + 2))
        design[:, 0] = 1.0
        for i, each in enumerate(seen):
            design[i, 1 + actions.index(each[2])] = 1.0
        data = design @ unknown @ design.T + (1 - rho) * v[task] * np.eye(len(seen))
        gain = unknown @ design.T @ np.linalg.inv(data)
        mean, covariance = gain @ [y[each] for each in seen], unknown - gain @ design @ unknown
        chance = design[:, 1:].sum(axis=0) / (len(seen) + 2)
        chance[-1] = 2 / (len(seen) + 2)
        for i, action in enumerate(actions):
            contrast = np.concatenate([[0.0], np.eye(len(chance))[i] - chance])
            centre, half = contrast @ mean, z * math.sqrt(contrast @ covariance @ contrast)
            bounds[task, state, action] = centre - half, centre + half
    low, high = zip(*(bounds[each[:3]] for each in key), strict=True)
    return list(low), list(high)


@pytest.mark.parametrize("sessions", [2, 4, 9])
@pytest.mark.parametrize(("level", "gamma"), [(0.9, 0.95), (0.5, 1.0)])
def test_against_matrices(sessions: int, level: float, gamma: float) -> None:
    table = played(1, sessions)
    credit = recipe("returns")(table)
    assert credit.credited.all()
    bounds = credit.interval(table, level, gamma=gamma)
    np.testing.assert_allclose(bounds, slow_interval(table, level, gamma), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "hgpo", "sbc"])
@given(table=step_tables(states=TEXTS), seed=seeds)
def test_row_order_padding_and_rows_without_credit(name: str, table: StepTable, seed: int) -> None:
    random = Random(seed)
    credit = recipe(name)(table)
    low, high = credit.interval(table)
    np.testing.assert_array_equal(np.isnan(low), ~credit.credited)
    np.testing.assert_array_equal(np.isnan(high), ~credit.credited)
    assert (low[credit.credited] <= high[credit.credited]).all()
    rows = [{"padding": False, "truncated": False} | row for row in table.to_dicts()]
    order = random.sample(range(len(rows)), len(rows))
    fillers = padding_rows(rows, random, 3)
    longer = StepTable.from_dicts([*fillers, *(rows[i] for i in order)])
    bounds = recipe(name)(longer).interval(longer)
    np.testing.assert_array_equal(bounds[0][len(fillers) :], low[order])
    np.testing.assert_array_equal(bounds[1][len(fillers) :], high[order])
    assert np.isnan(bounds[0][: len(fillers)]).all()


@given(seed=seeds)
def test_width(seed: int) -> None:
    table = played(seed)
    credit = recipe("sbc")(table)
    inner, outer = credit.interval(table, 0.5), credit.interval(table, 0.95)
    known = credit.credited
    assert (outer[0] < inner[0])[known].all()
    assert (inner[1] < outer[1])[known].all()


def test_more_sessions_narrow_it() -> None:
    widths = []
    for sessions in (4, 16, 64):
        table = played(0, sessions)
        low, high = recipe("returns")(table).interval(table)
        widths.append((high - low).mean())
    assert widths[0] > 1.3 * widths[1] > 1.5 * widths[2]


def test_a_better_action_lies_higher() -> None:
    table = played(1, sessions=200, tasks=1, steps=1)
    low, high = recipe("returns")(table).interval(table)
    rows = table.to_dicts()
    good = {row["state"]: set() for row in rows}
    for row, bound in zip(rows, low, strict=True):
        if bound > 0:
            good[row["state"]].add(row["action"])
    assert all(len(actions) == 1 for actions in good.values())
    assert (high < 0).any()


def test_units_of_the_return() -> None:
    # gigpo divides by standard deviations, dr_grpo does not: the interval is the same.
    table = played(2)
    one, other = (recipe(name)(table).interval(table) for name in ("gigpo", "dr_grpo"))
    np.testing.assert_array_equal(one, other)


def test_without_credit_and_with_another_table() -> None:
    table = played(3)
    one = table.take(np.array([row["trajectory"] == "t0-0" for row in table.to_dicts()]))
    assert np.isnan(recipe("grpo")(one).interval(one)).all()
    credit: Credit = recipe("grpo")(table)
    with pytest.raises(ValueError, match="pass the table that was credited"):
        credit.interval(one)
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        credit.interval(table, 90)
