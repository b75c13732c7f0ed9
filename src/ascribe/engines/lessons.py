"""Lessons: prompts of an environment, each with the answer that a teacher gives to it.

The teacher plays episodes. Where it always does what it teaches, the lessons know only the states
on its own way, and a model that strays once is lost. So a share of its actions, the ``noise``, is
drawn at random: those are carried out, and the teacher's own are taught all the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ascribe.agents import Writer
from ascribe.models import Chat, ExpertPolicy, RandomPolicy
from ascribe.models.tokens import Message, PromptTooLongError
from ascribe.rollout import Plan, Request, Sample, Sampling, SamplingPolicy, Setup, rollout

Teacher = Literal["expert", "random"]
"""Who shows what to do: the environment's expert, or any admissible action."""

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Lesson:
    """A prompt and the answer to it, in tokens."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    """With the token that ends the turn."""


@dataclass(frozen=True)
class Demonstration:
    """What is played to make lessons.

    Attributes:
        teacher: ``expert``, or ``random`` to teach the form of answers alone.
        episodes: how many are played; the seed draws their tasks.
        noise: share of decisions at which a random action is carried out instead of the teacher's.
        max_turns: decisions after which an episode is cut; None: the environment's limit.
        seed: of tasks and noise.
    """

    teacher: Teacher = "expert"
    episodes: int = 200
    noise: float = 0.0
    max_turns: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.teacher not in get_args(Teacher):
            known = ", ".join(get_args(Teacher))
            raise ValueError(f"there is no teacher {self.teacher!r}; there are: {known}")
        if self.episodes < 1:
            raise ValueError(f"episodes must be at least 1, not {self.episodes}")
        if not 0 <= self.noise < 1:
            raise ValueError(f"noise must lie in [0, 1), not {self.noise}")
        if self.noise and self.teacher == "random":
            raise ValueError("noise is for the expert: a random teacher has no way to stray from")


class Straying:
    """A policy that writes down what the teacher answers, and sometimes does something else.

    Args:
        teacher: whose answers are written down.
        stray: who acts instead, now and then.
        noise: how often. Whether it is so follows from the request's seed.
    """

    def __init__(self, teacher: SamplingPolicy, stray: SamplingPolicy, noise: float) -> None:
        self.teacher, self.stray, self.noise = teacher, stray, noise
        self.taught: list[tuple[Sequence[Message], str]] = []

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        samples = self.teacher(requests, sampling)
        for number, (request, sample) in enumerate(zip(requests, samples, strict=True)):
            if sample.text:  # empty where the teacher knows no way on
                self.taught.append((request.messages, sample.text))
            if np.random.default_rng([request.seed, 1]).random() < self.noise:
                samples[number] = self.stray([request], sampling)[0]
        return samples

    def close(self) -> None:
        """Nothing to give back."""


def lessons(
    setup: Setup,
    chat: Chat,
    demonstration: Demonstration,
    progress: Progress = lambda _: None,
) -> list[Lesson]:
    """Play the episodes of a demonstration and keep a lesson for each decision.

    Lessons that do not fit the model's context are left out. Their order follows from what is in
    them, so it is the same on every pool.

    Raises:
        ValueError: if the environment has no expert, names no limit, or no lesson is left.
    """
    if demonstration.teacher == "expert":
        setup = setup.with_expert()
    turns = setup.turns(demonstration.max_turns)
    parser = setup.agent.parser
    say = parser.render if isinstance(parser, Writer) else str
    wanders = RandomPolicy(say)
    teacher = ExpertPolicy(say) if demonstration.teacher == "expert" else wanders
    policy = Straying(teacher, wanders, demonstration.noise)
    plan = Plan(demonstration.episodes, 1, turns, demonstration.seed)
    with setup.open_pool(plan.groups) as pool:
        rollout(plan, pool, setup.agent, policy, progress=progress)
    made = (_lesson(chat, messages, answer) for messages, answer in policy.taught)
    found = [lesson for lesson in made if lesson is not None]
    if not found:
        raise ValueError("no episode gave a lesson that fits the model's context")
    return sorted(found, key=lambda lesson: (lesson.prompt, lesson.response))


def _lesson(chat: Chat, messages: Sequence[Message], answer: str) -> Lesson | None:
    """The prompt as in sampling, and the answer with the end of the turn; None if too long."""
    try:
        prompt = chat.prompt(messages)
    except PromptTooLongError:
        return None
    response = (*_plain_ids(chat.tokenizer, answer), chat.tokenizer.eos_token_id)
    if chat.room(prompt, len(response)) < len(response):
        return None
    return Lesson(prompt, response)


def _plain_ids(tokenizer: Any, text: str) -> list[int]:
    # An action is the environment's text: it must not become a special token.
    found: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)[
        "input_ids"
    ]
    return found
