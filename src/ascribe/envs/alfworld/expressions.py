"""Expressions in the grammar of a game, such as ``o.indefinite + ' ' + o.name``.

TextWorld hands them to Python's ``eval``, so a game file could carry any program. (Since Python
3.13 that does not even work, for ``locals()`` is a copy there.) Here only what ALFWorld's grammar
needs is read: names of things, their attributes, texts, ``+`` and ``or``.
"""

import ast
from collections.abc import Mapping
from functools import lru_cache

from ascribe.envs.alfworld.games import GameFileError

ATTRIBUTES = ("adj", "definite", "desc", "id", "indefinite", "name", "noun", "type")
"""What can be asked about a thing."""


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
    """What an expression says about things, as Python would say it.

    Raises:
        GameFileError: if it names something that is not there.
    """
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
            found = [evaluate(value, things) for value in values]
            return next((one for one in found if one), found[-1])
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
