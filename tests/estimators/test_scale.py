"""The parameter ``scale``: the step term made as large as the episode term."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe import RECIPES, Credit, Reason, Recipe, StepTable, diagnose, recipe
from ascribe.estimators.relative import equalised
from ascribe.steps.check import arrange
from tests.estimators import reference
from tests.strategies import STATES, TEXTS, padding_rows, recipes, step_tables

pytestmark = pytest.mark.unit

seeds = st.integers(0, 2**32 - 1)

NAMES = ("gigpo", "g2po", "graphgpo", "hgpo", "bigpo", "bipace_diff", "bipace_q", "sbc")
"""Every recipe that has the parameter."""

TERMS = {"hgpo": ("step",), "g2po": ("step", "gain"), "sbc": ("own", "step")}
"""What is rescaled, if it is not the step term beside an episode term."""

each_recipe = pytest.mark.parametrize("name", NAMES)


def vectors_of(table: StepTable, seed: int) -> np.ndarray:
    """Equal states get nearby vectors."""
    random = np.random.default_rng(seed)
    by_state = random.standard_normal((table.state.values.size + 1, 8))
    return by_state[table.state.codes] + 0.2 * random.standard_normal((len(table), 8))


def inputs_of(estimator: Recipe, table: StepTable, seed: int) -> dict[str, Any]:
    return {"fingerprints": vectors_of(table, seed)} if estimator.inputs else {}


def as_part(values: np.ndarray, reason: np.ndarray) -> reference.Part:
    return reference.Part(values.tolist(), [Reason(code).label for code in reason], [])


def summed(credit: Credit, terms: Sequence[str]) -> reference.Part:
    """The sum of these terms, credited where any of them is."""
    parts = [credit.terms[name] for name in terms]
    credited = np.any([part.credited for part in parts], axis=0)
    reason = np.where(credited, np.int8(Reason.CREDITED), parts[-1].reason)
    return as_part(np.sum([part.values for part in parts], axis=0), reason)


def episode_of(estimator: Recipe, table: StepTable, credit: Credit) -> reference.Part:
    """The episode term that sets the size, from the recipe itself or from another one."""
    if "episode" in credit.terms:
        return as_part(credit.terms["episode"].values, credit.terms["episode"].reason)
    if estimator.name == "hgpo":
        names = [
            *("normalise", "std", "std_epsilon", "std_floor", "truncation"),
            *("invalid_penalty", "penalty_timing"),
        ]
        gigpo = recipe("gigpo", **{name: getattr(estimator, name) for name in names})
        term = gigpo(table).terms["episode"]
        return as_part(term.values, term.reason)
    # A late penalty is not in the returns of episodes.
    early = estimator.penalty_timing == "before"
    grpo = recipe(
        "grpo",
        truncation=estimator.truncation,
        invalid_penalty=estimator.invalid_penalty if early else 0.0,
    )(table)
    return as_part(grpo.advantage, grpo.reason)


def test_these_are_the_recipes_that_have_it() -> None:
    assert {name for name, kind in RECIPES.items() if hasattr(kind, "scale")} == set(NAMES)


@each_recipe
@pytest.mark.parametrize("value", ["", "std", "raw", None, 1.0])
def test_wrong_choices_are_told_the_right_ones(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}: scale is .*must be one of paper, equal"):
        recipe(name, scale=value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gigpo", "hgpo"])
@given(data=st.data())
def test_it_equals_the_slow_version(name: str, data: st.DataObject) -> None:
    estimator = data.draw(recipes(name, scale="equal"))
    table = data.draw(step_tables() | step_tables(states=TEXTS) | step_tables(states=STATES[:2]))
    wanted = reference.credit(name, table.to_dicts(), asdict(estimator))
    # A factor blows up the rounding of a step term that is small.
    assume(wanted.narrowest > 1e-3)
    credit = estimator(table)
    np.testing.assert_allclose(credit.advantage, wanted.values, rtol=1e-8, atol=1e-8)
    step = credit.terms["step"]
    np.testing.assert_allclose(step.values, wanted.terms["step"].values, rtol=1e-8, atol=1e-8)
    assert [Reason(code).label for code in step.reason] == wanted.terms["step"].reasons


@each_recipe
@given(data=st.data(), seed=seeds)
def test_only_a_factor_lies_between_the_two_scales(name, data, seed) -> None:
    paper, table = data.draw(recipes(name)), data.draw(step_tables())
    given_inputs = inputs_of(paper, table, seed)
    before = paper(table, **given_inputs)
    after = replace(paper, scale="equal")(table, **given_inputs)
    changed = TERMS.get(name, ("step",))
    as_one = summed(before, changed)
    factor = reference.factor_to_equal(as_one, episode_of(paper, table, before))
    assert after.metrics == before.metrics | {
        "scale_factor": pytest.approx(factor, rel=1e-9),
    }
    for term in before.terms:
        times = after.metrics["scale_factor"] if term in changed else 1.0
        np.testing.assert_array_equal(after.terms[term].values, times * before.terms[term].values)
        np.testing.assert_array_equal(after.terms[term].reason, before.terms[term].reason)
        np.testing.assert_array_equal(after.terms[term].labels, before.terms[term].labels)
        assert after.terms[term].weight == before.terms[term].weight
    np.testing.assert_array_equal(after.reason, before.reason)
    np.testing.assert_array_equal(
        after.advantage, sum(term.weight * term.values for term in after.terms.values())
    )


@each_recipe
@given(data=st.data(), seed=seeds)
def test_sizes_are_equal_where_both_have_a_signal(name, data, seed) -> None:
    estimator, table = data.draw(recipes(name, scale="equal")), data.draw(step_tables())
    credit = estimator(table, **inputs_of(estimator, table, seed))
    said = summed(credit, TERMS.get(name, ("step",)))
    size = reference.size_of(said.values, said.reasons)
    wanted = episode_of(estimator, table, credit)
    episode = reference.size_of(wanted.values, wanted.reasons)
    assume(min(size, episode) > 1e-6)
    assert size == pytest.approx(episode, rel=1e-9)


@each_recipe
@given(data=st.data(), seed=seeds)
def test_row_order_carries_no_meaning(name, data, seed) -> None:
    estimator = data.draw(recipes(name, scale="equal"))
    table = data.draw(step_tables(states=TEXTS))
    inputs = inputs_of(estimator, table, seed)
    order = np.random.default_rng(seed).permutation(len(table))
    moved = {key: values[order] for key, values in inputs.items()}
    credit, shuffled = estimator(table, **inputs), estimator(table.take(order), **moved)
    np.testing.assert_array_equal(shuffled.advantage, credit.advantage[order])
    np.testing.assert_array_equal(shuffled.reason, credit.reason[order])
    assert shuffled.metrics == credit.metrics


@each_recipe
@given(data=st.data(), seed=seeds)
def test_padding_counts_for_nothing(name, data, seed) -> None:
    estimator = data.draw(recipes(name, scale="equal"))
    table = data.draw(step_tables(padding=False))
    rows = [{"padding": False, "truncated": False} | row for row in table.to_dicts()]
    fillers = padding_rows(rows, Random(seed), 4)
    filled = StepTable.from_dicts([*fillers, *rows])
    inputs = inputs_of(estimator, table, seed)
    noise = np.random.default_rng(seed).standard_normal((len(fillers), 8))
    more = {key: np.vstack([noise, values]) for key, values in inputs.items()}
    credit = estimator(filled, **more)
    alone = estimator(table, **inputs)
    np.testing.assert_array_equal(credit.advantage[len(fillers) :], alone.advantage)
    np.testing.assert_array_equal(credit.advantage[: len(fillers)], 0.0)
    assert credit.metrics == alone.metrics


@each_recipe
@given(data=st.data(), seed=seeds)
def test_rewards_of_another_size_give_the_same_credit(name, data, seed) -> None:
    """What the parameter is for: no term carries the unit of the reward into the sum."""
    # Everything that has a unit of its own is left out: penalties, floors, raw returns.
    fixed = {"std_epsilon": 0.0, "std_floor": 0.0, "group_of_one": "no_credit"}
    drawn = data.draw(recipes(name, scale="equal", normalise="std", **fixed))
    estimator = replace(drawn, invalid_penalty=0.0)
    table = data.draw(step_tables(states=STATES[:2], rewards=(0.0, 0.5, 1.0), missing=False))
    inputs = inputs_of(estimator, table, seed)
    rows = [row | {"reward": 1024.0 * row["reward"]} for row in table.to_dicts()]
    credit, scaled = estimator(table, **inputs), estimator
    if hasattr(scaled, "right"):  # the return of a success, which has a unit too
        scaled = replace(scaled, right=1024.0 * scaled.right)
    larger = scaled(StepTable.from_dicts(rows), **inputs)
    # Without an episode signal there is no size to take: the step term keeps its own unit.
    episode = episode_of(estimator, table, credit)
    assume(reference.size_of(episode.values, episode.reasons) > 1e-6)
    assume(1e-4 < credit.metrics["scale_factor"] < 1e4)
    np.testing.assert_allclose(larger.advantage, credit.advantage, rtol=1e-5, atol=1e-5)


# By hand.


def rollout(rewards: list[float], states: list[str], actions: list[str]) -> StepTable:
    """One task of trajectories of one step."""
    return StepTable.from_columns(
        {
            "group": ["task"] * len(rewards),
            "trajectory": [f"{number}" for number in range(len(rewards))],
            "step": [0] * len(rewards),
            "state": states,
            "action": actions,
            "reward": rewards,
        }
    )


def test_a_worked_example() -> None:
    # The episode term: mean 5, sample standard deviation sqrt(100 / 3), so values of ±sqrt(3) / 2.
    # The step term, Q - V: "take" is worth 10 and "look" 0 in a state worth 5, so ±5.
    table = rollout([10.0, 10.0, 0.0, 0.0], ["hall"] * 4, ["take", "take", "look", "look"])
    estimator = recipe("bipace_q", on_collapse="keep", std_epsilon=0.0, weight=2.0, scale="equal")
    credit = estimator(table, fingerprints=np.ones((4, 2)))
    half = np.sqrt(3) / 2
    assert credit.metrics["scale_factor"] == pytest.approx(half / 5)
    assert credit.terms["step"].values == pytest.approx([half, half, -half, -half])
    assert credit.advantage == pytest.approx([3 * half, 3 * half, -3 * half, -3 * half])
    rms = diagnose(table, credit).term_rms
    assert rms["step"] == pytest.approx(2 * rms["episode"])


def test_rows_without_a_step_signal_do_not_make_the_others_larger() -> None:
    # Two of four rows are alone in their state: the step term is compared where it speaks.
    states = ["hall", "hall", "attic", "cellar"]
    table = rollout([10.0, 0.0, 10.0, 0.0], states, ["take"] * 4)
    credit = recipe("gigpo", normalise="mean", scale="equal")(table)
    assert credit.terms["step"].values == pytest.approx([5.0, -5.0, 0.0, 0.0])
    assert credit.metrics["scale_factor"] == 1.0


def test_without_a_step_signal_nothing_changes() -> None:
    table = rollout([10.0, 0.0], ["hall", "attic"], ["take", "look"])
    credit = recipe("gigpo", scale="equal")(table)
    assert credit.metrics == {"scale_factor": 1.0}
    np.testing.assert_array_equal(credit.advantage, recipe("gigpo")(table).advantage)


def test_without_an_episode_signal_the_step_term_stays_as_it_is() -> None:
    # Two successes of one return; only the way to it differs in length.
    rows = [
        {"group": "g", "trajectory": name, "step": t, "state": "hall" if t == 0 else f"{name}{t}"}
        | {"action": "go", "reward": 10.0 if t == last else 0.0}
        for name, last in (("short", 1), ("long", 2))
        for t in range(last + 1)
    ]
    table = StepTable.from_dicts(rows)
    credit = recipe("gigpo", normalise="mean", scale="equal")(table)
    assert credit.metrics == {"scale_factor": 1.0}
    assert credit.terms["step"].values[0] == pytest.approx(10 * (0.95 - 0.95**2) / 2)


def test_rounding_is_not_blown_up() -> None:
    # Both actions are worth 0.2 on average, so Q - V is zero but for rounding.
    rewards = [0.1, 0.3, 0.3, 0.1, 0.1, 0.2, 0.3]
    actions = ["take", "take", "look", "look", "open", "open", "open"]
    table = rollout(rewards, ["hall"] * 7, actions)
    credit = recipe("bipace_q", on_collapse="keep", scale="equal")(
        table, fingerprints=np.ones((7, 2))
    )
    assert credit.terms["step"].credited.all()
    assert np.abs(credit.terms["step"].values).max() < 1e-15
    assert credit.metrics["scale_factor"] == 1.0


def test_the_factor_is_one_for_terms_of_one_size() -> None:
    table = rollout([1.0, 0.0], ["hall"] * 2, ["take", "look"])
    credit = recipe("gigpo")(table)
    terms, factor = equalised(credit.terms, ["step"], credit.terms["episode"], arrange(table).rows)
    assert factor == pytest.approx(1.0)
    assert terms["episode"] is credit.terms["episode"]


def test_one_task_changes_the_credit_of_another() -> None:
    """It is a statistic of the batch: groups cannot be credited apart, and the page says so."""
    alone = rollout([10.0, 10.0, 0.0, 0.0], ["hall"] * 4, ["take", "take", "look", "look"])
    rows = alone.to_dicts()
    rows += [
        row | {"group": "other", "trajectory": f"other {row['trajectory']}", "state": f"{i}"}
        for i, row in enumerate(rows)
    ]
    rows[5]["reward"] = 1000.0
    together = StepTable.from_dicts(rows)
    estimator = recipe("gigpo", normalise="mean", scale="equal")
    step = estimator(together).terms["step"].values[:4]
    assert np.abs(step).min() > 10 * np.abs(estimator(alone).terms["step"].values).max()
