"""16 random graphs beside the worlds of the audit."""

from typing import Any

from ascribe_lab.audit import WORLDS
from ascribe_lab.audit.worlds import graph_world

FIELDS = ("states", "horizon", "slip", "alias", "goals", "reward_noise", "paraphrase")
"""Columns of ``GRAPHS``."""

GRAPHS = {
    "g01": (8, 6, 0.0, 0.0, 1, 0.0, 0.0),
    "g02": (8, 12, 0.3, 0.0, 2, 0.0, 0.3),
    "g03": (8, 8, 0.1, 0.4, 1, 0.1, 0.0),
    "g04": (12, 10, 0.0, 0.25, 2, 0.0, 0.5),
    "g05": (12, 20, 0.2, 0.0, 1, 0.3, 0.2),
    "g06": (12, 14, 0.4, 0.5, 3, 0.0, 0.0),
    "g07": (16, 30, 0.1, 0.25, 1, 0.0, 0.4),
    "g08": (16, 10, 0.0, 0.5, 4, 0.2, 0.2),
    "g09": (16, 12, 0.2, 0.25, 0, 0.0, 0.0),
    "g10": (24, 16, 0.1, 0.0, 3, 0.0, 0.6),
    "g11": (24, 40, 0.0, 0.4, 1, 0.0, 0.1),
    "g12": (24, 24, 0.3, 0.2, 3, 0.1, 0.3),
    "g13": (24, 10, 0.1, 0.0, 0, 0.6, 0.3),
    "g14": (36, 30, 0.0, 0.0, 2, 0.0, 0.0),
    "g15": (36, 60, 0.1, 0.3, 1, 0.1, 0.2),
    "g16": (48, 24, 0.2, 0.5, 6, 0.0, 0.4),
}
"""Graphs of many kinds."""


def _graph(row: tuple[float, ...]) -> Any:
    fields: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
    return graph_world("a random graph", pull=0.8, **fields)


ALL_WORLDS = WORLDS | {name: _graph(row) for name, row in GRAPHS.items()}
"""Every world by name, with the graphs."""
