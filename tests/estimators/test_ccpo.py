"""``ccpo``: the functions of teams, called from a table of steps.

Code: src/ascribe/estimators/ccpo.py. Page: docs/estimators/ccpo.md.
"""

from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import Reason, StepTable, recipe
from ascribe.estimators.ccpo import STREAMS, Statistics, allocated, think_solve
from ascribe.steps.files import read_table, write_table

Rows = list[dict[str, Any]]


def team(
    group: str, name: str, reward: float, without: dict[str, float], solo: bool = False
) -> Rows:
    """A trajectory in which each agent decides once; with ``solo`` there is a step to measure."""
    agents: list[tuple[str, float | None]] = list(without.items())
    agents += [(agents[-1][0], None)] if solo else []
    return [
        {
            "group": group,
            "trajectory": f"{group}/{name}",
            "step": number,
            "state": "question",
            "action": "answer",
            "reward": reward if number == len(agents) - 1 else 0.0,
            "agent": agent,
            "without": other,
        }
        for number, (agent, other) in enumerate(agents)
    ]


rewards = st.sampled_from([0.0, 0.5, 1.0])
agents = ("ann", "ben", "cat")
trajectories = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), rewards, st.tuples(rewards, rewards, rewards)),
    min_size=1,
    max_size=10,
)


def table_of(drawn: list[Any], solo: bool = False) -> Rows:
    return [
        row
        for number, (group, reward, without) in enumerate(drawn)
        for row in team(group, str(number), reward, dict(zip(agents, without, strict=True)), solo)
    ]


def obvious(rows: Rows, epsilon: float) -> dict[tuple[str, str], float]:
    """Contributions of each agent, standardised inside the group; before statistics are used."""
    returns: dict[str, float] = {}
    for row in rows:
        returns[row["trajectory"]] = returns.get(row["trajectory"], 0.0) + row["reward"]
    found = {}
    for row in rows:
        if row["without"] is None:
            continue
        mine = returns[row["trajectory"]] - row["without"]
        all_of_it = [
            returns[other["trajectory"]] - other["without"]
            for other in rows
            if other["group"] == row["group"]
            and other["agent"] == row["agent"]
            and other["without"] is not None
        ]
        value = 0.0
        if len(set(all_of_it)) > 1:
            value = (mine - fmean(all_of_it)) / (stdev(all_of_it) + epsilon)
        found[row["trajectory"], row["agent"]] = value
    return found


@given(drawn=trajectories, order=st.randoms(use_true_random=False))
def test_against_the_obvious_computation_in_any_order(drawn: list[Any], order: Any) -> None:
    rows = table_of(drawn, solo=True)
    order.shuffle(rows)
    credit = recipe("ccpo")(StepTable.from_dicts(rows))
    want = obvious(rows, 1e-6)
    for row, value, reason in zip(rows, credit.advantage, credit.reason, strict=True):
        if row["without"] is None:
            assert (value, reason) == (0.0, Reason.COUNTERFACTUAL)
        else:
            assert value == pytest.approx(want[row["trajectory"], row["agent"]], abs=1e-9)


@given(drawn=trajectories)
def test_statistics_are_those_of_the_functions(drawn: list[Any]) -> None:
    table = StepTable.from_dicts(table_of(drawn))
    credit = recipe("ccpo", minimum=1)(table)
    contribution = np.array([[reward - other for other in without] for _, reward, without in drawn])
    after = Statistics.start(agents).updated(contribution, 0.99)
    assert credit.history is not None
    assert credit.history["streams"] == list(agents)
    assert credit.history["mean"] == pytest.approx(after.mean)
    assert credit.history["variance"] == pytest.approx(after.variance)
    again = recipe("ccpo", minimum=1)(table, history=credit.history)
    assert again.history is not None
    assert again.history["samples"] == 2 * len(drawn)


def test_think_solve_and_allocated_are_the_functions() -> None:
    pairs = [("a", 1.0, 0.0), ("a", 0.0, 1.0), ("a", 1.0, 1.0), ("b", 0.0, 0.0), ("b", 1.0, 0.0)]
    rows = [
        row
        for number, (group, joint, solo) in enumerate(pairs)
        for row in team(group, str(number), joint, {"thinker": solo, "solver": 0.0}, solo=True)
    ]
    table = StepTable.from_dicts(rows)
    credit = recipe("ccpo", form="think_solve", minimum=1)(table)
    joint, solo = (np.array([pair[number] for pair in pairs]) for number in (1, 2))
    prompt = np.array([0, 0, 0, 1, 1])
    shaping = recipe("ccpo", minimum=1)
    want, _ = think_solve(joint, solo, prompt, 2, history=Statistics.start(STREAMS), recipe=shaping)
    got = credit.advantage.reshape(-1, 3)
    np.testing.assert_allclose(got[:, :2], want.advantage, atol=1e-12)
    assert not got[:, 2].any()
    assert credit.metrics["trust"] == pytest.approx(want.metrics["trust"])
    assert credit.metrics["contribution/thinker"] == pytest.approx((joint - solo).mean())
    assert credit.metrics["contribution/solver"] == pytest.approx(joint.mean())

    shared = recipe("ccpo", form="allocated")(table)
    by_hand = allocated(joint, np.stack([joint - solo, joint], axis=1), prompt, 2)
    np.testing.assert_allclose(shared.advantage.reshape(-1, 3)[:, :2], by_hand.advantage)
    assert shared.history is None


def test_an_agent_that_decides_twice_is_credited_alike() -> None:
    rows = team("a", "0", 1.0, {"ann": 0.0, "ben": 1.0}) + team(
        "a", "1", 0.0, {"ann": 0.0, "ben": 0.0}
    )
    rows.append({**rows[0], "step": 2, "reward": 0.0})
    credit = recipe("ccpo")(StepTable.from_dicts(rows))
    assert credit.advantage[4] == credit.advantage[0] != 0.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"without": None, "agent": "ann"}, "lack an agent"),
        ({"agent": None}, "but no agent"),
    ],
)
def test_what_leaves_no_answer(change: dict[str, Any], said: str) -> None:
    rows = team("a", "0", 1.0, {"ann": 0.0, "ben": 1.0}) + team(
        "a", "1", 0.0, {"ann": 0.0, "ben": 0.0}
    )
    rows[0] |= change
    with pytest.raises(ValueError, match=said):
        recipe("ccpo")(StepTable.from_dicts(rows))


def test_columns_histories_and_penalties_that_do_not_fit() -> None:
    rows = team("a", "0", 1.0, {"ann": 0.0, "ben": 1.0})
    with pytest.raises(ValueError, match="needs the column without"):
        recipe("ccpo")(
            StepTable.from_dicts([{k: v for k, v in row.items() if k != "without"} for row in rows])
        )
    other = Statistics.start(["dan"]).to_dict()
    with pytest.raises(ValueError, match="the history is of"):
        recipe("ccpo")(StepTable.from_dicts(rows), history=other)
    with pytest.raises(ValueError, match="two agents"):
        recipe("ccpo", form="think_solve")(
            StepTable.from_dicts(team("a", "0", 1.0, {"a": 0.0, "b": 0.0, "c": 0.0}))
        )
    with pytest.raises(ValueError, match="two values in without"):
        recipe("ccpo")(StepTable.from_dicts([*rows, {**rows[0], "step": 2, "without": 0.5}]))
    with pytest.raises(ValueError, match="invalid_penalty"):
        recipe("ccpo", invalid_penalty=0.1)


def test_the_columns_survive_a_file(tmp_path: Any) -> None:
    rows = table_of([("a", 1.0, (0.0, 0.5, 1.0))], solo=True)
    table = StepTable.from_dicts(rows)
    for name in ("t.parquet", "t.jsonl"):
        write_table(table, tmp_path / name)
        again = read_table(tmp_path / name)
        assert again.without is not None
        np.testing.assert_array_equal(again.without, [0.0, 0.5, 1.0, np.nan])
