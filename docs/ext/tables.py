"""Markdown tables made from the source: problems, reasons, parameters, options, dependencies."""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from enum import Enum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from inspect import cleandoc, getsource
from itertools import pairwise
from math import inf
from pathlib import Path
from textwrap import dedent
from typing import Literal, get_args, get_origin, get_type_hints

from packaging.requirements import Requirement

from ascribe.cli import load_command
from ascribe.estimators import RECIPES, Recipe
from ascribe.estimators.credit import Reason
from ascribe.estimators.situations import SITUATIONS, States
from ascribe.steps.hints import command_line, page
from ascribe.steps.problems import ProblemKind, Severity
from ascribe.steps.table import (
    FLAG_COLUMNS,
    INPUT_COLUMNS,
    KNOWN_COLUMNS,
    REQUIRED_COLUMNS,
    TEXT_COLUMNS,
    StepTable,
)

ROOT = Path(__file__).parents[2]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def linked(advice: str, root: str = "") -> str:
    """Advice for a terminal, with its page of the documentation as a link."""
    name = r"([\w/]+)"
    said = re.escape(page("NAME")).replace("NAME", name)
    return re.sub(said, rf"[\1]({root}\1.md)", advice)


def kinds() -> str:
    """Every problem, worst first, with what to do about it."""
    parts = []
    for severity in sorted(Severity, reverse=True):
        with command_line():
            rows = [
                (f"`{kind.label}`", linked(kind.advice))
                for kind in ProblemKind
                if kind.severity is severity
            ]
        parts += [f"### {severity.name.capitalize()}", table(("problem", "what to do"), rows)]
    return "\n\n".join(parts)


def severities() -> str:
    """Every severity, worst first."""
    rows = [(name.lower(), said) for name, said in reversed(_members(Severity).items())]
    return table(("severity", "meaning"), rows)


def reasons() -> str:
    """Every reason why a row has no credit."""
    rows = [(f"`{reason.label}`", reason.words) for reason in Reason]
    return table(("reason", "meaning"), rows)


def _members(kind: type[Enum]) -> dict[str, str]:
    """The sentence that stands under each member in the source; every member must have one."""
    body = ast.parse(getsource(kind)).body[0].body
    said = {
        assignment.targets[0].id: " ".join(sentence.value.value.split())
        for assignment, sentence in pairwise(body)
        if isinstance(assignment, ast.Assign) and isinstance(sentence, ast.Expr)
    }
    return {member.name: said[member.name] for member in kind}


def parameters(name: str) -> str:
    """The parameters of a recipe: defaults and choices from its fields, meaning from docstrings.

    Those that all recipes have are in the table ``shared`` alone, unless a recipe changes one.
    """
    kind = Recipe if name == "shared" else RECIPES[name]
    hints, said = get_type_hints(kind), {}
    for base in reversed(kind.__mro__):
        said |= _attributes(base.__doc__ or "")
    rows = []
    # A recipe's own parameters first, then those that it has from relatives.
    own = [field for field in fields(kind) if field.name in vars(kind).get("__annotations__", {})]
    for field in [*own, *(field for field in fields(kind) if field not in own)]:
        if field not in own and field.name in Recipe.__annotations__:
            continue
        hint = hints[field.name]
        choice = get_origin(hint) is Literal
        takes = ", ".join(f"`{c}`" for c in get_args(hint)) if choice else hint.__name__
        rows.append((f"`{field.name}`", f"`{field.default}`", takes, said[field.name]))
    shown = table(("parameter", "default", "takes", "meaning"), rows)
    if name == "shared":
        return shown
    shared = "[those of all recipes](index.md#parameters-of-all-recipes)"
    return f"{shown}\n\nAnd {shared}." if rows else f"It has no parameters but {shared}."


def home(name: str) -> str:
    """The page of a recipe, with its section if it has one; the recipe's module names the page."""
    module = getsource(sys.modules[RECIPES[name].__module__])
    page = re.search(r"^Page: docs/(.+?\.md)\.", module, re.MULTILINE)[1]
    section = f"\n## {name}\n" in (ROOT / "docs" / page).read_text(encoding="utf-8")
    return f"{page}#{name}" if section else page


def recipes() -> str:
    """Every recipe with its class, what it computes and its page."""
    rows = []
    for name, kind in RECIPES.items():
        first = (kind.__doc__ or "").partition("\n")[0]
        rows.append((f"[`{name}`]({home(name)})", f"`ascribe.estimators.{kind.__name__}`", first))
    return table(("recipe", "class", "what it computes"), rows)


def situations() -> str:
    """The recommended recipe and discount of every situation, for a page in a folder of docs."""
    rows = []
    for row in SITUATIONS:
        ranges = (
            str(low) if low == high else f"{low} or more" if high == inf else f"{low} to {high:g}"
            for low, high in (row.rollouts, row.steps)
        )
        rests = f"{row.evidence} ([more](../{row.page}.md))"
        states = "any" if len(row.states) == len(get_args(States)) else " or ".join(row.states)
        rows.append((states, *ranges, row.recipe, row.discount, rests))
    head = ("states", "rollouts of a task", "steps", "use", "discount", "evidence")
    return table(head, rows)


SCHEMA_TYPES: dict[str, dict[str, object]] = {
    **{key: {"type": ["string", "integer", "null"]} for key in TEXT_COLUMNS},
    **{key: {"type": ["boolean", "null"]} for key in FLAG_COLUMNS},
    **{key: {"type": ["number", "null"]} for key in (*INPUT_COLUMNS, "without")},
    "step": {"type": ["integer", "null"], "minimum": 0},
    "reward": {"type": ["number", "null"], "minimum": -1e100, "maximum": 1e100},
    "fingerprint": {"type": ["array", "null"], "items": {"type": "number"}, "minItems": 1},
    "iteration": {"type": ["integer", "null"]},
    "parent": {"type": ["integer", "null"], "minimum": 0},
}


def schema() -> str:
    """The JSON Schema of one line of a step table."""
    said = _attributes(StepTable.__doc__ or "")
    columns = {name: SCHEMA_TYPES[name] | {"description": said[name]} for name in KNOWN_COLUMNS}
    never_null = ("group", "trajectory", "step", "reward")
    return json.dumps(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A row of a step table, version 1",
            "type": "object",
            "properties": columns,
            "required": list(REQUIRED_COLUMNS),
            "if": {"properties": {"padding": {"const": True}}, "required": ["padding"]},
            "else": {"properties": {key: {"not": {"type": "null"}} for key in never_null}},
        },
        indent=2,
    )


def schema_block() -> str:
    """The JSON Schema as a block of a page."""
    return f"```json\n{schema()}\n```"


def _attributes(docstring: str) -> dict[str, str]:
    """What the ``Attributes:`` section of a Google-style docstring says of each name."""
    _, _, section = cleandoc(docstring).partition("Attributes:\n")
    entries = re.split(r"\n(?= {4}\w+: )", "\n" + section.split("\n\n")[0])
    found = (re.fullmatch(r" {4}(\w+): (.+)", entry.rstrip(), re.DOTALL) for entry in entries[1:])
    return {match[1]: re.sub(r"\s+", " ", match[2]).strip() for match in found if match}


def options(*command: str) -> str:
    """The examples, arguments and options of a command, as the command itself knows them."""
    rows = []
    name, *inner = command
    found = load_command(name)
    for name in inner:
        found = found.commands[name]
    for parameter in found.params:
        positional = parameter.param_type_name == "argument"
        name = parameter.name.upper() if positional else ", ".join(parameter.opts)
        plain = parameter.default in (None, False, []) or callable(parameter.default)
        default = "" if plain else f"`{parameter.default}`"
        rows.append((f"`{name}`", "required" if parameter.required else default, parameter.help))
    examples = dedent(found.help.partition("Examples:\n")[2]).strip()
    listed = table(("option", "default", "meaning"), rows)
    return f"```sh\n{examples}\n```\n\n{listed}" if examples else listed


ENGINE_OPTIONS = {
    **{name: f"ascribe.engines.{name}.options" for name in ("trl", "verl")},
    **{
        name: f"ascribe.engines.adapters.{name}"
        for name in ("areal", "skyrl", "tinker", "trinity", "verifiers")
    },
}
"""The module with the ``OPTIONS`` of each engine; it does not import the engine."""


def engine_options(engine: str) -> str:
    """What becomes of the options of an engine that act on rewards or advantages."""
    parts = []
    for each in import_module(ENGINE_OPTIONS[engine]).OPTIONS:
        rows = [(f"`{name}`", done, why) for name, done, why in each.rows()]
        if rows:
            parts += [f"{each.source}:", table(("option", "what Ascribe does", "why"), rows)]
    return "\n\n".join(parts)


def dependencies(*groups: str) -> str:
    """Version, licence and installed size of the packages that a ``pyproject.toml`` names."""
    lab, project = (
        tomllib.loads((ROOT / place / "pyproject.toml").read_text(encoding="utf-8"))
        for place in ("lab", ".")
    )
    known = {
        **lab["project"]["optional-dependencies"],
        "base": project["project"]["dependencies"],
        **project["project"]["optional-dependencies"],
        **project["dependency-groups"],
    }
    rows = []
    for requirement in (requirement for group in groups for requirement in known[group]):
        try:
            found = distribution(Requirement(requirement).name)
        except PackageNotFoundError:  # an extra that this build of the pages was made without
            rows.append((f"`{requirement}`", "not installed here", "", "", ""))
            continue
        files = [Path(file.locate()) for file in found.files or ()]
        size = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
        licence, needs = _licence(found.metadata), ", ".join(_needs(found.requires or []))
        rows.append((f"`{requirement}`", found.version, licence, f"{size:.1f} MB", needs))
    return table(("package", "version seen", "licence", "installed size", "brings along"), rows)


def _needs(requirements: Iterable[str]) -> list[str]:
    """The names of those that hold here, extras left out."""
    parsed = map(Requirement, requirements)
    return sorted(r.name for r in parsed if not r.marker or r.marker.evaluate({"extra": ""}))


def _licence(metadata: object) -> str:
    """The licence that the package declares: the new field, the old one, or the classifier."""
    said = metadata.get("License-Expression") or metadata.get("License") or ""
    classified = [line for line in metadata.get_all("Classifier", []) if "License ::" in line]
    if not said or "\n" in said or len(said) > 60:
        said = ", ".join(line.rpartition(" :: ")[2] for line in classified) or "see the package"
    return said
