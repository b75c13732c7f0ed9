"""Game files: where they are, and which family each belongs to.

A game is a folder with ``game.tw-pddl`` (what TextWorld plays) and ``traj_data.json`` (what the
expert reads). The folder above it names the family and the goal, as in ALFWorld's own download::

    pick_heat_then_place_in_recep-Potato-None-SinkBasin-14/trial_T20190908_231731_054988/game.tw-pddl
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six families of tasks, in ALFWorld's order."""

GAME_FILE = "game.tw-pddl"
PARAMETERS_FILE = "traj_data.json"

NOTHING = "Nothing happens."
"""What TextWorld answers to a command that is not admissible."""

# In a string within the file these quotes would be escaped, so only the key itself matches.
UNSOLVABLE = re.compile(rb'"solvable"\s*:\s*false')


class GameFileError(ValueError):
    """A game file that cannot be played."""


@dataclass(frozen=True)
class Rules:
    """What TextWorld plays: all that a game file says about how the game goes."""

    domain: str
    problem: str
    grammar: str
    generated: bool
    """Whether Ascribe made the game. If so, it is not an ALFRED game."""


@dataclass(frozen=True)
class Game:
    """One game file."""

    path: Path
    family: str

    def read(self) -> Rules:
        """The content of the file."""
        found = read_json(self.path)
        parts = [found.get(key) for key in ("pddl_domain", "pddl_problem", "grammar")]
        domain, problem, grammar = (part if isinstance(part, str) else None for part in parts)
        if domain is None or problem is None or grammar is None:
            raise GameFileError(
                f"{self.path} is no game: pddl_domain, pddl_problem and grammar are text"
            )
        return Rules(domain, problem, grammar, generated=found.get("generator") == "ascribe")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise GameFileError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise GameFileError(f"{path} holds no object")
    return found


def chosen_families(families: Iterable[str] | None) -> Sequence[str]:
    """The families asked for, all six by default, in the order of ``FAMILIES``."""
    wanted = set(FAMILIES if families is None else families)
    if unknown := sorted(wanted - set(FAMILIES)):
        known = ", ".join(FAMILIES)
        raise ValueError(f"there is no family {', '.join(unknown)}; there are: {known}")
    return [family for family in FAMILIES if family in wanted]


def find_games(folder: Path, families: Iterable[str] | None = None) -> list[Game]:
    """Every game under a folder that ALFWorld would play, sorted by its path.

    Left out, as ALFWorld does: families other than the six, goals with slices, and games that are
    marked as not solvable.
    """
    wanted = chosen_families(families)
    found = []
    for path in sorted(folder.rglob(GAME_FILE), key=lambda path: path.relative_to(folder).parts):
        goal = path.parent.parent.name
        family = goal.partition("-")[0]
        if family in wanted and "Sliced" not in goal and not UNSOLVABLE.search(path.read_bytes()):
            found.append(Game(path, family))
    return found
