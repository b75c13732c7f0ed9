"""Game files: where they are, which family each belongs to, and the expressions in their grammar.

A game is a folder with ``game.tw-pddl`` (what TextWorld plays) and ``traj_data.json`` (what the
expert reads). The folder above it names the family and the goal, as in ALFWorld's own download::

    pick_heat_then_place_in_recep-Potato-None-SinkBasin-14/trial_T20190908_231731_054988/game.tw-pddl
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ascribe.steps.errors import InputError

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
RULES = {"domain": "pddl_domain", "problem": "pddl_problem", "grammar": "grammar"}
"""The keys of a game file that TextWorld plays, by their names in ``Rules``."""

NOTHING = "Nothing happens."
"""TextWorld's response to a command that is not admissible."""

ATTRIBUTES = ("adj", "definite", "desc", "id", "indefinite", "name", "noun", "type")
"""What an expression of a grammar may ask about a thing."""

# In a string within the file these quotes would be escaped, so only the key itself matches.
UNSOLVABLE = re.compile(rb'"solvable"\s*:\s*false')


class GameFileError(InputError):
    """A game file that cannot be played."""


@dataclass(frozen=True)
class Rules:
    """The part of a game file that TextWorld plays."""

    domain: str
    problem: str
    grammar: str
    generated: bool
    """Whether Ascribe made the game. If so, it is not an ALFRED game."""


@dataclass(frozen=True)
class GameFile:
    """One game file."""

    path: Path
    family: str

    def read(self) -> Rules:
        """The content of the file."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise GameFileError(f"{self.path} cannot be read: {error}") from error
        if not isinstance(content, dict):
            raise GameFileError(f"{self.path} holds no object")
        parts: dict[str, Any] = {name: content.get(key) for name, key in RULES.items()}
        if not all(isinstance(part, str) for part in parts.values()):
            raise GameFileError(f"{self.path} is no game: {', '.join(RULES.values())} are text")
        return Rules(**parts, generated=content.get("generator") == "ascribe")


def chosen_families(families: Iterable[str] | None) -> Sequence[str]:
    """The families asked for, all six by default, in the order of ``FAMILIES``."""
    wanted = set(FAMILIES if families is None else families)
    if unknown := sorted(wanted - set(FAMILIES)):
        names = ", ".join(FAMILIES)
        raise InputError(f"there is no family {', '.join(unknown)}", hint=f"there are: {names}")
    return [family for family in FAMILIES if family in wanted]


def find_games(folder: Path, families: Iterable[str] | None = None) -> list[GameFile]:
    """Every game under a folder that ALFWorld would play, sorted by its path.

    Left out, as ALFWorld does: families other than the six, goals with slices, and games that are
    marked as not solvable.
    """
    wanted = chosen_families(families)
    games = []
    for path in sorted(folder.rglob(GAME_FILE), key=lambda path: path.relative_to(folder).parts):
        goal = path.parent.parent.name
        family = goal.partition("-")[0]
        if family in wanted and "Sliced" not in goal and not UNSOLVABLE.search(path.read_bytes()):
            games.append(GameFile(path, family))
    return games


# Expressions in the grammar of a game, such as ``o.indefinite + ' ' + o.name``. TextWorld passes
# them to Python's ``eval``, so a game file could carry any program. (Since Python 3.13 that does
# not even work, for ``locals()`` is a copy there.) Only what ALFWorld's grammar needs is read here.


@lru_cache(maxsize=1_024)
def parse(expression: str) -> ast.expr:
    """The expression as a tree.

    Raises:
        GameFileError: if it is anything but names, attributes, texts, ``+`` and ``or``.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        allowed = _is_allowed(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        allowed = False
    if not allowed:
        raise GameFileError(f"the grammar of the game holds code: {expression[:200]!r}")
    return tree


def evaluate(tree: ast.expr, things: Mapping[str, object]) -> object:
    """The value of an expression about things, as Python would compute it."""
    match tree:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            if name not in things:
                raise GameFileError(f"the grammar of the game names {name!r}, which is not there")
            return things[name]
        case ast.Attribute(value, attribute):
            return getattr(evaluate(value, things), attribute)
        case ast.BinOp(left, ast.Add(), right):
            return f"{evaluate(left, things)}{evaluate(right, things)}"
        case ast.BoolOp(ast.Or(), values):
            results = [evaluate(value, things) for value in values]
            return next((one for one in results if one), results[-1])
    raise AssertionError("parse lets nothing else through")


def _is_allowed(tree: ast.expr) -> bool:
    match tree:
        case ast.Constant(str()) | ast.Name():
            return True
        case ast.Attribute(ast.Name(), attribute):
            return attribute in ATTRIBUTES
        case ast.BinOp(left, ast.Add(), right):
            return _is_allowed(left) and _is_allowed(right)
        case ast.BoolOp(ast.Or(), values):
            return all(_is_allowed(value) for value in values)
    return False
