"""SBC against loops written from its formulas, and what must hold of it for any numbers.

Code: src/ascribe/estimators/sbc.py. Page: docs/estimators/sbc.md.
"""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import Reason, StepTable
from ascribe.estimators.clusters import BY_TEXT
from ascribe.estimators.sbc import LADDER, SBC
from tests.strategies import padding_rows, step_tables

pytestmark = pytest.mark.unit

seeds = st.integers(0, 2**32 - 1)


def shrunk(values: dict, keys: dict, kappa: float) -> dict:
    """S of every row that has a key: the sum over the rows with that key, over their number + κ."""
    out = {}
    for i, key in keys.items():
        members = [j for j in keys if keys[j] == key] if key is not None else []
        total = math.fsum(values[j] for j in members)
        out[i] = total / (len(members) + kappa) if members else 0.0
    return out


def by_loops(table: StepTable, gamma: float) -> dict[int, float]:
    """The advantage of every row that takes part, for exact states, from the formulas."""
    rows = table.to_dicts()
    real = [i for i, row in enumerate(rows) if not row.get("padding")]
    after = {
        i: next(
            (
                j
                for j in real
                if rows[j]["trajectory"] == rows[i]["trajectory"]
                and rows[j]["step"] == rows[i]["step"] + 1
            ),
            None,
        )
        for i in real
    }
    last_first = sorted(real, key=lambda i: -rows[i]["step"])

    def collected(value: dict, trace: dict) -> dict:
        out: dict = {}
        for i in last_first:
            j = after[i]
            out[i] = rows[i]["reward"]
            if j is not None:
                out[i] += gamma * ((1 - trace[j]) * value[j] + trace[j] * out[j])
        return out

    def key(i: int, *columns: str) -> tuple | None:
        if any(rows[i][name] is None for name in columns):
            return None
        return tuple(rows[i][name] for name in ("group", *columns))

    task = {i: rows[i]["group"] for i in real}
    state = {i: key(i, "state") for i in real}
    action = {i: key(i, "state", "action") for i in real}
    size = {i: sum(state[j] == state[i] for j in real) if state[i] else 0 for i in real}
    trace = {i: LADDER.state / (size[i] + LADDER.state) for i in real}

    returns = collected(dict.fromkeys(real, 0.0), dict.fromkeys(real, 1.0))
    boot, value = returns, {}
    for _ in range(LADDER.sweeps):
        value = shrunk(boot, task, 0.0)
        for level in (LADDER.state, LADDER.text):
            more = shrunk({i: boot[i] - value[i] for i in real}, state, level)
            value = {i: value[i] + more[i] for i in real}
        boot = collected(value, trace)
    credit = shrunk({i: boot[i] - value[i] for i in real}, action, LADDER.action)
    more = shrunk({i: boot[i] - value[i] - credit[i] for i in real}, action, LADDER.text)
    credit = {i: credit[i] + more[i] for i in real}
    more = shrunk({i: returns[i] - boot[i] for i in real}, action, LADDER.outcome)
    credit = {i: credit[i] + more[i] for i in real}
    own = {i: (returns[i] - value[i] - credit[i]) / (1 + LADDER.own) for i in real}
    return {i: credit[i] + own[i] for i in real}


@given(table=step_tables(), gamma=st.sampled_from((0.95, 1.0, 0.5, 0.0)))
def test_the_fast_form_equals_the_loops(table: StepTable, gamma: float) -> None:
    credit = SBC(states="exact", gamma=gamma, action_key="whole")(table)
    for i, wanted in by_loops(table, gamma).items():
        if credit.reason[i] == Reason.CREDITED:
            assert credit.advantage[i] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        else:
            assert credit.advantage[i] == 0.0


def vectors_of(table: StepTable, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    by_state = random.standard_normal((table.state.values.size + 1, 8))
    return by_state[table.state.codes] + 0.2 * random.standard_normal((len(table), 8))


@given(table=step_tables(), seed=seeds, truncation=st.sampled_from(("end", "exclude")))
def test_row_order_carries_no_meaning(table: StepTable, seed: int, truncation) -> None:
    vectors, order = vectors_of(table, seed), np.random.default_rng(seed).permutation(len(table))
    estimator = SBC(radius=0.2, truncation=truncation)
    credit = estimator(table, fingerprints=vectors)
    moved = estimator(table.take(order), fingerprints=vectors[order])
    np.testing.assert_array_equal(moved.advantage, credit.advantage[order])
    np.testing.assert_array_equal(moved.reason, credit.reason[order])
    for name, term in credit.terms.items():
        np.testing.assert_array_equal(moved.terms[name].values, term.values[order])
        np.testing.assert_array_equal(moved.terms[name].labels, term.labels[order])


@given(table=step_tables(padding=False), seed=seeds)
def test_padding_counts_for_nothing(table: StepTable, seed: int) -> None:
    random = Random(seed)
    rows = [{"padding": False, "truncated": False} | row for row in table.to_dicts()]
    filled = [*rows, *padding_rows(rows, random, 3)]
    estimator = SBC(states="exact")
    credit = estimator(StepTable.from_dicts(filled))
    np.testing.assert_array_equal(credit.advantage[: len(rows)], estimator(table).advantage)
    np.testing.assert_array_equal(credit.advantage[len(rows) :], 0.0)
    np.testing.assert_array_equal(credit.reason[len(rows) :], Reason.PADDING)


@given(table=step_tables(), seed=seeds)
def test_names_carry_no_meaning(table: StepTable, seed: int) -> None:
    rows, random = table.to_dicts(), Random(seed)
    for column in ("group", "trajectory", "state", "action"):
        old = sorted({row[column] for row in rows if row[column] is not None})
        new = [f"{number:03}" for number in random.sample(range(1000), len(old))]
        renamed = dict(zip(old, new, strict=True)) | {None: None}
        rows = [row | {column: renamed[row[column]]} for row in rows]
    estimator = SBC(states="exact")
    got, wanted = estimator(StepTable.from_dicts(rows)), estimator(table)
    np.testing.assert_allclose(got.advantage, wanted.advantage, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(got.reason, wanted.reason)


@given(table=step_tables(padding=False))
def test_tasks_can_be_credited_apart(table: StepTable) -> None:
    rows, estimator = table.to_dicts(), SBC(states="exact")
    whole = estimator(table)
    for group in {row["group"] for row in rows}:
        mine = np.array([i for i, row in enumerate(rows) if row["group"] == group])
        apart = estimator(table.take(mine))
        np.testing.assert_array_equal(apart.advantage, whole.advantage[mine])


@given(table=step_tables(padding=False), scale=st.sampled_from((2.0, -4.0, 0.5)))
def test_credit_is_linear_in_the_rewards(table: StepTable, scale: float) -> None:
    rows = [row | {"reward": scale * row["reward"]} for row in table.to_dicts()]
    estimator = SBC(states="exact")
    np.testing.assert_allclose(
        estimator(StepTable.from_dicts(rows)).advantage,
        scale * estimator(table).advantage,
        rtol=1e-9,
        atol=1e-9,
    )


@given(table=step_tables())
def test_a_task_that_has_nothing_to_compare_says_so(table: StepTable) -> None:
    credit = SBC(states="exact")(table)
    rows = table.to_dicts()
    for i, row in enumerate(rows):
        if row.get("padding"):
            continue
        peers = {
            other["trajectory"]
            for other in rows
            if other["group"] == row["group"] and not other.get("padding")
        }
        assert (credit.reason[i] == Reason.GROUP_OF_ONE) == (len(peers) == 1)


def test_equal_returns_give_no_credit() -> None:
    table = StepTable.from_dicts(
        {"group": "g", "trajectory": t, "step": 0, "state": "s", "action": a, "reward": 0.0}
        for t, a in (("x", "left"), ("y", "right"))
    )
    credit = SBC(states="exact")(table)
    assert credit.reason.tolist() == [Reason.ZERO_VARIANCE] * 2
    assert credit.advantage.tolist() == [0.0, 0.0]


def test_a_late_penalty_touches_its_own_row_only() -> None:
    rows = [
        {"group": "g", "trajectory": t, "step": s, "state": f"s{s}", "action": "go"}
        | {"reward": float(t == "x" and s == 1), "valid": not (t == "y" and s == 0)}
        for t in "xy"
        for s in range(2)
    ]
    table = StepTable.from_dicts(rows)
    plain = SBC(states="exact")(table).advantage
    late = SBC(states="exact", invalid_penalty=0.4, penalty_timing="after")(table).advantage
    np.testing.assert_allclose(late - plain, [0.1, 0.1, -0.3, 0.1])


def test_what_is_missing_is_said() -> None:
    table = StepTable.from_dicts(
        [{"group": "g", "trajectory": "t", "step": 0, "state": "s", "action": "a", "reward": 0.0}]
    )
    assert SBC()(table).notes == (BY_TEXT,)
    with pytest.raises(ValueError, match="states"):
        SBC(states="nearly")  # type: ignore[arg-type]
