"""What engines refuse before a rollout, and how malformed lists of episodes drop their groups."""

import logging
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.engines.inputs import as_text, missing_columns, refuse_unknown, turn_lists, uncompared
from ascribe.estimators import RECIPES
from ascribe.steps.select import OnProblem
from ascribe.steps.table import INPUT_COLUMNS, StepTable

EPISODES = [("a", 0), ("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    ("name", "column"),
    [("ccpo", "agent and without"), ("ibpo", "corrects"), ("progress", "score")],
)
def test_columns_that_an_engine_does_not_give_are_named(name: str, column: str) -> None:
    problem = missing_columns(recipe(name), "TRL", ("entropy",))
    assert f"{name} needs the column {column}, which TRL does not give here" in str(problem)


def test_what_is_given_is_not_missing() -> None:
    assert missing_columns(recipe("gigpo"), "TRL", ()) is None
    assert missing_columns(recipe("ibpo", compare="consistency"), "TRL", ()) is None
    assert missing_columns(recipe("ibpo"), "TRL", ("corrects",)) is None
    assert missing_columns(recipe("ccpo"), "TRL", ("agent", "without")) is None


def test_a_wrong_choice_is_refused_with_the_right_ones() -> None:
    refuse_unknown("check", "drop", OnProblem)
    with pytest.raises(ValueError, match=r"check: .*'dorp'; did you mean drop.* raise, drop, keep"):
        refuse_unknown("check", "dorp", OnProblem)


@pytest.mark.parametrize(
    "wrong", [[1.0], [1.0, 2.0, 3.0], [1.0, None], [1.0, math.nan], "12", None, 7, {"0": 1, "1": 2}]
)
def test_a_malformed_list_drops_its_group_alone(
    wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        lists, failed = turn_lists("turn_rewards", [[1, 2], wrong, [0.5]], [2, 2, 1], EPISODES)
    assert lists[::2] == [[1.0, 2.0], [0.5]]
    assert np.isnan(lists[1]).all()
    assert len(lists[1]) == 2
    assert failed == {"a": "bad_turn_rewards"}
    (line,) = caplog.messages
    assert line.startswith("episode a/1: turn_rewards is ")


def test_lists_of_texts_may_be_short_of_some() -> None:
    given = [[(0, 1), (1, 1)], ["\ud800", None], [3]]
    lists, failed = turn_lists("turn_states", given, [2, 2, 1], EPISODES, as_text)
    assert lists == [["(0, 1)", "(1, 1)"], ["\ufffd", None], ["3"]]
    assert failed == {}
    lists, failed = turn_lists("turn_states", [["x"], ["y"], ["z"]], [1, 2, 1], EPISODES, as_text)
    assert lists == [["x"], [None, None], ["z"]]
    assert failed == {"a": "bad_turn_states"}
    assert turn_lists("turn_score", [[math.nan]], [1], [("a", 0)], float)[1] == {}


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in ("ccpo", "ibpo")])
def test_one_rollout_is_refused_where_it_would_give_no_credit(name: str) -> None:
    """On tasks of one rollout each, in the second iteration that they come."""
    count = 24
    tasks = [f"task {row // 3}" for row in range(count)]
    random = np.random.default_rng(0)
    table = StepTable.from_columns(
        {
            "group": tasks,
            "trajectory": tasks,
            "step": [row % 3 for row in range(count)],
            "state": ["room"] * count,
            "action": random.choice(["a", "b"], count).tolist(),
            **{name: random.random(count).tolist() for name in ("reward", *INPUT_COLUMNS)},
        }
    )
    raw: dict[str, Any] = {"group_of_one": "raw"} if name in ("gigpo", "hgpo", "g2po") else {}
    memory: dict[str, Any] = {"memory": 0.8}
    wrapped = {"entropy": {"wraps": "returns memory=0.8"}, "returns": memory}
    wrapped["sbc"] = memory | {"states": "exact"}
    for changes in ({}, raw, wrapped.get(name, {})):
        method = recipe(name, **changes)
        inputs: dict[str, Any] = {}
        if method.has_history:
            inputs["history"] = method(table).history
            table = replace(table, reward=table.reward + 1)
        assert method(table, **inputs).advantage.any() == (uncompared(method, 1) is None)
        assert uncompared(method, 2) is None
    assert not recipe("entropy", wraps="returns").has_history
