"""Columns that recipes of the audit need come from the batch before, never from the truth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ascribe import StepTable
from ascribe.steps.table import Coded
from ascribe_lab.audit.run import Carrying, Informed, fresh, scored_recipe, visit_means
from tests.estimators.golden import steps, table

pytestmark = pytest.mark.unit

BEFORE = table([[steps("a", "b", reward=4.0), steps("a", "b")]])
NOW = table([[steps("a", "b"), steps("b", "a", reward=1.0)]])


def test_a_text_is_worth_what_it_returned_in_the_batch_before():
    np.testing.assert_allclose(visit_means(BEFORE, NOW, 0.5), [1.0, 2.0, 2.0, 1.0])
    np.testing.assert_allclose(visit_means(None, NOW, 0.5), 0.0)


def test_a_text_that_did_not_occur_is_worth_the_mean_of_the_task():
    """The steps of the task returned 2, 4, 0 and 0 with a discount of 0.5."""
    rows = [row | {"state": "a"} for row in BEFORE.to_dicts()]
    rows[0]["state"] = "b"
    before = StepTable.from_dicts(rows)
    later = replace(before, state=Coded(np.array([0, 1, 2, 2]), np.array(["b", "a", "c"], object)))
    before = replace(before, state=Coded(np.array([0, 1, 1, 1]), later.state.values))
    np.testing.assert_allclose(visit_means(before, later, 0.5), [2.0, 4 / 3, 1.5, 1.5])


def test_the_judge_says_whether_the_score_rises():
    seen: list[Any] = []
    recipe = Informed(seen.append, BEFORE)
    recipe(NOW)
    (first,) = seen
    np.testing.assert_allclose(first.value, visit_means(BEFORE, NOW, 0.95))
    np.testing.assert_allclose(first.score, 2.0)
    np.testing.assert_allclose(first.step_score, [0, -1, 0, -1])
    recipe(BEFORE)
    assert recipe.before is BEFORE


@pytest.mark.parametrize("name", ["gae", "progress", "judged_mean"])
def test_recipes_that_need_a_column_get_one(name):
    assert isinstance(fresh(scored_recipe(name)), Informed)
    fresh(scored_recipe(name))(NOW)


@pytest.mark.parametrize("name", ["g2po", "graphgpo_mean", "entropy"])
def test_others_are_as_they_were(name):
    recipe = scored_recipe(name)
    assert fresh(recipe) == recipe


def test_a_history_is_passed_on_and_begins_anew_in_every_run():
    recipe = scored_recipe("returns_memory")
    run = fresh(recipe)
    assert isinstance(run, Carrying)
    run(BEFORE)
    np.testing.assert_array_equal(
        run(NOW).advantage, recipe(NOW, history=recipe(BEFORE).history).advantage
    )
    np.testing.assert_array_equal(fresh(recipe)(NOW).advantage, recipe(NOW).advantage)


def test_what_a_recipe_of_ones_own_has_seen_stays_in_its_run():
    class Own:
        def __init__(self) -> None:
            self.seen = 0

        def __call__(self, table: StepTable) -> None:
            self.seen += len(table)

    own = Own()
    fresh(own)(NOW)
    assert own.seen == 0
