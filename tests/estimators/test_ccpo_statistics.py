"""Running statistics: right, explicit, and the same after a resume."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.estimators.ccpo import CCPO, PAPER, STREAMS, Statistics, think_solve, trust
from tests.estimators import reference_ccpo as reference

pytestmark = pytest.mark.unit

SIZES, SEEDS = st.lists(st.integers(0, 6), max_size=8), st.integers(0, 2**32 - 1)


def batches(sizes, seed):
    random = np.random.default_rng(seed)
    return [random.choice([*random.uniform(-5, 5, 4), 0.0, 1.0], (size, 2)) for size in sizes]


@given(SIZES, SEEDS, st.sampled_from((0.0, 0.5, 0.99)))
def test_equals_the_loop(sizes, seed, decay):
    found = Statistics.start(("a", "b"))
    wanted = [reference.History(decay), reference.History(decay)]
    for batch in batches(sizes, seed):
        found = found.updated(batch, decay)
        for stream, history in enumerate(wanted):
            history.see(batch[:, stream].tolist())
    assert found.samples == wanted[0].samples
    assert found.mean == pytest.approx([history.mean for history in wanted], abs=1e-12)
    assert found.variance == pytest.approx([history.variance for history in wanted], abs=1e-12)


def test_by_hand():
    first = Statistics.start(["a"]).updated(np.array([[0.0], [2.0]]), decay=0.75)
    assert first == Statistics(("a",), (1.0,), (1.0,), 2)
    second = first.updated(np.array([[5.0]]), decay=0.75)
    assert second == Statistics(("a",), (2.0,), (0.75,), 3)
    assert second.updated(np.empty((0, 1)), decay=0.75) == second


@given(SIZES, SEEDS)
def test_a_checkpoint_holds_it_exactly(sizes, seed):
    found = Statistics.start(("a", "b"))
    for batch in batches(sizes, seed):
        found = found.updated(batch, 0.99)
    assert Statistics.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(
    "shaping", [PAPER, CCPO.preset("first-release")], ids=["paper", "first release"]
)
@pytest.mark.parametrize("stop", [0, 1, 5, 19])
def test_a_resumed_run_goes_on_as_if_nothing_had_been(shaping, stop):
    random = np.random.default_rng(stop)
    rewards = random.integers(0, 2, (20, 2, 32)).astype(np.float64)
    prompt = np.arange(32) // 4

    def run(steps, history):
        advantages = []
        for joint, solo in rewards[steps]:
            credit, history = think_solve(joint, solo, prompt, 8, history=history, recipe=shaping)
            advantages.append(credit.advantage)
        return advantages, history

    whole, end = run(slice(0, 20), Statistics.start(STREAMS))
    before, history = run(slice(0, stop), Statistics.start(STREAMS))
    saved = json.dumps(history.to_dict())
    after, resumed_end = run(slice(stop, 20), Statistics.from_dict(json.loads(saved)))
    assert resumed_end == end
    np.testing.assert_array_equal([*before, *after], whole)  # bit for bit


def test_what_would_poison_the_averages_is_refused():
    with pytest.raises(ValueError, match="must be finite"):
        Statistics.start(("a", "b")).updated(np.array([[0.0, np.nan]]), 0.9)


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"streams": ["a"], "mean": [0.0], "variance": [1.0]},
        {"streams": ["a"], "mean": [0.0, 1.0], "variance": [1.0], "samples": 1},
        {"streams": ["a"], "mean": ["nan"], "variance": [1.0], "samples": 1},
        {"streams": ["a"], "mean": ["x"], "variance": [1.0], "samples": 1},
        {"streams": ["a"], "mean": [0.0], "variance": [-1.0], "samples": 1},
        {"streams": ["a"], "mean": [0.0], "variance": [1.0], "samples": -1},
        {"streams": ["a"], "mean": None, "variance": [1.0], "samples": 1},
    ],
)
def test_a_broken_checkpoint_is_refused(saved):
    with pytest.raises(ValueError):  # noqa: PT011 (which message does not matter)
        Statistics.from_dict(saved)


@given(st.floats(-3, 3), st.floats(0, 4), st.floats(0, 3))
def test_trust_is_the_sigmoid(mean, variance, eta):
    shaping = CCPO(eta=eta)
    gate = trust(Statistics(("x",), (mean,), (variance,), 9), "x", shaping)
    assert 0.0 <= gate <= 1.0
    wanted = reference.sigmoid(eta * mean / (variance**0.5 + shaping.epsilon))
    assert gate == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 0.0},
        {"eta": -1.0},
        {"decay": 1.0},
        {"minimum": -1},
        {"epsilon": 0.0},
        {"statistics": "during"},
        {"flat": "two"},
    ],
)
def test_parameters_without_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CCPO(**wrong)
