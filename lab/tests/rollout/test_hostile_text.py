"""Hostile text goes the whole way: environment, prompt, answer, parser, environment, file and back.

It comes back as it was, or it is refused with a reason. Nothing in between breaks, and nothing is
read as anything but text.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ascribe import check
from ascribe.steps.files import read
from ascribe.steps.problems import Severity
from ascribe.steps.table import encodable
from ascribe_lab.agents import WholeText, agent_for
from ascribe_lab.envs import Outcome, Start, TextEnvironment
from ascribe_lab.rollout import Plan, Request, Sample, Sampling, Trajectory, rollout, save
from ascribe_lab.rollout.pools import EnvironmentSpec, FailureKind, Pool, ProcessPool, SerialPool
from tests.hostile import HOSTILE, LONG

TEXTS = [*HOSTILE.values(), *LONG.values()]
SPEC = EnvironmentSpec("lab.tests.rollout.test_hostile_text:Echo")


class Echo(TextEnvironment[list[str]]):
    """Task number i says text number i, then whatever it is told."""

    tasks = len(TEXTS)

    def __init__(self) -> None:
        super().__init__(horizon=3)

    def begin(self, task: int, generator: np.random.Generator) -> Start[list[str]]:
        said = TEXTS[task]
        return Start([said], observation=said, task=said[:100], family="echo")

    def act(self, episode: list[str], action: str) -> Outcome:
        episode.append(action)
        return Outcome(action, reward=0.5)

    def admissible(self, episode: list[str]) -> list[str]:
        return [episode[-1]]

    def state_key(self, episode: list[str], observation: str) -> str:
        return observation


class Parrot:
    """Answers with the environment's last words."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        self.read += [message["content"] for request in requests for message in request.messages]
        return [Sample(request.info["state"], (1,), (2,), (-1.0,)) for request in requests]

    def close(self) -> None:
        """Nothing to give back."""


@contextmanager
def opened(kind: str) -> Iterator[Pool]:
    if kind == "serial":
        with SerialPool(SPEC, slots=16) as pool:
            yield pool
    else:
        with ProcessPool(SPEC, workers=2, slots=16, step_limit=60.0, reset_limit=60.0) as pool:
            yield pool


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "suffix", "texts"),
    [("serial", ".jsonl.gz", TEXTS[: len(HOSTILE)]), ("processes", ".parquet", TEXTS)],
    ids=["serial", "processes"],
)
def test_text_comes_back_or_is_refused(
    tmp_path: Path, kind: str, suffix: str, texts: list[str]
) -> None:
    agent = agent_for("other", "plain", parser=WholeText())
    plan = Plan(groups=len(texts), size=1, max_turns=2, tasks=range(len(texts)), name="hostile")
    parrot = Parrot()
    with opened(kind) as pool:
        played = rollout(plan, pool, agent, parrot)

    refused = {lost.group for lost in played.failed}
    assert refused == {f"hostile/{i}" for i, text in enumerate(texts) if not encodable(text)}
    assert {lost.kind for lost in played.failed} == {FailureKind.MALFORMED}
    assert len(played.trajectories) + len(refused) == len(texts)

    file = tmp_path / f"hostile{suffix}"
    for third in range(3):  # one file of a million equal letters after another would be refused
        part = replace(played, trajectories=played.trajectories[third::3])
        save(part, file)
        back = read(file)
        assert not [p for p in check(back.table).problems if p.severity >= Severity.ERROR]
        assert back.table.action.texts() == [step.action for step in part.steps]
        seen, said = (back.carried.column(name).to_pylist() for name in ("observation", "response"))
        assert seen == [step.observation for step in part.steps]
        assert said == [step.sample.text for step in part.steps]

    for trajectory in played.trajectories:
        assert first_words(trajectory) == texts[int(trajectory.group.split("/")[1])]
    # A brace in an observation is never filled in, a turn never ended.
    assert any("{observation} {{x}}" in prompt for prompt in parrot.read)
    assert not any("<|im_end|>" in prompt for prompt in parrot.read)


def first_words(trajectory: Trajectory) -> str:
    return trajectory.steps[0].observation
