"""An episode as one growing chat, whose tokens are those that were read and sampled.

Text that is tokenised again can give other tokens, and chat templates drop parts of earlier turns.
So what the model said remembers its tokens (``Said``), and the next prompt is made of these and of
the tokens of the new message alone. A trajectory is then one row of tokens, read once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ascribe.agents import Agent, Decision, FullHistory, Message, Prompt, TextPrompt, Turn, View
from ascribe.models import Chat, ModelPolicy
from ascribe.models.policy import PromptTooLong, Request, Sample, Sampling

THEN = TextPrompt(
    "{observation}\n{choices}", choices="These actions are possible now:\n{admissible}\n"
)
"""The messages after the first: what is seen now."""


class Said(str):
    """What the model said, with the chat before it and the tokens of both."""

    ids: tuple[int, ...]
    """Prompt and response."""
    chat: tuple[Message, ...]
    """The messages before it."""

    @staticmethod
    def of(sample: Sample, chat: Sequence[Message]) -> "Said":
        """The text of a sample that answers a chat."""
        said = Said(sample.text)
        said.ids, said.chat = sample.prompt_ids + sample.response_ids, tuple(chat)
        return said


@dataclass(frozen=True)
class WholeChat:
    """A prompt that goes on with the chat: one message for each observation.

    Attributes:
        first: writes the messages before the first answer: the task, and what there is to know.
        then: writes each message after that.
    """

    first: Prompt
    then: Prompt = THEN

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:  # noqa: ARG002
        """The chat so far, and what is seen now.

        Raises:
            TypeError: if the policy does not keep the tokens of what it says (``Conversing``).
        """
        if not view.turns:
            return self.first(view, ())
        said = view.turns[-1].response
        if not isinstance(said, Said):
            raise TypeError("this prompt needs a policy that keeps tokens: Conversing(policy)")
        now = self.then(replace(view, turns=()), ())
        return [*said.chat, {"role": "assistant", "content": said}, *now]


@dataclass(frozen=True)
class ChatAgent(Agent):
    """An agent that reads what was said as plain text: no tokens travel to environments."""

    def decide(self, response: str, view: View) -> Decision:
        """What to carry out, given the answer."""
        return super().decide(str(response), view)


def whole_chat(agent: Agent) -> Agent:
    """The agent with the whole chat before its eyes; its own prompt writes the first message."""
    return ChatAgent(WholeChat(agent.prompt), FullHistory(), agent.parser, agent.on_invalid)


class Conversing:
    """A model's policy that goes on with the tokens of a chat.

    Args:
        policy: who answers.
    """

    def __init__(self, policy: ModelPolicy) -> None:
        policy.chat = GrowingChat(policy.chat)
        self.policy = policy

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        samples = self.policy(requests, sampling)
        return [
            replace(sample, text=Said.of(sample, request.messages))
            for sample, request in zip(samples, requests, strict=True)
        ]

    def close(self) -> None:
        """Give back what the policy holds."""
        self.policy.close()


class GrowingChat(Chat):
    """A chat whose prompts are the tokens so far and those of the message that is new."""

    def __init__(self, chat: Chat) -> None:
        vars(self).update(vars(chat))

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids of the chat, with the opening of the model's turn at the end."""
        said = messages[-2]["content"] if len(messages) > 1 else ""
        if not isinstance(said, Said):
            return super().prompt(messages)
        ids = said.ids + self._going_on(said, messages[-1])
        if self.context is not None and len(ids) >= self.context:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens, the context {self.context}")
        return ids

    def _going_on(self, said: Said, message: Message) -> tuple[int, ...]:
        """What the template writes between an answer and the opening of the next."""
        question, answer = self._example
        whole = super().prompt([question, answer, message])
        rest = whole[len(self._opening) :]
        if whole[: len(self._opening)] != self._opening or rest[0] not in self.ends:
            raise ValueError(
                "the chat template writes an earlier answer in another way than it was given, so a "
                "chat cannot grow token by token: use layout='step'"
            )
        # The model may have been cut before it ended its turn.
        return rest[1:] if said.ids[-1] == rest[0] else rest

    @cached_property
    def _example(self) -> tuple[Message, Message]:
        return {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}

    @cached_property
    def _opening(self) -> tuple[int, ...]:
        """A chat up to the end of an answer's text."""
        question, answer = self._example
        return super().prompt([question]) + tuple(self._ids(answer["content"]))
