r"""What a report answers: one computation for the page, the terminal, JSON, notebooks and pictures.

Shares are those of all attempts, W / N. Attempts at one task are no independent draws, so their
interval counts tasks: with w_t and n_t of task t, of m tasks,

    V = m / (m - 1) Σ (w_t - n_t W/N)² / N²,

and the interval is Wilson's for as many draws as give this variance, p (1 - p) / V, at most N, with
Student's quantile of m - 1 degrees of freedom. Where all attempts won, or none, V is 0, and the
draws are the tasks. Of a single task, attempts are all that there is to draw.

With n attempts at a task, c of them won, and k drawn from these without replacement:

    pass@k = 1 - C(n - c, k) / C(n, k)  (any won),    pass^k = C(c, k) / C(n, k)  (all won),

each a mean over the tasks with at least k attempts.

Page: docs/report.md. Test: tests/report/test_report_answers.py.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ascribe.decisions import Decision, Decisions
from ascribe.decisions.changed import Changed, TaskChange
from ascribe.decisions.contrasts import student
from ascribe.decisions.decision import amount
from ascribe.decisions.why import Reasons
from ascribe.estimators.diagnostics import wilson
from ascribe.groups.events import Calls
from ascribe.reports.crediting import Credited
from ascribe.reports.reading import Batch, measured
from ascribe.reports.separating import chosen, separates
from ascribe.reports.text import natural, safe, unique
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import no_response
from ascribe.steps.problems import counted, one_line

Plain = dict[str, Any]

EVERY_K = 8
"""pass@k is told for every k up to this one; beyond, for each twice as large."""
SMALL = 1e-9
"""A credit is beyond the mean of its session if it is so much."""
UNKNOWN = "nothing else is known about this step"
LONGEST = 1000
"""Characters of a text on the page."""
BLOCKS = {False: ("never won", "won at times", "always won")}
BLOCKS[True] = ("always the least", "sometimes more", "always the most")
"""Blocks of the grid, of attempts that win and of those that earn."""
ORDER = (
    "Tasks that were {1} come first, those where {who} differ most at the top, and the hardest "
    "first among equals; then tasks {0}; then tasks {2}."
)


@dataclass(frozen=True, eq=False)
class Played:
    """The sessions of a credit, in canonical order.

    Attributes:
        names: unique.
        task: label of the task of each session.
        tasks: their names.
        version: label of the version of each session.
        versions: their names.
        place: the first file of each version, if each is of one; else 0.
        kind: what they are: each a ``version``, or an ``iteration``.
        outcome: 1 for each session that won and 0 for others; what it earned, if ``graded``.
        graded: whether sessions earn more or less, instead of winning or not.
        counts: whether each session is an attempt at the task: a correction of another is none.
        steps: how many responses each session has.
        errors: how many of their calls were refused; a response without calls that was not
            understood is one, too.
        tokens: tokens of its responses, NaN where the log has none.
        seconds: how long it took, NaN where the log does not say.
    """

    names: list[str]
    task: Ints
    tasks: list[str]
    version: Ints
    versions: list[str]
    place: list[int]
    kind: str
    outcome: Floats
    graded: bool
    counts: Bools
    steps: Ints
    errors: Ints
    tokens: Floats
    seconds: Floats

    @cached_property
    def order(self) -> list[int]:
        """Versions, in the order of the files if each is one, or else of their names."""
        versions = range(len(self.versions))
        return sorted(versions, key=lambda v: (self.place[v], natural(self.versions[v])))


def answer(
    credited: Credited,
    found: Decisions,
    batches: Sequence[Batch],
    calls: Calls,
    *,
    balances: Sequence[Plain],
    training: Plain,
    changed: Changed | None = None,
) -> Plain:
    """The answers as plain values, every text of which is safe to show.

    ``docs/report.schema.json`` describes them.
    """
    sessions = read_sessions(credited, batches, calls)
    decisions = chosen(found, credited, None if changed is None else changed.finding)
    told = {
        "happened": happened(sessions, balances),
        "separates": separates(found, decisions, credited),
        "sessions": session_rows(sessions, credited, calls),
        "changed": None if changed is None else changes_of(changed, decisions),
        "training": training,
    }
    shown: Plain = safe(told, LONGEST)
    return shown


def read_sessions(credited: Credited, batches: Sequence[Batch], calls: Calls) -> Played:
    """The sessions, with what the log has of them."""
    table, steps = credited.table, credited.steps
    first, count = steps.rows[steps.starts], steps.trajectory_count
    returns = credited.returns
    won = returns > 0
    if credited.won is not None:
        played = segments.total(
            credited.won[steps.rows].astype(np.float64), steps.trajectory, count
        )
        won = played > 0
    graded = credited.won is None and not bool((won == returns).all())
    corrects = np.zeros(count, dtype=np.bool_)
    if table.corrects is not None and (table.corrects.codes < 0).any():
        corrects = table.corrects.codes[first] >= 0
    of_group, tasks = credited.tasks
    task = of_group[steps.group_of_trajectory]
    version, versions, place = _versions(credited)
    unread = ~steps.valid
    unread[calls.place] = False
    errors = np.bincount(steps.trajectory, unread, count)
    errors += np.bincount(calls.session, calls.refused, count)
    origin = credited.batch[steps.rows], credited.row[steps.rows]
    took = {
        name: segments.total(measured(batches, *origin, name), steps.trajectory, count)
        for name in ("tokens", "seconds")
    }
    return Played(
        names=credited.sessions,
        task=task,
        tasks=tasks,
        version=version,
        versions=versions,
        place=place,
        kind="iteration" if table.version is None else "version",
        outcome=returns if graded else won.astype(np.float64),
        graded=graded,
        counts=~corrects,
        steps=np.bincount(steps.trajectory, ~no_response(table)[steps.rows], count).astype(
            np.int64
        ),
        errors=errors.astype(np.int64),
        tokens=took["tokens"],
        seconds=took["seconds"],
    )


def _versions(credited: Credited) -> tuple[Ints, list[str], list[int]]:
    """The version of each session, their names and order: by the column, or else the batches."""
    table, first = credited.table, credited.steps.rows[credited.steps.starts]
    batch = credited.batch[first]
    if table.version is None:
        return batch, unique(credited.names), [*range(len(credited.names))]
    used, label = np.unique(table.version.codes[first], return_inverse=True)
    names = ["not given" if code < 0 else str(table.version.values[code]) for code in used.tolist()]
    label = label.astype(np.int64)
    apart = segments.constant(batch.astype(np.float64), label, used.size).all()
    place = batch[segments.first_rows(label, used.size)].tolist() if apart else [0] * used.size
    return label, unique(names), place


# What happened.


def happened(sessions: Played, balances: Sequence[Plain]) -> Plain:
    """The share won, by version and by task, and what the log has besides."""
    everything = _of(sessions, sessions.counts)
    own = [
        {"name": sessions.versions[v], **_of(sessions, sessions.counts & (sessions.version == v))}
        for v in sessions.order
        if (sessions.counts & (sessions.version == v)).any()
    ]
    told = {name: everything[name] for name in ("sessions", "tasks", "share", "low", "high")}
    return {
        "sentence": _sentence(everything, own, sessions, sum(b["crashed"] for b in balances)),
        **told,
        "steps": everything["steps"],
        "outcome": "earned" if sessions.graded else "won",
        "balance": list(balances),
        "totals": {name: everything[name] for name in ("steps", "tokens", "errors", "seconds")},
        "versions": own,
        "grid": grid(sessions),
    }


def _of(sessions: Played, chosen: Bools) -> Plain:
    """The numbers of some sessions."""
    at = np.flatnonzero(chosen)
    label = np.unique(sessions.task[at], return_inverse=True)[1].astype(np.int64)
    count = int(label.max(initial=-1)) + 1
    size = np.bincount(label, minlength=count)
    won = segments.total(sessions.outcome[at], label, count)
    low, high = interval(won, size, sessions.outcome[at], graded=sessions.graded)
    passed = {} if sessions.graded else passes(won.astype(np.int64), size)
    return {
        "sessions": int(at.size),
        "tasks": count,
        "share": float(sessions.outcome[at].mean()),
        "low": low,
        "high": high,
        "attempts": int(size.max(initial=0)),
        "pass_at": [{"k": k, "value": v[0], "tasks": v[2]} for k, v in passed.items()],
        "pass_hat": [{"k": k, "value": v[1], "tasks": v[2]} for k, v in passed.items()],
        "steps": int(sessions.steps[at].sum()),
        "tokens": _known(sessions.tokens[at]),
        "errors": int(sessions.errors[at].sum()),
        "seconds": _known(sessions.seconds[at]),
    }


def _known(values: Floats) -> float | None:
    """The sum, if every value is known."""
    return None if not values.size or np.isnan(values).any() else float(values.sum())


def interval(won: Floats, size: Ints, outcome: Floats, *, graded: bool) -> tuple[float, float]:
    """The 95 % interval of the share won, or of the mean earned, of tasks (see the module)."""
    tasks, draws = size.size, int(size.sum())
    share = float(won.sum()) / draws
    if tasks == 1:
        if not graded:
            return wilson(share, draws)
        won, size, tasks = outcome, np.ones(draws, dtype=np.int64), draws
    variance = float(((won - size * share) ** 2).sum()) / draws**2 * tasks / max(tasks - 1, 1)
    reach = student(1.0, 1.0, max(tasks - 1, 1), 0.05)[1]
    if graded:
        least, most = float(outcome.min()), float(outcome.max())
        variance = max(variance, float(outcome.var()) / draws)  # tasks may be equal by chance
        reach = reach * math.sqrt(variance) if tasks > 1 else most - least
        return max(share - reach, least), min(share + reach, most)
    spread = share * (1 - share)
    trials = draws if spread else tasks
    return wilson(share, min(spread / variance, draws) if variance > 0 else trials, reach)


def passes(won: Ints, size: Ints) -> dict[int, tuple[float, float, int]]:
    """By k: pass@k, pass^k, and the number of tasks with so many attempts."""
    most = int(size.max(initial=0))
    chosen = [k for k in range(1, most + 1) if k <= EVERY_K or k == most or not k & (k - 1)]
    any_, all_ = np.ones(size.size), np.ones(size.size)
    found = {}
    for k in range(1, most + 1):
        left = np.maximum(size - k + 1, 1)
        any_ *= np.maximum(size - won - k + 1, 0) / left
        all_ *= np.maximum(won - k + 1, 0) / left
        if k in chosen:
            enough = size >= k
            told = (1.0 - float(any_[enough].mean()), float(all_[enough].mean()))
            found[k] = (*told, int(enough.sum()))
    return found


def _sentence(whole: Plain, versions: Sequence[Plain], sessions: Played, crashed: int) -> str:
    """The share, what crashed, and the best and the worst version."""
    graded = sessions.graded
    said, low, high = (amount(whole[name], share=not graded) for name in ("share", "low", "high"))
    tried = f"{counted(whole['sessions'], 'attempt')} at {counted(whole['tasks'], 'task')}"
    span = f"(95 % interval {low} to {high})"
    text = f"{tried} earned {said} on average {span}."
    if not graded:
        won = round(whole["share"] * whole["sessions"])
        text = f"{won:,} of {tried} won: {said} {span}."
    silent = sessions.counts & (sessions.steps == 0)
    if count := int(silent.sum()):
        wrote, rest = sessions.outcome[silent], sessions.outcome[sessions.counts & ~silent]
        text += (
            f" {count:,} of them {'crashed' if crashed >= count else 'ended'} without a response"
        )
        text += f" and count{'s' * (count == 1)} as lost" * (not graded and not wrote.any())
        mean = amount(float(rest.mean()), share=not graded) if rest.size else ""
        text += (
            f"; the other {rest.size:,} {'earned' if graded else 'won'} {mean}." if mean else "."
        )
    elif crashed:
        text += f" {crashed:,} of them crashed, and count with their rewards."
    if len(versions) > 1:
        ranked = sorted(versions, key=lambda each: (-each["share"], natural(each["name"])))
        best, worst = (
            (one_line(v["name"], 60), amount(v["share"], share=not graded))
            for v in (ranked[0], ranked[-1])
        )
        several = counted(len(versions), sessions.kind)
        if best[1] == worst[1]:
            return f"{text} All {several} have {best[1]}."
        text += f" Of {several}, {' '.join(best)} is the highest and {' '.join(worst)} the lowest."
    return text


def grid(sessions: Played) -> Plain:
    """Tasks by versions: in each cell what the attempts won, or earned, and how many there were."""
    at = np.flatnonzero(sessions.counts)
    order = [v for v in sessions.order if (sessions.version[at] == v).any()]
    tasks, versions = len(sessions.tasks), len(sessions.versions)
    cell = sessions.task[at] * versions + sessions.version[at]
    won = np.bincount(cell, sessions.outcome[at], tasks * versions).reshape(tasks, versions)
    size = np.bincount(cell, minlength=tasks * versions).reshape(tasks, versions)
    ends = sessions.outcome[at] if sessions.graded else np.array([0.0, 1.0])
    least, most = max(0.0, float(ends.min())), float(ends.max())
    names = BLOCKS[sessions.graded]
    rows: list[Plain] = []
    for task in np.flatnonzero(size.sum(axis=1)).tolist():
        n, w = size[task, order], won[task, order]
        own = (
            sessions.outcome[at[sessions.task[at] == task]]
            if len(order) == 1
            else w[n > 0] / n[n > 0]
        )
        share = float(w.sum() / n.sum())
        low, high = own.max() <= least + SMALL, share >= most - SMALL
        rows.append(
            {
                "task": sessions.tasks[task],
                "share": share,
                "spread": float(own.max() - own.min()),
                "block": names[0 if low else 2 if high else 1],
                "cells": [
                    [_whole(a), int(b)] if b else None for a, b in zip(w.tolist(), n, strict=True)
                ],
            }
        )
    ranked = (names[1], names[0], names[2])
    rows.sort(
        key=lambda row: (
            ranked.index(row["block"]),
            -row["spread"],
            row["share"],
            natural(row["task"]),
        )
    )
    sizes = Counter(row["block"] for row in rows)
    return {
        "versions": [sessions.versions[v] for v in order],
        "tasks": rows,
        "blocks": [{"name": name, "tasks": sizes[name]} for name in ranked if sizes[name]],
        "order": ORDER.format(*names, who="attempts" if len(order) == 1 else f"{sessions.kind}s"),
    }


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else float(f"{value:.6g}")


# This session.


def session_rows(sessions: Played, credited: Credited, calls: Calls) -> list[Plain]:
    """Each session, with its costliest and its best step, and why.

    Where states are not compared, steps are credited for what they call, so one that calls nothing
    is neither.
    """
    steps = credited.steps
    compared = "step" in credited.credit.terms
    why = Reasons(
        credited.table,
        calls=calls,
        outcome=sessions.outcome,
        graded=sessions.graded,
        states=credited.states if compared else None,
    )
    advantage = credited.credit.advantage[steps.rows]
    beyond = (
        advantage
        - segments.mean(advantage, steps.trajectory, steps.trajectory_count)[steps.trajectory]
    )
    told = np.ones(steps.rows.size, dtype=np.bool_) if compared else np.diff(why.first) > 0
    ends = np.append(steps.starts[1:], steps.rows.size).tolist()
    rows = []
    for number, (start, end) in enumerate(zip(steps.starts.tolist(), ends, strict=True)):
        own = beyond[start:end]
        low, high = start + int(np.argmin(own)), start + int(np.argmax(own))
        praised = beyond[high] > SMALL and not why.never(number)
        places = [low if beyond[low] < -SMALL else None, high if praised else None]
        costliest, best = (
            {
                "step": int(steps.step[place]),
                "credit": float(f"{advantage[place]:.4g}"),
                "why": why.of(place, best=bool(side)) or UNKNOWN,
            }
            if place is not None and told[place]
            else None
            for side, place in enumerate(places)
        )
        several = len(sessions.versions) > 1
        rows.append(
            {
                "session": sessions.names[number],
                "task": sessions.tasks[sessions.task[number]],
                "version": sessions.versions[sessions.version[number]] if several else None,
                "outcome": _whole(float(sessions.outcome[number])),
                "won": None if sessions.graded else bool(sessions.outcome[number]),
                "steps": int(sessions.steps[number]),
                "tokens": _known(sessions.tokens[number : number + 1]),
                "errors": int(sessions.errors[number]),
                "seconds": _known(sessions.seconds[number : number + 1]),
                "costliest": costliest,
                "best": best,
                "no_credit": "" if costliest or best else why.no_credit(number),
            }
        )
    return rows


# Two versions.


def changes_of(changed: Changed, told: Sequence[Decision]) -> Plain:
    """What changed from the old version to the new one; ``told`` are the rows of decisions."""
    whole, (verdict, failed) = changed.whole, changed.verdict()
    places = {id(each): place for place, each in enumerate(told)}
    finding = places.get(id(changed.finding))

    def row(each: TaskChange) -> Plain:
        sides = {"old": each.old, "new": each.new}
        return {
            "task": one_line(each.task, 200),
            **{name: [_whole(won), size] for name, (won, size) in sides.items()},
            "finding": finding if each.explained else None,
        }

    explained = sum(each.explained for each in changed.lost)
    sentence = f"{whole.text[:1].upper()}{whole.text[1:]}.{' Certain.' * whole.certain}"
    sentence += f" {counted(len(changed.lost), 'task')} got worse, {len(changed.gained):,} better, "
    return {
        "old": changed.names[0],
        "new": changed.names[1],
        "sentence": f"{sentence}{changed.same:,} did not change.",
        "verdict": verdict,
        "failed": failed,
        "whole": {
            "old": {"share": whole.old, "sessions": whole.old_sessions},
            "new": {"share": whole.new, "sessions": whole.new_sessions},
            "difference": whole.new - whole.old,
            "low": whole.low,
            "high": whole.high,
        },
        "lost": [row(each) for each in changed.lost],
        "gained": [row(each) for each in changed.gained],
        "same": changed.same,
        "missing": {one_line(task, 200): why for task, why in changed.missing.items()},
        "notes": list(changed.notes),
        "explained": None if finding is None else {"finding": finding, "tasks": explained},
    }
