"""What a fork is worth, measured: play on from both of its sides, many times.

The estimate of a fork compares sessions that came to a state in different ways and had their luck
afterwards. Here both sides begin at the same decisions, drawn from the sessions of both: their
actions are replayed, then an action of the one side or of the other is carried out, and the policy
plays on. An environment that does not return to a decision is refused, with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ascribe.decisions import Decision
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable
from ascribe_lab.models.policy import SamplingPolicy
from ascribe_lab.rollout import FailurePolicy, Plan, Setup, Trajectory
from ascribe_lab.rollout.continued import Point, play_on
from ascribe_lab.rollout.run import Progress

NINETY = 1.6449
"""How many standard errors a 90 % interval reaches to each side."""


@dataclass(frozen=True, eq=False)
class Replayed:
    """A fork, and the returns of the sessions that were continued from it.

    Attributes:
        fork: the estimate.
        better: returns after the action that the estimate calls better.
        worse: returns after the other side's.
        filed: returns of the sessions on file that came to the fork.
        refused: why nothing was measured; empty if it was.
    """

    fork: Decision
    better: Floats
    worse: Floats
    filed: Floats
    refused: str = ""

    @property
    def difference(self) -> float:
        """The mean return of the better side minus that of the worse."""
        return float(self.better.mean() - self.worse.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Its 90 % interval, as of Agresti and Caffo (2000).

        Each side counts as if it had two sessions more, with the lowest and the highest return
        known: returns that agree by chance do not make their mean exact.
        """
        known = np.concatenate([self.better, self.worse, self.filed])
        ends = known.min(), known.max()
        sides = [np.append(side, ends) for side in (self.better, self.worse)]
        reach = NINETY * sum(side.var() / side.size for side in sides) ** 0.5
        middle = sides[0].mean() - sides[1].mean()
        return float(middle - reach), float(middle + reach)

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0: one of the sides is better."""
        return not self.refused and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def verdict(self) -> str:
        """What the measured difference says about the estimate.

        It is confirmed if the better side is clearly better, and refuted if it is clearly worse or
        the difference lies below the estimate's interval.
        """
        if self.refused:
            return "refused"
        low, high = self.interval
        if low > 0:
            return "confirmed"
        return "refuted" if high < max(self.fork.low, 0.0) else "open"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {"fork": self.fork.as_dict(), "verdict": self.verdict}
        if self.refused:
            return values | {"reason": self.refused}
        low, high = self.interval
        return values | {"difference": self.difference, "low": low, "high": high}


def replay(
    setup: Setup,
    policy: SamplingPolicy,
    plan: Plan,
    forks: Sequence[Decision],
    *,
    table: StepTable,
    played: Mapping[str, Trajectory],
    count: int = 32,
    failures: FailurePolicy | None = None,
    progress: Progress = lambda _: None,
) -> list[Replayed]:
    """Continue sessions from both sides of forks.

    Args:
        setup: the environment.
        policy: plays on.
        plan: the plan that the sessions were played by; how many they were does not matter.
        forks: forks of the table.
        table: the steps.
        played: the sessions of the table, by name.
        count: sessions to continue from each side of each.
        failures: what to do about episodes that fail.
        progress: called with the share that is done.

    Raises:
        ValueError: if the tasks are not the plan's.
    """
    names, number = table.trajectory.texts(), table.step
    points = []
    for index, fork in enumerate(forks):
        rng = np.random.default_rng([plan.seed, index])
        rows = rng.permutation(np.concatenate([fork.better.rows, fork.worse.rows]))
        for side in (fork.better, fork.worse):
            donors = np.resize(rng.permutation(side.rows), count)
            for at, taken in zip(np.resize(rows, count), donors, strict=True):
                session, other = played[str(names[at])], played[str(names[taken])]
                before, now = session.steps[: number[at]], session.steps[number[at]]
                reset = plan.reset(plan.number_of(session.group))
                points.append(Point(reset, before, now, other.steps[number[taken]]))
    again = replace(plan, seed=plan.seed + 1)  # samples must not repeat those on file
    tails = play_on(setup, policy, again, points, failures=failures, progress=progress)
    found = []
    for index, fork in enumerate(forks):
        parts = tails[2 * count * index : 2 * count * (index + 1)]
        refused = next((part for part in parts if isinstance(part, str)), "")
        whole = [] if refused else parts
        returns = [part[0].reward for part in whole if not isinstance(part, str)]
        rows = np.concatenate([fork.better.rows, fork.worse.rows])
        filed = np.array([played[str(names[row])].reward for row in rows])
        better, worse = np.array(returns[:count]), np.array(returns[count:])
        found.append(Replayed(fork, better, worse, filed, refused))
    return found
