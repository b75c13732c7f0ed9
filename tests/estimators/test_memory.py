"""Memory: ``returns`` and ``sbc`` with what earlier iterations measured of a task.

Code: src/ascribe/estimators/memory.py. Page: docs/estimators/returns.md.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import Reason, StepTable, recipe
from ascribe.estimators import SBC, Returns, memory
from ascribe.estimators.memory import Memory, hashed
from ascribe.steps.table import Coded
from tests.estimators.golden import close, reasons, steps, table
from tests.estimators.test_sbc import assert_equals_loops, by_loops
from tests.strategies import padding_rows, step_tables

DECAY = 0.75
BOTH = (Returns(memory=DECAY), SBC(states="exact", memory=DECAY))
ONE_WON, ONE_LOST = [[steps("a", "b", reward=1.0)]], [[steps("a", "b")]]


def written(history):
    """A history as a checkpoint holds it."""
    return json.loads(json.dumps(history))


def returns_by_loops(tables: list[StepTable], gamma: float) -> dict[int, float]:
    """The advantages in the last of several iterations: R less the weighted mean of all rows."""
    collected = []
    for each in tables:
        rows = each.to_dicts()
        real = [i for i, row in enumerate(rows) if not row.get("padding")]
        returns = {
            i: math.fsum(
                gamma ** (rows[j]["step"] - rows[i]["step"]) * rows[j]["reward"]
                for j in real
                if rows[j]["trajectory"] == rows[i]["trajectory"]
                and rows[j]["step"] >= rows[i]["step"]
            )
            for i in real
        }
        collected.append((rows, returns))
    last_rows, last = collected[-1]
    out = {}
    for i, value in last.items():
        sums, visits_ago = [0.0, 0.0], 0
        for rows, returns in reversed(collected):
            mine = [r for j, r in returns.items() if rows[j]["group"] == last_rows[i]["group"]]
            sums[0] += DECAY**visits_ago * math.fsum(mine)
            sums[1] += DECAY**visits_ago * len(mine)
            visits_ago += bool(mine)
        out[i] = value - sums[0] / sums[1]
    return out


@pytest.mark.slow
@given(tables=st.lists(step_tables(), min_size=2, max_size=3), gamma=st.sampled_from((1.0, 0.5)))
def test_returns_equal_the_slow_version(tables, gamma):
    history = None
    for each in tables:
        credit = Returns(gamma=gamma, memory=DECAY)(each, history=history)
        history = written(credit.history)
    for i, value in returns_by_loops(tables, gamma).items():
        if credit.reason[i] == Reason.CREDITED:
            assert credit.advantage[i] == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.slow
@given(first=step_tables(), second=step_tables(), gamma=st.sampled_from((1.0, 0.5)))
def test_sbc_equals_the_loops(first, second, gamma):
    sbc, measured = SBC(states="exact", gamma=gamma, action_key="whole", memory=DECAY), {}
    before = sbc(first)
    assert_equals_loops(before, by_loops(first, gamma, measured=measured))
    known = {
        level: {key: (DECAY * rows, mean) for key, (rows, mean) in of_level.items()}
        for level, of_level in measured.items()
    }
    credit = sbc(second, history=written(before.history))
    assert_equals_loops(credit, by_loops(second, gamma, known=known))


@given(first=step_tables(), second=step_tables(padding=False), seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("method", BOTH)
def test_neither_row_order_nor_padding_matters(method, first, second, seed):
    order = np.random.default_rng(seed).permutation(len(first))
    ways = [method(first).history, method(first.take(order)).history]
    assert ways[0] == ways[1]
    rows = [{"padding": False} | row for row in second.to_dicts()]
    filled = StepTable.from_dicts([*rows, *padding_rows(rows, np.random.default_rng(seed), 3)])
    found = [method(each, history=ways[0]) for each in (second, filled)]
    np.testing.assert_array_equal(found[0].advantage, found[1].advantage[: len(rows)])
    assert found[0].history == found[1].history


@given(first=step_tables(padding=False))
@pytest.mark.parametrize("method", BOTH)
def test_the_first_iteration_is_as_without_a_memory(method, first):
    credit, plain = method(first), replace(method, memory=0.0)(first)
    np.testing.assert_array_equal(credit.advantage, plain.advantage)
    np.testing.assert_array_equal(credit.reason, plain.reason)
    assert plain.history is None


@pytest.mark.unit
@pytest.mark.parametrize("method", BOTH)
def test_one_trajectory_is_compared_with_those_before(method):
    first = method(table(ONE_WON))
    assert reasons(first.reason) == ["group_of_one"] * 2
    second = method(table(ONE_LOST), history=first.history)
    assert reasons(second.reason) == ["credited"] * 2
    assert (second.advantage < 0).all()
    again = method(table(ONE_WON), history=second.history)
    assert again.advantage[-1] > 0
    same = method(table(ONE_LOST), history=method(table(ONE_LOST)).history)
    assert reasons(same.reason)[0] == "zero_variance"


@pytest.mark.unit
def test_by_hand():
    """Returns 0.5 and 1, then 0 and 0: the mean is 0.75 * 1.5 / (2 + 0.75 * 2)."""
    method = Returns(gamma=0.5, memory=0.75)
    second = method(table(ONE_LOST), history=method(table(ONE_WON)).history)
    close(second.advantage, [-1.125 / 3.5] * 2)
    explanation = second.terms["returns"].explanation
    close(explanation.own - explanation.baseline, second.advantage.tolist())


@pytest.mark.unit
@pytest.mark.parametrize("method", BOTH)
def test_a_task_has_a_name_that_lasts(method):
    def named(groups, group, task):
        rows = table(groups)
        group, task = (Coded.encode([name] * len(rows)) for name in (group, task))
        return replace(rows, group=group, task=task)

    first = method(named(ONE_WON, "uid 1", "chess"))
    known = method(named(ONE_LOST, "uid 2", "chess"), history=first.history)
    other = method(named(ONE_LOST, "uid 1", "go"), history=first.history)
    assert reasons(known.reason)[0] == "credited"
    assert reasons(other.reason)[0] == "group_of_one"


def won_in(*states):
    return table([[steps(*states, reward=1.0)]])


@pytest.mark.unit
def test_what_does_not_come_again_is_forgotten(monkeypatch):
    """One row of a state counts 0.8, 0.64, 0.51 at the next visits to its task, and then 0.41."""
    method, history, sizes = SBC(states="exact", memory=0.8), None, []
    for state in "abcde":
        history = method(won_in(state), history=history).history
        ((visits, entries),) = history["tasks"].values()
        sizes.append(len(entries))
    # Of the task its two means, of each state kept its value and its action.
    assert sizes == [4, 6, 8, 8, 8]
    assert visits == 5
    monkeypatch.setattr(memory, "MOST", 3)
    method, history = Returns(memory=0.5), None
    for number in range(8):
        lost = table(ONE_LOST)
        lost = replace(lost, group=Coded.encode([f"task {number % 5}"] * len(lost)))
        history = method(lost, history=history).history
    kept = [hashed(f"task {number}") for number in (0, 1, 2)]
    assert list(history["tasks"]) == kept


@pytest.mark.unit
def test_what_comes_again_adds_up():
    """One row in each visit: 1 + 0.6 + 0.36 + ... rows, though 0.36 alone is forgotten."""
    method, history = Returns(memory=0.6), None
    for number in range(8):
        history = method(won_in("a"), history=history).history
        other = table([[steps("a")]])
        other = replace(other, group=Coded.encode([f"other {number}"]))
        history = method(other, history=history).history
    _, entries = history["tasks"][hashed("task 0")]
    assert entries["own"][1] == pytest.approx((1 - 0.6**8) / 0.4)


@pytest.mark.unit
def test_iterations_of_one_table_are_remembered():
    rows = [
        row | {"iteration": i, "trajectory": f"{i}"}
        for i, each in enumerate((ONE_WON, ONE_LOST))
        for row in table(each).to_dicts()
    ]
    credit = Returns(memory=DECAY)(StepTable.from_dicts(rows))
    assert reasons(credit.reason) == ["group_of_one"] * 2 + ["credited"] * 2


@pytest.mark.unit
def test_what_a_memory_cannot_do():
    with pytest.raises(ValueError, match="states='exact'"):
        SBC(memory=0.5)
    with pytest.raises(ValueError, match="baseline at 'task'"):
        Returns(memory=0.5, baseline="turn")
    with pytest.raises(ValueError, match="between 0"):
        recipe("returns", memory=1.0)
    for wrong in ({"radius": 0.1}, {"tasks": {"a": [1, {"own": [0, 1.0]}]}}, {"tasks": 3}):
        with pytest.raises(ValueError, match="no memory of tasks"):
            Memory.of(0.5, wrong)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("visits", "entry"),
    [
        (10**30, [0, 1.0, 1.0]),
        (-5, [0, 1.0, 1.0]),
        (1, [100_000, 1.0, 1.0]),
        (1, [-(10**30), 1.0, 1.0]),
        (1, [0, -1.25, 1.0]),
        (1, [0, math.nan, 1.0]),
        (1, [0, 10**400, 1.0]),
        (1, [0, 1.0, 1e300]),
    ],
)
def test_a_damaged_memory_is_refused(visits, entry):
    with pytest.raises(ValueError, match="damaged"):
        Memory.of(0.5, {"tasks": {"a": [visits, {"own": entry}]}})


@pytest.mark.unit
@pytest.mark.parametrize("method", BOTH)
def test_explanations_say_that_earlier_iterations_count(method):
    credit = method(table(ONE_LOST), history=method(table(ONE_WON)).history)
    for term in credit.terms.values():
        for sentence in term.explanation.sentences:
            assert "earlier iterations" in sentence.text + sentence.beyond
