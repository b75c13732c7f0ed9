"""The audit of a real policy by decisions: what was each one worth?

After a rollout, the policy plays on from chosen decisions, many times: after the action that was
taken, which gives Q, and from the state itself, which gives V. Only differences between actions of
one state move a policy, so credit is compared with Q inside states. The environment is brought back
to a decision by replaying its actions; one that does not replay is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.errors import InputError
from ascribe_lab.models.policy import SamplingPolicy
from ascribe_lab.rollout import Plan, Rollout, Setup
from ascribe_lab.rollout.continued import Point, play_on
from ascribe_lab.rollout.episode import Step

GAMMAS = {"discounted": 0.95, "success": 1.0}
"""Discount of each objective."""

Place = tuple[int, int]
"""A decision: number of its trajectory in the rollout, and of its step."""

CLEAR = 1.96
"""Standard errors after which Q is known to differ from V, and no more is played."""


@dataclass
class PlayedDecision:
    """Returns after a decision, one array for each objective, from as many continuations.

    Attributes:
        after: returns from the decision on, with the action that was taken.
        instead: the same, with the action sampled anew.
    """

    after: dict[str, Floats] = field(default_factory=lambda: dict.fromkeys(GAMMAS, np.zeros(0)))
    instead: dict[str, Floats] = field(default_factory=lambda: dict.fromkeys(GAMMAS, np.zeros(0)))

    def is_clear(self) -> bool:
        """Whether Q differs from V for both objectives, or cannot differ by much."""
        for name in GAMMAS:
            apart = abs(self.after[name].mean() - self.instead[name].mean())
            error = sum(squared_error(v[name]) for v in (self.after, self.instead)) ** 0.5
            if error > 0.02 and apart < CLEAR * error:
                return False
        return True


def squared_error(values: Floats) -> float:
    """The squared standard error of the mean, shrunk towards that of a fair coin.

    All continuations may agree by chance, which does not make their mean exact.
    """
    n = values.size
    return (float(((values - values.mean()) ** 2).sum()) + 0.25) / (n * (n + 1))


def open_places(played: Rollout, count: int, random: np.random.Generator) -> list[Place]:
    """Decisions of states in which several actions were taken, at random, whole states at a time.

    Args:
        played: the rollout.
        count: how many decisions, or a few more.
        random: source of randomness.
    """
    by_state: dict[tuple[str, str], dict[str, Place]] = {}
    for number, trajectory in enumerate(played.trajectories):
        for at, step in enumerate(trajectory.steps):
            actions = by_state.setdefault((trajectory.group, step.state), {})
            actions.setdefault(step.action, (number, at))
    several = [list(actions.values()) for actions in by_state.values() if len(actions) > 1]
    places: list[Place] = []
    for index in random.permutation(len(several)):
        if len(places) < count:
            places += several[index]
    return places


def state_labels(played: Rollout, places: Sequence[Place]) -> Ints:
    """The state of each decision, numbered from 0."""
    keys = [
        (played.trajectories[i].group, played.trajectories[i].steps[t].state) for i, t in places
    ]
    number = {key: label for label, key in enumerate(dict.fromkeys(keys))}
    return np.array([number[key] for key in keys])


def measure(
    setup: Setup,
    policy: SamplingPolicy,
    plan: Plan,
    played: Rollout,
    places: Sequence[Place],
    *,
    at_once: int = 8,
    most: int = 64,
) -> dict[Place, PlayedDecision]:
    """Play on from every decision until Q and V differ clearly, or often enough.

    Args:
        setup: the environment.
        policy: the policy that took the decisions.
        plan: the plan of the rollout.
        played: the rollout.
        places: the decisions.
        at_once: continuations of each decision in a round.
        most: most continuations of each.

    Raises:
        ValueError: if the environment cannot return to a decision.
    """
    resets = {plan.trajectory_name(e.group, e.member): e.reset for e in plan.episodes()}
    found = {place: PlayedDecision() for place in places}
    for number in range(most // at_once):
        unclear = [place for place, one in found.items() if not number or not one.is_clear()]
        starts = [(place, kind) for place in unclear for kind in ("after", "instead")]
        points = []
        for (trajectory, at), kind in starts:
            one = played.trajectories[trajectory]
            now = one.steps[at]
            taken = now if kind == "after" else None
            points.append(Point(resets[one.name], one.steps[:at], now, taken))
        again = replace(plan, seed=plan.seed + 1 + number)
        tails = play_on(setup, policy, again, points, size=at_once)
        for (place, kind), own in zip(starts, tails, strict=True):
            if isinstance(own, str):
                raise InputError(
                    f"{setup.environment} cannot return to a decision: {own}; its decisions "
                    "cannot be audited, its gradients can"
                )
            for name, gamma in GAMMAS.items():
                values = getattr(found[place], kind)
                new = [_return(tail.steps[place[1] :], gamma) for tail in own]
                values[name] = np.append(values[name], new)
    return found


def _return(steps: Sequence[Step], gamma: float) -> float:
    return float(sum(gamma**k * step.reward for k, step in enumerate(steps)))


# Comparing credit with Q.


@dataclass(frozen=True)
class DecisionScore:
    """How credit agrees with what decisions were worth, inside states.

    Attributes:
        cosine: of credit and Q, both centred in their states, corrected for the noise of Q.
        low: lower end of its 95 % bootstrap interval over states.
        high: upper end.
    """

    cosine: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class DecisionAudit:
    """Scores by objective and recipe, and how well Q is known."""

    scores: Mapping[str, Mapping[str, DecisionScore]]
    noise: Mapping[str, float]
    """Share of noise in the variance of Q inside states, by objective."""
    decisions: int
    states: int


def score_decisions(credit: Floats, q: Floats, noise: Floats, state: Ints) -> DecisionScore:
    """Compare the credit of decisions with Q.

    Args:
        credit: the advantage of each decision.
        q: its Q, from continuations.
        noise: squared standard error of each Q.
        state: label of the state of each.
    """
    count, centred = int(state.max()) + 1, in_states(credit, state)
    truth, noise = in_states(q, state), _left(noise, state)
    parts = (centred * truth, centred**2, truth**2, noise)
    sums = np.array([segments.total(part, state, count) for part in parts])
    drawn = np.random.default_rng(0).integers(0, count, (1000, count))
    values = _cosine(sums[:, drawn].sum(axis=-1))
    low, high = np.quantile(values, [0.025, 0.975])
    return DecisionScore(float(_cosine(sums.sum(axis=-1))), float(low), float(high))


def noise_share(q: Floats, noise: Floats, state: Ints) -> float:
    """The share of noise in the variance of Q inside states: how imprecise the truth is."""
    return float(_left(noise, state).sum() / max(float((in_states(q, state) ** 2).sum()), 1e-12))


def in_states(values: Floats, state: Ints) -> Floats:
    """Values minus the mean of their state."""
    return values - segments.mean(values, state, int(state.max()) + 1)[state]


def _left(noise: Floats, state: Ints) -> Floats:
    """Centring takes a share of the noise away with the mean of a state."""
    return noise * (1 - 1 / segments.size(state, int(state.max()) + 1)[state])


def _cosine(sums: Floats) -> Floats:
    """The cosine; noise counts as at most 9/10 of the variance of Q, or it could be any number."""
    signal = np.maximum(sums[2] - sums[3], sums[2] / 10)
    return np.asarray(sums[0] / np.sqrt(np.maximum(sums[1] * signal, 1e-12)))
