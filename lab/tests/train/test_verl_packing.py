"""Steps go to the trainer and come back the same, whatever order the rows are in."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.sessions import merge
from ascribe_lab.models.policy import Sample
from ascribe_lab.rollout.episode import EpisodeFailure, FailedEpisode, Step
from ascribe_lab.rollout.pools import FailureKind
from ascribe_lab.rollout.run import Trajectory
from ascribe_lab.train.iterations import without_texts
from ascribe_lab.train.verl.packing import pack, pack_failed, unpack

texts = st.text(st.characters(), max_size=8)
rewards = st.floats(allow_nan=False)
samples = st.builds(
    Sample,
    text=texts,
    prompt_ids=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    response_ids=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    logprobs=st.lists(st.floats(-9, 0), max_size=3).map(tuple),
)
steps = st.builds(
    Step,
    state=texts,
    observation=texts,
    messages=st.lists(st.fixed_dictionaries({"role": texts, "content": texts}), max_size=2),
    sample=samples,
    action=texts,
    valid=st.booleans(),
    problem=st.none() | texts,
    reward=rewards,
    terminated=st.booleans(),
    truncated=st.booleans(),
    won=st.booleans(),
)
several = st.lists(
    st.builds(
        Trajectory,
        group=texts,
        name=texts,
        task=texts,
        family=texts,
        steps=st.lists(steps, min_size=1, max_size=3).map(tuple),
    ),
    max_size=4,
    unique_by=lambda trajectory: trajectory.name,
)


def plain(trajectories: Sequence[Trajectory]) -> Any:
    """Without the difference between lists and tuples."""
    return json.loads(json.dumps([asdict(trajectory) for trajectory in trajectories]))


def packed(trajectory: Trajectory, *, whole: bool, together: bool = False) -> list[str]:
    """As the agent loop packs it."""
    samples = [step.sample for step in trajectory.steps]
    names = [0] * len(samples) if together else range(len(samples))
    ids = [one.prompt_ids for one in samples], [one.response_ids for one in samples]
    return pack(trajectory, merge(*ids, names), whole=whole)


@given(several, st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_what_is_packed_is_unpacked(
    trajectories: list[Trajectory], shuffle: random.Random, whole: bool, together: bool
) -> None:
    rows = [text for one in trajectories for text in packed(one, whole=whole, together=together)]
    shuffle.shuffle(rows)
    unpacked, spans = unpack(dict(enumerate(rows)), [5] * len(rows))
    assert unpacked.clock.tokens == 5 * len(rows)
    wanted = sorted(trajectories, key=lambda trajectory: trajectory.name)
    kept = wanted if whole else list(map(without_texts, wanted))
    assert plain(unpacked.trajectories) == plain(kept)
    assert set(spans.sequence) == set(range(len(rows)))
    # The row that is told of a step is the row that the step came in.
    told = [json.loads(rows[row])["name"] for row in spans.sequence]
    assert told == [t.name for t in unpacked.trajectories for _ in t.steps]
    sizes = [len(s.sample.response_ids) for t in wanted for s in t.steps]
    assert (spans.end - spans.start).tolist() == sizes


def test_steps_that_continue_each_other_share_a_row() -> None:
    samples = [
        Sample("", (1, 2), (3,)),
        Sample("", (1, 2, 3, 4, 5), (6, 7)),
        Sample("", (9,), (8,)),
    ]
    steps = tuple(replace(step(0.0), sample=sample) for sample in samples)
    rows = packed(Trajectory("g", "g/0", "t", "f", steps), whole=True, together=True)
    _, spans = unpack({3: rows[0], 1: rows[1]}, [0, 1, 0, 5])
    assert spans.sequence.tolist() == [3, 3, 1]
    assert spans.turn.tolist() == [0, 1, 0]
    assert spans.start.tolist() == [0, 3, 0]
    assert spans.end.tolist() == [1, 5, 1]
    assert spans.turns.tolist() == [0, 1, 0, 2]


def step(reward: float) -> Step:
    return Step("s", "o", [], Sample(""), "a", True, None, reward, True, False, True)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_rewards_that_are_no_numbers_arrive_as_they_are(reward: float) -> None:
    sent = Trajectory("g", "g/0", "t", "f", (step(reward),))
    (found,) = unpack(dict(enumerate(packed(sent, whole=False))), [1])[0].trajectories
    np.testing.assert_equal(found.steps[0].reward, reward)


@pytest.mark.parametrize("kind", [*FailureKind, *EpisodeFailure])
def test_an_episode_that_was_given_up_says_why(kind: FailureKind | EpisodeFailure) -> None:
    lost = FailedEpisode("g", "g/1", kind, "what happened", 3)
    sent = Trajectory("g", "g/0", "t", "f", (step(1.0),))
    unpacked, spans = unpack({4: pack_failed(lost), 7: packed(sent, whole=False)[0]}, [1] * 8)
    assert unpacked.failed == (lost,)
    assert unpacked.failed[0].kind is kind
    assert spans.sequence.tolist() == [7]


def test_a_step_that_did_not_come_is_missed() -> None:
    sent = Trajectory("g", "g/0", "t", "f", (step(0.0), replace(step(1.0), state="s2")))
    with pytest.raises(ValueError, match=r"g/0: steps \[1\] came"):
        unpack({0: packed(sent, whole=False)[1]}, [1])
