"""What separates the attempts that won from those that lost: findings and forks in one list."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ascribe.decisions import Decision, Decisions
from ascribe.decisions.contrasts import LEVEL
from ascribe.decisions.decision import CALLING, FORK, LONGEST, OTHERS, amount, signed
from ascribe.reports.crediting import Credited
from ascribe.steps.arrays import Ints
from ascribe.steps.problems import counted, one_line

Plain = dict[str, Any]

HINTS, HINTED = 3, ": these are hints"
"""Strongest decisions that are shown although they are not certain."""
MOST_ROWS, MOST_TASKS = 100, 20
SCORE, POWER, CLEAR = 3.0, 0.84, 0.2
"""The standard score that the strongest of many events needs, what is added so that it is reached
four times in five, and the difference of shares that is sought."""
ALIKE = 0.95
"""An event and a fork are the same if they put so many of the fork's sessions on the same sides."""


def separates(found: Decisions, told: Sequence[Decision], credited: Credited) -> Plain:
    """Decisions that are told, in plain words."""
    rows = [row_of(each, credited) for each in told]
    sure = [each for each in told if each.certain]
    certain = sum(map(_agrees, sure))
    verbs = ("won", "lost") if found.binary else ("earned more", "earned less")
    sentence = f"{counted(certain, 'difference')} between attempts that {verbs[0]} and attempts "
    sentence += f"that {verbs[1]} {'is' if certain == 1 else 'are'} certain."
    if turned := len(sure) - certain:
        sentence += f" {turned} more: at the same task the other way round than over all attempts."
    if not sure:
        sentence = f"No difference in what attempts did is certain yet{HINTED * bool(told)}."
        # The likeliest decision stands in the other sentence, unless it was left out on purpose.
        if not told and all(map(_agrees, found.decisions[:1])):
            sentence = found.sentence
    return {
        "sentence": sentence,
        "advice": found.advice,
        "notes": list(found.notes),
        "sure": bool(sure),
        "needed": None if sure else needed(found, told),
        "rows": rows,
        "untested": found.untested,
    }


def chosen(found: Decisions, credited: Credited, also: Decision | None = None) -> list[Decision]:
    """What is certain, the strongest hints, and what may be a sign; nothing twice."""
    tested = [each for each in found.decisions if not math.isnan(each.p)]
    once = [each for each in tested if each is also or not _repeated(each, tested, credited)]
    certain = [e for e in once if e.certain and _agrees(e)][:MOST_ROWS]
    turned = [e for e in once if e.certain and not _agrees(e)][:MOST_TASKS]
    signs = [each for each in once if each.doubt and each.p <= LEVEL and not each.across]
    # What versions earn is subtracted, so that the rest may contradict the shares beside it.
    hints = [e for e in once if not e.certain and e not in signs and _agrees(e)]
    told = [*certain, *hints[:HINTS], *turned, *signs[:MOST_TASKS]]
    return told if also is None or also in told else [*told, also]


def _agrees(each: Decision) -> bool:
    """Whether the sides differ in the same direction at the same task and in all attempts."""
    return (each.event.mean - each.other.mean) * each.told[0] >= 0


def _repeated(each: Decision, all_: Sequence[Decision], credited: Credited) -> bool:
    """Whether another decision says the same of the same sessions, and more, or earlier."""
    for place, other in enumerate(all_):
        kinds = {each.kind, other.kind}  # never of a decision and itself
        if kinds != {FORK, "event"} or not _same(each, other, credited):
            continue
        wider = other.tasks > each.tasks
        if each.certain == other.certain:
            if wider or (other.tasks == each.tasks and place < all_.index(each)):
                return True
        elif other.certain:
            return True
    return False


def _same(one: Decision, two: Decision, credited: Credited) -> bool:
    """Whether a fork and an event part the sessions of the fork alike."""
    fork, event = (one, two) if one.kind == FORK else (two, one)
    sides = [sessions_of(side.rows, credited) for side in (fork.better, fork.worse)]
    ours = [sessions_of(side.rows, credited) for side in (event.better, event.worse)]
    both = sum(np.intersect1d(a, b).size for a, b in zip(sides, ours, strict=True))
    return bool(both >= ALIKE * sum(side.size for side in sides))


def sessions_of(rows: Ints, credited: Credited) -> Ints:
    """The labels of the sessions of these rows."""
    return np.unique(credited.session_of_row[rows])


def row_of(each: Decision, credited: Credited) -> Plain:
    """A decision as the page shows it."""
    first, other = each.event, each.other
    difference, low, high = each.told
    tasks, of = shows_at(each, credited)
    pair = [
        [credited.sessions[credited.session_of_row[row]], int(credited.table.step[row])]
        for row in each.pair.tolist()
    ]
    return {
        "kind": each.kind,
        "sentence": sentence_of(each),
        "sure": " ".join(sureness(each)),
        "certain": each.certain,
        "turned": not _agrees(each),
        "with": {"what": first.action, "sessions": first.sessions, "share": first.mean},
        "without": {"what": other.action, "sessions": other.sessions, "share": other.mean},
        "difference": difference,
        "low": low if math.isfinite(low) else None,
        "high": high if math.isfinite(high) else None,
        "q": each.q if math.isfinite(each.q) else None,
        "turn": "fork" if each.kind == FORK else "sign" if each.sign else "turn",
        "sign": each.doubt,
        "state": one_line(each.state, 400) if each.kind == FORK else "",
        "tasks": tasks,
        "of_tasks": of,
        "pair": pair,
    }


def sentence_of(each: Decision) -> str:
    """The difference in one plain sentence."""
    share, first, other = each.binary, each.event, each.other
    verb = "won" if share else "earned"
    high, low = (amount(side.mean, share=share) for side in (first, other))
    if each.kind == FORK:
        where = f"A{each.at[1:]}"
        where += f" of {one_line(each.task, LONGEST)}" if each.task else ""
        return (
            f"{where}, attempts with {first.action} {verb} {high}, those with {other.action} {low}."
        )
    of, also = ("of", "of") if share else ("on average in", "in")
    without = "those without" if other.action == OTHERS else other.action
    what = first.action.replace(CALLING, "a call of ", first.action.startswith(CALLING))
    what += " that succeeded" * each.refusals
    said = f"Attempts with {what} {verb} {high} {of} {first.sessions:,}, {without} {low} {also}"
    return f"{said} {other.sessions:,}."


def sureness(each: Decision) -> Iterator[str]:
    """How sure it is, in words without statistics, but for the interval."""
    points = f"{' points' * each.binary}{each.within}"
    size, low, high = (signed(value, points=each.binary) for value in each.told)
    if each.certain:
        yield "Certain:"
    elif each.doubt:
        yield f"Perhaps {each.doubt}:"
    else:
        yield "A hint, which may be chance:"
    yield f"{size}{points}, 90 % interval {low} to {high}."
    if not _agrees(each):
        yield "Over all attempts it is the other way round, because the tasks or versions differ."
    if not each.certain and each.more:
        yield f"About {counted(each.more, 'more attempt')} at each task would tell."


def shows_at(each: Decision, credited: Credited) -> tuple[list[str], int]:
    """The tasks where attempts took both sides and the better one earned more; of how many."""
    steps = credited.steps
    sides = [sessions_of(side.rows, credited) for side in (each.better, each.worse)]
    count = steps.group_count
    size, earned = zip(
        *(
            (
                np.bincount(steps.group_of_trajectory[side], minlength=count),
                np.bincount(
                    steps.group_of_trajectory[side], credited.returns[side], minlength=count
                ),
            )
            for side in sides
        ),
        strict=True,
    )
    both = np.flatnonzero((size[0] > 0) & (size[1] > 0))
    apart = earned[0][both] / size[0][both] - earned[1][both] / size[1][both]
    weight = apart * np.minimum(size[0][both], size[1][both])
    order = np.argsort(-weight, kind="stable")
    task, names = credited.tasks
    listed = dict.fromkeys(names[task[both[at]]] for at in order.tolist() if apart[at] > 0)
    return [*listed][:MOST_TASKS], int(np.unique(task[both]).size)


def needed(found: Decisions, told: Sequence[Decision]) -> str:
    """How many attempts would probably settle the strongest hint, or show a clear difference."""
    for each in told:
        if each.more and not each.doubt:
            where = "this task" if each.tasks == 1 else f"each of {counted(each.tasks, 'task')}"
            return f"About {counted(each.more, 'more attempt')} at {where} would probably tell."
    share = min(max(found.success, 0.1), 0.9)
    attempts = math.ceil(4 * share * (1 - share) * (SCORE + POWER) ** 2 / CLEAR**2 / 10) * 10
    if not found.binary or attempts <= found.sessions:
        small = "How many attempts would tell cannot be said: the differences so far are too small."
        return small * bool(found.decisions)
    return (
        f"To see a difference of {100 * CLEAR:.0f} points, about {attempts:,} attempts are needed; "
        f"there are {found.sessions:,}."
    )
