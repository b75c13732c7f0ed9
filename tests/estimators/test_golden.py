"""Small tables whose credit can be computed by hand."""

import numpy as np
import pytest

from ascribe import Reason, StepTable
from ascribe.estimators import GRPO, HGPO, RLOO, DrGRPO, GiGPO, ReinforcePP

pytestmark = pytest.mark.unit


def steps(*states, reward=0.0, invalid=()):
    """A trajectory through these states, paid at its end; ``invalid`` are step numbers."""
    last = len(states) - 1
    return [
        {"state": state, "reward": reward if t == last else 0.0, "valid": t not in invalid}
        for t, state in enumerate(states)
    ]


def table(groups, padding=()):
    """Groups of trajectories of steps; ``padding`` copies rows by number, as padding."""
    rows = []
    for g, trajectories in enumerate(groups):
        for i, trajectory in enumerate(trajectories):
            for t, step in enumerate(trajectory):
                name = {"group": f"task {g}", "trajectory": f"{g}/{i}", "step": t, "action": "go"}
                ended = {"truncated": False, "padding": False}
                rows.append(name | ended | step)
    rows += [rows[i] | {"padding": True} for i in padding]
    return StepTable.from_dicts(rows)


def cut(trajectory):
    """The same trajectory, ended by a limit."""
    return [*trajectory[:-1], trajectory[-1] | {"truncated": True}]


def reasons(reason):
    return [Reason(code).label for code in reason]


def close(values, wanted, tolerance=1e-5):
    assert values.tolist() == pytest.approx(wanted, abs=tolerance)


# Padding.


@pytest.mark.parametrize("recipe", [DrGRPO(), GiGPO(normalise="mean", weight=0.0)])
def test_a_padding_copy_does_not_move_the_mean(recipe):
    # Returns 10 and 0, mean 5: +5 and -5. With the copy counted: mean 6.67, +3.33 +3.33 -6.67.
    credit = recipe(table([[steps("a", reward=10.0), steps("b")]], padding=[0]))
    assert credit.advantage.tolist() == [5.0, -5.0, 0.0]
    assert reasons(credit.reason) == ["credited", "credited", "padding"]


# Revisits.

TWICE_ALONE = [[steps("s", "s", reward=1.0)]]


def test_one_success_that_comes_back_to_a_state_is_compared_with_itself():
    # Returns 0.95 and 1, mean 0.975, sample std 0.05 / sqrt(2) = 0.0354: -0.71 and +0.71.
    credit = GiGPO(revisits="each")(table(TWICE_ALONE))
    close(credit.terms["step"].values, [-0.70709, 0.70709])
    assert reasons(credit.reason) == ["credited", "credited"]


@pytest.mark.parametrize(
    ("revisits", "wanted"),
    [("first", ["singleton", "revisit"]), ("average", ["singleton", "singleton"])],
)
def test_one_success_alone_in_a_state_has_no_peer(revisits, wanted):
    credit = GiGPO(revisits=revisits)(table(TWICE_ALONE))
    assert credit.advantage.tolist() == [0.0, 0.0]
    assert reasons(credit.terms["step"].reason) == wanted
    assert reasons(credit.reason) == wanted
    assert reasons(credit.terms["episode"].reason) == ["group_of_one"] * 2


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


# What a standard deviation does to small differences.


def success_after(delay, name):
    """One visit to the shared state, then success this many steps later."""
    states = ["shared", *[f"{name}{t}" for t in range(delay)]]
    return steps(*states, reward=10.0)


TWO_SUCCESSES = [[success_after(5, "x"), success_after(6, "y")]]


def test_two_successes_one_step_apart_are_blown_up_by_a_std():
    # 10 * 0.95**5 = 7.738 and 10 * 0.95**6 = 7.351: half the difference is 0.19345, the sample
    # std 0.3869 / sqrt(2) = 0.27358: +0.707 and -0.707.
    credit = GiGPO()(table(TWO_SUCCESSES))
    values = credit.terms["step"].values
    close(values[[0, 6]], [0.70710, -0.70710])
    assert np.count_nonzero(values) == 2
    assert set(reasons(credit.terms["episode"].reason)) == {"zero_variance"}


@pytest.mark.parametrize(("floor", "wanted"), [(1.0, 0.193446), (5.0, 0.038689)])
def test_a_floor_under_the_std_keeps_them_small(floor, wanted):
    # 0.193446 / (floor + 1e-6).
    values = GiGPO(std_floor=floor)(table(TWO_SUCCESSES)).terms["step"].values
    close(values[[0, 6]], [wanted, -wanted], 1e-6)


def test_the_mean_form_keeps_them_small():
    values = GiGPO(normalise="mean")(table(TWO_SUCCESSES)).terms["step"].values
    close(values[[0, 6]], [0.193446, -0.193446], 1e-6)


ALL_FAIL = [[steps("s", invalid=[0] if i == 0 else []) for i in range(8)]]


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


def test_one_penalty_stays_small_in_the_mean_form():
    close(DrGRPO(invalid_penalty=0.1)(table(ALL_FAIL)).advantage, [-0.0875] + [0.0125] * 7, 1e-12)
    # N / (N - 1) = 8 / 7: -0.1 against seven zeros, 0 against a mean of -0.1 / 7.
    wanted = [-0.1] + [0.1 / 7] * 7
    close(RLOO(invalid_penalty=0.1)(table(ALL_FAIL)).advantage, wanted, 1e-12)


# Episode baselines.

SHORT_AND_LONG = [[steps("a", reward=10.0), steps("b", "c", "d")]]


def test_the_baseline_of_verl_agent_is_over_steps():
    # Scores of the rows 10, 0, 0, 0: mean 2.5, sample std sqrt((56.25 + 3 * 6.25) / 3) = 5.
    credit = GiGPO.preset("verl-agent")(table(SHORT_AND_LONG))
    close(credit.terms["episode"].values, [1.5, -0.5, -0.5, -0.5])
    # Over trajectories: 10 and 0, mean 5, sample std 7.07.
    credit = GiGPO()(table(SHORT_AND_LONG))
    close(credit.terms["episode"].values, [0.70711] + [-0.70711] * 3)


def test_the_episode_score_of_verl_agent_is_less_the_penalty_of_its_own_row():
    # Scores 10, 0, -0.1, 0: mean 2.475, deviations 7.525, -2.475, -2.575, -2.475, squares
    # 56.625625 + 6.125625 + 6.630625 + 6.125625 = 75.5075, sample std sqrt(75.5075 / 3) = 5.01689.
    rows = [[steps("a", reward=10.0), steps("b", "c", "d", invalid=[1])]]
    credit = GiGPO.preset("verl-agent")(table(rows))
    wanted = [7.525 / 5.01689, -2.475 / 5.01689, -2.575 / 5.01689, -2.475 / 5.01689]
    close(credit.terms["episode"].values, wanted)


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


# Scope.

NOTHING_HAPPENS = [
    [steps("Nothing happens.", reward=1.0), steps("lamp")],
    [steps("Nothing happens."), steps("desk")],
]


def test_the_same_text_in_two_tasks_is_two_states():
    credit = GiGPO(normalise="mean")(table(NOTHING_HAPPENS))
    assert credit.terms["step"].values.tolist() == [0.0] * 4
    assert reasons(credit.terms["step"].reason) == ["singleton"] * 4
    assert credit.terms["step"].labels.tolist() == [0, 1, 2, 3]


def test_over_the_batch_the_same_text_merges():
    # Returns 1 and 0, mean 0.5.
    credit = GiGPO(normalise="mean", scope="batch")(table(NOTHING_HAPPENS))
    assert credit.terms["step"].values.tolist() == [0.5, 0.0, -0.5, 0.0]
    assert credit.terms["step"].labels.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("preset", ["trinity", "roll"])
def test_presets_that_merge_tasks(preset):
    labels = GiGPO.preset(preset)(table(NOTHING_HAPPENS)).terms["step"].labels
    assert labels[0] == labels[2]


# Truncation.


def test_a_trajectory_that_was_cut():
    # Returns 4, 2, 0. End: mean 2. Exclude the last: mean 3.
    rows = table([[steps("a", reward=4.0), steps("b", reward=2.0), cut(steps("c"))]])
    assert DrGRPO()(rows).advantage.tolist() == [2.0, 0.0, -2.0]
    credit = DrGRPO(truncation="exclude")(rows)
    assert credit.advantage.tolist() == [1.0, -1.0, 0.0]
    assert reasons(credit.reason) == ["credited", "credited", "truncated"]
    assert credit.terms["episode"].labels.tolist() == [0, 0, -1]


def test_a_group_that_has_one_trajectory_left():
    rows = table([[steps("a", reward=4.0), cut(steps("c", "d"))]])
    credit = RLOO(truncation="exclude")(rows)
    assert reasons(credit.reason) == ["group_of_one", "truncated", "truncated"]


# REINFORCE++.

TWO_GROUPS = [
    [steps("a", reward=4.0), steps("b", reward=2.0)],
    [steps("c"), steps("d", reward=2.0)],
]


def test_reinforce_pp_over_the_batch():
    # Returns 4, 2, 0, 2: mean 2, squares 8, sample std sqrt(8 / 3).
    credit = ReinforcePP(std_epsilon=0.0)(table(TWO_GROUPS))
    scale = (8 / 3) ** 0.5
    close(credit.advantage, [2 / scale, 0.0, -2 / scale, 0.0], 1e-12)
    assert set(reasons(credit.reason)) == {"credited"}


def test_reinforce_pp_with_the_baseline_of_the_group():
    # Less the means 3 and 1: +1, -1, -1, +1; squares 4, sample std sqrt(4 / 3).
    credit = ReinforcePP(std_epsilon=0.0, baseline="group")(table(TWO_GROUPS))
    scale = (4 / 3) ** 0.5
    close(credit.advantage, [1 / scale, -1 / scale, -1 / scale, 1 / scale], 1e-12)


def test_reinforce_pp_and_a_trajectory_without_peers():
    # The third group has one trajectory: no baseline, and no say in the spread.
    rows = table([*TWO_GROUPS, [steps("e", reward=50.0)]])
    credit = ReinforcePP(std_epsilon=0.0, baseline="group")(rows)
    scale = (4 / 3) ** 0.5
    close(credit.advantage, [1 / scale, -1 / scale, -1 / scale, 1 / scale, 0.0], 1e-12)
    assert reasons(credit.reason)[-1] == "group_of_one"


def test_reinforce_pp_and_a_group_that_earned_the_same():
    # Deviations +1, -1, 0, 0: squares 2, sample std sqrt(2 / 3). The zeros count in the spread.
    rows = table([TWO_GROUPS[0], [steps("c"), steps("d")]])
    credit = ReinforcePP(std_epsilon=0.0, baseline="group")(rows)
    scale = (2 / 3) ** 0.5
    close(credit.advantage, [1 / scale, -1 / scale, 0.0, 0.0], 1e-12)
    assert reasons(credit.reason) == ["credited"] * 2 + ["zero_variance"] * 2


# HGPO.

# With gamma 1, returns are 4, 2 and 0 all along. All go through "b", two of them from "a".
THREE_WAYS = [
    [steps("a", "b", reward=4.0), steps("a", "b", reward=2.0), steps("c", "b")],
]


def test_hgpo_averages_over_contexts():
    # One state: "a" 4, 2, mean 3: +1, -1. "b" 4, 2, 0, mean 2: +2, 0, -2. "c" alone.
    # Two states: "a b" 4, 2, mean 3: +1, -1; "c b" alone.
    # Weights 2 and 3: (2 * 2 + 3 * 1) / 5 = 1.4, (2 * 0 - 3 * 1) / 5 = -0.6, -2.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean")
    credit = recipe(table(THREE_WAYS))
    close(credit.advantage, [1.0, 1.4, -1.0, -0.6, 0.0, -2.0], 1e-12)
    assert reasons(credit.reason)[4] == "singleton"


def test_hgpo_without_zeros():
    # The second row of the second trajectory has 0 among "b" and -1 among "a b": -1 is left.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean", drop_zeros=True)
    close(recipe(table(THREE_WAYS)).advantage, [1.0, 1.4, -1.0, -1.0, 0.0, -2.0], 1e-12)


def test_hgpo_weighs_contexts_alike_with_alpha_zero():
    # (2 + 1) / 2 and (0 - 1) / 2.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean", alpha=0.0)
    close(recipe(table(THREE_WAYS)).advantage, [1.0, 1.5, -1.0, -0.5, 0.0, -2.0], 1e-12)


def test_hgpo_with_the_episode_as_a_context():
    # Scores of the rows 4, 4, 2, 2, 0, 0: mean 2: +2, +2, 0, 0, -2, -2, weight 1.
    # (1 * 2 + 2 * 1) / 3, (1 * 2 + 2 * 2 + 3 * 1) / 6, (0 - 2) / 3, (0 + 0 - 3) / 6, -2, and
    # (1 * -2 + 2 * -2) / 3.
    recipe = HGPO(gamma=1.0, history_length=1, normalise="mean", episode=True)
    close(recipe(table(THREE_WAYS)).advantage, [4 / 3, 1.5, -2 / 3, -0.5, -2.0, -2.0], 1e-12)


def test_hgpo_divides_by_the_population_std():
    # "b": 4, 2, 0, population variance 8 / 3; "a" and "a b": 4, 2, population std 1.
    recipe = HGPO(gamma=1.0, history_length=1, std_epsilon=0.0)
    top = (8 / 3) ** -0.5 * 2
    wanted = [1.0, (2 * top + 3) / 5, -1.0, -3 / 5, 0.0, -top]
    close(recipe(table(THREE_WAYS)).advantage, wanted, 1e-12)


# Missing states.


def test_rows_without_a_state_keep_their_episode_credit():
    rows = table([[steps(None, "b", reward=1.0), steps("b")]])
    credit = GiGPO(gamma=1.0, normalise="mean")(rows)
    assert credit.advantage.tolist() == [0.5, 1.0, -1.0]
    assert reasons(credit.terms["step"].reason) == ["missing_state", "credited", "credited"]
    assert reasons(credit.reason) == ["credited"] * 3
    assert credit.terms["step"].labels.tolist() == [-1, 0, 0]
    assert reasons(HGPO()(rows).reason) == ["missing_state", "credited", "credited"]
