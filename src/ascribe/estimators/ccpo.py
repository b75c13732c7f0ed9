"""CCPO: credit for the agents of a team, from what it would have earned without each."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import Recipe
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.estimators.relative import explained
from ascribe.estimators.team import TeamCredit
from ascribe.estimators.team.counterfactual import counterfactual
from ascribe.estimators.team.shaping import Shaping
from ascribe.estimators.team.statistics import Statistics
from ascribe.estimators.team.think_solve import STREAMS, think_solve
from ascribe.estimators.team.voting import allocated
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.table import StepTable

ADDED = Sentence(
    "this agent added {own:+} to what the team earned; in the {peers} trajectories of the task it "
    "added {baseline:+} in the mean",
    "the recipe bounds and scales what an agent added",
)


@dataclass(frozen=True, kw_only=True)
class CCPO(Recipe):
    """Counterfactual credit: each agent's contribution against its own in the other rollouts.

    ``Δ_i = R - R_without_i`` with R the return of the trajectory, ``r_i = tanh(α (Δ_i - μ_i) /
    (σ_i + ε))`` with running statistics, and ``A_i = (r_i - mean r_i) / (std r_i + ε)`` over the
    trajectories of the group. All decisions of an agent in a trajectory get the same. It reads the
    columns ``agent`` and ``without``; a decision without a number there was only taken to find out
    what others earn alone, and is not credited.

    The running statistics go in as ``history`` and come out as ``Credit.history``.

    Attributes:
        form: ``contribution`` as above; ``allocated``: the team's advantage, shared out by
            contributions above 0 (no statistics); ``think_solve``: two agents in line, the second
            of which answers for the team as far as the first has helped so far.
        alpha: α, how soon a contribution counts fully.
        eta: η, how sharply the solver's trust follows the thinker's contributions.
        decay: λ of the running statistics.
        minimum: samples that statistics must have seen before they are used.
        epsilon: ε, added to every standard deviation.
        statistics: those ``after`` the batch is taken in, or ``before``.
        flat: what divides if a stream has not varied: ``epsilon`` alone, or ``one``.
    """

    name: ClassVar[str] = "ccpo"
    paper: ClassVar[str] = "CCPO, arXiv 2603.21563"
    inputs: ClassVar[tuple[str, ...]] = ("history",)
    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        **Recipe.ranges,
        "alpha": (0.0, math.inf),
        "eta": (0.0, math.inf),
        "decay": (0.0, 1.0),
        "minimum": (0, math.inf),
        "epsilon": (0.0, math.inf),
    }
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "first-release": {
            "form": "think_solve",
            "minimum": 10,
            "statistics": "before",
            "flat": "one",
        },
    }

    form: Literal["contribution", "allocated", "think_solve"] = "contribution"
    alpha: float = 1.0
    eta: float = 1.0
    decay: float = 0.99
    minimum: int = 50
    epsilon: float = 1e-6
    statistics: Literal["after", "before"] = "after"
    flat: Literal["epsilon", "one"] = "epsilon"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.invalid_penalty:
            raise ValueError(
                "ccpo: an invalid_penalty would be taken off the team's return and not off what it "
                "earns without an agent; leave it at 0, or pay it in the environment"
            )
        _ = self.shaping  # which refuses what cannot be

    @property
    def shaping(self) -> Shaping:
        """The parameters as the functions of ``ascribe.estimators.team`` take them."""
        names = ("alpha", "eta", "decay", "minimum", "epsilon", "statistics", "flat")
        return Shaping(**{name: getattr(self, name) for name in names})

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        steps = arrange(table)
        agent, names, without = _team(table, steps)
        joint = self._episode_returns(steps)
        prompt, count = self._trajectory_groups(steps), steps.group_count
        contribution = joint[:, None] - without
        found, history = self._shaped(
            joint, contribution, (prompt, count), names, inputs.get("history")
        )
        measured = agent < 0
        values = np.where(measured, 0.0, found.advantage[steps.trajectory, agent])
        reason = found.reason[steps.trajectory, agent]
        reason = np.where(measured, np.int8(Reason.COUNTERFACTUAL), reason)
        labels = np.where(measured, -1, steps.group * len(names) + agent)
        member = np.where(measured, contribution.size, steps.trajectory * len(names) + agent)
        explain = partial(_explained, contribution, prompt, count, member)
        numbers = {f"contribution/{one}": value for one, value in _means(contribution, names)}
        return Credit.of(
            {"team": self._term(table, values, reason, labels, explain=explain)},
            repr(self),
            numbers | found.numbers,
            history,
        )

    def _shaped(
        self,
        joint: Floats,
        contribution: Floats,
        prompts: tuple[Ints, int],
        names: list[str],
        before: dict[str, Any] | None,
    ) -> tuple[TeamCredit, dict[str, Any] | None]:
        """The credit of every agent in every trajectory, and the statistics to hand on."""
        if self.form == "allocated":
            return allocated(joint, contribution, *prompts, self.shaping.norm), None
        pair = self.form == "think_solve"
        if pair and len(names) != 2:
            raise ValueError(f"think_solve is for two agents, not {', '.join(names)}")
        streams = STREAMS if pair else tuple(names)
        history = Statistics.start(streams) if before is None else Statistics.from_dict(before)
        if history.streams != streams:
            raise ValueError(f"the history is of {history.streams}, but the team is {streams}")
        if pair:
            solo = joint - contribution[:, 0]
            credit, after = think_solve(
                joint, solo, *prompts, history=history, shaping=self.shaping
            )
        else:
            credit, after = counterfactual(
                contribution, *prompts, history=history, shaping=self.shaping
            )
        return credit, after.to_dict()


def _team(table: StepTable, steps: Arranged) -> tuple[Ints, list[str], Floats]:
    """Number of each decision's agent, -1 if it was only measured; names; R_without.

    Agents are in the order in which they first decide, then of their names.
    """
    if table.agent is None or table.without is None:
        lacking = " and ".join(
            name for name in ("agent", "without") if getattr(table, name) is None
        )
        raise ValueError(
            f"ccpo needs the column {lacking}: who decided, and what the team would have earned "
            "without them; environments of teams write both (docs/environments/team.md)"
        )
    said = table.without[steps.rows]
    code = table.agent.codes[steps.rows]
    taught = ~np.isnan(said)
    if (code[taught] < 0).any():
        raise ValueError("ccpo: a decision has a number in without, but no agent")
    first = np.full(table.agent.values.size, np.iinfo(np.int64).max)
    np.minimum.at(first, code[taught], steps.step[taught])
    present = np.flatnonzero(first < np.iinfo(np.int64).max)
    ordered = present[np.lexsort((table.agent.values[present].astype(str), first[present]))]
    number = np.full(first.size + 1, -1)
    number[ordered] = np.arange(ordered.size)
    agent = np.where(taught, number[code], -1)
    names = [str(table.agent.values[one]) for one in ordered]

    without = np.full((steps.trajectory_count, len(names)), np.nan)
    without[steps.trajectory[taught], agent[taught]] = said[taught]
    if (without[steps.trajectory[taught], agent[taught]] != said[taught]).any():
        raise ValueError("ccpo: an agent has two numbers in without in one trajectory")
    if np.isnan(without).any() or not names:
        missing = ~np.isfinite(without).all(axis=1) if names else np.ones(len(without), np.bool_)
        row = steps.rows[steps.starts[np.flatnonzero(missing)[0]]]
        name = table.trajectory.values[table.trajectory.codes[row]]
        raise ValueError(
            f"ccpo: {int(missing.sum())} trajectories lack an agent or what the team earns without "
            f"it, {name!r} among them; an episode that max_turns has cut has no such numbers"
        )
    return agent, names, without


def _means(contribution: Floats, names: list[str]) -> list[tuple[str, float]]:
    return list(zip(names, contribution.mean(axis=0).tolist(), strict=True))


def _explained(contribution: Floats, prompt: Ints, count: int, member: Ints) -> Explanation:
    """What each agent added, beside what it added in the other trajectories of its task."""
    agents = contribution.shape[1]
    labels = np.where(prompt[:, None] < 0, -1, prompt[:, None] * agents + np.arange(agents))
    # Rows that were only measured belong to one member more, that takes no part.
    values, labels = np.append(contribution, 0.0), np.append(labels, -1)
    return explained(values, labels, count * agents, ADDED, members=member)
