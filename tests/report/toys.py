"""Small rollouts in which nothing is wrong, to plant faults in."""

import gzip
import json
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ascribe import Recipe, StepTable, recipe
from ascribe.decisions import find_decisions
from ascribe.reports.crediting import Credited, credit_batches
from ascribe.reports.facts import Facts, gather
from ascribe.reports.reading import Batch
from ascribe.reports.verdict import ReportVerdict, judge

Row = dict[str, Any]


def sound(groups: int = 6, size: int = 4, length: int = 5) -> list[Row]:
    """Tasks of two families; every trajectory walks through the same rooms, by different doors.

    Half of the trajectories of a task succeed: those that take the left doors.
    No state is visited twice by one trajectory.
    """
    return [
        {
            "group": f"task {g}",
            "trajectory": f"task {g}/{t}",
            "step": s,
            "state": f"task {g}, room {s}",
            "action": ("left", "right")[t % 2],
            "reward": float(s == length - 1 and t % 2 == 0),
            "family": ("easy", "hard")[g % 2],
            "valid": True,
            "terminated": s == length - 1,
            "truncated": False,
        }
        for g in range(groups)
        for t in range(size)
        for s in range(length)
    ]


def batch(rows: Iterable[Row], name: str = "toy.jsonl") -> Batch:
    """Rows as a batch; a key ``won`` or ``trained`` is what the file says besides."""
    rows = list(rows)
    table = StepTable.from_dicts(rows)
    won = np.array([row["won"] for row in rows]) if "won" in rows[0] else None
    trained = np.array([row["trained"] for row in rows]) if "trained" in rows[0] else None
    return Batch(name, table, won, trained, Path(name), np.arange(len(rows)))


def credited(rows: Iterable[Row], by: Recipe | str = "gigpo") -> Credited:
    """Rows credited by a recipe."""
    return credit_batches([batch(rows)], recipe(by) if isinstance(by, str) else by)


def facts(rows: Iterable[Row], by: Recipe | str = "gigpo") -> Facts:
    """The facts about rows."""
    made = credited(rows, by)
    return gather(made, find_decisions(made.table, won=made.won), [Path("toy.jsonl")])


def verdict(rows: Iterable[Row], by: Recipe | str = "gigpo") -> ReportVerdict:
    """The verdict on rows."""
    return judge(facts(rows, by))


def groups_of(browser: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks in the chunks of a page, each with the texts of its chunk."""
    chunks = [json.loads(gzip.decompress(b64decode(chunk))) for chunk in browser["chunks"]]
    return [group | {"texts": chunk["texts"]} for chunk in chunks for group in chunk["groups"]]
