"""CCPO: credit for the agents of a team, from what it would have earned without each.

Arrays have one row for each rollout (a trajectory) and one column for each agent. ``prompt`` is the
prompt (the task) of each rollout, -1 for one that takes no part, and ``count`` their number.

Page: docs/estimators/ccpo.md. Test: tests/estimators/test_ccpo.py.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import LARGEST_FACTOR, Recipe
from ascribe.estimators.credit import Credit, Reason, Sentence
from ascribe.estimators.relative import Norm, relative
from ascribe.steps.arrays import Brief, Codes8, Floats, Ints
from ascribe.steps.check import LARGEST_REWARD, Arranged, arrange
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

THINKER, SOLVER = 0, 1
"""Columns of a credit of ``think_solve``."""

STREAMS = ("contribution", "joint", "solo")
"""The streams of the running statistics of ``think_solve``."""

ADDED = Sentence(
    "this agent added {own:+} to what the team earned; in the {peers} trajectories of the task it "
    "added {baseline:+} on average",
    "the recipe bounds and scales what an agent added",
)


@dataclass(frozen=True)
class Statistics:
    r"""Exponential moving averages of the mean and the variance of some streams of numbers.

    ``μ_t = λ μ_{t-1} + (1 - λ) mean_t`` and ``σ²_t = λ σ²_{t-1} + (1 - λ) var_t`` (CCPO, Eq. 2-3),
    with the mean and the variance (over n) of the batch. The first batch sets both.

    This is the whole carried state: a run that saves ``to_dict()`` with its checkpoint and resumes
    from ``from_dict()`` gives the same bits as an uninterrupted run.

    Attributes:
        streams: what is averaged, one name each: agents, or kinds of reward.
        mean: μ of each stream.
        variance: σ² of each stream.
        samples: number of values so far, per stream.
    """

    streams: tuple[str, ...]
    mean: tuple[float, ...]
    variance: tuple[float, ...]
    samples: int

    def __post_init__(self) -> None:
        if not len(self.streams) == len(self.mean) == len(self.variance):
            raise InputError("statistics need one mean and one variance per stream")
        if not all(map(math.isfinite, (*self.mean, *self.variance))):
            raise InputError("statistics must be finite")
        if self.samples < 0 or min(self.variance, default=0.0) < 0:
            raise InputError("statistics have negative variances or counts")

    @staticmethod
    def start(streams: Sequence[str]) -> "Statistics":
        """Before the first batch."""
        zeros = (0.0,) * len(streams)
        return Statistics(tuple(streams), zeros, zeros, 0)

    def updated(self, batch: Floats, decay: float) -> "Statistics":
        """The statistics after one more batch of numbers, (rows, streams), with ``decay`` λ."""
        if not len(batch):
            return self
        old = decay if self.samples else 0.0
        mean = old * np.array(self.mean) + (1.0 - old) * batch.mean(axis=0)
        variance = old * np.array(self.variance) + (1.0 - old) * batch.var(axis=0)
        samples = self.samples + len(batch)
        return Statistics(self.streams, tuple(mean.tolist()), tuple(variance.tolist()), samples)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for a checkpoint; JSON keeps them exactly."""
        return {
            "streams": list(self.streams),
            "mean": list(self.mean),
            "variance": list(self.variance),
            "samples": self.samples,
        }

    @staticmethod
    def from_dict(saved: Mapping[str, Any]) -> "Statistics":
        """The statistics that ``to_dict`` gave.

        Raises:
            ValueError: if a value is missing or malformed.
        """
        try:
            return Statistics(
                tuple(map(str, saved["streams"])),
                tuple(map(float, saved["mean"])),
                tuple(map(float, saved["variance"])),
                int(saved["samples"]),
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise InputError(f"these are no saved statistics: {error}") from error


@dataclass(frozen=True, eq=False, repr=False)
class TeamCredit(Brief):
    """The advantage of every agent in every rollout, (rollouts, agents).

    ``reward`` is what was compared inside a prompt. ``advantage`` is 0 wherever ``reason`` (a
    ``Reason``) is not ``CREDITED``.
    """

    advantage: Floats
    reason: Codes8
    reward: Floats
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CCPO(Recipe):
    """Counterfactual credit: each agent's contribution against its own in the other rollouts.

    ``Δ_i = R - R_without_i`` (Eq. 1) with R the return of the trajectory, ``r_i = tanh(α (Δ_i -
    μ_i) / (σ_i + ε))`` (Eq. 4) with running statistics, and ``A_i = (r_i - mean r_i) / (std r_i +
    ε)`` (Eq. 5) over the trajectories of the group. All decisions of an agent in a trajectory get
    the same. It reads the columns ``agent`` and ``without``; a decision without a value in
    ``without`` was sampled only to measure what others earn alone, and is not credited.

    The running statistics are the input ``history`` and the output ``Credit.history``.

    Attributes:
        form: ``contribution`` as above; ``allocated``: the team's advantage, shared out by
            contributions above 0 (no statistics); ``think_solve``: a thinker followed by a solver,
            whose reward is the team's to the extent that thoughts have helped so far.
        alpha: α, slope of the bound on a contribution.
        eta: η, slope of the solver's trust in the thinker's contributions.
        decay: λ of the running statistics.
        minimum: samples needed before the statistics are used.
        epsilon: ε, added to every standard deviation.
        statistics: use those ``after`` the update with the current batch, or ``before`` it.
        flat: the divisor for a stream without variance: ``epsilon`` alone, or ``one``.
    """

    name: ClassVar[str] = "ccpo"
    paper: ClassVar[str] = "CCPO, arXiv 2603.21563"
    inputs: ClassVar[tuple[str, ...]] = ("history",)
    columns: ClassVar[tuple[str, ...]] = ("agent", "without")
    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        **Recipe.ranges,
        "alpha": (0.0, LARGEST_FACTOR),
        "eta": (0.0, LARGEST_FACTOR),
        "decay": (0.0, 1.0),
        "minimum": (0, math.inf),
        "epsilon": (0.0, LARGEST_REWARD),
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
            raise InputError(
                "ccpo: an invalid_penalty would be taken off the team's return and not off what "
                "it earns without an agent",
                hint="leave it at 0, or pay it in the environment",
            )
        for name in ("alpha", "epsilon"):
            if getattr(self, name) == 0:
                raise InputError(f"ccpo: {name} is 0, but must be above 0")
        if self.decay == 1:
            raise InputError("ccpo: decay is 1, but must be below 1: nothing would be learned")

    @property
    def norm(self) -> Norm:
        """How rewards are compared inside a prompt (Eq. 5)."""
        return Norm("std", "sample", self.epsilon)

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps = arrange(table)
        agent, names, without = _team(table, steps)
        joint = self.episode_returns(steps)
        prompt, count = self.trajectory_groups(steps), steps.group_count
        contribution = joint[:, None] - without
        team, history = self._advantages(
            joint, contribution, (prompt, count), names, inputs.get("history")
        )
        measurement = agent < 0
        values = np.where(measurement, 0.0, team.advantage[steps.trajectory, agent])
        reason = team.reason[steps.trajectory, agent]
        reason = np.where(measurement, np.int8(Reason.COUNTERFACTUAL), reason)
        labels = np.where(measurement, -1, steps.group * len(names) + agent)
        # What explains a credit: an agent's contribution, among its own in the task's trajectories.
        by_agent = _by_agent(prompt, len(names)).ravel()
        compared = relative(contribution.ravel(), by_agent, count * len(names), Norm("mean"))
        member = np.where(measurement, -1, steps.trajectory * len(names) + agent)
        explain = partial(compared.explained, ADDED, member)
        means = contribution.mean(axis=0).tolist()
        metrics = {f"contribution/{name}": mean for name, mean in zip(names, means, strict=True)}
        return Credit.of(
            {"team": self.term(table, values, reason, labels, explain=explain)},
            repr(self),
            metrics | team.metrics,
            history,
        )

    def _advantages(
        self,
        joint: Floats,
        contribution: Floats,
        prompts: tuple[Ints, int],
        names: list[str],
        saved: dict[str, Any] | None,
    ) -> tuple[TeamCredit, dict[str, Any] | None]:
        """The credit of every agent in every trajectory, and the statistics for the next batch."""
        if self.form == "allocated":
            return allocated(joint, contribution, *prompts, self.norm), None
        pair = self.form == "think_solve"
        if pair and len(names) != 2:
            raise InputError(f"think_solve is for two agents, not {', '.join(names)}")
        streams = STREAMS if pair else tuple(names)
        history = Statistics.start(streams) if saved is None else Statistics.from_dict(saved)
        if history.streams != streams:
            raise InputError(f"the history is of {history.streams}, but the team is {streams}")
        if pair:
            solo = joint - contribution[:, 0]
            credit, updated = think_solve(joint, solo, *prompts, history=history, recipe=self)
        else:
            credit, updated = counterfactual(contribution, *prompts, history=history, recipe=self)
        return credit, updated.to_dict()


PAPER = CCPO()
"""The paper's parameters (Appendix C)."""


def within_prompts(rewards: Floats, prompt: Ints, count: int, norm: Norm) -> TeamCredit:
    """Each agent's rewards against its own in the other rollouts of the prompt (Eq. 5).

    A prompt with one rollout, or in which an agent always got the same, gives that agent no credit.
    """
    labels = _by_agent(prompt, rewards.shape[1])
    advantage, reason = relative(
        rewards.ravel(), labels.ravel(), count * rewards.shape[1], norm, Reason.GROUP_OF_ONE
    )
    return TeamCredit(advantage.reshape(rewards.shape), reason.reshape(rewards.shape), rewards)


def counterfactual(
    contribution: Floats, prompt: Ints, count: int, *, history: Statistics, recipe: CCPO = PAPER
) -> tuple[TeamCredit, Statistics]:
    """Advantages of all agents from what each contributed, Δ (Eq. 2-5).

    While the statistics, with one stream per agent, have seen too little, ``r_i = Δ_i``. Also gives
    the statistics for the next batch.
    """
    used, updated = _statistics_for(contribution[prompt >= 0], history, recipe)
    rewards = contribution if used is None else bounded(contribution, used, recipe)
    return within_prompts(rewards, prompt, count, recipe.norm), updated


def think_solve(
    joint: Floats,
    solo: Floats,
    prompt: Ints,
    count: int,
    *,
    history: Statistics,
    recipe: CCPO = PAPER,
) -> tuple[TeamCredit, Statistics]:
    r"""Advantages of a thinker and a solver, from the team's rewards and the solver's own (B.2).

    - thinker: ``r_1 = tanh(α z_Δ)`` with ``Δ = R_joint - R_solo``;
    - solver: ``r_2 = g z_joint + (1 - g) z_solo`` with ``g = sigmoid(η μ_Δ / (σ_Δ + ε))``: the more
      thoughts have helped so far, the more it is rewarded for the team's result;
    - ``z = (x - μ) / (σ + ε)`` with the running statistics of each stream, and then
      ``A = (r - mean r) / (std r + ε)`` inside a prompt, for each of the two.

    While the statistics, with the streams ``STREAMS``, have seen too little, ``r_1 = Δ`` and ``r_2
    = R_joint``. ``solo`` is the reward of the solver's answer without a thought, sampled once for
    each rollout.

    Returns:
        The credit, with the columns ``THINKER`` and ``SOLVER`` and, once the statistics are used,
        the metric ``trust``; and the statistics for the next batch.
    """
    streams = np.stack([joint - solo, joint, solo], axis=1)
    used, updated = _statistics_for(streams[prompt >= 0], history, recipe)
    if used is None:
        return within_prompts(streams[:, :2], prompt, count, recipe.norm), updated
    z = _standardised(streams, used, recipe)
    gate = trust(used, "contribution", recipe)
    thinker = bounded(streams, used, recipe)[:, 0]
    solver = gate * z[:, 1] + (1.0 - gate) * z[:, 2]
    credit = within_prompts(np.stack([thinker, solver], axis=1), prompt, count, recipe.norm)
    return TeamCredit(credit.advantage, credit.reason, credit.reward, {"trust": gate}), updated


def allocated(
    reward: Floats, contribution: Floats, prompt: Ints, count: int, norm: Norm = PAPER.norm
) -> TeamCredit:
    r"""The team's advantage, shared out by contributions (B.3, second way).

    ``A_i = w_i A_joint`` with ``w_i = max(0, Δ_i) / (Σ_k max(0, Δ_k) + ε)`` and
    ``A_joint = (R - mean R) / (std R + ε)`` inside a prompt.

    If the team earns 0 or 1, no advantage is negative: when it fails, no agent has contributed. The
    epsilon of ``norm`` is ε.
    """
    team = within_prompts(reward[:, None], prompt, count, norm)
    positive = np.maximum(contribution, 0.0)
    weights = positive / (positive.sum(axis=1, keepdims=True) + norm.epsilon)
    reason = np.broadcast_to(team.reason, contribution.shape).copy()
    shared = np.broadcast_to(team.reward, contribution.shape).copy()
    return TeamCredit(weights * team.advantage, reason, shared)


def bounded(values: Floats, used: Statistics, recipe: CCPO) -> Floats:
    """``r = tanh(α z)`` of each column (Eq. 4): no outlier counts more than 1."""
    return np.tanh(recipe.alpha * _standardised(values, used, recipe))


def trust(used: Statistics, stream: str, recipe: CCPO) -> float:
    """``g = 1 / (1 + exp(-η μ / (σ + ε)))`` of a stream of contributions, between 0 and 1.

    One half if their mean is 0, more if they helped, less if they did harm.
    """
    column = used.streams.index(stream)
    z = used.mean[column] / float(_deviation(used, recipe)[column])
    return 0.5 + 0.5 * math.tanh(0.5 * recipe.eta * z)  # as above, and cannot overflow


def _standardised(values: Floats, used: Statistics, recipe: CCPO) -> Floats:
    """``z = (x - μ) / (σ + ε)`` of each column, with the μ and σ of its stream."""
    scores: Floats = (values - np.array(used.mean)) / _deviation(used, recipe)
    return scores


def _deviation(used: Statistics, recipe: CCPO) -> Floats:
    variance = np.array(used.variance)
    if recipe.flat == "one":
        variance = np.where(variance > recipe.epsilon, variance, 1.0)
    deviation: Floats = np.sqrt(variance)
    return deviation + recipe.epsilon


def _statistics_for(
    batch: Floats, history: Statistics, recipe: CCPO = PAPER
) -> tuple[Statistics | None, Statistics]:
    """The statistics to use for a batch, None while there are too few; and those after it."""
    updated = history.updated(batch, recipe.decay)
    used = updated if recipe.statistics == "after" else history
    return (used if used.samples >= max(recipe.minimum, 1) else None), updated


def _by_agent(prompt: Ints, agents: int) -> Ints:
    """One label for each prompt and agent, (rollouts, agents)."""
    return np.where(prompt[:, None] < 0, -1, prompt[:, None] * agents + np.arange(agents))


def _team(table: StepTable, steps: Arranged) -> tuple[Ints, list[str], Floats]:
    """Agent index of each decision (-1: counterfactual); agent names; R_without.

    Agents are in the order in which they first decide, then of their names.
    """
    assert table.agent is not None
    assert table.without is not None
    without_agent = table.without[steps.rows]
    code = table.agent.codes[steps.rows]
    credited = ~np.isnan(without_agent)
    if (code[credited] < 0).any():
        raise InputError("ccpo: a decision has a value in without, but no agent")
    first_step = np.full(table.agent.values.size, np.iinfo(np.int64).max)
    np.minimum.at(first_step, code[credited], steps.step[credited])
    present = np.flatnonzero(first_step < np.iinfo(np.int64).max)
    ordered = present[np.lexsort((table.agent.values[present].astype(str), first_step[present]))]
    column = np.full(first_step.size + 1, -1)
    column[ordered] = np.arange(ordered.size)
    agent = np.where(credited, column[code], -1)
    names = [str(table.agent.values[agent_code]) for agent_code in ordered]

    without = np.full((steps.trajectory_count, len(names)), np.nan)
    without[steps.trajectory[credited], agent[credited]] = without_agent[credited]
    if (without[steps.trajectory[credited], agent[credited]] != without_agent[credited]).any():
        raise InputError("ccpo: an agent has two values in without in one trajectory")
    if np.isnan(without).any() or not names:
        incomplete = ~np.isfinite(without).all(axis=1) if names else np.ones(len(without), np.bool_)
        row = steps.rows[steps.starts[np.flatnonzero(incomplete)[0]]]
        name = table.trajectory.values[table.trajectory.codes[row]]
        raise InputError(
            f"ccpo: {int(incomplete.sum())} trajectories lack an agent or what the team earns "
            f"without it, {name!r} among them; an episode that max_turns has cut has no such values"
        )
    return agent, names, without
