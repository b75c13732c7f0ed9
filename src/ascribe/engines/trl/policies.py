"""The policies of episodes: a growing chat, a half-precision copy, and a team of adapters.

**A growing chat.** Text that is tokenised again can give other tokens, and chat templates drop
parts of earlier turns. So a sampled text keeps its tokens (``SampledText``), and the next prompt
consists of these and of the tokens of the new message alone. A trajectory is then one row of
tokens, read once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ascribe.agents import Agent, Decision, FullHistory, Message, Prompt, TextPrompt, Turn, View
from ascribe.models import Chat, ModelPolicy
from ascribe.models.policy import (
    Completion,
    Request,
    Sample,
    Sampling,
    SamplingPolicy,
    TokenPrompt,
)
from ascribe.models.tokens import PromptTooLongError, smaller

THEN = TextPrompt(
    "{observation}\n{choices}", choices="These actions are possible now:\n{admissible}\n"
)
"""The messages after the first: what the agent observes."""


DEFAULT = "default"
"""PEFT's name of the adapter that it makes by itself."""

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

    def decide(self, response: str, view: View) -> Decision:
        """The action of a response."""
        return super().decide(str(response), view)


def whole_chat(agent: Agent) -> Agent:
    """The agent with the whole chat in its prompt; its own prompt writes the first message."""
    return ChatAgent(WholeChatPrompt(agent.prompt), FullHistory(), agent.parser, agent.on_invalid)


class ChatPolicy:
    """A policy whose prompts continue the tokens of a chat.

    Args:
        policy: samples the responses.
    """

    def __init__(self, policy: ModelPolicy) -> None:
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
            raise ValueError(
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


class SamplingCopy:
    """A copy of the model in half precision, which samples in its place.

    Reading prompts takes most of an iteration on a CPU, and half precision is several times faster
    at it. The model that learns stays as it is; its weights are copied before each iteration.

    Args:
        dtype: type of the copy's weights: ``bfloat16`` or ``float16``.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._copy: Any = None

    def of(self, model: Any) -> Any:
        """A copy of the model as it is now.

        Raises:
            ValueError: for a model with adapters, whose weights are not in one piece.
        """
        import torch

        if hasattr(model, "peft_config"):
            raise ValueError("rollout.dtype: a model with adapters samples with its own weights")
        if self._copy is None:
            config = type(model.config).from_dict(model.config.to_dict())
            config.dtype = getattr(torch, self.dtype)
            # The fastest at sampling, whatever is the fastest at training.
            self._copy = type(model)._from_config(config, attn_implementation="sdpa")
            # Its buffers, such as the frequencies of positions, keep the precision they need.
            self._copy.to(model.device).eval()
            self._copy.generation_config = model.generation_config
        with torch.no_grad():
            for mine, other in zip(self._copy.parameters(), model.parameters(), strict=True):
                mine.copy_(other)
            for mine, other in zip(self._copy.buffers(), model.buffers(), strict=True):
                mine.copy_(other)
        return self._copy


class TrlPolicy(ModelPolicy):
    """A policy that samples with the trainer's vLLM, colocated or as a server.

    Args:
        trainer: a GRPOTrainer with ``use_vllm``.
        context: most tokens of prompt and response together, if below the model's own limit.
        template_options: what the chat template takes.
    """

    def __init__(self, trainer: Any, *, context: int | None, template_options: Any) -> None:
        config = trainer.model.config
        longest = smaller(context, getattr(config, "max_position_embeddings", None))
        chat = Chat(trainer._tokenizer, trainer.eos_token_ids, longest, template_options)
        super().__init__(chat)
        self.trainer = trainer

    def _complete(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        # Temperature, top-p and the limit on tokens are those of the trainer's GRPOConfig.
        ids = [list(prompt.ids) for prompt in prompts]
        responses, logprobs = self.trainer._generate_single_turn(ids, None, {}, 1)
        completions = []
        for prompt, response, values in zip(prompts, responses, logprobs, strict=True):
            length, ended = self._length(response[: prompt.limit], sampling.stop)
            completions.append(Completion(tuple(response[:length]), tuple(values[:length]), ended))
        return completions

    def _length(self, response: Sequence[int], stop: Sequence[str]) -> tuple[int, bool]:
        """Tokens up to the first stop text or the end of the turn, and whether there is one."""
        for length in range(1, len(response) + 1) if stop else ():
            text = self.chat.text(response[:length])
            if any(each in text for each in stop):
                return length, True
        return len(response), bool(response) and response[-1] in self.chat.ends


class TeamAdapters:
    """A team whose agents share the weights of one model, with an adapter for each.

    One agent learns in each iteration, in turns, while the others stay as they are (CCPO, Section
    5.3). In the episodes every agent samples with its own adapter.

    Args:
        model: with one adapter, whose configuration the others take.
        agents: names as in ``info["agent"]`` of the environment, in the order of their turns.
    """

    def __init__(self, model: Any, agents: Sequence[str]) -> None:
        self.model, self.agents = model, tuple(agents)
        # PEFT makes them names of modules, in which no dot may stand.
        self.names = {agent: f"agent_{number}" for number, agent in enumerate(agents, start=1)}
        for name in self.names.values():
            model.add_adapter(name, model.peft_config[DEFAULT])
        self.choose(self.agents[0])
        model.delete_adapter(DEFAULT)

    def choose(self, agent: str) -> None:
        """Let the model sample and learn as this agent.

        Raises:
            ValueError: if it has no adapter.
        """
        if agent not in self.names:
            known = ", ".join(self.agents)
            raise ValueError(f"agent {agent!r} of the environment is not among agents: {known}")
        self.model.set_adapter(self.names[agent])

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the active adapter afterwards."""
        before = self.model.active_adapter
        try:
            yield
        finally:
            self.model.set_adapter(before)

    def learner(self, iteration: int) -> str:
        """The agent that learns in an iteration."""
        return self.agents[iteration % len(self.agents)]

    def unfreeze(self) -> None:
        """Make all adapters trainable, so that the optimiser finds them."""
        for name, parameter in self.model.named_parameters():
            if any(f".{adapter}." in name for adapter in self.names.values()):
                parameter.requires_grad_(requires_grad=True)


class TeamPolicy:
    """A policy in which every agent samples with its own adapter.

    Args:
        policy: samples from the model.
        adapters: of the team.
    """

    def __init__(self, policy: SamplingPolicy, adapters: TeamAdapters) -> None:
        self.policy, self.adapters = policy, adapters

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        samples: dict[int, Sample] = {}
        agents = [str(request.info.get("agent")) for request in requests]
        for agent in dict.fromkeys(agents):
            places = [place for place, each in enumerate(agents) if each == agent]
            self.adapters.choose(agent)
            drawn = self.policy([requests[place] for place in places], sampling)
            samples |= dict(zip(places, drawn, strict=True))
        return [samples[place] for place in range(len(requests))]

    def close(self) -> None:
        """Close the policy."""
        self.policy.close()
