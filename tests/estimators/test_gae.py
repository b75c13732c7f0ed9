"""GAE: by hand, against its slow version, and three planted faults.

Code: src/ascribe/estimators/gae.py. Page: docs/estimators/returns.md.
"""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from ascribe.estimators import GAE, Returns
from ascribe.estimators import gae as module
from ascribe.steps.returns import reward_to_go
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import close, cut, reasons, steps, table


@pytest.mark.slow
@given(case=cases("gae"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


def valued(trajectory, *values):
    """The trajectory with the critic's value of each state."""
    return [row | {"value": value} for row, value in zip(trajectory, values, strict=True)]


WIN = valued(steps("a", "b", "c", reward=1.0), 0.5, 0.25, 0.75)


@pytest.mark.unit
def test_what_a_step_brought_beyond_what_was_expected():
    """With γ = 1: δ = -0.25, 0.5, 0.25; with γλ = 0.5 the sums are 0.0625, 0.625, 0.25."""
    close(GAE(gamma=1.0, lam=0.0)(table([[WIN]])).advantage, [-0.25, 0.5, 0.25])
    close(GAE(gamma=1.0, lam=0.5)(table([[WIN]])).advantage, [0.0625, 0.625, 0.25])
    close(GAE(gamma=0.5, lam=1.0)(table([[WIN]])).advantage, [-0.25, 0.25, 0.25])


@pytest.mark.unit
def test_one_trajectory_is_enough_and_the_critic_is_named():
    term = GAE()(table([[WIN]])).terms["gae"]
    assert reasons(term.reason) == ["credited"] * 3
    close(term.baseline, [0.5, 0.25, 0.75])
    close(term.own - term.baseline, term.values.tolist())


@pytest.mark.unit
def test_a_cut_trajectory_goes_on_from_the_value_of_its_last_state():
    """The limit came after c, which paid 9: what follows counts as worth V(c), 0.75."""
    rows = table([[cut(valued(steps("a", "b", "c", reward=9.0), 0.5, 0.25, 0.75))]])
    credit = GAE(gamma=1.0, lam=1.0)(rows)
    close(credit.advantage, [9.25, 9.5, 9.0])
    assert reasons(credit.reason) == ["credited"] * 3
    # δ = 0 + 0.5 · 0.25 - 0.5, 0 + 0.5 · 0.75 - 0.25, 9 + 0.5 · 0.75 - 0.75
    close(GAE(gamma=0.5, lam=0.0)(rows).advantage, [-0.375, 0.125, 8.625])
    close(GAE(gamma=1.0, lam=1.0, bootstrap=False)(rows).advantage, [8.5, 8.75, 8.25])
    excluded = GAE(truncation="exclude")(rows)
    assert reasons(excluded.reason) == ["truncated"] * 3


@pytest.mark.unit
def test_cutting_a_trajectory_anywhere_changes_nothing_with_an_exact_critic():
    """Each step pays 1 for ever, V = 1 / (1 - γ); every step brings what was expected, cut or not.

    A critic whose targets are V + A therefore stays where it is right, and cannot run away.
    """
    for length in (1, 2, 4):
        endless = [{"state": f"s{t}", "reward": 1.0, "value": 10.0} for t in range(length)]
        close(GAE(gamma=0.9)(table([[cut(endless)]])).advantage, [0.0] * length)


def verl_gae(rewards, values, gamma, lam):
    """verl's ``compute_gae_advantage_return`` for one row, before it whitens."""
    after, advantage, out = 0.0, 0.0, []
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        advantage = reward + gamma * after - value + gamma * lam * advantage
        after = value
        out.append(advantage)
    return out[::-1]


@pytest.mark.unit
def test_a_missing_value_leaves_no_credit_before_it():
    rows = table([[valued(steps("a", "b", "c", reward=1.0), 0.5, None, 0.75)]])
    credit = GAE()(rows)
    assert reasons(credit.reason) == ["missing_input", "missing_input", "credited"]
    close(credit.advantage, [0.0, 0.0, 0.25])


@pytest.mark.unit
def test_without_the_column_it_is_refused_by_name():
    with pytest.raises(ValueError, match="gae needs the column value"):
        GAE()(table([[steps("a", reward=1.0)]]))
    empty = GAE()(table([[valued(steps("a", reward=1.0), None)]]))
    assert reasons(empty.reason) == ["missing_input"]


@pytest.mark.unit
def test_with_lambda_1_and_a_constant_critic_it_is_the_return_less_a_constant():
    rows = table([[valued(steps("a", "b", reward=1.0), 2, 2), valued(steps("a", "b"), 2, 2)]])
    apart = GAE(lam=1.0)(rows).advantage - Returns()(rows).advantage
    close(apart, [apart[0]] * 4)


def forgets_the_end(reward, value, trajectory, cut, *, gamma, lam):
    """A faulty ``generalised_advantage``: the first value of the next trajectory follows an end."""
    following = np.append(value[1:], 0.0)
    surprise = reward + gamma * np.where(cut, value, following) - value
    unknown = reward_to_go(np.isnan(value).astype(np.float64), trajectory, 1.0) > 0
    advantage = reward_to_go(np.where(unknown, 0.0, surprise), trajectory, gamma * lam)
    return np.where(unknown, np.nan, advantage)


honest = module.generalised_advantage
FAULTS = {
    "the next trajectory follows": forgets_the_end,
    "λ is left out": lambda *rows, gamma, lam: honest(*rows, gamma=gamma, lam=1.0 + 0 * lam),
    "a cut trajectory has ended": lambda r, v, t, cut, **rest: honest(r, v, t, cut & False, **rest),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_slow_version_catches_planted_faults(name, monkeypatch):
    monkeypatch.setattr(module, "generalised_advantage", FAULTS[name])
    once = settings(
        max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None
    )
    with pytest.raises(AssertionError):
        once(given(cases("gae"))(lambda case: assert_equals_reference(*case)))()
