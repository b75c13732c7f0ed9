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

import itertools
import json
from collections import Counter
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ascribe.estimators.base import Standardising
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.groups.events import (
    MOST_ERRORS,
    Calls,
    Usual,
    Written,
    are_commands,
    by_content,
    digests,
    folds_of,
    generated,
    read_written,
    settled,
)
from ascribe.groups.responses import Call
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.errors import InputError
from ascribe.steps.strict_json import loads
from ascribe.steps.table import StepTable

MOST_TOOLS = 64
"""Tools with weights of their own, the most frequent ones; the others share one."""
MOST_VERSIONS = 64
MOST_SHUFFLED = 20_000
"""Sessions whose outcomes are shuffled; of more, whole tasks are taken."""
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
CACHED = 1 << 17
"""Numbers of a block of columns, or those of one more task."""
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


class Fit(NamedTuple):
    """What all parts must know for their credit.

    Attributes:
        shares: factors of the learned worth of a step, and of that by consensus.
        scale: factor of both.
        metrics: see the page.
        history: for the next iteration.
    """

    shares: tuple[float, float]
    scale: float
    metrics: dict[str, float]
    history: dict[str, Any] | None


class Fitted(NamedTuple):
    """Coefficients and their curvature; parts keep the levels of their tasks in ``slot``."""

    weights: Floats
    curvature: Floats
    slot: int


# What is computed of a part of the tasks. Each function takes what is kept of the part, to which it
# may add, and what is asked, and returns arrays; those of all parts are added up or joined.

Kept = MutableMapping[str, Any]
Asked = dict[str, Any]
Found = dict[str, Any]
SUMS = ("loss", "up", "inner", "level")
Over = Callable[..., list[Found]]
"""``over(function, asked, **of_sessions)``: a pass; of arrays, each part gets its sessions."""


def survey(kept: Kept, table: StepTable) -> Found:
    """Keep the calls of a part as they are written; gives what other parts must know."""
    steps, made = arrange(table), read_written(table)
    for name in ("place", "session", "tool", "call", "refused"):
        kept[f"written {name}"] = getattr(made, name)
    depends = [
        call if made.ids and call and (generated(call) or "#" in call.arguments) else None
        for call in made.calls
    ]
    texts, version = [], np.zeros(made.sessions, dtype=np.int64)
    if table.version is not None:
        column = table.version.take(steps.rows[steps.starts]).used()
        texts = [str(text) for text in column.values]
        version = np.where(column.codes < 0, len(texts), column.codes)
    kept["written version"] = version
    kept["texts"] = json.dumps([[*made.tools], depends, made.kind, [*texts, ""]])
    kept["starts"], kept["trajectory"] = steps.starts, steps.trajectory
    uses = np.bincount(made.tool, minlength=made.tools.size).tolist()
    size = np.bincount(version, minlength=len(texts) + 1).tolist()
    return {
        "digest": digests(table),
        "kind": made.kind,
        "tools": json.dumps(dict(zip(made.tools, uses, strict=True))),
        "versions": json.dumps({name: n for name, n in zip([*texts, ""], size, strict=True) if n}),
        "ids": json.dumps(made.ids),
    }


def settle(kept: Kept, asked: Asked) -> Found:
    """Keep the calls of a part, now that is known what other parts hold; gives nothing."""
    names, depends, kind, versions = loads(str(kept["texts"]))
    numbers = [kept[f"written {n}"] for n in ("place", "session", "tool", "call", "refused")]
    if kind != asked["kind"]:
        numbers = [values[:0] for values in numbers]
    calls = [each and Call(*each) for each in depends]
    tools, sessions = np.array(names, dtype=object), kept["task"].size
    place, session, tool, call, refused = numbers
    flags = (place, session, tool, call, refused, tools)
    made = settled(Written(*flags, calls, {}, sessions, kind), asked["ids"])
    column = np.array([asked["tools"].get(name, 0) for name in names], dtype=np.int64)
    kept["tool"] = column[made.tool] if made.tool.size else made.tool
    for name in ("place", "session", "refused", "call", "again"):
        kept[name] = getattr(made, name)
    version = np.array([asked["versions"].get(name, 0) for name in versions], dtype=np.int64)
    kept["version"] = version[kept["written version"]]
    return {}


def settle_all(found: Sequence[Found], over: Over) -> tuple[list[str], Layout]:
    """Settle the calls of all parts, from what ``survey`` found; gives the names of tools."""
    kinds = {int(each["kind"]) for each in found}
    uses, sizes, ids = Counter[str](), Counter[str](), Counter[str]()
    for each in found:
        sizes.update(loads(str(each["versions"])))
        ids.update({name: 1 + several for name, several in loads(str(each["ids"])).items()})
        if int(each["kind"]) == min(kinds):
            uses.update(loads(str(each["tools"])))
    too_many = min(kinds) == 1 and not are_commands(uses.values())
    tools, names = _columns_for(Counter() if too_many else uses, MOST_TOOLS)
    versions, many = _columns_for(sizes, MOST_VERSIONS)
    asked = {"kind": -1 if too_many else min(kinds), "tools": tools, "versions": versions}
    over(settle, asked | {"ids": {name for name, count in ids.items() if count > 1}})
    return names, Layout(len(names), len(many) if len(many) > 1 else 0)


def usual_of(kept: Kept, asked: Asked) -> Usual:
    """How usual the calls of a part are, if its sessions won what is asked."""
    names = ("place", "session", "tool", "call", "refused", "again")
    arrays: dict[str, Any] = {name: kept[name] for name in names}
    none = np.empty(0, dtype=object)
    made = Calls(**arrays, tools=none, calls=(), sessions=asked["won"].size)
    return Usual(made, kept["task"], asked["won"], asked["fold"], asked["folds"])


def measure(kept: Kept, asked: Asked) -> Found:
    """Keep the columns of sessions for each fold; gives how unusual the calls of tools are."""
    usual, tools = usual_of(kept, asked), asked["layout"].tools
    calls, task = usual.calls, usual.task
    size, tool, new = calls.sessions, calls.tool, calls.new
    known = new & (usual.others > 0)
    key = calls.session * tools + tool
    ranked = np.where(new, key, -1)
    order = np.argsort(ranked, kind="stable")
    place = np.empty(key.size, dtype=np.int64)
    place[order] = np.arange(key.size) - np.searchsorted(ranked[order], ranked[order])
    root = np.where(new, np.sqrt(place + 1.0) - np.sqrt(place), 0.0)

    def by_tool(values: Floats) -> Floats:
        return segments.total(values, key, size * tools).reshape(size, tools)

    failed = calls.refused.astype(np.float64)
    errors = calls.session * MOST_ERRORS + np.maximum(calls.errors - 1, 0)
    kept["used"], kept["compared"] = by_tool(root), by_tool(root * known)
    kept["failed"] = np.hstack(
        [by_tool(failed), segments.total(failed, errors, size * MOST_ERRORS).reshape(size, -1)]
    )
    attempts = np.append(segments.size(task, int(task.max(initial=-1)) + 1), 1)[task]
    held, total = np.full(key.size, np.nan), np.zeros((asked["folds"] + 1, tools))
    for held_out in range(-1, asked["folds"]):
        unusual = usual.unusual(held_out)
        total[held_out] = segments.total(unusual[known], tool[known], tools)
        wins = usual.wins_of_others(held_out)
        kept[f"unusual {held_out}"] = by_tool(root * np.nan_to_num(unusual))
        kept[f"wins {held_out}"] = np.stack([wins / np.maximum(attempts - 1, 1), wins > 0], axis=1)
        at = usual.fold[calls.session] == held_out
        held[at] = unusual[at]
    kept["held"], kept["share"], kept["others"] = held, usual.share, usual.others
    kept["errors"] = calls.errors
    return {"total": total, "calls": segments.size(tool[known], tools)}


def columns_of(kept: Kept, asked: Asked, held_out: Sequence[int], of: Any) -> Floats:
    """The columns of some sessions, without each of these folds; see ``Layout``."""
    layout, compared, version = asked["layout"], kept["compared"][of], kept["version"][of]
    columns = np.ones((len(held_out), version.size, layout.width))
    columns[..., layout.used] = kept["used"][of]
    columns[..., layout.refused.start : layout.events] = kept["failed"][of]
    columns[..., layout.events : -3] = version[:, None] == np.arange(layout.versions)
    for own, fold in zip(columns, held_out, strict=True):
        own[:, layout.unusual] = kept[f"unusual {fold}"][of] - asked["mean"][fold] * compared
        own[:, -3:-1] = kept[f"wins {fold}"][of]
    columns[..., layout.mean] = columns[..., layout.unusual].sum(axis=2)
    return columns


def climb(kept: Kept, asked: Asked) -> Found:
    """The loss of the regressions at some weights, its gradient and curvature, without the prior.

    The levels of tasks are kept with the part, and eliminated from gradient and curvature.
    """
    at, layout = asked["at"], asked["layout"]
    task = np.maximum.accumulate(kept["task"])  # who takes no part is in a task, with no weight
    first = np.flatnonzero(np.append(True, task[1:] != task[:-1]))
    train = np.stack([(kept["task"] >= 0) & (asked["fold"] != held_out) for held_out in at])
    begun = np.zeros(first.size)
    if asked["begin"] is not None:  # at first, that of the regression on all sessions
        begun = kept[f"state -1 {asked['begin']}"][:, 0]
    levels = np.where(np.logical_or.reduceat(train, first, axis=1), begun, 0.0)
    for level, (held_out, (slot, _, move, size)) in zip(levels, at.items(), strict=True):
        if move is not None:
            state = kept[f"state {held_out} {1 - slot}"]
            level[:] = state[:, 0] + size * ((state[:, 2] - state[:, 3:] @ move) / state[:, 1])
    # Block by block, since a block stays in the cache of the processor.
    cuts = np.arange(0, task.size, max(CACHED // (layout.width * len(at)), 1))
    cuts = np.append(np.unique(np.searchsorted(first, cuts, side="right") - 1), first.size)
    ends, weights = np.append(first, task.size), np.stack([each[1] for each in at.values()])
    states, sums = [], [np.zeros(())] * len(SUMS)
    for low, high in itertools.pairwise(cuts.tolist()):
        here = slice(ends[low], ends[high])
        columns = columns_of(kept, asked, [*at], here)
        own = {"first": first[low:high] - ends[low], "level": levels[:, low:high]}
        state, *more = _climbed(columns, weights, asked["won"][here], train[:, here], **own)
        states.append(state)
        sums = [before + each for before, each in zip(sums, more, strict=True)]
    found = Found()
    for state, held_out, *found_here in zip(np.concatenate(states, axis=1), at, *sums, strict=True):
        kept[f"state {held_out} {at[held_out][0]}"] = state
        found |= {f"{name} {held_out}": each for name, each in zip(SUMS, found_here, strict=True)}
    return found


def _climbed(
    columns: Floats, weights: Floats, won: Floats, train: Bools, *, first: Ints, level: Floats
) -> tuple[Floats, ...]:
    """The state of some tasks, whose sessions begin at ``first``, and their share of ``SUMS``.

    The first axis of all but outcomes is that of the folds.
    """
    size = np.diff(np.append(first, won.size))
    score = (columns @ weights[..., None])[..., 0] + np.repeat(level, size, axis=1)
    chance = 1.0 / (1.0 + np.exp(-np.clip(score, -30, 30)))
    curve, error = train * (chance * (1.0 - chance) + 1e-6), train * (won - chance)
    cross = np.add.reduceat(columns * curve[..., None], first, axis=1)
    of_tasks = np.add.reduceat(curve, first, axis=1) + LEVEL
    up_level = np.add.reduceat(error, first, axis=1) - LEVEL * level
    own, shared = columns * np.sqrt(curve)[..., None], cross / np.sqrt(of_tasks)[..., None]
    fit = (train * (np.logaddexp(0.0, score) - won * score)).sum(axis=1)
    return (
        np.concatenate([np.stack([level, of_tasks, up_level], axis=2), cross], axis=2),
        fit + 0.5 * LEVEL * (level**2).sum(axis=1),
        (error[:, None] @ columns)[:, 0],
        own.swapaxes(1, 2) @ own - shared.swapaxes(1, 2) @ shared,
        ((up_level / of_tasks)[:, None] @ cross)[:, 0],
    )


Climb = Generator[tuple[int, Floats, Floats | None, float], list[Any], Fitted]


def logistic(prior: Normal, weights: Floats) -> Climb:
    """A logistic regression with normal priors and a level for each task, by Newton's method.

    Asks for slots, weights, the move to them and its size; is sent what ``climb`` found there.
    """
    mean, precision = prior

    def loss(found: list[Any], weights: Floats) -> float:
        return float(found[0] + 0.5 * (precision @ (weights - mean) ** 2))

    slot = 0
    found = yield slot, weights, None, 0.0
    before = loss(found, weights)
    for _ in range(STEPS):
        _, up, inner, up_level = found
        inner = inner + np.diag(precision)
        move = np.linalg.solve(inner, up - precision * (weights - mean) - up_level)
        size, slot = 1.0, 1 - slot
        found = yield slot, weights + move, move, size
        while (now := loss(found, weights + size * move)) > before + CLOSE and size > CLOSE:
            size /= 2
            found = yield slot, weights + size * move, move, size
        weights = weights + size * move
        if before - now < CLOSE:
            break
        before = now
    return Fitted(weights, np.diag(inner), slot)


def judge(kept: Kept, asked: Asked) -> Found:
    """What regressions predict of sessions that they have not seen, and what calls cost by them."""
    usual, layout = usual_of(kept, asked), asked["layout"]
    calls, tool = usual.calls, usual.calls.tool
    unusual, cost, error = (np.zeros(tool.size) for _ in range(3))
    score = np.zeros(calls.sessions)
    for held_out, weights in asked["weights"].items():
        out = (usual.fold == held_out) & (usual.task >= 0)
        at = out[calls.session]
        by_tool = np.minimum(weights[layout.unusual] + weights[layout.mean], 0.0)
        failing = weights[layout.refused][tool] + weights[layout.errors][kept["errors"] - 1]
        unusual[at] = (kept["held"] - asked["mean"][held_out][tool])[at]
        cost[at], error[at] = by_tool[tool[at]], np.minimum(failing[at], 0.0)
        events = columns_of(kept, asked, [held_out], out)[0, :, : layout.events]
        score[out] = events @ weights[: layout.events]
    matters = calls.new & ~np.isnan(unusual) & (usual.task >= 0)[calls.session]
    value = cost * np.nan_to_num(unusual)
    kept["value"], kept["matters"], kept["error"] = value, matters, error
    return {"score": score, **moments(value, np.where(matters, tool, -1), layout.tools)}


def moments(values: Floats, labels: Ints, count: int) -> Found:
    """The number of values with each label, their mean, and the squares around it."""
    number, mean = segments.size(labels, count), segments.mean(values, labels, count)
    beyond = values - segments.pick(mean, labels)
    return {"number": number, "mean": mean, "squares": segments.total(beyond**2, labels, count)}


def joined_moments(parts: Sequence[Found]) -> tuple[Floats, Floats]:
    """The mean of the values of all parts, and their standard deviation."""
    number, mean, squares = (np.array(parts[0][n]) for n in ("number", "mean", "squares"))
    for part in parts[1:]:
        both = np.maximum(number + part["number"], 1)
        apart = part["mean"] - mean
        squares = squares + part["squares"] + apart**2 * (number * part["number"] / both)
        mean, number = mean + apart * (part["number"] / both), number + part["number"]
    spread = np.sqrt(squares / np.maximum(number, 1))
    # Of equal values only their rounding differs, which must not become a scale.
    return mean, np.where(spread <= 1e-9 * np.maximum(np.abs(mean), 1.0), 0.0, spread)


def weigh(kept: Kept, asked: Asked) -> Found:
    """What the worst call of each step is worth, learned and by consensus alone; their moments."""
    tool, session = kept["tool"], kept["session"]
    worth = kept["value"] - asked["usual"][tool] + asked["outcome"][session] * asked["spread"][tool]
    worth = np.where(kept["matters"], worth, np.nan)
    worth = np.where(kept["refused"], kept["error"], worth)
    alone = np.where(kept["refused"] | (kept["others"] == 0), 0.0, kept["share"] - 1.0)
    size = kept["trajectory"].size
    kept["worth"] = np.stack([worst(kept["place"], each, size) for each in (worth, alone)])
    return of_called(kept, "worth")


def of_called(kept: Kept, name: str) -> Found:
    """The moments of both worths and their sum, over the steps with calls."""
    first, second = kept[name][:, np.unique(kept["place"])]
    values = np.concatenate([first, second, first + second])
    return moments(values, np.repeat(np.arange(3), first.size), 3)


def lessen(kept: Kept, asked: Asked) -> Found:
    """The same, with less for later mistakes."""
    worth, starts, session = kept["worth"], kept["starts"], kept["trajectory"]
    lessened = later_less(worth[0], starts, session, asked["later"])
    kept["values"] = np.stack([lessened, worth[1]])
    return of_called(kept, "values")


def choose(kept: Kept, asked: Asked) -> Found:
    """What is kept of the calls of some sessions."""
    chosen = asked["chosen"]
    at = np.flatnonzero(chosen[kept["session"]])
    label = np.cumsum(chosen) - 1
    found = {name: kept[name][at] for name in ("place", "tool", "call", "refused", "again")}
    found |= {"session": label[kept["session"][at]], "sessions": int(chosen.sum())}
    return found | {"version": kept["version"][chosen]}


def joined_sample(parts: Sequence[Found], task: Ints) -> Kept:
    """The sessions that were chosen in all parts as one; ``task`` is that of each."""
    names = ("place", "tool", "refused", "again", "version")
    sample: Kept = {name: np.concatenate([each[name] for each in parts]) for name in names}
    first = np.cumsum([0, *(int(each["sessions"]) for each in parts)]).tolist()
    sessions = [each["session"] + n for each, n in zip(parts, first[:-1], strict=True)]
    sample["session"], sample["task"] = np.concatenate(sessions), task
    sample["call"] = _joined([each["call"] for each in parts])
    return sample


def over_parts(parts: Sequence[Kept], sizes: Sequence[int]) -> Over:
    """Passes over parts in memory with so many sessions."""

    def over(function: Any, asked: Asked, **of_sessions: Any) -> list[Found]:
        own = cut_sessions(sizes, of_sessions)
        return [function(kept, asked | each) for kept, each in zip(parts, own, strict=True)]

    return over


def cut_sessions(sizes: Sequence[int], of_sessions: dict[str, Any]) -> list[dict[str, Any]]:
    """The arrays of all sessions for each part."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        {name: each[low:high] for name, each in of_sessions.items()}
        for low, high in itertools.pairwise(ends)
    ]


def compared(found: float, freedom: float, chance: float) -> dict[str, float]:
    """What a prediction is worth that agrees so well with outcomes, and with shuffled ones."""
    surplus = max(found - chance, 0.0) * freedom**0.5
    evidence = max(1.0 - (SURE / max(surplus, SURE)) ** 2, 0.0)
    own = {"events_prediction": found, "events_prediction_shuffled": chance}
    return {"events_evidence": evidence, **own}


def learn(
    over: Over, task: Ints, won: Floats, fold: Ints, *, layout: Layout, prior: Normal, folds: int
) -> tuple[Floats, list[Found], Fitted]:
    """Fit the regression once for each fold of sessions, without it.

    Returns:
        What the events of each session predict, in logits; moments of what calls are worth, from
        each part; and the regression on all sessions.
    """
    sessions = {"won": won, "fold": fold}
    asked: Asked = {"folds": folds, "layout": layout, "begin": None}
    found = over(measure, asked, **sessions)
    mean = sum(f["total"] for f in found) / np.maximum(sum(f["calls"] for f in found), 1)
    asked["mean"] = mean
    fits, weights = {-1: Fitted(prior[0], np.zeros(layout.width), 0)}, prior[0]
    present = {n for n in range(folds) if (fold[task >= 0] == n).any()}
    for stage in ([-1] if present else [], sorted(present) if len(present) > 1 else []):
        climbs = {held_out: logistic(prior, weights) for held_out in stage}
        at = {held_out: next(climb) for held_out, climb in climbs.items()}
        while at:
            found = over(climb, asked | {"at": at}, **sessions)
            for held_out in [*at]:
                sums = [sum(f.get(f"{n} {held_out}", 0.0) for f in found) for n in SUMS]
                try:
                    at[held_out] = climbs[held_out].send(sums)
                except StopIteration as ended:
                    fits[held_out] = ended.value
                    del at[held_out]
        weights, asked["begin"] = fits[-1].weights, fits[-1].slot
    own = {held_out: fit.weights for held_out, fit in fits.items() if held_out >= 0}
    found = over(judge, asked | {"weights": own}, **sessions)
    return np.concatenate([each["score"] for each in found]), found, fits[-1]


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


def worst(place: Ints, worth: Floats, size: int) -> Floats:
    """The worst call of each step; 0 for a step without any that counts."""
    values, known = np.full(size, np.inf), ~np.isnan(worth)
    np.minimum.at(values, place[known], worth[known])
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
        kept: Kept = {}
        found = self.survey(kept, table)
        fit = self.fit([found], over_parts([kept], [found["digest"].size]), inputs.get("history"))
        return self.credited(table, kept, fit)

    def survey(self, kept: Kept, table: StepTable) -> Found:
        """Keep what credit needs of a part of the tasks; gives what other parts must know."""
        steps = arrange(table)
        kept["task"] = self.trajectory_groups(steps)
        found = survey(kept, table)
        return found | {"task": kept["task"], "returns": self.episode_returns(steps)}

    def fit(self, found: Sequence[Found], over: Over, history: Any = None) -> Fit:
        """What steps are worth, learned from all parts, in passes over what is kept of them.

        Args:
            found: what ``survey`` gave for each part.
            over: makes a pass.
            history: what earlier iterations have learned.
        """
        digest, returns = (
            np.concatenate([f[name] for f in found]) for name in ("digest", "returns")
        )
        task = _joined([each["task"] for each in found])
        won, outcome = self._outcomes(returns, task)
        names, layout = settle_all(found, over)
        past = _Past.of(history)
        prior = past.prior(layout, names, self.prior, self.memory)
        fold = folds_of(digest, task, self.folds)
        again = partial(learn, layout=layout, prior=prior, folds=self.folds)
        score, judged, fitted = again(over, task, won, fold)
        metrics = {"events_evidence": 1.0}
        if self.shuffles and past.iteration % self.every and self.has_history:
            metrics["events_evidence"] = past.evidence
        elif self.shuffles:
            chosen = _sample(digest, task)
            parts = over(choose, {}, chosen=chosen)
            score, won, task, fold = score[chosen], won[chosen], task[chosen], fold[chosen]
            sample = over_parts([joined_sample(parts, task)], [task.size])
            orders = self._shuffled(won, task, digest[chosen])
            shuffled = [within_task(again(sample, task, w, fold)[0], w, task)[0] for w in orders]
            metrics = compared(*within_task(score, won, task), float(np.mean(shuffled)))
        evidence = metrics["events_evidence"]
        usual, spread = joined_moments(judged)
        own = {"usual": usual, "spread": spread}
        _, unit = joined_moments(over(weigh, own, outcome=self.hazard * outcome))
        later = self.later / unit[0] if evidence and unit[0] else 0.0
        _, unit = joined_moments(over(lessen, {"later": later}))
        rest = 1.0 - evidence if self.fallback == "consensus" else 0.0
        first, second = (
            share / each if each else 0.0
            for share, each in zip((evidence, rest), unit[:2], strict=True)
        )
        squares = unit**2
        mixed = first * second * (squares[2] - squares[0] - squares[1])
        size = float(max(first**2 * squares[0] + second**2 * squares[1] + mixed, 0.0) ** 0.5)
        if self.fallback == "returns":
            size = float(size > 0)  # little evidence, little credit
        wanted = 1.0 if self.normalise == "std" else float(returns.std())
        learned = None
        if self.has_history:
            learned = past.updated(layout, names, fitted, evidence)
            learned["known"] = learned["known"] if self.memory else {}
        scale = wanted / size if size > 0 else 0.0
        return Fit((float(first), float(second)), scale, metrics, learned)

    def credited(self, table: StepTable, kept: Kept, fit: Fit) -> Credit:
        """The credit of every row of a part."""
        steps = arrange(table)
        episode = self.episode_term(table, self.norm(self.normalise))
        values = fit.shares[0] * kept["values"][0] + fit.shares[1] * kept["values"][1]
        mean = segments.mean(values, steps.trajectory, steps.trajectory_count)[steps.trajectory]
        reason = np.full(values.size, np.int8(Reason.CREDITED))
        same = segments.constant(values, steps.trajectory, steps.trajectory_count)
        reason[same[steps.trajectory] | (fit.scale == 0)] = Reason.ZERO_VARIANCE
        reason[self.alone(steps)] = Reason.GROUP_OF_ONE
        shown = np.where(reason == Reason.CREDITED, (values - mean) * fit.scale, 0.0)
        explain = partial(_explained, kept, steps, values, mean)
        term = self.term(table, shown, reason, steps.group, weight=self.weight, explain=explain)
        terms = {"episode": episode, "events": term}
        return Credit.of(terms, repr(self), fit.metrics, fit.history)

    def _outcomes(self, returns: Floats, task: Ints) -> tuple[Floats, Floats]:
        """The return of each session between 0 and 1, and standardised in the batch."""
        used = returns[task >= 0]
        low, high = (float(used.min()), float(used.max())) if used.size else (0.0, 0.0)
        if high <= low:
            return np.zeros(returns.size), np.zeros(returns.size)
        won = np.clip((returns - low) / (high - low), 0.0, 1.0)
        return won, (won - won[task >= 0].mean()) / won[task >= 0].std()

    @property
    def has_history(self) -> bool:
        """Whether earlier iterations count: what they learned, or the last comparison."""
        return self.memory > 0 or (self.shuffles > 0 and self.every > 1)

    def _shuffled(self, won: Floats, task: Ints, digest: Any) -> list[Floats]:
        """The outcomes in another order inside tasks."""
        order, rng = by_content(digest, task), np.random.default_rng(0)
        shuffled = []
        for _ in range(self.shuffles):
            random = np.lexsort(
                (rng.random(order.size), np.unique(task[order], return_inverse=True)[1])
            )
            mixed = np.empty_like(won)
            plain = np.argsort(task[order], kind="stable")
            mixed[order[plain]] = won[order[random]]
            shuffled.append(mixed)
        return shuffled


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


def _columns_for(size: Mapping[str, int], most: int) -> tuple[dict[str, int], list[str]]:
    """A column for each name, the last one for all but the most frequent; names of columns."""
    ranked = sorted(size, key=lambda name: (-size[name], name))
    kept = ranked[: most - 1]
    if len(ranked) >= most:
        kept.append("others" if len(ranked) > most else ranked[-1])
    return {name: min(column, most - 1) for column, name in enumerate(ranked)}, kept


def _joined(labels: Sequence[Ints]) -> Ints:
    """Labels of several parts, each of which counts from 0; -1 stays."""
    most = np.cumsum([0, *(int(each.max(initial=-1)) + 1 for each in labels)])
    return np.concatenate(
        [np.where(each < 0, -1, each + n) for each, n in zip(labels, most[:-1], strict=True)]
    )


def _sample(digest: Any, task: Ints) -> Bools:
    """Sessions whose outcomes are shuffled: all, or whole tasks that no name decides."""
    if task.size <= MOST_SHUFFLED:
        return np.ones(task.size, dtype=np.bool_)
    order = by_content(digest, task)
    chosen = np.isin(task, task[order[:MOST_SHUFFLED]]) & (task != task[order[MOST_SHUFFLED]])
    return np.asarray(chosen)


def _explained(kept: Kept, steps: Arranged, values: Floats, mean: Floats) -> Explanation:
    """How many others made the rarest call of each step, and what the step is worth."""
    size, place, refused = values.size, kept["place"], kept["refused"]
    made, new = np.rint(kept["share"] * kept["others"]), ~(refused | kept["again"])
    alike = np.full(size, np.inf)
    np.minimum.at(alike, place[new], made[new])
    others = segments.size(kept["task"], steps.group_count)[steps.group] - 1
    way = np.where(np.isinf(alike), 1, 0).astype(np.int8)
    way[place[refused]] = 2
    alike = np.where(np.isinf(alike), 0, alike).astype(np.int64)
    return Explanation(values, mean, others, (MADE, SILENT, FAILED), way, alike)
