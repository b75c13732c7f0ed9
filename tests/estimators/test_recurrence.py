"""What recipes that compare states become where no state recurs: each claim, row by row."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import StepTable, recipe
from ascribe.engines import crediting
from ascribe.estimators.clusters import BY_TEXT
from ascribe.estimators.credit import Credit, join_notes
from ascribe.steps.table import Coded
from tests.estimators.golden import THREE_WAYS, close, reasons, steps, table
from tests.strategies import recipes, step_tables

HEIRS = ("gigpo", "bigpo", "bipace_diff", "bipace_q", "graphgpo")
APART = [[steps("a", "b", reward=1.0), steps("c", "d"), steps("e", "f", reward=0.5)]]
"""A task whose three trajectories share no state."""


def unique(steps: StepTable) -> StepTable:
    """The table with a state of its own in every row."""
    return replace(steps, state=Coded.encode([f"state {row}" for row in range(len(steps))]))


def compares(credit: Credit) -> bool:
    """Whether a row has a state and takes part in the step term: else nothing is said."""
    return bool((credit.terms["step"].labels >= 0).any())


def same(credit: Credit, wanted: Credit, factor: float = 1.0) -> None:
    np.testing.assert_allclose(credit.advantage, factor * wanted.advantage, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(credit.credited, wanted.credited)


@pytest.mark.unit
@pytest.mark.parametrize("name", HEIRS)
def test_gigpo_and_its_heirs_are_grpo(name):
    credit = recipe(name)(table(APART))
    assert credit.alone_share == 1
    assert f"No state recurs, so {name} gives what grpo gives." in credit.notes
    same(credit, recipe("grpo")(table(APART)))


@pytest.mark.slow
@pytest.mark.parametrize("name", HEIRS)
@given(data=st.data(), steps=step_tables())
def test_what_the_heirs_of_gigpo_say_holds(name, data, steps):
    method, steps = data.draw(recipes(name, grouping="exact")), unique(steps)
    credit = method(steps)
    said = next((note for note in credit.notes if note.startswith("No state recurs")), "")
    assert bool(said) == compares(credit)
    if not said:
        return
    if "episode term alone" in said:
        np.testing.assert_array_equal(credit.advantage, credit.terms["episode"].values)
        return
    amount = method.invalid_penalty if method.penalty_timing == "before" else 0.0
    shared = {"truncation": method.truncation, "invalid_penalty": amount}
    if "dr_grpo" in said:
        same(credit, recipe("dr_grpo", **shared)(steps))
    else:
        norm = {key: getattr(method, key) for key in ("std", "std_epsilon", "std_floor")}
        same(credit, recipe("grpo", **shared, **norm)(steps))


@pytest.mark.slow
@given(method=recipes("hgpo"), steps=step_tables())
def test_hgpo_gives_no_credit(method, steps):
    credit = method(unique(steps))
    if not method.episode:
        said = "No state recurs, so hgpo gives no credit." in credit.notes
        assert said == compares(credit)
        assert not credit.credited.any()
        assert not credit.advantage.any()


@pytest.mark.slow
@given(method=recipes("sbc") | recipes("sbc", scale="equal"), steps=step_tables())
def test_sbc_is_a_sixth_of_returns(method, steps):
    if method.penalty_timing == "after" and method.invalid_penalty:
        return
    steps = unique(steps)
    credit = method(steps)
    shared = ("gamma", "truncation", "invalid_penalty", "penalty_timing")
    returns = recipe("returns", **{key: getattr(method, key) for key in shared})(steps)
    factor = credit.metrics.get("scale_factor", 1.0) / 6
    same(credit, returns, factor)
    size = "returns rescaled to the size of grpo" if method.scale == "equal" else "returns / 6"
    assert (f"No state recurs, so sbc gives {size}." in credit.notes) == compares(credit)


@pytest.mark.unit
def test_sbc_takes_late_penalties_in_full():
    # R is 1, 1 | 0, 0, mean 0.5; a sixth of the difference, less a penalty whose mean is 0.02.
    trips = table([[steps("a", "b", reward=1.0), steps("c", "d", invalid=[1])]])
    credit = recipe("sbc", gamma=1.0, invalid_penalty=0.08, penalty_timing="after")(trips)
    close(credit.advantage, [1 / 12 + 0.02, 1 / 12 + 0.02, -1 / 12 + 0.02, -1 / 12 - 0.06], 1e-12)
    assert credit.notes[-1] == "No state recurs, so sbc gives returns / 6 less late penalties."


@pytest.mark.unit
def test_the_step_term_of_sbc_says_which_rows_have_no_peers():
    trips = table([[steps("a", "b", reward=1.0), steps("a", None, "c")]])
    term = recipe("sbc")(trips).terms["step"]
    assert reasons(term.reason) == [
        *("credited", "singleton", "credited", "missing_state", "singleton")
    ]
    assert reasons(recipe("sbc")(trips).reason) == ["credited"] * 5


@pytest.mark.slow
@given(method=recipes("g2po", group_of_one="no_credit", normalise="mean"), steps=step_tables())
def test_g2po_has_its_episodes_and_returns(method, steps):
    if method.invalid_penalty:
        return
    steps = unique(steps)
    credit = method(steps)
    assert any("compares no actions" in note for note in credit.notes) == compares(credit)
    assert not credit.terms["step"].values.any()
    returns = recipe("returns", gamma=method.gamma, truncation=method.truncation)(steps)
    wanted = (1 - method.gamma) * returns.advantage
    np.testing.assert_allclose(credit.terms["gain"].values, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.unit
@pytest.mark.parametrize("name", [*HEIRS, "hgpo", "g2po", "sbc"])
def test_nothing_is_said_where_states_recur(name):
    credit = recipe(name)(table(THREE_WAYS))
    assert credit.alone_share < 0.5
    assert not any("recurs" in note or "alone" in note for note in credit.notes)


@pytest.mark.unit
@pytest.mark.parametrize("name", [*HEIRS, "hgpo", "g2po", "sbc"])
def test_steps_after_a_shared_start_are_alone(name):
    """All attempts at a task begin in one state, which alone must not silence the note."""
    starts = table([[steps("a", "b", "c", reward=1.0), steps("a", "d", "e"), steps("a", "f", "g")]])
    credit = recipe(name)(starts)
    [note] = [each for each in credit.notes if each.startswith("Most steps have no other")]
    alone = np.flatnonzero(starts.step > 0)
    if "what grpo gives" in note:
        wanted = recipe("grpo")(starts).advantage
    elif "returns / 6" in note:
        wanted = recipe("returns", gamma=recipe("sbc").gamma)(starts).advantage / 6
    elif "no credit" in note:
        wanted = np.zeros(9)
    else:
        wanted, credit = np.zeros(9), replace(credit, advantage=credit.terms["step"].values)
    np.testing.assert_allclose(credit.advantage[alone], wanted[alone], rtol=1e-12, atol=1e-12)


@pytest.mark.unit
def test_nothing_is_said_where_no_row_has_a_state():
    nowhere = table([[steps(None, None, reward=1.0), steps(None, None)]])
    assert not any("recurs" in note for note in recipe("gigpo")(nowhere).notes)


@pytest.mark.unit
def test_a_wrapped_recipe_says_it_too():
    with_entropy = replace(table(APART), entropy=np.ones(6))
    notes = recipe("entropy", wraps="gigpo")(with_entropy).notes
    assert notes == ("No state recurs, so gigpo gives what grpo gives.",)


@pytest.mark.unit
def test_a_note_that_holds_for_some_parts_says_for_how_many():
    assert join_notes([("a", "b"), ("a",)]) == ("a", "In 1 of 2 parts: b")
    recurring, apart = (recipe("gigpo")(table(which)) for which in (THREE_WAYS, APART))
    [note] = Credit.join([recurring, apart]).notes
    assert note == "In 1 of 2 parts: No state recurs, so gigpo gives what grpo gives."


@pytest.mark.unit
def test_an_engine_logs_it_once(caplog):
    crediting.say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            crediting.credit_steps(table(APART), recipe("sbc"))
    notes = [message for message in caplog.messages if "With discount" not in message]
    assert notes == [BY_TEXT, "No state recurs, so sbc gives returns / 6."]
