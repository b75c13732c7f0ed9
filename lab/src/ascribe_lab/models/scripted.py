"""Policies without a model: they choose among the actions that the environment names."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.models.policy import Request, Sample, Sampling

WriteAction = Callable[[str], str]
"""Converts an action to a response that the agent's parser reads."""


def tagged(action: str) -> str:
    """The action between the tags of the papers' prompts."""
    return f"<action>{action}</action>"


class ScriptedPolicy(ABC):
    """Responds by a rule.

    Args:
        write: puts an action into a response.
    """

    def __init__(self, write: WriteAction = tagged) -> None:
        self.write = write

    @abstractmethod
    def _respond(self, request: Request) -> str:
        """The response; ``ValueError`` if the environment does not provide what the rule needs."""

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:  # noqa: ARG002
        """One sample for each request, in the same order.

        Raises:
            ValueError: if the environment names no action, or has no expert.
        """
        return [Sample(self._respond(request)) for request in requests]

    def close(self) -> None:  # noqa: B027 (there is nothing to close)
        """Nothing to release."""


class RandomPolicy(ScriptedPolicy):
    """Any action of ``info["admissible_actions"]``, or else of ``info["example_actions"]``.

    All are equally likely. The choice follows from the request's seed alone.
    """

    def _respond(self, request: Request) -> str:
        info = request.info
        actions: Sequence[str] = info.get("admissible_actions") or info.get("example_actions") or ()
        if not actions:
            raise InputError(
                "the environment names no action: neither admissible nor example actions"
            )
        return self.write(actions[int(np.random.default_rng(request.seed).integers(len(actions)))])


class ExpertPolicy(ScriptedPolicy):
    """The action of ``info["expert_action"]``, from environments made with ``expert=True``.

    Where the expert has no action, the response is empty.
    """

    def _respond(self, request: Request) -> str:
        if "expert_action" not in request.info:
            raise InputError("the environment has no expert: make it with expert=True")
        action = request.info["expert_action"]
        return "" if action is None else self.write(action)


class FaultyPolicy(ExpertPolicy):
    """The expert's action, or every other time any action that the environment names.

    The choice follows from the request's seed alone.
    """

    faults = 0.5

    def __init__(self, write: WriteAction = tagged) -> None:
        super().__init__(write)
        self._other = RandomPolicy(write)

    def _respond(self, request: Request) -> str:
        # Another stream than that from which the other action is drawn.
        slips = np.random.default_rng([request.seed, 1]).random() < self.faults
        return self._other._respond(request) if slips else super()._respond(request)
