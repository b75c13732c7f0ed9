"""HGPO: by hand, and against its slow version.

Code: src/ascribe/estimators/hgpo.py. Page: docs/estimators/gigpo.md.
"""

import pytest
from hypothesis import given

from ascribe.estimators import HGPO, GiGPO
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import THREE_WAYS, close, reasons, steps, table


@pytest.mark.slow
@given(case=cases("hgpo"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


@pytest.mark.unit
def test_hgpo_averages_over_contexts():
    # One state: "a" 4, 2, mean 3: +1, -1. "b" 4, 2, 0, mean 2: +2, 0, -2. "c" alone.
    # Two states: "a b" 4, 2, mean 3: +1, -1; "c b" alone.
    # Weights 2 and 3: (2 * 2 + 3 * 1) / 5 = 1.4, (2 * 0 - 3 * 1) / 5 = -0.6, -2.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean")
    credit = recipe(table(THREE_WAYS))
    close(credit.advantage, [1.0, 1.4, -1.0, -0.6, 0.0, -2.0], 1e-12)
    assert reasons(credit.reason)[4] == "singleton"


@pytest.mark.unit
def test_hgpo_without_zeros():
    # The second row of the second trajectory has 0 among "b" and -1 among "a b": -1 is left.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean", drop_zeros=True)
    close(recipe(table(THREE_WAYS)).advantage, [1.0, 1.4, -1.0, -1.0, 0.0, -2.0], 1e-12)


@pytest.mark.unit
def test_hgpo_weighs_contexts_alike_with_alpha_zero():
    # (2 + 1) / 2 and (0 - 1) / 2.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean", alpha=0.0)
    close(recipe(table(THREE_WAYS)).advantage, [1.0, 1.5, -1.0, -0.5, 0.0, -2.0], 1e-12)


@pytest.mark.unit
def test_hgpo_with_the_episode_as_a_context():
    # Scores of the rows 4, 4, 2, 2, 0, 0: mean 2: +2, +2, 0, 0, -2, -2, weight 1.
    # (1 * 2 + 2 * 1) / 3, (1 * 2 + 2 * 2 + 3 * 1) / 6, (0 - 2) / 3, (0 + 0 - 3) / 6, -2, and
    # (1 * -2 + 2 * -2) / 3.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean", episode=True)
    close(recipe(table(THREE_WAYS)).advantage, [4 / 3, 1.5, -2 / 3, -0.5, -2.0, -2.0], 1e-12)


@pytest.mark.unit
def test_hgpo_divides_by_the_population_std():
    # "b": 4, 2, 0, population variance 8 / 3; "a" and "a b": 4, 2, population std 1.
    recipe = HGPO(gamma=1.0, history_length=1, std_epsilon=0.0)
    top = (8 / 3) ** -0.5 * 2
    wanted = [1.0, (2 * top + 3) / 5, -1.0, -3 / 5, 0.0, -top]
    close(recipe(table(THREE_WAYS)).advantage, wanted, 1e-12)


# Missing states.


@pytest.mark.unit
def test_rows_without_a_state_keep_their_episode_credit():
    rows = table([[steps(None, "b", reward=1.0), steps("b")]])
    credit = GiGPO(gamma=1.0, normalise="mean")(rows)
    assert credit.advantage.tolist() == [0.5, 1.0, -1.0]
    assert reasons(credit.terms["step"].reason) == ["missing_state", "credited", "credited"]
    assert reasons(credit.reason) == ["credited"] * 3
    assert credit.terms["step"].labels.tolist() == [-1, 0, 0]
    assert reasons(HGPO()(rows).reason) == ["missing_state", "credited", "credited"]
