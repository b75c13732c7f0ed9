"""The data of the trajectory browser: groups, trajectories, steps, and their arithmetic."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby, pairwise
from math import isfinite
from typing import Any

import numpy as np

from ascribe.decisions import Decisions
from ascribe.estimators.credit import Reason, Term
from ascribe.groups.events import ERROR
from ascribe.groups.responses import readable
from ascribe.reports.crediting import Credited, other_name, place_of
from ascribe.reports.reading import TOKENS, Batch, read_transcript
from ascribe.reports.situations import whole_groups
from ascribe.reports.text import embedded, natural, safe, shortened
from ascribe.sessions import text_of
from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.problems import one_line
from ascribe.steps.returns import episode_outcome
from ascribe.steps.strict_json import canonical, loads
from ascribe.steps.table import Coded

MOST_STEPS = 25_000
"""Steps that the browser shows at most; of larger tables, whole groups, evenly spaced."""

PAGE_BYTES = 3_700_000
"""Bytes of the browser's data; the page has its library and its tables besides."""

TEXT_BYTES = 2_000_000
"""Bytes of text that the page may hold at most."""

CUTS = (4000, 2000, 1200, 800, 500, 300, 200, 120, 60, 30, 10)
"""Lengths to which texts are cut, the longest first, until they fit."""

SHORTEST_PROMPT = 200
"""If prompts do not fit with so many characters each, the page has none."""

MOST_DECISIONS = 100
"""Decisions on the page: the most certain ones."""
LONGEST = 1000
"""Characters of a text about a decision."""

Plain = dict[str, Any]


def browser(
    credited: Credited,
    batches: Sequence[Batch],
    found: Decisions,
    against: Credited | None = None,
) -> Plain:
    """The data of the browser as plain values: the steps, and their credit by each recipe.

    The tasks of the decisions that were found are shown before all others.
    """
    table, steps = credited.table, credited.steps
    first = [row for d in found.decisions[:MOST_DECISIONS] for row in d.pair.tolist()]
    shown = np.flatnonzero(np.isin(steps.rows, whole_groups(table, MOST_STEPS, first)))
    decided = decided_by(found, credited)
    rows = steps.rows[shown]
    columns = {
        name: column.take(rows).texts()
        for name in ("state", "action", "agent", "corrects")
        if (column := getattr(table, name)) is not None
    }
    actions = {text: readable(text) for text in set(columns["action"]) if text is not None}
    columns["action"] = [actions.get(text) for text in columns["action"]]
    transcript = read_transcript(batches, credited.batch[rows], credited.row[rows])
    tokens = transcript.pop(TOKENS, None)
    columns |= transcript
    chats = {name: columns.pop(name) for name in ("messages", "prompt") if name in columns}
    index: dict[str, int] = {}
    cells: dict[str, list[Any]] = {
        name: [-1 if text is None else index.setdefault(text, len(index)) for text in texts]
        for name, texts in columns.items()
    }
    cells |= {
        "step": steps.step[shown].tolist(),
        "reward": _rounded(steps.reward[shown]),
        "valid": steps.valid[shown].astype(int).tolist(),
    }
    # What comes after a step reports its error.
    reports = np.array([bool(ERROR.match(text)) for text in table.state.values] + [False])
    failed = np.append(reports[steps.state[1:]] & (steps.step[1:] > 0), False) | ~steps.valid
    cells["failed"] = failed[shown].astype(int).tolist()
    if table.parent is not None:
        cells["parent"] = np.maximum(table.parent[rows], -1).tolist()
    if tokens is not None:
        cells["tokens"] = tokens
    if credited.rewritten is not None:
        cells["rewritten"] = credited.rewritten[rows].astype(int).tolist()
    needed = len(index)
    for name, texts in chats.items():  # prompts last: they are shown only if there is room
        needed = len(index)
        cells[name] = [_messages(text, index) for text in texts]
    recipes = [credited] if against is None else [credited, against]
    credits_ = [_credit(each, shown) for each in recipes]
    groups = []
    for span in _runs(steps.group[shown]):
        first_row = int(rows[span.start])
        batch = credited.batch[first_row]
        groups.append(
            {
                "name": _name(table.group, first_row),
                "family": None if table.family is None else _name(table.family, first_row, 120),
                "batch": one_line(credited.names[batch], 120),
                "iteration": credited.numbers[batch],
                "trajectories": _trajectories(credited, shown[span], decided),
                "cells": {name: values[span] for name, values in cells.items()},
                "credits": [_part(each, span) for each in credits_],
            }
        )
    groups.sort(key=lambda group: (group["iteration"], natural(group["name"])))
    if "prompt" not in chats:
        needed = len(index)
    # The group to begin with is the first one whose returns differ.
    varied = [len({run["return"] for run in group["trajectories"]}) > 1 for group in groups]
    texts, length = _fitted(list(index), needed, groups)
    if len(texts) < len(index):
        for group in groups:
            del group["cells"]["prompt"]
    return {
        "texts": texts,
        "cut": length,
        "groups": groups,
        "steps": int(shown.size),
        "of_steps": int(steps.rows.size),
        "of_groups": steps.group_count,
        "reasons": [reason.label for reason in Reason],
        "why": [reason.words for reason in Reason],
        "recipes": [_recipe(credited, each) for each in recipes],
        "batches": len(credited.names),
        "first": varied.index(True) if any(varied) else 0,
        "without_prompts": len(texts) < len(index),
        "decisions": for_page(found, credited),
    }


def packed(data: Plain) -> Plain:
    """The data with runs of equal values written as ``{"runs": [value, count, ...]}``."""

    def pack(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: pack(part) for name, part in value.items()}
        if value and isinstance(value, list) and not isinstance(value[0], dict | list):
            runs = [(item, len(list(run))) for item, run in groupby(value)]
            if 2 * len(runs) < len(value):
                return {"runs": [part for run in runs for part in run]}
        return value

    groups = [
        group | {"cells": pack(group["cells"]), "credits": [pack(c) for c in group["credits"]]}
        for group in data["groups"]
    ]
    return data | {"groups": groups}


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


def _messages(text: str | None, index: dict[str, int]) -> list[Plain]:
    """The messages of a step; texts are numbers in ``index``. Those in other forms are left out."""
    try:
        values = loads(text or "[]")
    except ValueError:
        return []

    def number(value: Any) -> int:
        with suppress(ValueError):  # parts of another format stay as they are
            value = text_of(value)
        text = value if isinstance(value, str) else canonical(value)
        return -1 if not value else index.setdefault(text, len(index))

    messages = []
    for value in values if isinstance(values, list) else []:
        if not isinstance(value, dict):
            continue
        calls = [each for each in value.get("tool_calls") or [] if isinstance(each, dict)]
        functions = [f if isinstance(f := call.get("function"), dict) else call for call in calls]
        messages.append(
            {
                "role": one_line(value.get("role"), 40),
                "text": number(value.get("content")),
                "thought": number(value.get("reasoning_content")),
                "calls": [
                    [one_line(function.get("name"), 80), number(readable(canonical(function)))]
                    for function in functions
                ],
            }
        )
    return messages


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


def _trajectories(credited: Credited, shown: Ints, decided: Ints) -> list[Plain]:
    steps = credited.steps
    trajectories = []
    for span in _runs(steps.trajectory[shown]):
        inside = shown[span]
        rows = steps.rows[inside]
        trajectories.append(
            {
                "name": _name(credited.table.trajectory, int(rows[0])),
                "start": span.start,
                "length": int(inside.size),
                "return": _rounded(steps.reward[inside].sum(keepdims=True))[0],
                "won": None if credited.won is None else bool(credited.won[rows].any()),
                "cut": bool(steps.truncated[inside[0]]),
                "decided": int(decided[steps.trajectory[inside[0]]]),
            }
        )
    return trajectories


def _name(column: Coded, row: int, most: int = 200) -> str | None:
    code = column.codes[row]
    return None if code < 0 else one_line(column.values[code], most)


def _runs(labels: Ints) -> list[slice]:
    """Where each run of equal labels starts and stops."""
    bounds = np.append(np.flatnonzero(np.diff(labels, prepend=-1)), labels.size)
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


def _rounded(values: Floats) -> list[float | None]:
    """Numbers of four digits; None for what is not finite."""
    return [float(f"{value:.4g}") if isfinite(value) else None for value in values.tolist()]


def _fitted(texts: Sequence[str], needed: int, groups: Any) -> tuple[list[str], int]:
    """The texts, cut so that they fit beside the numbers, and the length they were cut to.

    Texts after the first ``needed`` are those of prompts: they are left out if there is no room.
    """
    room = PAGE_BYTES - len(embedded(packed({"groups": groups})["groups"]))
    room = max(min(room, TEXT_BYTES), TEXT_BYTES // 5)
    if needed < len(texts):
        cut_texts, most, size = _cut(texts, room)
        if size <= room and most >= SHORTEST_PROMPT:
            return cut_texts, most
    return _cut(texts[:needed], room)[:2]


def _cut(texts: Sequence[str], room: int) -> tuple[list[str], int, int]:
    length = np.array([len(text) for text in texts], dtype=np.int64)
    for most in CUTS:
        if np.minimum(length, most).sum() > room and most != CUTS[-1]:
            continue  # a character has at least a byte
        cut_texts = [shortened(text, most) for text in texts]
        size = len(embedded(cut_texts).encode("utf-8", "replace"))
        if size <= room:
            break
    return cut_texts, most, size


# Decisions: where two sessions part, and what decided each trajectory.


def for_page(found: Decisions, credited: Credited) -> dict[str, Any]:
    """What the page shows of the decisions, with every text made safe."""
    rows = []
    for each in found.decisions[:MOST_DECISIONS]:
        places = [place_of(credited.table, row) for row in each.pair.tolist()]
        steps = [[place[name] for name in ("group", "trajectory", "step")] for place in places]
        rows.append(each.as_dict() | {"steps": steps})
    shown = {
        "sentence": found.sentence,
        "advice": found.advice,
        "notes": list(found.notes),
        "binary": found.binary,
        "rows": rows,
        "of": len(found.decisions),
    }
    return {name: safe(part, LONGEST) for name, part in shown.items()}


def decided_by(found: Decisions, credited: Credited) -> Ints:
    """What decided each trajectory: the place of the most certain decision that it took part in.

    Places on the better side are 0, 2, 4, ..., those on the worse side 1, 3, 5, ...; -1 for a
    trajectory that nothing on the page explains. A better side explains only why a trajectory
    earned more than the mean of its task, and a worse one why it earned less. Signs and endings
    decide nothing: they may follow from how a session went.
    """
    steps = credited.steps
    trajectory = np.empty(len(credited.table), dtype=np.int64)
    trajectory[steps.rows] = steps.trajectory
    group, count = steps.group_of_trajectory, steps.trajectory_count
    returns = episode_outcome(steps.reward, steps.trajectory, count)
    mean = segments.mean(returns, group, steps.group_count)[group]
    differs = ~np.isclose(returns, mean, rtol=segments.ROUNDING, atol=0.0)
    above, below = differs & (returns > mean), differs & (returns < mean)
    by = np.full(count, -1, dtype=np.int64)
    for place, each in reversed(list(enumerate(found.decisions[:MOST_DECISIONS]))):
        if each.sign or each.ending:
            continue
        for side, earned, rows in ((0, above, each.better.rows), (1, below, each.worse.rows)):
            taken = trajectory[rows]
            by[taken[earned[taken]]] = 2 * place + side
    return by
