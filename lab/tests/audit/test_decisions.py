"""Decisions are worth what the game says, and credit is compared inside states."""

from contextlib import closing

import numpy as np
import pytest

from ascribe_lab.audit.decisions import (
    measure,
    noise_share,
    open_places,
    score_decisions,
    squared_error,
)
from ascribe_lab.rollout import Model, Plan, Rollout, Setup, rollout

pytestmark = pytest.mark.unit

PLAN = Plan(groups=1, size=12, max_turns=4, seed=3)


def played(setup: Setup) -> tuple[Rollout, dict]:
    with closing(Model("random").open(setup.agent)) as policy:
        with setup.open_pool(12) as pool:
            done = rollout(PLAN, pool, setup.agent, policy)
        places = open_places(done, 50, np.random.default_rng(0))
        return done, measure(setup, policy, PLAN, done, places, at_once=16, most=64)


def test_values_are_those_of_the_game() -> None:
    setup = Setup("lab.tests.audit.fork:Fork", {}, "plain", "serial")
    done, found = played(setup)
    wanted = {"left": 0.5, "right": 0.0, "red": 1.0, "blue": 0.0}
    seen = set()
    for (trajectory, at), decision in found.items():
        steps = done.trajectories[trajectory].steps
        action = steps[at].action
        went_left = at == 0 or steps[0].action == "left"
        value = wanted[action] if went_left else 0.0
        seen.add(action)
        n = decision.after["success"].size
        assert decision.after["success"].mean() == pytest.approx(value, abs=2.0 / np.sqrt(n))
        expected = 0.95 * value if action in ("left", "right") else value
        assert decision.after["discounted"].mean() == pytest.approx(expected, abs=2.0 / np.sqrt(n))
        before = 0.25 if at == 0 else 0.5 if went_left else 0.0
        mean = decision.instead["success"].mean()
        assert mean == pytest.approx(before, abs=2.0 / np.sqrt(decision.instead["success"].size))
    assert {"left", "right", "red", "blue"} <= seen


def test_an_environment_that_does_not_replay_is_refused() -> None:
    setup = Setup("lab.tests.audit.fork:Fork", {"forgets": True}, "plain", "serial")
    with pytest.raises(ValueError, match="Fork cannot return to a decision"):
        played(setup)


def continued(true: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Q from 16 continuations of each decision, and its squared standard error."""
    drawn = (random.random((true.size, 16)) < true[:, None]).astype(float)
    return drawn.mean(axis=1), np.array([squared_error(row) for row in drawn])


def test_noise_of_the_truth_is_corrected() -> None:
    """Credit that is right has a cosine of 1, though Q is known from 16 continuations only."""
    random = np.random.default_rng(0)
    state = np.repeat(np.arange(400), 3)
    true = random.random(state.size)
    q, noise = continued(true, random)
    right = score_decisions(true, q, noise, state)
    assert right.low < 1.0 < right.high
    assert right.cosine == pytest.approx(1.0, abs=0.04)
    none = score_decisions(random.normal(size=state.size), q, noise, state)
    assert none.low < 0.0 < none.high
    assert 0.05 < noise_share(q, noise, state) < 0.3


def test_what_all_actions_of_a_state_share_does_not_count() -> None:
    random = np.random.default_rng(1)
    state = np.repeat(np.arange(100), 2)
    true = random.random(state.size)
    q, noise = continued(true, random)
    shifted = true + 10.0 * random.normal(size=100)[state]
    one, other = (score_decisions(credit, q, noise, state) for credit in (true, shifted))
    assert one.cosine == pytest.approx(other.cosine)
