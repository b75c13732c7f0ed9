"""A recipe of a user's own, for the command line."""

from dataclasses import dataclass
from typing import ClassVar

from ascribe.estimators import DrGRPO


@dataclass(frozen=True, kw_only=True)
class Mine(DrGRPO):
    """Nothing new under the sun."""

    name: ClassVar[str] = "mine"


NOT_A_RECIPE = 3
