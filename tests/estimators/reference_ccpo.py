"""Slow, obvious versions of CCPO's parts, written from the paper's equations, one row at a time."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from statistics import fmean, pvariance, stdev
from typing import Any

Row = Sequence[float]


def vote(
    answers: Sequence[int], rewards: Row, present: Iterable[int], ties: str = "share"
) -> float:
    """What the answer with the most votes earns."""
    voters = [agent for agent in present if answers[agent] >= 0]
    if not voters:
        return 0.0
    counted = Counter(answers[agent] for agent in voters)
    most = max(counted.values())
    worth = {answers[agent]: rewards[agent] for agent in voters}
    winners = [answer for answer, votes in counted.items() if votes == most]
    if ties == "first":
        return next(worth[answers[agent]] for agent in voters if answers[agent] in winners)
    return fmean(worth[answer] for answer in winners)


def contributions(agents: int, reward: Callable[[Sequence[int]], float]) -> list[float]:
    """Eq. 1: the team's reward less its reward without each agent."""
    everyone = range(agents)
    return [
        reward(everyone) - reward([other for other in everyone if other != agent])
        for agent in everyone
    ]


def shapley(agents: int, reward: Callable[[Sequence[int]], float]) -> list[float]:
    """The mean over all orders of what an agent adds to those before it."""
    value = [0.0] * agents
    orders = list(permutations(range(agents)))
    for order in orders:
        for place, agent in enumerate(order):
            value[agent] += reward(order[: place + 1]) - reward(order[:place])
    return [total / len(orders) for total in value]


class History:
    """Eq. 2-3, for one stream."""

    def __init__(self, decay: float) -> None:
        self.decay, self.mean, self.variance, self.samples = decay, 0.0, 0.0, 0

    def see(self, batch: Row) -> None:
        if not batch:
            return
        mean, variance = fmean(batch), pvariance(batch)
        if self.samples:
            self.mean = self.decay * self.mean + (1 - self.decay) * mean
            self.variance = self.decay * self.variance + (1 - self.decay) * variance
        else:
            self.mean, self.variance = mean, variance
        self.samples += len(batch)

    def scale(self, shaping: Any) -> float:
        if shaping.flat == "one" and self.variance <= shaping.epsilon:
            return 1.0 + shaping.epsilon
        return math.sqrt(self.variance) + shaping.epsilon


class Stream:
    """A history, and the score of a number in it, before or after it has seen the batch."""

    def __init__(self, shaping: Any) -> None:
        self.shaping, self.history = shaping, History(shaping.decay)

    def scores(self, batch: Row) -> tuple[list[float] | None, float, float]:
        """The scores of a batch, None if too little was seen; and the μ and σ + ε in use."""
        if self.shaping.statistics == "after":
            self.history.see(batch)
        seen, mean, scale = self.history.samples, self.history.mean, 0.0
        scores = None
        if seen >= max(self.shaping.minimum, 1):
            scale = self.history.scale(self.shaping)
            scores = [(x - mean) / scale for x in batch]
        if self.shaping.statistics == "before":
            self.history.see(batch)
        return scores, mean, scale


def within_prompts(rewards: Row, prompt: Sequence[int], epsilon: float) -> list[float]:
    """Eq. 5, 0 where nothing can be compared."""
    out = []
    for reward, mine in zip(rewards, prompt, strict=True):
        peers = [r for r, other in zip(rewards, prompt, strict=True) if other == mine]
        if mine < 0 or len(peers) < 2 or math.isclose(max(peers), min(peers), rel_tol=1e-12):
            out.append(0.0)
        else:
            out.append((reward - fmean(peers)) / (stdev(peers) + epsilon))
    return out


class ThinkSolve:
    """Appendix B.2, batch after batch."""

    def __init__(self, shaping: Any) -> None:
        self.shaping = shaping
        self.streams = [Stream(shaping) for _ in range(3)]

    def __call__(
        self, joint: Row, solo: Row, prompt: Sequence[int]
    ) -> tuple[list[float], list[float]]:
        delta = [j - s for j, s in zip(joint, solo, strict=True)]
        (z_delta, mean, scale), (z_joint, *_), (z_solo, *_) = (
            stream.scores(batch)
            for stream, batch in zip(self.streams, (delta, joint, solo), strict=True)
        )
        if z_delta is None or z_joint is None or z_solo is None:
            thinker, solver = delta, list(joint)
        else:
            thinker = [math.tanh(self.shaping.alpha * z) for z in z_delta]
            gate = sigmoid(self.shaping.eta * mean / scale)
            solver = [gate * j + (1 - gate) * s for j, s in zip(z_joint, z_solo, strict=True)]
        epsilon = self.shaping.epsilon
        return within_prompts(thinker, prompt, epsilon), within_prompts(solver, prompt, epsilon)


def sigmoid(u: float) -> float:
    return 1.0 / (1.0 + math.exp(-u)) if u > -700 else 0.0


def allocated(
    rewards: Row, contribution: Sequence[Row], prompt: Sequence[int], epsilon: float
) -> list[list[float]]:
    """Appendix B.3, the second way."""
    out = []
    joint = within_prompts(rewards, prompt, epsilon)
    for advantage, deltas in zip(joint, contribution, strict=True):
        helped = [max(0.0, delta) for delta in deltas]
        out.append([h / (sum(helped) + epsilon) * advantage for h in helped])
    return out


def outcome_bonus(
    joint: Row, solo: Row, prompt: Sequence[int], bonus: str, weight: float, baseline: str
) -> tuple[list[float], list[float]]:
    """The rewards of thinker and solver in the authors' second release."""
    team = [1.0 if j > 0 else -1.0 for j in joint]
    alone = [1.0 if s > 0 else -1.0 for s in solo]
    thinker = []
    for row, outcome in enumerate(team):
        compared = alone[row]
        if baseline == "prompt":
            compared = fmean(s for s, p in zip(alone, prompt, strict=True) if p == prompt[row])
        if bonus == "margin":
            extra = (outcome - compared) / 2
        elif outcome > 0 > compared:
            extra = 1.0
        elif outcome < 0 < compared:
            extra = -1.0
        else:
            extra = 0.0
        thinker.append(outcome + weight * extra)
    return thinker, team
