"""SBC against loops written from its formulas, and what must hold of it for any numbers.

Code: src/ascribe/estimators/sbc.py. Page: docs/estimators/sbc.md.
"""

import math
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ascribe import Credit, Reason, StepTable
from ascribe.estimators import sbc as module
from ascribe.estimators.clusters import BY_TEXT
from ascribe.estimators.sbc import FINE, LADDER, SBC
from ascribe.steps.check import arrange
from tests.estimators.reference_bipace import greedy_cosine
from tests.strategies import padding_rows, step_tables

pytestmark = pytest.mark.unit

seeds = st.integers(0, 2**32 - 1)


def shrunk(values: dict, keys: dict, kappa: float, known: dict, less: dict) -> dict:
    """S of every row that has a key: the sum over the rows with that key, over their number + κ.

    What is ``known`` of a key, its weight and mean, counts as further rows, ``less`` what the
    levels before found.
    """
    out = {}
    for i, key in keys.items():
        members = [j for j in keys if keys[j] == key] if key is not None else []
        weight, mean = known.get(key, (0.0, 0.0))
        total = math.fsum(values[j] for j in members) + weight * (mean - less[i])
        out[i] = total / (len(members) + weight + kappa) if members else 0.0
    return out


def means(values: dict, keys: dict) -> dict:
    """Number and mean of the rows of each key."""
    by_key: dict = {}
    for i, key in keys.items():
        if key is not None:
            by_key.setdefault(key, []).append(values[i])
    return {key: (len(of), math.fsum(of) / len(of)) for key, of in by_key.items()}


def joined(*keys: Any) -> tuple | None:
    return None if None in keys else keys


def by_loops(
    table: StepTable,
    gamma: float,
    vectors: np.ndarray | None = None,
    known: dict[str, dict] | None = None,
    measured: dict[str, dict] | None = None,
) -> dict[int, float]:
    """The advantage of every row that takes part, from the formulas.

    With fingerprints, states are clusters of ``RADIUS``; without, they are equal texts. ``known``
    is what a memory holds, by level; ``measured`` takes what this table adds to it.
    """
    known = known or {"own": {}, "task": {}, "state": {}, "action": {}}
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

    def collected(discount: float, value: dict, trace: dict) -> dict:
        out: dict = {}
        for i in last_first:
            j = after[i]
            out[i] = rows[i]["reward"]
            if j is not None:
                out[i] += discount * ((1 - trace[j]) * value[j] + trace[j] * out[j])
        return out

    task = {i: rows[i]["group"] for i in real}
    fine: dict = dict.fromkeys(real)
    if vectors is None:
        state = {i: joined(task[i], rows[i]["state"]) for i in real}
    else:
        state = clusters_of(table, vectors, RADIUS)
        close = clusters_of(table, vectors, FINE * RADIUS)
        fine = {i: (state[i], close[i]) for i in real}

    before = {j: i for i, j in after.items()}
    history = {
        i: joined(state[i], ("after", state[before[i]] if i in before else None)) for i in real
    }

    def with_action(keys: dict) -> dict:
        return {i: joined(keys[i], rows[i]["action"]) for i in real}

    def rest(values: dict, *parts: dict) -> dict:
        return {i: values[i] - sum(part[i] for part in parts) for i in real}

    inside = ((fine, LADDER.fine, {}), (history, LADDER.history, {}))
    nothing, all_of_it = dict.fromkeys(real, 0.0), dict.fromkeys(real, 1.0)

    def mean_of(values: dict, kappa: float) -> dict:
        mean = shrunk(values, task, 0.0, known["task"], nothing)
        for keys, of_level, before in ((state, kappa, known["state"]), *inside):
            more = shrunk(rest(values, mean), keys, of_level, before, mean)
            mean = {i: mean[i] + more[i] for i in real}
        return mean

    size = {i: sum(state[j] == state[i] for j in real) if state[i] else 0 for i in real}
    size = {i: size[i] + known["state"].get(state[i], (0.0,))[0] for i in real}
    trace = {i: LADDER.state / (size[i] + LADDER.state) for i in real}
    boot = collected(gamma, nothing, all_of_it)
    for _ in range(LADDER.sweeps):
        boot = collected(gamma, mean_of(boot, LADDER.state), trace)
    above = rest(boot, mean_of(boot, LADDER.centre))
    credit = nothing
    for keys, of_level, before in ((state, LADDER.action, known["action"]), *inside):
        more = shrunk(rest(above, credit), with_action(keys), of_level, before, credit)
        credit = {i: credit[i] + more[i] for i in real}
    returns = collected(gamma, nothing, all_of_it)
    own = rest(returns, shrunk(returns, task, 0.0, known["own"], nothing))
    if measured is not None:
        measured |= {"own": means(returns, task), "task": means(boot, task)}
        measured |= {"state": means(boot, state), "action": means(above, with_action(state))}
    return {i: credit[i] + own[i] / LADDER.own for i in real}


RADIUS = 0.2


def clusters_of(table: StepTable, vectors: np.ndarray, radius: float) -> dict[int, tuple]:
    """The task and cluster of every row, by Algorithm 1 of BiPACE."""
    steps, found = arrange(table), {}
    for task in range(steps.group_count):
        rows = steps.rows[steps.group == task]
        unit = vectors[rows] / np.linalg.norm(vectors[rows], axis=1, keepdims=True)
        labels = greedy_cosine(unit, radius + 1e-6)
        found |= {int(i): (task, label) for i, label in zip(rows, labels, strict=True)}
    return found


GAMMAS = st.sampled_from((1.0, 0.95, 0.5, 0.0))


def assert_equals_loops(credit: Credit, wanted: dict[int, float]) -> None:
    for i, value in wanted.items():
        if credit.reason[i] == Reason.CREDITED:
            assert credit.advantage[i] == pytest.approx(value, rel=1e-9, abs=1e-9)
        else:
            assert credit.advantage[i] == 0.0


@given(table=step_tables(), gamma=GAMMAS)
def test_the_fast_form_equals_the_loops(table: StepTable, gamma: float) -> None:
    credit = SBC(states="exact", gamma=gamma, action_key="whole")(table)
    assert_equals_loops(credit, by_loops(table, gamma))


@given(table=step_tables(padding=False), gamma=GAMMAS, seed=seeds)
def test_it_equals_the_loops_with_fingerprints(table: StepTable, gamma: float, seed: int) -> None:
    vectors = vectors_of(table, seed)
    sbc = SBC(radius=RADIUS, gamma=gamma, action_key="whole", on_collapse="keep")
    assert_equals_loops(sbc(table, fingerprints=vectors), by_loops(table, gamma, vectors))


@given(table=step_tables(padding=False))
def test_credit_from_peers_sums_to_zero_in_a_state(table: StepTable) -> None:
    """Up to the shrinkage of actions, and finer levels: here without either."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LADDER", replace(LADDER, action=0.0, history=math.inf))
        step = SBC(states="exact", action_key="whole")(table).terms["step"]
    nameless = set(step.labels[table.action.codes < 0].tolist())
    for label in set(step.labels[step.credited].tolist()) - nameless:
        assert step.values[step.labels == label].sum() == pytest.approx(0.0, abs=1e-9)


def own_next_state(reward, value, trace, follows, gamma):
    """A faulty ``bootstrapped``: the first state of the next trajectory follows an end."""
    return honest(reward, value, trace, np.append(np.ones(follows.size - 1, bool), False), gamma)


def not_discounted(reward, value, trace, follows, gamma):
    """A faulty ``bootstrapped``: values are not discounted."""
    return honest(reward, value, trace, follows, 1.0)


def all_values(reward, value, trace, follows, gamma):
    """A faulty ``bootstrapped``: it trusts states with few rows as much as others."""
    return honest(reward, value, np.zeros_like(trace), follows, gamma)


honest = module.bootstrapped
FAULTS = {fault.__name__: fault for fault in (own_next_state, not_discounted, all_values)}


@pytest.mark.parametrize("name", FAULTS)
def test_the_loops_catch_planted_faults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bootstrapped", FAULTS[name])

    @settings(max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(table=step_tables())
    def compare(table: StepTable) -> None:
        assert_equals_loops(
            SBC(states="exact", action_key="whole", gamma=0.5)(table), by_loops(table, 0.5)
        )

    with pytest.raises(AssertionError):
        compare()


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
    assert SBC()(table).notes[0] == BY_TEXT
    with pytest.raises(ValueError, match="states"):
        SBC(states="nearly")  # type: ignore[arg-type]
