"""A growing chat: an agent whose prompts continue the tokens of a whole episode.

Text that is tokenised again can give other tokens, and chat templates drop parts of earlier turns.
So a sampled text keeps its tokens (``SampledText``), and the next prompt consists of these and of
the tokens of the new message alone. A trajectory is then one row of tokens, read once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from ascribe.steps.errors import InputError
from ascribe_lab.agents import (
    Agent,
    AgentDecision,
    FullHistory,
    Message,
    Prompt,
    TextPrompt,
    Turn,
    View,
)
from ascribe_lab.models import Chat
from ascribe_lab.models.policy import Request, Sample, Sampling, SamplingPolicy
from ascribe_lab.models.tokens import PromptTooLongError
from ascribe_lab.train.config import Layout

THEN = TextPrompt(
    "{observation}\n{choices}", choices="These actions are possible now:\n{admissible}\n"
)
"""The messages after the first: what the agent observes."""

EXAMPLE: tuple[Message, Message] = (
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": "!"},
)


class SampledText(str):
    """A response, with the chat before it and the tokens of both."""

    ids: tuple[int, ...]
    """Prompt and response."""
    chat: tuple[Message, ...]
    """The messages before it."""

    @staticmethod
    def of(sample: Sample, chat: Sequence[Message]) -> "SampledText":
        """The text of a sample that answers a chat."""
        text = SampledText(sample.text)
        text.ids, text.chat = sample.prompt_ids + sample.response_ids, tuple(chat)
        return text


@dataclass(frozen=True)
class WholeChatPrompt:
    """A prompt that continues the chat: one message for each observation.

    Attributes:
        first: writes the messages before the first response: the task, and what there is to know.
        then: writes each message after that.
    """

    first: Prompt
    then: Prompt = THEN

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:  # noqa: ARG002
        """The chat so far, and the new observation.

        Raises:
            TypeError: if the policy does not keep the tokens of its responses (``ChatPolicy``).
        """
        if not view.turns:
            return self.first(view, ())
        response = view.turns[-1].response
        if not isinstance(response, SampledText):
            raise TypeError("this prompt needs a policy that keeps tokens: ChatPolicy(policy)")
        new = self.then(replace(view, turns=()), ())
        return [*response.chat, {"role": "assistant", "content": response}, *new]


@dataclass(frozen=True)
class ChatAgent(Agent):
    """An agent that parses plain text, so that no tokens travel to environments."""

    def decide(self, response: str, view: View) -> AgentDecision:
        """The action of a response."""
        return super().decide(str(response), view)


def whole_chat(agent: Agent) -> Agent:
    """The agent with the whole chat in its prompt; its own prompt writes the first message."""
    return ChatAgent(WholeChatPrompt(agent.prompt), FullHistory(), agent.parser, agent.on_invalid)


class TokenPolicy(SamplingPolicy, Protocol):
    """A policy whose samples have tokens: a model, or an expert that is to be learned from."""

    chat: Chat


class ChatPolicy:
    """A policy whose prompts continue the tokens of a chat.

    Args:
        policy: samples the responses.
    """

    def __init__(self, policy: TokenPolicy) -> None:
        policy.chat = GrowingChat(policy.chat)
        self.policy = policy

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        samples = self.policy(requests, sampling)
        return [
            replace(sample, text=SampledText.of(sample, request.messages))
            for sample, request in zip(samples, requests, strict=True)
        ]

    def close(self) -> None:
        """Give back what the policy holds."""
        self.policy.close()


def in_layout(layout: Layout, agent: Agent, policy: Any) -> tuple[Agent, Any]:
    """Agent and policy as a training with this layout plays them."""
    return (whole_chat(agent), ChatPolicy(policy)) if layout == "trajectory" else (agent, policy)


class GrowingChat(Chat):
    """A chat whose prompts are the tokens so far and those of the new message."""

    def __init__(self, chat: Chat) -> None:
        vars(self).update(vars(chat))

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids of the chat, with the opening of the model's turn at the end."""
        response = messages[-2]["content"] if len(messages) > 1 else ""
        if not isinstance(response, SampledText):
            return super().prompt(messages)
        ids = response.ids + self._between(response, messages[-1])
        if self.context is not None and len(ids) >= self.context:
            raise PromptTooLongError(
                f"the prompt has {len(ids)} tokens, the context {self.context}"
            )
        return ids

    def _between(self, response: SampledText, message: Message) -> tuple[int, ...]:
        """What the template writes between a response and the opening of the next."""
        whole = super().prompt([*EXAMPLE, message])
        rest = whole[len(self._opening) :]
        if whole[: len(self._opening)] != self._opening or rest[0] not in self.ends:
            raise InputError(
                "the chat template changes earlier responses, so a chat cannot grow token by "
                "token: use layout='step'"
            )
        # The model may have been cut before it ended its turn.
        return rest[1:] if response.ids[-1] == rest[0] else rest

    @cached_property
    def _opening(self) -> tuple[int, ...]:
        """The example up to the end of the response's text."""
        question, response = EXAMPLE
        return super().prompt([question]) + tuple(self._ids(response["content"]))
