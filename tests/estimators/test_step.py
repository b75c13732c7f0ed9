"""An action's return against those of other actions in the same state."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ascribe.estimators.credit import Reason
from ascribe.estimators.gigpo import step_relative
from ascribe.estimators.relative import Norm
from tests import reference

pytestmark = pytest.mark.unit


def credited(returns, states, trajectory, revisits, norm):
    returns, states, trajectory = np.array(returns), np.array(states), np.array(trajectory)
    values, reason = step_relative(
        returns,
        states,
        int(states.max(initial=-1)) + 1,
        norm,
        trajectory=trajectory,
        trajectory_count=int(trajectory.max(initial=-1)) + 1,
        revisits=revisits,
    )
    return values.tolist(), [Reason(code).label for code in reason]


@settings(max_examples=500, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(1, 5),
    st.sampled_from(("each", "first", "average")),
    st.sampled_from((Norm("mean"), Norm("std", epsilon=0.0), Norm("std", "population", 1e-6, 0.5))),
    st.integers(0, 2**32 - 1),
)
def test_equals_loops(rows, states, revisits, norm, seed):
    random = np.random.default_rng(seed)
    trajectory = np.cumsum(random.random(rows) < 0.25).tolist()
    trajectory = [label - trajectory[0] for label in trajectory]
    state = random.integers(-1, states, rows).tolist()
    returns = random.choice([0.0, 1.0, 0.25, 10.0], rows).tolist()

    wanted = reference.step_relative(
        {i: Fraction(value) for i, value in enumerate(returns)},
        {i: label for i, label in enumerate(state) if label >= 0},
        dict(enumerate(trajectory)),
        revisits,
        lambda values, groups: reference.relative(
            values, groups, by=norm.by, std=norm.std, epsilon=norm.epsilon, floor=norm.floor
        ),
    )
    assume(wanted.narrowest > 1e-5)
    values, reasons = credited(returns, state, trajectory, revisits, norm)
    np.testing.assert_allclose(
        values, [wanted.values.get(i, 0.0) for i in range(rows)], rtol=1e-9, atol=1e-9
    )
    assert reasons == [wanted.reasons.get(i, "singleton") for i in range(rows)]


# Trajectory 0 visits the state twice, with returns 2 and 4; trajectory 1 once, with return 0.
RETURNS, STATES, TRAJECTORY = [2.0, 4.0, 0.0], [0, 0, 0], [0, 0, 1]


def test_each_visit_by_hand():
    # The mean of 2, 4, 0 is 2.
    assert credited(RETURNS, STATES, TRAJECTORY, "each", Norm("mean")) == (
        [0.0, 2.0, -2.0],
        ["credited"] * 3,
    )


def test_first_visit_by_hand():
    # The mean of 2 and 0 is 1.
    assert credited(RETURNS, STATES, TRAJECTORY, "first", Norm("mean")) == (
        [1.0, 0.0, -1.0],
        ["credited", "revisit", "credited"],
    )


def test_average_of_visits_by_hand():
    # Trajectory 0 counts once, with 3; the mean of 3 and 0 is 1.5.
    assert credited(RETURNS, STATES, TRAJECTORY, "average", Norm("mean")) == (
        [1.5, 1.5, -1.5],
        ["credited"] * 3,
    )


@pytest.mark.parametrize("revisits", ["each", "first", "average"])
def test_no_states_at_all(revisits):
    assert credited([1.0, 2.0], [-1, -1], [0, 1], revisits, Norm()) == (
        [0.0, 0.0],
        ["singleton"] * 2,
    )
