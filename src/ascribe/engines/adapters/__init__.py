"""Adapters for other trainers: their batch to steps, and the credit back to where they read it.

One file for each trainer. ``ascribe adapters check`` runs the contract (``contract.py``) on any of
them, and on your own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ascribe.engines import training_recipe
from ascribe.engines.crediting import CreditedSteps, credit_steps
from ascribe.engines.inputs import refuse_unknown
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import State
from ascribe.steps.arrays import Floats
from ascribe.steps.errors import InputError, MissingPackageError
from ascribe.steps.hints import page
from ascribe.steps.select import OnProblem
from ascribe.steps.table import StepTable


@dataclass(frozen=True, kw_only=True)
class ExampleEpisode:
    """An episode from which an adapter makes a batch of its trainer, for the contract.

    Attributes:
        group: the task.
        turns: for each turn the token ids of the observation and those of the response.
        reward: the final reward.
        truncated: whether a limit ended it.
        failed: whether its rollout failed, so that it has no reward.
    """

    group: str
    turns: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    reward: float
    truncated: bool = False
    failed: bool = False

    @property
    def tokens(self) -> list[int]:
        """All turns as one sequence."""
        return [token for turn in self.turns for part in turn for token in part]

    @property
    def mask(self) -> list[int]:
        """Of each token whether the model wrote it."""
        parts = [(bit, part) for turn in self.turns for bit, part in enumerate(turn)]
        return [bit for bit, part in parts for _ in part]


class Adapter(Protocol):
    """What an adapter has; the last two are for the contract alone."""

    def steps(self, batch: Any) -> tuple[StepTable, Any]:
        """The steps of a batch, and what ``put`` needs to find their tokens (such as Spans)."""
        ...

    def put(self, batch: Any, places: Any, advantages: Floats) -> Any:
        """The batch with the advantage of each row of the table where the trainer reads it."""
        ...

    def example(self, episodes: Sequence[ExampleEpisode]) -> Any:
        """A batch of the trainer's own objects; failed episodes as the trainer has them."""
        ...

    def advantages(self, result: Any) -> list[Sequence[float]]:
        """Of what ``put`` returned, the advantages on the tokens of each example episode.

        In the order of ``example``; failed ones may be left out.
        """
        ...


def credit_batch(
    adapter: Adapter, batch: Any, method: str | Recipe = DEFAULT, on_problem: OnProblem = "drop"
) -> tuple[Any, CreditedSteps]:
    """Credit a batch of another trainer.

    Args:
        adapter: that of the trainer.
        batch: what its ``steps`` takes.
        method: a recipe, or its name.
        on_problem: what to do about steps that cannot be credited, see ``select``.

    Returns:
        What the adapter's ``put`` gives, and the steps with their credit.

    Raises:
        ValueError: for an unknown recipe, or one that ``stateless`` refuses.
    """
    table, places = adapter.steps(batch)
    credited = credit_steps(table, stateless(method), on_problem)
    return adapter.put(batch, places, credited.advantage), credited


def check_seams(owner: Any, *names: str) -> None:
    """Refuse a release of a trainer that lacks a method of which ours takes the place.

    Nothing would call ours, and the run would go on without credit for turns.

    Args:
        owner: a class or a module of the trainer.
        names: its methods or functions.

    Raises:
        ImportError: with the names that are missing.
    """
    missing = [name for name in names if not callable(getattr(owner, name, None))]
    if missing:
        raise MissingPackageError(
            f"{owner.__name__} has no {', '.join(missing)}, which credit for turns overrides",
            hint=f"install a release that {page('engines/index')} names",
        )


def check_state(state: Any) -> None:
    """Raise ValueError for what is no state of a step here; ``key`` needs keys."""
    refuse_unknown("state", state, State)
    if state == "key":
        raise InputError(
            "state='key' needs a key for each turn, and this trainer's batches have none: choose "
            "observation, tool or history"
        )


def stateless(method: str | Recipe) -> Recipe:
    """The recipe, or the one of that name.

    Raises:
        ValueError: if it carries state from one iteration to the next, which the checkpoints of
            another trainer would not hold; or for an unknown name.
    """
    chosen = training_recipe(method)
    if chosen.has_history:
        raise InputError(
            f"{chosen.name} carries state from one iteration to the next (running statistics, or "
            "a memory), which the checkpoints of this trainer do not hold",
            hint="choose another recipe, or leave memory out",
        )
    return chosen
