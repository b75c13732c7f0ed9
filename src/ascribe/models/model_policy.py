"""``ModelPolicy``: what policies that ask a model share, so that each holds only its engine."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ascribe.models.policy import PromptTooLong, Request, Sample, Sampling
from ascribe.models.seeds import mixed
from ascribe.models.tokens import Chat


@dataclass(frozen=True)
class Prompt:
    """What an engine is to continue."""

    ids: tuple[int, ...]
    seed: int
    """Of 32 bits: generators of torch on the CPU look at no more."""
    limit: int
    """How many tokens it may write, at least 1."""


@dataclass(frozen=True)
class Drawn:
    """What an engine wrote: ids as they were drawn, and their log-probabilities."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool
    """Whether an end-of-turn token or a stop text came, rather than the limit."""


class ModelPolicy(ABC):
    """Messages to ids, ids to the engine, ids and text to samples."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat

    @abstractmethod
    def _draw(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Drawn]:
        """Continue each prompt, in the same order. There is at least one."""

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        prompts: dict[int, Prompt] = {}
        for number, request in enumerate(requests):
            try:
                ids = self.chat.prompt(request.messages)
            except PromptTooLong:
                continue
            room = self.chat.room(ids, sampling.max_tokens)
            prompts[number] = Prompt(ids, mixed(request.seed % 2**128), room)
        drawn = self._draw(list(prompts.values()), sampling) if prompts else []
        samples = {
            number: Sample(
                self.chat.text(found.ids),
                prompt.ids,
                found.ids,
                found.logprobs,
                "stop" if found.ended else "length",
            )
            for (number, prompt), found in zip(prompts.items(), drawn, strict=True)
        }
        too_long = Sample("", finish="prompt_too_long")
        return [samples.get(number, too_long) for number in range(len(requests))]

    def close(self) -> None:  # noqa: B027 (not every policy holds something)
        """Give back what the policy holds."""
