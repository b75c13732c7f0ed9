"""The policy interface: requests in, samples with their sampled token ids out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.models.tokens import Chat, Message, PromptTooLongError


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. The defaults are GiGPO's for training."""

    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    """Generation ends after any of these texts; the text stays in the sample."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise InputError(f"temperature must be at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.max_tokens < 1:
            raise InputError(f"max_tokens must be at least 1, not {self.max_tokens}")


@dataclass(frozen=True)
class Request:
    """A request for a response to a chat."""

    messages: Sequence[Message]
    seed: int
    """Makes the sample repeatable, where the policy can: the same for the same episode and step."""
    info: dict[str, Any] = field(default_factory=dict)
    """The environment's info; scripted policies read it, models do not."""


FINISHES = {
    "stop": "the model ended its turn, or a stop text came",
    "length": "max_tokens were written, or the model's context is full",
    "prompt_too_long": "the prompt leaves no room for a response: the sample is empty",
}
"""Every value of ``Sample.finish``, and what it means."""


@dataclass(frozen=True)
class Sample:
    """One response of a policy.

    The ids are those that the model read and sampled. Train on these ids: tokenising the text again
    can give others.
    """

    text: str
    """The response ids decoded, without the end-of-turn token."""
    prompt_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    """With the end-of-turn token, if the model wrote one."""
    logprobs: tuple[float, ...] = ()
    """Log-probability of each response token under the model itself, before temperature and top-p:
    what trainers recompute. One per response id."""
    finish: str = "stop"
    """Why generation ended: one of ``FINISHES``."""
    score: float | None = None
    """How likely the model found the right answer before it responded, if it was asked."""


class SamplingPolicy(Protocol):
    """Responds to requests. One call may hold many; a sample does not depend on the others."""

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        ...

    def close(self) -> None:
        """Release what the policy holds."""
        ...


def mix_seeds(*numbers: int) -> int:
    """A seed of 32 bits, the same on every machine; close numbers give seeds far apart."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])


# Policies with a model.


@dataclass(frozen=True)
class TokenPrompt:
    """What a model is to continue."""

    ids: tuple[int, ...]
    seed: int
    """Of 32 bits: torch's CPU generators use no more."""
    limit: int
    """How many tokens may be sampled, at least 1."""


@dataclass(frozen=True)
class Completion:
    """What a model sampled: token ids and their log-probabilities."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool
    """Whether an end-of-turn token or a stop text came, rather than the limit."""


class ModelPolicy(ABC):
    """Converts messages to token ids and sampled ids to samples; a subclass does the sampling."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    @abstractmethod
    def _complete(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        """Continue each prompt, in the same order. There is at least one."""

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        prompts: dict[int, TokenPrompt] = {}
        for index, request in enumerate(requests):
            try:
                ids = self.chat.prompt(request.messages)
            except PromptTooLongError:
                continue
            limit = self.chat.room(ids, sampling.max_tokens)
            prompts[index] = TokenPrompt(ids, mix_seeds(request.seed % 2**128), limit)
        completions = self._complete(list(prompts.values()), sampling) if prompts else []
        samples = [Sample("", finish="prompt_too_long")] * len(requests)
        for (index, prompt), completion in zip(prompts.items(), completions, strict=True):
            finish = "stop" if completion.ended else "length"
            text = self.chat.text(completion.ids)
            samples[index] = Sample(text, prompt.ids, completion.ids, completion.logprobs, finish)
        return samples

    def close(self) -> None:  # noqa: B027 (not every policy holds something)
        """Release what the policy holds."""


class AnswerScoring:
    """A policy that is also asked how likely it finds the right answer, before each response.

    ``Sample.score`` is the probability of a token of the right answer, as the geometric mean over
    its tokens. The right answer is ``info["right_action"]`` of environments made with
    ``expert=True``.

    Args:
        policy: responds, and scores responses.
        render: from an action to a response that gives it.
    """

    def __init__(self, policy: "ScoresResponses", render: Callable[[str], str]) -> None:
        self.policy, self.render = policy, render

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order, with its score."""
        if any("right_action" not in request.info for request in requests):
            raise InputError(
                "the environment does not say what the right answer is: info has no right_action, "
                "so states cannot be scored by it"
            )
        answers = [self.render(request.info["right_action"]) for request in requests]
        scores = self.policy.probabilities([request.messages for request in requests], answers)
        samples = self.policy(requests, sampling)
        return [replace(s, score=score) for s, score in zip(samples, scores, strict=True)]

    def close(self) -> None:
        """Close the policy."""
        self.policy.close()


class ScoresResponses(SamplingPolicy, Protocol):
    """A policy that can say how likely it finds a given response."""

    def probabilities(
        self, chats: Sequence[Sequence[Message]], responses: Sequence[str]
    ) -> list[float | None]:
        """For each chat, the geometric mean of the probabilities of the response's tokens.

        None where chat and response do not fit the model's context.
        """
        ...
