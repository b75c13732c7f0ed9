"""The policies of episodes: TRL's vLLM, a half-precision copy, and a team of adapters."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ascribe.steps.errors import InputError
from ascribe_lab.models import Chat, ModelPolicy
from ascribe_lab.models.policy import (
    Completion,
    Request,
    Sample,
    Sampling,
    SamplingPolicy,
    TokenPrompt,
)
from ascribe_lab.models.tokens import smaller

DEFAULT = "default"
"""PEFT's name of the adapter that it makes by itself."""


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
            raise InputError("rollout.dtype: a model with adapters samples with its own weights")
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
        chat = Chat(trainer._texts, trainer.eos_token_ids, longest, template_options)
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
            raise InputError(f"agent {agent!r} of the environment is not among agents: {known}")
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
