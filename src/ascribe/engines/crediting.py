"""Credit for the groups of an iteration, wherever their members were played.

Every process plays some members of some groups. What they played is brought together first, so that
no group is credited in part. Then all of it is credited at once, with the same result everywhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ascribe.engines.history import History, remembers
from ascribe.estimators import Recipe
from ascribe.estimators.assign import assign
from ascribe.estimators.credit import Credit
from ascribe.fingerprints import FloatMatrix
from ascribe.models.policy import Sample
from ascribe.rollout.failures import FailurePolicy, GivenUp
from ascribe.rollout.record import States, table
from ascribe.rollout.run import Clock, Rollout, Trajectory
from ascribe.steps.arrays import Bools, Floats
from ascribe.steps.check import DropGroup, Policy, check
from ascribe.steps.problems import Problem, TableError
from ascribe.steps.table import Coded, StepTable


@dataclass(frozen=True, eq=False)
class Played:
    """What one process played, as it travels to the others."""

    groups: tuple[str, ...]
    """Group of each episode that was to be played."""
    trajectories: tuple[Trajectory, ...]
    given_up: tuple[GivenUp, ...]
    retries: int
    tokens: int
    """Tokens that the policy wrote."""
    fingerprints: FloatMatrix | None = None
    """One row for each step, in the order of the trajectories."""

    @property
    def steps(self) -> int:
        """How many steps were kept."""
        return sum(len(trajectory.steps) for trajectory in self.trajectories)


def light(trajectories: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    """The trajectories without texts and tokens, which are of no use elsewhere."""
    return tuple(
        replace(
            trajectory,
            steps=tuple(
                replace(step, messages=(), sample=_outline(step.sample))
                for step in trajectory.steps
            ),
        )
        for trajectory in trajectories
    )


def _outline(sample: Sample) -> Sample:
    return Sample("", finish=sample.finish)


@dataclass(frozen=True, eq=False)
class Iteration:
    """All steps of an iteration with their credit.

    Steps are in the order of processes, and of trajectories on each process.
    """

    rollout: Rollout
    """Every trajectory that was finished, also those of groups that do not count."""
    table: StepTable | None
    """The steps of the groups that count; None if no group does."""
    counts: Bools
    """For each step whether its group counts."""
    credit: Credit | None
    """Of the steps that count, in their order."""
    dropped: dict[str, str]
    """Groups that do not count, and why."""
    groups: int
    """How many groups were to be played."""

    @property
    def counted(self) -> Rollout:
        """The trajectories of the groups that count, and all that was lost."""
        kept = (t for t in self.rollout.trajectories if t.group not in self.dropped)
        return replace(self.rollout, trajectories=tuple(kept))

    def handed_on(self, before: History) -> History:
        """What the recipe wants back with the next iteration; as before if no group counted."""
        return before if self.credit is None else self.credit.history

    @property
    def advantage(self) -> Floats:
        """Of every step; 0 for those without credit."""
        values = np.zeros(self.counts.size)
        if self.credit is not None:
            values[self.counts] = self.credit.advantage
        return values

    @property
    def signal(self) -> Bools:
        """Steps that there is something to learn from."""
        return np.not_equal(self.advantage, 0.0)


def credit_iteration(
    played: Sequence[Played],
    recipe: Recipe,
    *,
    size: int,
    failures: FailurePolicy,
    policy: Policy,
    states: States = "environment",
    history: History = None,
) -> Iteration:
    """Drop the groups that lost too much, with the corrections of their answers; credit the rest.

    Args:
        played: of every process, in the order of processes.
        recipe: the estimator.
        size: trajectories that a group was meant to have.
        failures: how many of them a group needs.
        policy: what to do about problems of the steps; ``TableError`` from it drops all groups.
        states: what stands in the column ``state``.
        history: what the recipe handed on after the iteration before.
    """
    everything = together(played)
    groups = list(dict.fromkeys(name for part in played for name in part.groups))
    dropped = _lost(groups, everything, failures.needs(size))
    dropped |= _left_alone(everything, dropped)
    counts = np.array(
        [t.group not in dropped for t in everything.trajectories for _ in t.steps], dtype=np.bool_
    )
    if not counts.any():
        return Iteration(everything, None, counts, None, dropped, len(groups))
    steps = table(everything, states)
    if played[0].fingerprints is not None:
        vectors = [part.fingerprints for part in played if part.fingerprints is not None]
        steps = replace(steps, fingerprint=np.concatenate(vectors))
    if recipe.needs_corrections and steps.corrects is None:  # all of them were lost, or none due
        nothing = np.full(len(steps), -1, dtype=np.int64)
        steps = replace(steps, corrects=Coded(nothing, np.empty(0, dtype=object)))
    steps = steps.take(counts)
    whole = size if failures.smallest_group is None else None
    inputs = {"history": history} if remembers(recipe) else {}
    try:
        assigned = assign(steps, recipe, policy, group_size=whole, **inputs)
    except TableError as error:
        if not isinstance(policy, DropGroup):
            raise
        dropped |= _touched(steps, error.problems)
        return Iteration(everything, None, np.zeros_like(counts), None, dropped, len(groups))
    keep = assigned.decision.keep
    dropped |= _touched(steps.take(~keep), check(steps.take(~keep), group_size=whole).problems)
    alone = _left_alone(everything, dropped)
    dropped |= alone
    keep = keep & np.array([name not in alone for name in steps.group.texts()])
    counts[np.flatnonzero(counts)[~keep]] = False
    return Iteration(
        everything, steps.take(keep), counts, assigned.credit.rows(keep), dropped, len(groups)
    )


def together(played: Sequence[Played]) -> Rollout:
    """What all processes played, in the order of processes."""
    return Rollout(
        tuple(trajectory for part in played for trajectory in part.trajectories),
        (),
        tuple(lost for part in played for lost in part.given_up),
        Clock(0.0, 0.0, 0.0, sum(part.tokens for part in played)),
        sum(part.retries for part in played),
    )


def _lost(groups: Sequence[str], rollout: Rollout, needed: int) -> dict[str, str]:
    """Groups with too few trajectories, and why the first of these failed."""
    left = Counter(trajectory.group for trajectory in rollout.trajectories)
    kinds: dict[str, str] = {}
    for lost in rollout.given_up:
        kinds.setdefault(lost.group, lost.kind.value)
    return {name: kinds.get(name, "lost") for name in groups if left[name] < needed}


def _left_alone(rollout: Rollout, dropped: Mapping[str, str]) -> dict[str, str]:
    """Groups of corrections whose answer is of a group that does not count, and why that is so."""
    group = {trajectory.name: trajectory.group for trajectory in rollout.trajectories}
    found = {}
    for trajectory in rollout.trajectories:
        if trajectory.corrects is not None:
            home = group.get(trajectory.corrects)
            if home is None or home in dropped:
                found[trajectory.group] = "lost" if home is None else dropped[home]
    return found


def _touched(steps: StepTable, problems: Sequence[Problem]) -> dict[str, str]:
    """Every group of the steps, and the worst problem that is in it."""
    names = steps.group.used()
    why: dict[str, str] = {}
    for problem in problems:
        for code in np.unique(names.codes[problem.rows]):
            why.setdefault(names.values[code], problem.kind.label)
    return {name: why.get(name, "dropped") for name in names.values}
