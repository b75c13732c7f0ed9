r"""Events: credit where states do not recur, from what the other attempts at the task did.

A call is compared with the calls of other attempts at the task: how many made it, and how many of
those that won. With s the share of other attempts that made call c, W the number of them that won,
and w of those that won and made it, the call is unusual by

    u(c) = 1 - (w + s) / (W + 1).

How much that costs is learned from outcomes y, in a logistic regression that is fitted without the
session itself. n_k is the number of new calls of tool k, and e counts refused calls:

    logit P(y) = a_task + b_version + Σ_k v_k √n_k + Σ_k w_k x_k + errors,
    x_k = Σ_j (u(c_j) - ū_k) (√j - √(j-1)),   over the j-th new call of tool k,

with w_k around a mean of all tools, whose prior is negative: an unusual call is suspect. A call
earns what it has beyond the usual call of its tool, and a share of the outcome by how much calls of
its tool matter, z being the session's standardised outcome in the batch:

    d(c) = min(w_k, 0) (u(c) - ū_k) + κ z |min(w_k, 0)| std_k(u).

A step earns what its worst call does; a later mistake counts less, by ``1 + ρ`` times the mistakes
before it. The term is centred in each session, so that the mean of a session's advantages is its
group-relative return. Where the regression predicts outcomes that it has not seen no better than
shuffled ones, w is the same for all tools and W is 0: this is consensus.

Page: docs/estimators/events.md. Test: tests/estimators/test_events.py.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.groups.events import (
    MOST_ERRORS,
    Calls,
    Usual,
    by_content,
    digests,
    folds_of,
    read_calls,
)
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

MOST_TOOLS = 64
"""Tools with weights of their own, the most frequent ones; the others share one."""
MOST_VERSIONS = 64
SPREAD = 1.0
"""Precision of the weight of a tool around the mean of all tools."""
MEAN = 4.0
"""Precision of that mean around its prior."""
LEVEL = 0.5
"""Precision of the level of a task, and of a version."""
FREE = 0.01
"""Precision of a coefficient that credits no step."""
SURE = 2.0
"""Standard errors above shuffled outcomes, up to which a prediction counts for nothing."""
STEPS, CLOSE = 30, 1e-6
"""Newton steps at most, and a gain of the likelihood that ends them."""

MADE = Sentence(
    "{alike} of {peers} other attempts at this task made this call; it is worth {own:+}, the "
    "session's steps {baseline:+} on average"
)
SILENT = Sentence("it makes no new call; the session's steps are worth {baseline:+} on average")
FAILED = Sentence(
    "the environment refused it; it is worth {own:+}, the session's steps {baseline:+} on average"
)


class Layout(NamedTuple):
    """The columns of the regression: of tools, of errors, and of what credits no step."""

    tools: int
    versions: int

    @property
    def used(self) -> slice:
        """How often each tool was called."""
        return slice(0, self.tools)

    @property
    def unusual(self) -> slice:
        """How unusual the calls of each tool were, less the mean of all tools."""
        return slice(self.tools, 2 * self.tools)

    @property
    def mean(self) -> int:
        """How unusual the calls of all tools were."""
        return 2 * self.tools

    @property
    def refused(self) -> slice:
        """How many calls of each tool were refused."""
        return slice(2 * self.tools + 1, 3 * self.tools + 1)

    @property
    def errors(self) -> slice:
        """Whether there was a first, a second, ... error."""
        return slice(3 * self.tools + 1, 3 * self.tools + 1 + MOST_ERRORS)

    @property
    def events(self) -> int:
        """The columns of events, which come first."""
        return 3 * self.tools + 1 + MOST_ERRORS

    @property
    def width(self) -> int:
        """All columns: events, versions, the wins of others, and a constant."""
        return self.events + self.versions + 3

    def precision(self) -> Floats:
        """The precision of each coefficient around its prior."""
        precision = np.full(self.width, SPREAD)
        precision[self.mean] = MEAN
        precision[self.events : self.events + self.versions] = LEVEL
        precision[-3:] = FREE
        return precision


Normal = tuple[Floats, Floats]
"""A mean of each coefficient, and its precision."""


class Fitted(NamedTuple):
    """Coefficients, their curvature, and the level of each task."""

    weights: Floats
    curvature: Floats
    levels: Floats


def logistic(
    columns: Floats,
    task: Ints,
    outcome: Floats,
    prior: Normal,
    start: tuple[Floats, Floats],
) -> Fitted:
    """A logistic regression with normal priors and a level for each task, by Newton's method.

    The levels are eliminated from the equations, so that the cost is linear in sessions and tasks.

    Args:
        columns: of each session.
        task: label of the task of each session, in rising order.
        outcome: of each session, from 0 to 1.
        prior: of the coefficients; levels are around 0.
        start: weights, and levels of all tasks, to begin with.
    """
    weights, levels = start[0], start[1].copy()
    first = np.flatnonzero(np.append(True, task[1:] != task[:-1]))
    here = task[first]
    of = np.repeat(np.arange(here.size), np.diff(np.append(first, task.size)))
    mean, precision = prior

    def loss(weights: Floats, level: Floats) -> float:
        score = columns @ weights + level[of]
        fit = np.logaddexp(0.0, score) - outcome * score
        return float(
            fit.sum() + 0.5 * (precision @ (weights - mean) ** 2 + LEVEL * (level @ level))
        )

    level = levels[here]
    before = loss(weights, level)
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(columns @ weights + level[of], -30, 30)))
        curve, error = chance * (1.0 - chance) + 1e-6, outcome - chance
        weighted = columns * curve[:, None]
        cross = np.add.reduceat(weighted, first)
        of_tasks = np.add.reduceat(curve, first) + LEVEL
        up = columns.T @ error - precision * (weights - mean)
        up_level = np.add.reduceat(error, first) - LEVEL * level
        inner = weighted.T @ columns + np.diag(precision) - cross.T @ (cross / of_tasks[:, None])
        move = np.linalg.solve(inner, up - cross.T @ (up_level / of_tasks))
        move_level = (up_level - cross @ move) / of_tasks
        size, now = 1.0, loss(weights + move, level + move_level)
        while now > before + CLOSE and size > CLOSE:
            size /= 2
            now = loss(weights + size * move, level + size * move_level)
        weights, level = weights + size * move, level + size * move_level
        if before - now < CLOSE:
            break
        before = now
    levels[here] = level
    return Fitted(weights, np.diag(inner), levels)


def design(calls: Calls, tool: Ints, layout: Layout, unusual: Floats, beside: Floats) -> Floats:
    """The columns of each session; those of no event are given in ``beside``."""
    new = calls.new
    beyond = np.nan_to_num(unusual - mean_of_tool(unusual, tool, layout.tools))
    key = np.where(new, calls.session * layout.tools + tool, -1)
    order = np.argsort(key, kind="stable")
    place = np.empty(key.size, dtype=np.int64)
    place[order] = np.arange(key.size) - np.searchsorted(key[order], key[order])
    root = np.where(new, np.sqrt(place + 1.0) - np.sqrt(place), 0.0)
    failed = calls.refused.astype(np.float64)
    parts = (
        (tool, root),
        (layout.unusual.start + tool, root * beyond),
        (np.full(tool.size, layout.mean), root * beyond),
        (layout.refused.start + tool, failed),
        (layout.errors.start + np.maximum(calls.errors - 1, 0), failed),
    )
    cells = np.concatenate([calls.session * layout.width + column for column, _ in parts])
    values = np.concatenate([value for _, value in parts])
    sums = segments.total(values, cells, calls.sessions * layout.width)
    columns = sums.reshape(calls.sessions, layout.width)
    columns[:, layout.events :] = beside
    return columns


def mean_of_tool(unusual: Floats, tool: Ints, tools: int) -> Floats:
    """The mean over the calls of each call's tool, of those that have other attempts."""
    known = ~np.isnan(unusual)
    return segments.mean(unusual[known], tool[known], tools)[tool]


class Learned(NamedTuple):
    """What a regression says of each call, fitted without the call's own session.

    Attributes:
        unusual: how unusual the call is beyond the mean of its tool; NaN where the task has no
            other attempt.
        cost: what an unusual call of its tool costs, at most 0.
        error: what the call costs if it was refused, at most 0.
        score: what the events of each session predict, in logits.
        fitted: the regression on all sessions.
    """

    unusual: Floats
    cost: Floats
    error: Floats
    score: Floats
    fitted: Fitted


def learn(
    usual: Usual,
    tool: Ints,
    layout: Layout,
    version: Ints,
    prior: Normal,
) -> Learned:
    """Fit the regression once for each fold of sessions, without it."""
    calls, task, won = usual.calls, usual.task, usual.won
    taking_part, tasks = task >= 0, int(task.max(initial=-1)) + 1
    attempts = np.append(segments.size(task, tasks), 1)[task]
    unusual, cost, error = (np.zeros(calls.call.size) for _ in range(3))
    score = np.zeros(calls.sessions)
    beside = np.zeros((calls.sessions, layout.versions + 3))
    if layout.versions:
        beside[np.arange(calls.sessions), version] = 1.0
    beside[:, -1] = 1.0
    everyone = Fitted(prior[0], np.zeros(layout.width), np.zeros(tasks))
    for held_out in range(-1, usual.folds):
        out = (usual.fold == held_out) & taking_part
        train = taking_part & ~out
        if not train.any() or (held_out >= 0 and not out.any()):
            continue
        wins = usual.wins_of_others(held_out)
        beside[:, -3], beside[:, -2] = wins / np.maximum(attempts - 1, 1), wins > 0
        u = usual.unusual(held_out)
        columns = design(calls, tool, layout, u, beside)
        begin = everyone.weights, everyone.levels
        fitted = logistic(columns[train], task[train], won[train], prior, begin)
        if held_out < 0:
            everyone = fitted
            continue
        weights = fitted.weights
        at = out[calls.session]
        by_tool = np.minimum(weights[layout.unusual] + weights[layout.mean], 0.0)
        failing = weights[layout.refused][tool] + weights[layout.errors][calls.errors - 1]
        unusual[at], cost[at] = (u - mean_of_tool(u, tool, layout.tools))[at], by_tool[tool[at]]
        error[at] = np.minimum(failing[at], 0.0)
        score[out] = columns[out, : layout.events] @ weights[: layout.events]
    return Learned(unusual, cost, error, score, everyone)


def within_task(first: Floats, second: Floats, task: Ints) -> tuple[float, float]:
    """The correlation of two values of sessions inside tasks, and its degrees of freedom."""
    count = int(task.max(initial=-1)) + 1
    one, two = (
        np.where(task < 0, 0.0, each - segments.pick(segments.mean(each, task, count), task))
        for each in (first, second)
    )
    mixed = np.append(~segments.constant(second, task, count), False)[task]
    freedom = float(mixed.sum() - np.unique(task[mixed]).size)
    size = float(np.sqrt((one[mixed] @ one[mixed]) * (two @ two)))
    return (float(one @ two) / size if size > 0 else 0.0), freedom


def of_calls(calls: Calls, tool: Ints, value: Floats, matters: Bools, outcome: Floats) -> Floats:
    """What each call is worth: beyond its tool's usual call, and of the session's outcome."""
    labels = np.where(matters, tool, -1)
    count = int(tool.max(initial=-1)) + 1
    mean = segments.mean(value, labels, count)
    spread = np.sqrt(segments.variance(value, labels, count, ddof=0))
    worth = value - mean[tool] + outcome[calls.session] * spread[tool]
    return np.where(matters, worth, np.nan)


def worst(calls: Calls, worth: Floats, size: int) -> Floats:
    """The worst call of each step; 0 for a step without any that counts."""
    values, known = np.full(size, np.inf), ~np.isnan(worth)
    np.minimum.at(values, calls.place[known], worth[known])
    return np.where(np.isinf(values), 0.0, values)


def later_less(values: Floats, starts: Ints, session: Ints, rate: float) -> Floats:
    """Mistakes with less weight after others: over ``1 + rate * Σ of those before``."""
    bad = np.maximum(-values, 0.0)
    before = np.append(0.0, np.cumsum(bad))[:-1]
    before -= before[starts][session]
    return np.where(values < 0, values / (1.0 + rate * np.maximum(before, 0.0)), values)


@dataclass(frozen=True, kw_only=True)
class EventCredit(Standardising):
    """Credit by events: calls against those of other attempts at the task, as outcomes weigh them.

    Attributes:
        weight: weight of the term of events.
        normalise: the return of a trajectory relative to its group is divided by its standard
            deviation (``std``), or not (``mean``).
        prior: what a call that no other attempt made is thought to cost, in logits, before outcomes
            are seen.
        hazard: κ, how much of a session's outcome goes to the calls of tools that matter.
        later: ρ, how much less a mistake counts after earlier ones.
        fallback: as far as outcomes are predicted no better than shuffled ones, steps are credited
            by ``consensus``, or all steps of a session alike, by its return (``returns``).
        folds: folds of sessions in the regression.
        shuffles: how often outcomes are shuffled within tasks to see what prediction is worth; 0
            trusts the regression.
        every: in training, outcomes are shuffled again after so many iterations.
        memory: weight of what earlier iterations have learned of tools; 0 learns from the batch
            alone.
    """

    name: ClassVar[str] = "events"
    paper: ClassVar[str] = "none: Ascribe's own"
    compares_attempts: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = ("history",)
    ranges: ClassVar[dict[str, tuple[float, float]]] = Standardising.ranges | {
        "prior": (0.0, 100.0),
        "hazard": (0.0, 100.0),
        "later": (0.0, 100.0),
        "folds": (2, 100),
        "shuffles": (0, 1000),
        "every": (1, 10**9),
    }

    weight: float = 1.0
    normalise: Literal["std", "mean"] = "std"
    prior: float = 1.0
    hazard: float = 2.0
    later: float = 0.05
    fallback: Literal["consensus", "returns"] = "consensus"
    folds: int = 10
    shuffles: int = 12
    every: int = 10
    memory: float = 0.0

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps = arrange(table)
        episode = self.episode_term(table, self.norm(self.normalise))
        calls = read_calls(table)
        task = self.trajectory_groups(steps)
        won, outcome = self._outcomes(steps, task)
        digest = digests(table)
        usual = Usual(calls, task, won, folds_of(digest, task, self.folds), self.folds)
        worth, metrics, history = self._worth(table, usual, outcome, digest, inputs)
        evidence = metrics["events_evidence"]
        values, mean, scale = self._of_steps(steps, usual, worth, evidence)
        reason = np.full(values.size, np.int8(Reason.CREDITED))
        same = segments.constant(values, steps.trajectory, steps.trajectory_count)
        reason[same[steps.trajectory] | (scale == 0)] = Reason.ZERO_VARIANCE
        reason[self.alone(steps)] = Reason.GROUP_OF_ONE
        shown = np.where(reason == Reason.CREDITED, (values - mean) * scale, 0.0)
        explain = partial(_explained, usual, steps, values, mean)
        term = self.term(table, shown, reason, steps.group, weight=self.weight, explain=explain)
        return Credit.of({"episode": episode, "events": term}, repr(self), metrics, history)

    def _outcomes(self, steps: Arranged, task: Ints) -> tuple[Floats, Floats]:
        """The return of each session between 0 and 1, and standardised in the batch."""
        returns = self.episode_returns(steps)
        used = returns[task >= 0]
        low, high = (float(used.min()), float(used.max())) if used.size else (0.0, 0.0)
        if high <= low:
            return np.zeros(returns.size), np.zeros(returns.size)
        won = np.clip((returns - low) / (high - low), 0.0, 1.0)
        return won, (won - won[task >= 0].mean()) / won[task >= 0].std()

    def _worth(
        self,
        table: StepTable,
        usual: Usual,
        outcome: Floats,
        digest: Any,
        inputs: dict[str, Any],
    ) -> tuple[Floats, dict[str, float], dict[str, Any] | None]:
        """What each call is worth; metrics; and the history."""
        steps, calls, task = arrange(table), usual.calls, usual.task
        tool, names = _frequent(calls.tool, calls.tools, MOST_TOOLS)
        version, versions = _versions(table, steps)
        layout = Layout(len(names), versions)
        past = _Past.of(inputs.get("history"))
        prior = past.prior(layout, names, self.prior, self.memory)
        learned = learn(usual, tool, layout, version, prior)
        metrics = {"events_evidence": 1.0}
        if self.shuffles and past.iteration % self.every and self.has_history:
            metrics["events_evidence"] = past.evidence
        elif self.shuffles:
            found, freedom = within_task(learned.score, usual.won, task)
            chance = np.mean(
                [
                    within_task(learn(each, tool, layout, version, prior).score, each.won, task)[0]
                    for each in self._shuffled(usual, digest)
                ]
            )
            surplus = max(found - float(chance), 0.0) * freedom**0.5
            metrics["events_evidence"] = max(1.0 - (SURE / max(surplus, SURE)) ** 2, 0.0)
            metrics |= {"events_prediction": found, "events_prediction_shuffled": float(chance)}
        evidence = metrics["events_evidence"]
        matters = calls.new & ~np.isnan(learned.unusual) & (task[calls.session] >= 0)
        value = learned.cost * np.nan_to_num(learned.unusual)
        worth = of_calls(calls, tool, value, matters, self.hazard * outcome)
        worth = np.where(calls.refused, learned.error, worth)
        history = None
        if self.has_history:
            history = past.updated(layout, names, learned.fitted, evidence)
            history["known"] = history["known"] if self.memory else {}
        return worth, metrics, history

    @property
    def has_history(self) -> bool:
        """Whether earlier iterations count: what they learned, or the last comparison."""
        return self.memory > 0 or (self.shuffles > 0 and self.every > 1)

    def _shuffled(self, usual: Usual, digest: Any) -> list[Usual]:
        """The same with outcomes in another order inside tasks."""
        order, rng = by_content(digest, usual.task), np.random.default_rng(0)
        shuffled = []
        for _ in range(self.shuffles):
            random = np.lexsort(
                (rng.random(order.size), np.unique(usual.task[order], return_inverse=True)[1])
            )
            mixed = np.empty_like(usual.won)
            plain = np.argsort(usual.task[order], kind="stable")
            mixed[order[plain]] = usual.won[order[random]]
            shuffled.append(replace(usual, won=mixed))
        return shuffled

    def _of_steps(
        self, steps: Arranged, usual: Usual, worth: Floats, evidence: float
    ) -> tuple[Floats, Floats, float]:
        """What each step is worth, the mean over its session's steps, and a factor of both."""
        calls = usual.calls
        called = np.zeros(steps.rows.size, dtype=np.bool_)
        called[calls.place] = True
        alone = np.where(calls.refused | (usual.others == 0), 0.0, usual.share - 1.0)
        values = np.zeros(steps.rows.size)
        rest = 1.0 - evidence if self.fallback == "consensus" else 0.0
        for share, of_calls, later in ((evidence, worth, self.later), (rest, alone, 0.0)):
            part = worst(calls, of_calls, values.size)
            if share and (unit := float(part[called].std()) if called.any() else 0.0):
                part = later_less(part, steps.starts, steps.trajectory, later / unit)
                values += share * part / float(part[called].std())
        mean = segments.mean(values, steps.trajectory, steps.trajectory_count)[steps.trajectory]
        unit = float(values[called].std()) if called.any() else 0.0
        if self.fallback == "returns":
            unit = float(unit > 0)  # little evidence, little credit
        size = 1.0 if self.normalise == "std" else float(self.episode_returns(steps).std())
        return values, mean, size / unit if unit > 0 else 0.0


class _Past(NamedTuple):
    """What earlier iterations have learned: of each column a mean and a precision, by name."""

    iteration: int
    evidence: float
    known: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, history: dict[str, Any] | None) -> "_Past":
        """Read a history.

        Raises:
            ValueError: if it is none of this recipe.
        """
        if history is None:
            return cls(0, 1.0, {})
        try:
            known = {str(n): (float(m), float(p)) for n, (m, p) in history["known"].items()}
            past = cls(int(history["iteration"]), float(history["evidence"]), known)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                "the history holds no memory of events: it was damaged, or written by another "
                "recipe",
                hint="begin without it, or take the recipe that wrote it",
            ) from error
        if not all(np.isfinite(pair).all() and pair[1] >= 0 for pair in known.values()):
            raise InputError("the history holds a weight that cannot be", hint="begin without it")
        return past

    def prior(self, layout: Layout, names: list[str], mean: float, memory: float) -> Normal:
        """The prior of each coefficient."""
        prior, precision = np.zeros(layout.width), layout.precision()
        prior[layout.mean] = -mean
        for column, name in enumerate(_columns(names)):
            if memory and name in self.known:
                before, sure = self.known[name]
                sure *= memory
                total = precision[column] + sure
                prior[column] = (precision[column] * prior[column] + sure * before) / total
                precision[column] = total
        return prior, precision

    def updated(
        self, layout: Layout, names: list[str], fitted: Fitted, evidence: float
    ) -> dict[str, Any]:
        """The history for the next iteration."""
        sure = np.maximum(fitted.curvature - layout.precision(), 0.0)
        known: dict[str, list[float]] = {}
        for column, name in enumerate(_columns(names)):
            known[name] = [float(fitted.weights[column]), float(sure[column])]
        return {"iteration": self.iteration + 1, "evidence": evidence, "known": known}


def _columns(names: list[str]) -> list[str]:
    """The names of the columns of events."""
    kinds = ("used", "unusual")
    named = [f"{kind} {name}" for kind in kinds for name in names] + ["unusual"]
    named += [f"refused {name}" for name in names]
    return named + [f"error {number + 1}" for number in range(MOST_ERRORS)]


def _frequent(codes: Ints, names: Any, most: int) -> tuple[Ints, list[str]]:
    """The codes with one for all but the most frequent, and the names of the codes."""
    size = np.bincount(codes, minlength=len(names))
    ranked = sorted(range(len(names)), key=lambda code: (-size[code], str(names[code])))
    rename = np.full(len(names), min(len(names), most) - 1, dtype=np.int64)
    rename[ranked[: most - 1]] = np.arange(len(ranked[: most - 1]))
    kept = [str(names[code]) for code in ranked[: most - 1]]
    if len(names) >= most:
        kept.append("others" if len(names) > most else str(names[ranked[-1]]))
    return rename[codes], kept


def _versions(table: StepTable, steps: Arranged) -> tuple[Ints, int]:
    """The version of each session, and their number; none if there is one."""
    if table.version is None:
        return np.zeros(steps.trajectory_count, dtype=np.int64), 0
    column = table.version.take(steps.rows[steps.starts]).used()
    codes = np.where(column.codes < 0, column.values.size, column.codes)
    version, _ = _frequent(codes, [*column.values, ""], MOST_VERSIONS)
    _, version = np.unique(version, return_inverse=True)
    count = int(version.max(initial=0)) + 1
    return version.astype(np.int64), count if count > 1 else 0


def _explained(usual: Usual, steps: Arranged, values: Floats, mean: Floats) -> Explanation:
    """How many others made the rarest call of each step, and what the step is worth."""
    calls, size = usual.calls, values.size
    made = np.rint(usual.share * usual.others)
    alike = np.full(size, np.inf)
    np.minimum.at(alike, calls.place[calls.new], made[calls.new])
    others = segments.size(usual.task, steps.group_count)[steps.group] - 1
    way = np.where(np.isinf(alike), 1, 0).astype(np.int8)
    way[calls.place[calls.refused]] = 2
    alike = np.where(np.isinf(alike), 0, alike).astype(np.int64)
    return Explanation(values, mean, others, (MADE, SILENT, FAILED), way, alike)
