"""What the benchmark of the audit adds to it: ``sbc`` without its parts."""

import math
from dataclasses import dataclass, replace
from typing import Any

from ascribe.estimators.sbc import SBC, Ladder
from ascribe_lab.audit import scored_recipe as recipe_of_audit
from ascribe_lab.audit.run import Scored

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
