"""The sessions of the page: every message and every credit, compressed until one is opened.

Tasks stand together in chunks of about ``CHUNK`` characters. A chunk has its own texts, each once,
and is opened alone. Nothing is cut but results of tools, and each cut says how much is missing. If
all chunks are larger than a page may be, whole sessions are left out, as many of each task as of
any other.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np

from ascribe.decisions import Decisions
from ascribe.estimators.credit import Reason, Term
from ascribe.groups.events import Calls
from ascribe.groups.responses import name_and_arguments, readable
from ascribe.reports.crediting import Credited, other_name
from ascribe.reports.reading import TOKENS, Batch, read_transcript
from ascribe.reports.text import compressed, visible
from ascribe.sessions import text_of
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.problems import one_line
from ascribe.steps.returns import episode_outcome
from ascribe.steps.strict_json import canonical, loads

CHUNK = 400_000
"""Characters of text in a chunk, more or less: whole tasks."""

PAGE_BYTES = 6_500_000
"""Bytes of all chunks; the rest of a page takes up to a megabyte."""

LONGEST_RESULT = 2000
"""Characters of a tool's result that are shown."""

MOST_TOOLS = 200
"""Tools that are counted one by one."""

MOST_ROUNDS = 6
"""How often sessions are left out until the rest fits."""

Plain = dict[str, Any]


class Texts:
    """Texts by their numbers, each once, made safe to show; -1 for none."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.characters = 0
        self._number: dict[str, int] = {}

    def number(self, text: str | None, *, result: bool = False) -> int:
        """The number of a text; of a tool's ``result`` only the beginning is kept."""
        if not text:
            return -1
        if result and len(text) > LONGEST_RESULT:
            left = len(text) - LONGEST_RESULT
            text = f"{text[:LONGEST_RESULT]}… ({left:,} more characters were left out of this page)"
        found = self._number.setdefault(text, len(self.shown))
        if found == len(self.shown):
            self.shown.append(visible(text))
            self.characters += len(text)
        return found


def browser(
    credited: Credited,
    batches: Sequence[Batch],
    calls: Calls,
    found: Decisions,
    against: Credited | None = None,
) -> Plain:
    """The sessions for the page: compressed chunks, and what explains the numbers in them.

    If not all sessions fit, those of decisions and lost ones are kept before others.
    """
    recipes = [credited] if against is None else [credited, against]
    order = _order(credited, found)
    shown = np.ones(order.size, dtype=np.bool_)
    for _ in range(MOST_ROUNDS):
        starts, chunks = [], []
        for first, chunk in _chunks(recipes, batches, calls, shown):
            starts.append(first)
            chunks.append(chunk)
        size = sum(map(len, chunks))
        if size <= PAGE_BYTES:
            break
        room = 0.95 * PAGE_BYTES / size * shown.sum()
        shown = order < int(room)
    return {
        "chunks": chunks,
        "starts": starts,
        "tools": tools(calls),
        "sessions": int(shown.sum()),
        "of_sessions": shown.size,
        "steps": int(credited.steps.rows.size),
        "reasons": [reason.label for reason in Reason],
        "why": [reason.words for reason in Reason],
        "recipes": [_recipe(credited, each) for each in recipes],
    }


def tools(calls: Calls) -> list[Plain]:
    """How often each tool was called, and how often this went wrong, the most errors first."""
    count = len(calls.tools)
    times = np.bincount(calls.tool, minlength=count)
    errors = np.bincount(calls.tool[calls.refused], minlength=count)
    users = np.unique(calls.tool * calls.sessions + calls.session) // calls.sessions
    used = np.bincount(users, minlength=count)
    order = np.lexsort((-times, -errors))[:MOST_TOOLS].tolist()
    return [
        {
            "tool": one_line(calls.tools[tool], 120),
            "calls": int(times[tool]),
            "errors": int(errors[tool]),
            "sessions": int(used[tool]),
        }
        for tool in order
        if times[tool]
    ]


def _order(credited: Credited, found: Decisions) -> Ints:
    """The place of each session, as sessions are kept: as large a share of each task as of any."""
    steps = credited.steps
    group, count = steps.group_of_trajectory, steps.trajectory_count
    label = np.empty(len(credited.table), dtype=np.int64)
    label[steps.rows] = steps.trajectory
    last = np.ones(count)
    last[label[[row for each in found.decisions for row in each.pair.tolist()]]] = 0
    earned = episode_outcome(steps.reward, steps.trajectory, count)
    ranked = np.lexsort((np.arange(count), earned, last, group))
    size = segments.size(group, steps.group_count)
    place = np.empty(count)
    place[ranked] = np.arange(count) - np.repeat(np.cumsum(size) - size, size)
    first = np.empty(count, dtype=np.int64)
    first[np.lexsort((group, (place + 0.5) / size[group]))] = np.arange(count)
    return first


def _chunks(
    recipes: Sequence[Credited], batches: Sequence[Batch], calls: Calls, kept: Bools
) -> Iterator[tuple[int, str]]:
    """The tasks of the sessions that are kept: the first session of a chunk, and the chunk."""
    credited, steps = recipes[0], recipes[0].steps
    shown = np.flatnonzero(kept[steps.trajectory])
    rows = steps.rows[shown]
    columns: dict[str, Any] = {
        name: column.take(rows).texts()
        for name in ("state", "action", "agent", "corrects")
        if (column := getattr(credited.table, name)) is not None
    }
    actions = {text: readable(text) for text in set(columns["action"]) if text is not None}
    columns["action"] = [actions.get(text) for text in columns["action"]]
    columns |= read_transcript(batches, credited.batch[rows], credited.row[rows])
    cells = _cells(credited, calls, shown) | {"tokens": columns.pop(TOKENS, None)}
    credits_ = [_credit(each, shown) for each in recipes]
    texts = Texts()
    groups: list[Plain] = []
    for span in _runs(steps.group[shown]):
        own = {name: values[span] for name, values in cells.items() if values is not None}
        for name, values in columns.items():
            own[name] = _texts(name, values[span], texts, folded="messages" in columns)
        groups.append(
            {
                "trajectories": _trajectories(credited, shown[span]),
                "cells": own,
                "credits": [_part(each, span) for each in credits_],
            }
        )
        if texts.characters > CHUNK or span.stop == shown.size:
            first = groups[0]["trajectories"][0]["number"]
            yield first, compressed({"texts": texts.shown, "groups": groups})
            texts, groups = Texts(), []


def _cells(credited: Credited, calls: Calls, shown: Ints) -> Plain:
    """What the table says of the steps besides texts."""
    table, steps = credited.table, credited.steps
    failed = ~steps.valid
    failed[calls.place[calls.refused]] = True
    rows, rewritten = steps.rows[shown], credited.rewritten
    return {
        "step": steps.step[shown].tolist(),
        "reward": _rounded(steps.reward[shown]),
        "valid": steps.valid[shown].astype(int).tolist(),
        "failed": failed[shown].astype(int).tolist(),
        "parent": None if table.parent is None else np.maximum(table.parent[rows], -1).tolist(),
        "rewritten": None if rewritten is None else rewritten[rows].astype(int).tolist(),
    }


def _texts(name: str, values: Sequence[Any], texts: Texts, *, folded: bool) -> list[Any]:
    """A column of texts as their numbers; messages and prompts as lists of messages."""
    if name in ("messages", "prompt"):
        return [_messages(text, texts) for text in values]
    return [texts.number(text, result=folded and name != "action") for text in values]


def _recipe(first: Credited, credited: Credited) -> Plain:
    """What explains the numbers of a recipe."""
    terms, size = credited.credit.terms, np.abs(credited.credit.advantage[credited.steps.rows])
    same, size = first is credited, size[size > 0]
    return {
        "name": first.recipe.name if same else other_name(first.recipe, credited.recipe),
        "weights": {name: term.weight for name, term in terms.items()},
        "sentences": {
            name: [asdict(sentence) for sentence in term.explanation.sentences]
            for name, term in terms.items()
        },
        # What gets the strongest colour: 95 % of the credits are smaller.
        "scale": float(f"{np.quantile(size, 0.95):.4g}") if size.size else 1.0,
    }


def _credit(credited: Credited, shown: Ints) -> Plain:
    """The credit of the steps by one recipe; ``label`` are state groups of the whole table."""
    credit, rows = credited.credit, credited.steps.rows[shown]
    return {
        "return": _rounded(credited.recipe.step_returns(credited.table)[shown]),
        "advantage": _rounded(credit.advantage[rows]),
        "reason": credit.reason[rows].tolist(),
        "label": credited.states[shown],
        "terms": {name: _term(term, rows) for name, term in credit.terms.items()},
    }


def _part(credit: Plain, span: slice) -> Plain:
    """A credit of one group; its state groups numbered from 0."""
    part = {name: values[span] for name, values in credit.items() if name != "terms"}
    terms = {
        name: {key: values[span] for key, values in term.items()}
        for name, term in credit["terms"].items()
    }
    return part | {"label": _renamed(part["label"]), "terms": terms}


def _messages(text: str | None, texts: Texts) -> list[Plain]:
    """The messages of a step; texts are numbers. Those in other forms are left out."""
    try:
        values = loads(text or "[]")
    except ValueError:
        return []
    messages = []
    for value in values if isinstance(values, list) else []:
        if not isinstance(value, dict):
            continue
        role, content = one_line(value.get("role"), 40), value.get("content")
        with suppress(ValueError):  # parts of another format stay as they are
            content = text_of(content)
        content = content if isinstance(content, str) else canonical(content)
        message = {"role": role, "text": texts.number(content, result=role == "tool")}
        thought, calls = value.get("reasoning_content"), value.get("tool_calls")
        if thought:
            message["thought"] = texts.number(
                thought if isinstance(thought, str) else canonical(thought)
            )
        if calls and isinstance(calls, list):
            message["calls"] = [_call(call, texts) for call in calls]
        if answered := value.get("tool_call_id"):
            message["answers"] = texts.number(one_line(answered, 200))
        messages.append(message)
    return messages


def _call(call: Any, texts: Texts) -> list[Any]:
    """A call: its id, its name, and each argument with its name; in another form, its JSON."""
    named = one_line(call.get("id") or "", 200) if isinstance(call, Mapping) else ""
    try:
        name, arguments = name_and_arguments(call, strict=False)
    except ValueError:
        function = call.get("function", call) if isinstance(call, Mapping) else call
        return [texts.number(named), texts.number(canonical(function))]
    words = [texts.number(named), texts.number(name)]
    for key, value in arguments.items():
        # Lines are shown as lines.
        lines = isinstance(value, str) and "\n" in value
        words += [texts.number(key), texts.number(value if lines else canonical(value))]
    return words


def _term(term: Term, rows: Ints) -> dict[str, list[Any]]:
    explanation = term.explanation.mapped(lambda values: values[rows])
    none = np.zeros(rows.size, dtype=np.int64)
    return {
        "value": _rounded(term.values[rows]),
        "reason": term.reason[rows].tolist(),
        "way": (none if explanation.way is None else explanation.way).tolist(),
        "own": _rounded(explanation.own),
        "baseline": _rounded(explanation.baseline),
        "peers": explanation.peers.tolist(),
        "alike": (none if explanation.alike is None else explanation.alike).tolist(),
        "difference": _rounded(explanation.own - explanation.baseline),
    }


def _renamed(labels: Ints) -> list[int]:
    """Labels from 0 in the order of appearance; -1 for a state that only one step is in."""
    distinct, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    alone = (distinct < 0) | (counts < 2)
    shared = np.where(alone[inverse], -1, inverse)
    renamed: list[int] = segments.by_appearance(shared, distinct.size)[0].tolist()
    return renamed


def _trajectories(credited: Credited, shown: Ints) -> list[Plain]:
    """The sessions of a task: ``number`` is the place among all sessions."""
    steps = credited.steps
    return [
        {
            "number": int(steps.trajectory[shown[span.start]]),
            "start": span.start,
            "length": span.stop - span.start,
            "return": _rounded(steps.reward[shown[span]].sum(keepdims=True))[0],
            "cut": bool(steps.truncated[shown[span.start]]),
        }
        for span in _runs(steps.trajectory[shown])
    ]


def _runs(labels: Ints) -> list[slice]:
    """Where each run of equal labels starts and stops."""
    bounds = np.append(np.flatnonzero(np.diff(labels, prepend=-1)), labels.size)
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


def _rounded(values: Floats) -> list[float | None]:
    """Numbers of four digits; None for what is not finite."""
    distinct, place = np.unique(values, return_inverse=True)
    short = [float(f"{value:.4g}") if isfinite(value) else None for value in distinct.tolist()]
    return [short[at] for at in place.tolist()]
