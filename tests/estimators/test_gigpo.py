"""GiGPO: by hand, and against its slow version.

Code: src/ascribe/estimators/gigpo.py. Page: docs/estimators/gigpo.md.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe import Reason, StepTable, recipe
from ascribe.estimators import GRPO, RLOO, DrGRPO, GiGPO
from ascribe.estimators.gigpo import step_relative
from ascribe.estimators.relative import Norm
from tests.conftest import good_rows
from tests.estimators import reference
from tests.estimators.against_reference import assert_equals_reference, cases
from tests.estimators.golden import (
    ALL_FAIL,
    NOTHING_HAPPENS,
    SHORT_AND_LONG,
    TWICE_ALONE,
    TWO_SUCCESSES,
    close,
    cut,
    reasons,
    steps,
    table,
)


@pytest.mark.slow
@given(case=cases("gigpo"))
def test_equals_the_slow_version(case):
    assert_equals_reference(*case)


# Padding.


@pytest.mark.unit
@pytest.mark.parametrize("recipe", [DrGRPO(), GiGPO(normalise="mean", weight=0.0)])
def test_a_padding_copy_does_not_move_the_mean(recipe):
    # Returns 10 and 0, mean 5: +5 and -5. With the copy counted: mean 6.67, +3.33 +3.33 -6.67.
    credit = recipe(table([[steps("a", reward=10.0), steps("b")]], padding=[0]))
    assert credit.advantage.tolist() == [5.0, -5.0, 0.0]
    assert reasons(credit.reason) == ["credited", "credited", "padding"]


@pytest.mark.unit
def test_one_success_that_comes_back_to_a_state_is_compared_with_itself():
    # Returns 0.95 and 1, mean 0.975, sample std 0.05 / sqrt(2) = 0.0354: -0.71 and +0.71.
    credit = GiGPO(revisits="each", group_of_one="raw")(table(TWICE_ALONE))
    close(credit.terms["step"].values, [-0.70709, 0.70709])
    assert reasons(credit.reason) == ["credited", "credited"]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("revisits", "wanted"),
    [("first", ["singleton", "revisit"]), ("average", ["singleton", "singleton"])],
)
def test_one_success_alone_in_a_state_has_no_peer(revisits, wanted):
    elsewhere = steps("t", reward=1.0)
    credit = GiGPO(revisits=revisits)(table([[*TWICE_ALONE[0], elsewhere]]))
    assert credit.advantage.tolist() == [0.0, 0.0, 0.0]
    assert reasons(credit.terms["step"].reason) == [*wanted, "singleton"]
    assert reasons(credit.terms["episode"].reason) == ["zero_variance"] * 3


@pytest.mark.unit
@pytest.mark.parametrize(
    "name", ["gigpo", "hgpo", "bigpo", "bipace_diff", "bipace_q", "graphgpo", "g2po", "sbc"]
)
def test_the_only_trajectory_of_a_task_is_not_compared_with_itself(name):
    """It comes to s three times and does different things there; other tasks are as before."""
    trip = steps("s", "t", "s", "s", reward=1.0)
    other = [steps("s", "t", reward=1.0), steps("s", "t")]
    actions = [row | {"action": f"<action>{i}</action>"} for i, row in enumerate(trip)]
    credit = recipe(name)(table([[actions], other]))
    assert reasons(credit.reason)[:4] == ["group_of_one"] * 4
    assert not credit.advantage[:4].any()
    without = recipe(name)(table([other]))
    np.testing.assert_array_equal(credit.advantage[4:], without.advantage)


@pytest.mark.unit
def test_other_tasks_may_visit_the_states_of_an_only_trajectory():
    """With the batch as scope: s has a visitor from another task, t has none."""
    groups = [[steps("s", "t", "t", reward=1.0)], [steps("s"), steps("u", reward=1.0)]]
    term = GiGPO(scope="batch", normalise="mean", gamma=1.0)(table(groups)).terms["step"]
    assert reasons(term.reason)[:4] == ["credited", *["group_of_one"] * 2, "credited"]
    close(term.values[:4], [0.5, 0.0, 0.0, -0.5])


@pytest.mark.unit
def test_the_preference_order_of_the_paper():
    # The first trajectory picks the 2nd item, comes back to the page, picks the 1st and succeeds;
    # the second turns the page and fails. With gamma 0.5, steps page, item, page, item:
    # returns on the page are 1/8, 1/2 and 0, mean 5/24: -1/12, +7/24, -5/24.
    found = steps("page", "item", "page", "item", reward=1.0)
    lost = steps("page", "next page")
    credit = GiGPO(gamma=0.5, normalise="mean")(table([[found, lost]]))
    second_item, _, first_item, _, next_page, _ = credit.terms["step"].values
    close(np.array([second_item, first_item, next_page]), [-1 / 12, 7 / 24, -5 / 24], 1e-12)
    # The item's returns are 1/4 and 1, mean 5/8; the next page is seen once.
    close(credit.terms["step"].values[[1, 3, 5]], [-3 / 8, 3 / 8, 0.0], 1e-12)
    # Episodes earned 1 and 0.
    close(credit.terms["episode"].values, [0.5] * 4 + [-0.5] * 2, 1e-12)


@pytest.mark.unit
def test_two_successes_one_step_apart_are_blown_up_by_a_std():
    # 10 * 0.95**5 = 7.738 and 10 * 0.95**6 = 7.351: half the difference is 0.19345, the sample
    # std 0.3869 / sqrt(2) = 0.27358: +0.707 and -0.707.
    credit = GiGPO()(table(TWO_SUCCESSES))
    values = credit.terms["step"].values
    close(values[[0, 6]], [0.70710, -0.70710])
    assert np.count_nonzero(values) == 2
    assert set(reasons(credit.terms["episode"].reason)) == {"zero_variance"}


@pytest.mark.unit
@pytest.mark.parametrize(("floor", "wanted"), [(1.0, 0.193446), (5.0, 0.038689)])
def test_a_floor_under_the_std_keeps_them_small(floor, wanted):
    # 0.193446 / (floor + 1e-6).
    values = GiGPO(std_floor=floor)(table(TWO_SUCCESSES)).terms["step"].values
    close(values[[0, 6]], [wanted, -wanted], 1e-6)


@pytest.mark.unit
def test_the_mean_form_keeps_them_small():
    values = GiGPO(normalise="mean")(table(TWO_SUCCESSES)).terms["step"].values
    close(values[[0, 6]], [0.193446, -0.193446], 1e-6)


@pytest.mark.unit
def test_one_penalty_in_a_group_of_failures_is_blown_up_by_a_std():
    # Returns -0.1 and seven times 0: mean -0.0125, squares 0.0875**2 + 7 * 0.0125**2 = 0.00875,
    # sample std sqrt(0.00875 / 7) = 0.035355: -2.47 and +0.35.
    wanted = [-2.4748] + [0.35354] * 7
    close(GRPO(invalid_penalty=0.1)(table(ALL_FAIL)).advantage, wanted, 1e-4)
    credit = GiGPO(invalid_penalty=0.1)(table(ALL_FAIL))
    close(credit.terms["episode"].values, wanted, 1e-4)
    close(credit.terms["step"].values, wanted, 1e-4)
    late = GiGPO(invalid_penalty=0.1, penalty_timing="after")(table(ALL_FAIL))
    close(late.terms["step"].values, wanted, 1e-4)


@pytest.mark.unit
def test_one_penalty_stays_small_in_the_mean_form():
    close(DrGRPO(invalid_penalty=0.1)(table(ALL_FAIL)).advantage, [-0.0875] + [0.0125] * 7, 1e-12)
    # N / (N - 1) = 8 / 7: -0.1 against seven zeros, 0 against a mean of -0.1 / 7.
    wanted = [-0.1] + [0.1 / 7] * 7
    close(RLOO(invalid_penalty=0.1)(table(ALL_FAIL)).advantage, wanted, 1e-12)


@pytest.mark.unit
def test_the_baseline_of_verl_agent_is_over_steps():
    # Scores of the rows 10, 0, 0, 0: mean 2.5, sample std sqrt((56.25 + 3 * 6.25) / 3) = 5.
    credit = GiGPO.preset("verl-agent")(table(SHORT_AND_LONG))
    close(credit.terms["episode"].values, [1.5, -0.5, -0.5, -0.5])
    # Over trajectories: 10 and 0, mean 5, sample std 7.07.
    credit = GiGPO()(table(SHORT_AND_LONG))
    close(credit.terms["episode"].values, [0.70711] + [-0.70711] * 3)


@pytest.mark.unit
def test_the_episode_score_of_verl_agent_is_less_the_penalty_of_its_own_row():
    # Scores 10, 0, -0.1, 0: mean 2.475, deviations 7.525, -2.475, -2.575, -2.475, squares
    # 56.625625 + 6.125625 + 6.630625 + 6.125625 = 75.5075, sample std sqrt(75.5075 / 3) = 5.01689.
    rows = [[steps("a", reward=10.0), steps("b", "c", "d", invalid=[1])]]
    credit = GiGPO.preset("verl-agent")(table(rows))
    wanted = [7.525 / 5.01689, -2.475 / 5.01689, -2.575 / 5.01689, -2.475 / 5.01689]
    close(credit.terms["episode"].values, wanted)


@pytest.mark.unit
def test_a_group_of_one():
    # One trajectory of one step: nothing to compare with, or its raw return less a late penalty.
    alone = table([[steps("a", reward=3.0, invalid=[0])]])
    credit = GiGPO()(alone)
    assert credit.advantage.tolist() == [0.0]
    assert reasons(credit.terms["episode"].reason) == ["group_of_one"]
    raw = GiGPO(group_of_one="raw")(alone)
    assert raw.advantage.tolist() == [3.0]
    assert reasons(raw.reason) == ["credited"]
    close(GiGPO.preset("verl-agent")(alone).advantage, [2.9], 1e-12)


# Penalties.


@pytest.mark.unit
def test_a_penalty_before_discounting_is_felt_by_earlier_steps():
    # Rewards 0, 0, 1 with the second step invalid, gamma 0.5, penalty 0.5; all states shared with
    # a trajectory of zeros. Before: 1, 0 = -0.5 + 0.5, 0 = 0.5 * 0. After: 0.25, 0.5 - 0.5, 1.
    rows = table([[steps("a", "b", "c", reward=1.0, invalid=[1]), steps("a", "b", "c")]])
    shared = {"gamma": 0.5, "normalise": "mean", "invalid_penalty": 0.5}
    before = GiGPO(**shared)(rows).terms
    assert before["step"].values.tolist() == [0.0, 0.0, 0.5, 0.0, 0.0, -0.5]
    assert reasons(before["step"].reason[:2]) == ["zero_variance"] * 2
    # The episode earned 1 - 0.5 = 0.5 against 0.
    assert before["episode"].values.tolist() == [0.25] * 3 + [-0.25] * 3
    after = GiGPO(**shared, penalty_timing="after")(rows).terms
    assert after["step"].values.tolist() == [0.125, 0.0, 0.5, -0.125, 0.0, -0.5]


@pytest.mark.unit
def test_the_same_text_in_two_tasks_is_two_states():
    credit = GiGPO(normalise="mean")(table(NOTHING_HAPPENS))
    assert credit.terms["step"].values.tolist() == [0.0] * 4
    assert reasons(credit.terms["step"].reason) == ["singleton"] * 4
    assert credit.terms["step"].labels.tolist() == [0, 1, 2, 3]


@pytest.mark.unit
def test_over_the_batch_the_same_text_merges():
    # Returns 1 and 0, mean 0.5.
    credit = GiGPO(normalise="mean", scope="batch")(table(NOTHING_HAPPENS))
    assert credit.terms["step"].values.tolist() == [0.5, 0.0, -0.5, 0.0]
    assert credit.terms["step"].labels.tolist() == [0, 1, 0, 2]


@pytest.mark.unit
@pytest.mark.parametrize("preset", ["trinity", "roll"])
def test_presets_that_merge_tasks(preset):
    labels = GiGPO.preset(preset)(table(NOTHING_HAPPENS)).terms["step"].labels
    assert labels[0] == labels[2]


# Truncation.


@pytest.mark.unit
def test_a_trajectory_that_was_cut():
    # Returns 4, 2, 0. End: mean 2. Exclude the last: mean 3.
    rows = table([[steps("a", reward=4.0), steps("b", reward=2.0), cut(steps("c"))]])
    assert DrGRPO()(rows).advantage.tolist() == [2.0, 0.0, -2.0]
    credit = DrGRPO(truncation="exclude")(rows)
    assert credit.advantage.tolist() == [1.0, -1.0, 0.0]
    assert reasons(credit.reason) == ["credited", "credited", "truncated"]
    assert credit.terms["episode"].labels.tolist() == [0, 0, -1]


@pytest.mark.unit
def test_a_group_that_has_one_trajectory_left():
    rows = table([[steps("a", reward=4.0), cut(steps("c", "d"))]])
    credit = RLOO(truncation="exclude")(rows)
    assert reasons(credit.reason) == ["group_of_one", "truncated", "truncated"]


# The step term alone.


def credited(returns, states, trajectory, revisits, norm):
    returns, states, trajectory = np.array(returns), np.array(states), np.array(trajectory)
    values, reason, *_ = step_relative(
        returns,
        states,
        int(states.max(initial=-1)) + 1,
        norm,
        trajectory=trajectory,
        trajectory_count=int(trajectory.max(initial=-1)) + 1,
        revisits=revisits,
    )
    return values.tolist(), [Reason(code).label for code in reason]


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


def test_the_ablations_of_the_two_terms() -> None:
    """GiGPO, Figure 4: without A^E the step term is left alone, and without A^S GRPO's."""
    table = StepTable.from_dicts(good_rows())
    whole = GiGPO()(table)
    without_episode, without_step = GiGPO(episode_weight=0)(table), GiGPO(weight=0)(table)
    assert list(without_episode.terms) == ["step"]
    np.testing.assert_array_equal(without_episode.advantage, whole.terms["step"].values)
    np.testing.assert_array_equal(without_step.advantage, whole.terms["episode"].values)
    half = GiGPO(episode_weight=0.5)(table)
    np.testing.assert_allclose(
        half.advantage, 0.5 * whole.terms["episode"].values + whole.terms["step"].values
    )
