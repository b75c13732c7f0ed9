"""What a policy is: requests in, samples out, with the very token ids that were sampled."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, str]
"""One message of a chat: ``{"role": "user", "content": "..."}``."""


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
        if self.temperature < 0:
            raise ValueError(f"temperature must be at least 0, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")


@dataclass(frozen=True)
class Request:
    """What one agent asks of the policy."""

    messages: Sequence[Message]
    seed: int
    """Makes the sample repeatable, where the policy can: the same for the same episode and step."""
    info: dict[str, Any] = field(default_factory=dict)
    """The environment's info; scripted policies read it, models do not."""


FINISHES = {
    "stop": "the model ended its turn, or a stop text came",
    "length": "max_tokens were written, or the model's context is full",
    "prompt_too_long": "the prompt leaves no room for an answer: the sample is empty",
}
"""Every value of ``Sample.finish``, and what it means."""


@dataclass(frozen=True)
class Sample:
    """What the policy answered.

    The ids are those that went into the model and came out of it. Whoever trains on a sample trains
    on these: text that is tokenised again can give other ids.
    """

    text: str
    """The response ids in words, without the end-of-turn token."""
    prompt_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    """With the end-of-turn token, if the model wrote one."""
    logprobs: tuple[float, ...] = ()
    """Log-probability of each response token under the model itself, before temperature and top-p:
    what trainers recompute. One per response id."""
    finish: str = "stop"
    """Why generation ended: one of ``FINISHES``."""


class Policy(Protocol):
    """Answers requests. One call may hold many; their order does not matter to the answers."""

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        ...

    def close(self) -> None:
        """Give back what the policy holds."""
        ...


class PromptTooLong(ValueError):  # noqa: N818 (named for what is wrong)
    """A prompt leaves no room for an answer in the model's context."""
