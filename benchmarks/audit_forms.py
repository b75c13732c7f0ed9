"""What the benchmarks of the audit add to it: ``sbc`` without its parts, and 16 random graphs."""

import math
from dataclasses import dataclass, replace
from typing import Any

from ascribe.estimators.sbc import SBC, Ladder
from ascribe_lab.audit import WORLDS
from ascribe_lab.audit import scored_recipe as recipe_of_audit
from ascribe_lab.audit.run import Scored
from ascribe_lab.audit.worlds import graph_world

ABLATIONS: dict[str, dict[str, float]] = {
    "bootstrap": {"sweeps": 0},
    "centre": {"centre": 2.0},
    "fine": {"fine": math.inf},
    "history": {"history": math.inf},
    "own": {"own": math.inf},
    "shrinkage": {"state": 0.0, "action": 0.0},
}
"""``sbc-NAME`` is ``sbc`` without this part."""


@dataclass(frozen=True, kw_only=True)
class AblatedSBC(SBC):
    """``sbc`` without one of its parts."""

    without: str = "own"

    def _validate(self, name: str, hint: Any) -> None:
        if name != "without":
            super()._validate(name, hint)

    def ladder(self) -> Ladder:
        """The κ of every level, without the part that is left out."""
        return replace(super().ladder(), **ABLATIONS[self.without])  # type: ignore[arg-type]


def scored_recipe(name: str) -> Scored:
    """A recipe of the audit, or ``sbc-NAME``."""
    part = name.removeprefix("sbc-")
    return AblatedSBC(without=part) if part in ABLATIONS else recipe_of_audit(name)


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
"""Graphs of many kinds, for ``audit_predictor.py``."""


def _graph(row: tuple[float, ...]) -> Any:
    fields: dict[str, Any] = dict(zip(FIELDS, row, strict=True))
    return graph_world("a random graph", pull=0.8, **fields)


ALL_WORLDS = WORLDS | {name: _graph(row) for name, row in GRAPHS.items()}
"""Every world by name, with the graphs."""
