"""``Adapters``: a team whose agents share the weights of one model, with an adapter for each.

One agent is taught in each iteration, in turns, while the others stay as they are (CCPO, Section
5.3). In the episodes every agent answers with its own adapter.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ascribe.models.policy import Policy, Request, Sample, Sampling

DEFAULT = "default"
"""How PEFT calls the adapter that it makes by itself."""


class Adapters:
    """The adapters of a team, by agent.

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
        """Let the model speak, and learn, as this agent.

        Raises:
            ValueError: if it has no adapter.
        """
        if agent not in self.names:
            known = ", ".join(self.agents)
            raise ValueError(f"agent {agent!r} of the environment is not among agents: {known}")
        self.model.set_adapter(self.names[agent])

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Afterwards the model is the agent that it was, whoever spoke in between."""
        before = self.model.active_adapter
        try:
            yield
        finally:
            self.model.set_adapter(before)

    def taught(self, iteration: int) -> str:
        """Whose turn it is to learn."""
        return self.agents[iteration % len(self.agents)]

    def unfreeze(self) -> None:
        """Let all adapters be parameters that are trained, for the optimiser to find them."""
        for name, parameter in self.model.named_parameters():
            if any(f".{adapter}." in name for adapter in self.names.values()):
                parameter.requires_grad_(requires_grad=True)


class EachWithItsOwn:
    """A policy in which every agent answers with its own adapter.

    Args:
        policy: asks the model.
        adapters: of the team.
    """

    def __init__(self, policy: Policy, adapters: Adapters) -> None:
        self.policy, self.adapters = policy, adapters

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """An answer to each request."""
        answers: dict[int, Sample] = {}
        speakers = [str(request.info.get("agent")) for request in requests]
        for agent in dict.fromkeys(speakers):
            places = [place for place, speaker in enumerate(speakers) if speaker == agent]
            self.adapters.choose(agent)
            found = self.policy([requests[place] for place in places], sampling)
            answers |= dict(zip(places, found, strict=True))
        return [answers[place] for place in range(len(requests))]

    def close(self) -> None:
        """Close the policy."""
        self.policy.close()
