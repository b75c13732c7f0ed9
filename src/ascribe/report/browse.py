"""What the trajectory browser shows: groups, their trajectories and steps, and the arithmetic."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ascribe.estimators.credit import Reason, Term
from ascribe.report.crediting import Credited
from ascribe.report.reading import Batch, said
from ascribe.report.states import whole_groups
from ascribe.report.text import embedded, one_line, shortened
from ascribe.steps import segments
from ascribe.steps.arrays import Ints
from ascribe.steps.check import arrange

MOST_STEPS = 10_000
"""Steps that the browser shows at most; of larger tables, whole groups, evenly spaced."""

TEXT_BYTES = 2_000_000
"""Bytes of text that the page may hold."""

CUTS = (4000, 2000, 1200, 800, 500, 300, 200, 120, 60, 30, 10)
"""Lengths to which texts are cut, the longest first, until they fit."""

Plain = dict[str, Any]


def browser(credited: Credited, batches: Sequence[Batch]) -> Plain:
    """The data of the browser as plain values."""
    table, steps = credited.table, arrange(credited.table)
    rows = whole_groups(table, MOST_STEPS)
    place = np.full(len(table), -1, dtype=np.int64)
    place[steps.rows] = np.arange(steps.rows.size)
    places = np.sort(place[rows])
    rows = steps.rows[places]
    texts = _Texts()
    columns: dict[str, list[int]] = {
        "state": texts.add(table.state.take(rows).texts()),
        "action": texts.add(table.action.take(rows).texts()),
    }
    for name in ("agent", "corrects"):
        if (column := getattr(table, name)) is not None:
            columns[name] = texts.add(column.take(rows).texts())
    found = said(batches, credited.batch[rows], credited.row[rows])
    columns |= {name: texts.add(values) for name, values in found.items()}
    numbers = _numbers(credited, places)
    terms = {name: _term(term, rows) for name, term in credited.credit.terms.items()}
    state = _states(credited, places)
    shown, most = texts.fitted()
    groups = []
    for part in _runs(steps.group[places]):
        cells = {name: values[part] for name, values in (columns | numbers).items()}
        cells["label"] = _renamed(state[part])
        first = rows[part.start]
        groups.append(
            {
                "name": one_line(table.group.values[table.group.codes[first]], 200),
                "family": _family(credited, int(first)),
                "batch": one_line(credited.names[credited.batch[first]]),
                "trajectories": _trajectories(credited, places[part]),
                "cells": cells,
                "terms": {
                    name: {key: values[part] for key, values in term.items()}
                    for name, term in terms.items()
                },
            }
        )
    return {
        "texts": shown,
        "cut": most,
        "groups": groups,
        "steps": int(places.size),
        "of_steps": int(steps.rows.size),
        "of_groups": steps.group_count,
        "weights": {name: term.weight for name, term in credited.credit.terms.items()},
        "reasons": [reason.label for reason in Reason],
        "sentences": {
            name: [asdict(sentence) for sentence in term.explanation.sentences]
            for name, term in credited.credit.terms.items()
        },
        "scale": _scale(credited),
        "batches": len(credited.names),
        "first": _telling(groups),
    }


def _numbers(credited: Credited, places: Ints) -> dict[str, list[Any]]:
    steps, credit = arrange(credited.table), credited.credit
    rows = steps.rows[places]
    return {
        "step": steps.step[places].tolist(),
        "reward": _rounded(steps.reward[places]),
        "valid": steps.valid[places].astype(int).tolist(),
        "return": _rounded(credited.recipe.step_returns(credited.table)[places]),
        "advantage": _rounded(credit.advantage[rows]),
        "reason": credit.reason[rows].tolist(),
    }


def _term(term: Term, rows: Ints) -> dict[str, list[Any]]:
    compared = term.explanation.mapped(lambda values: values[rows])
    none = np.zeros(rows.size, dtype=np.int64)
    return {
        "value": _rounded(term.values[rows]),
        "reason": term.reason[rows].tolist(),
        "way": (none if compared.way is None else compared.way).tolist(),
        "own": _rounded(compared.own),
        "baseline": _rounded(compared.baseline),
        "peers": compared.peers.tolist(),
        "alike": (none if compared.alike is None else compared.alike).tolist(),
        "difference": _rounded(compared.own - compared.baseline),
    }


def _states(credited: Credited, places: Ints) -> Ints:
    """State group of each place: the recipe's, or equal texts for a recipe without any."""
    steps = arrange(credited.table)
    step = credited.credit.terms.get("step")
    if step is not None:
        return step.labels[steps.rows[places]]
    labels, _ = segments.pairs(steps.group, steps.state, credited.table.state.values.size)
    return labels[places]


def _renamed(labels: Ints) -> list[int]:
    """Labels from 0 in the order of appearance; -1 for a state that only one step is in."""
    known, inverse, counted = np.unique(labels, return_inverse=True, return_counts=True)
    lonely = (known < 0) | (counted < 2)
    kept = np.where(lonely[inverse], -1, inverse)
    return [int(label) for label in segments.by_appearance(kept, known.size)[0]]


def _trajectories(credited: Credited, places: Ints) -> list[Plain]:
    table, steps = credited.table, arrange(credited.table)
    found = []
    for part in _runs(steps.trajectory[places]):
        inside = places[part]
        rows = steps.rows[inside]
        won = None if credited.won is None else bool(credited.won[rows].any())
        found.append(
            {
                "name": one_line(table.trajectory.values[table.trajectory.codes[rows[0]]], 200),
                "start": part.start,
                "length": int(inside.size),
                "return": _rounded(steps.reward[inside].sum(keepdims=True))[0],
                "won": won,
                "cut": bool(steps.truncated[inside[0]]),
            }
        )
    return found


def _family(credited: Credited, row: int) -> str | None:
    family = credited.table.family
    if family is None or family.codes[row] < 0:
        return None
    return one_line(family.values[family.codes[row]])


def _telling(groups: Sequence[Plain]) -> int:
    """The group to begin with: the first of those whose returns differ most often."""

    def differ(group: Plain) -> float:
        returns = [trajectory["return"] for trajectory in group["trajectories"]]
        return max(returns) != min(returns) and len(set(returns)) / len(returns) + 1

    return max(range(len(groups)), key=lambda number: differ(groups[number]))


def _scale(credited: Credited) -> float:
    """The size of an advantage that gets the strongest colour: 95 % of the credited are smaller."""
    rows = arrange(credited.table).rows
    size = np.abs(credited.credit.advantage[rows])
    size = size[size > 0]
    return float(f"{np.quantile(size, 0.95):.4g}") if size.size else 1.0


def _runs(labels: Ints) -> list[slice]:
    """Where each run of equal labels starts and stops."""
    bounds = np.append(np.flatnonzero(np.diff(labels, prepend=-1)), labels.size)
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


def _rounded(values: npt.NDArray[Any]) -> list[float | None]:
    """Four digits are enough to read; what is no number is none."""
    finite = np.isfinite(values)
    return [
        float(f"{value:.4g}") if fine else None
        for value, fine in zip(values.tolist(), finite.tolist(), strict=True)
    ]


class _Texts:
    """Each distinct text once."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def add(self, texts: Iterable[str | None]) -> list[int]:
        """The number of each text; -1 for none."""
        return [
            -1 if text is None else self.number.setdefault(text, len(self.number)) for text in texts
        ]

    def fitted(self) -> tuple[list[str], int]:
        """The texts, cut so that all of them together fit; and the length they were cut to."""
        shown: list[str] = []
        length = np.array([len(text) for text in self.number], dtype=np.int64)
        for most in CUTS:
            if np.minimum(length, most).sum() > TEXT_BYTES and most != CUTS[-1]:
                continue  # a character has at least a byte
            shown = [shortened(text, most) for text in self.number]
            if len(embedded(shown).encode("utf-8", "replace")) <= TEXT_BYTES:
                return shown, most
        return shown, CUTS[-1]
