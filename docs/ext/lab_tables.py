"""Markdown tables made from the laboratory: keys of a config, agents, findings of the check."""

import json
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from tables import linked, table

from ascribe_lab.agents import AGENTS, FIELDS, PROBLEMS
from ascribe_lab.envs.faults import Fault
from ascribe_lab.envs.registry import list_options
from ascribe_lab.train.config import Options, known_keys, section_of


def agents() -> str:
    """The parts of every environment's agent, and what its two prompts show."""
    rows = [
        (
            f"`{name}`",
            f"`{styles['paper'].memory}`",
            f"`{type(styles['paper'].parser).__name__}`",
            "yes" if "choices" in styles else "",
        )
        for name, styles in AGENTS.items()
    ]
    return table(("environment", "memory", "parser", "style `choices`"), rows)


def template_fields() -> str:
    """The fields of the templates of a prompt."""
    rows = [
        (f"`{template}`", f"`{name}`", meaning)
        for template, known in FIELDS.items()
        for name, meaning in known.items()
    ]
    return table(("template", "field", "what it holds"), rows)


def parser_problems() -> str:
    """What a parser reports of a response."""
    rows = [(f"`{problem}`", meaning) for problem, meaning in PROBLEMS.items()]
    return table(("problem", "meaning"), rows)


def findings() -> str:
    """Every breach of the contract of environments, and what to do about it."""
    rows = [
        (f"`{fault.label}`", fault.severity.name.lower(), linked(fault.advice, "../"))
        for fault in Fault
    ]
    return table(("finding", "severity", "what to do"), rows)


def environment_options(name: str) -> str:
    """The options of an environment, as ``ascribe env options`` has them."""
    rows = [
        (
            f"`{option.name}`",
            option.type,
            "required" if option.required else f"`{json.dumps(option.default)}`",
            option.meaning,
        )
        for option in list_options(name)
    ]
    return table(("option", "takes", "default", "meaning"), rows)


def config_keys() -> str:
    """Every key of a config for training, with its default and the default's source."""
    rows = []
    for keys, info in known_keys().items():
        if info.description is None:
            continue
        default, origin = "", ""
        if not info.is_required():
            default, origin = f"`{json.dumps(info.default)}`", info.json_schema_extra["origin"]
        kind = "keys" if section_of(info) else _takes(info.annotation)
        rows.append((f"`{'.'.join(keys)}`", kind, default, origin, info.description))
    return table(("key", "takes", "default", "from", "meaning"), rows)


def _takes(hint: Any) -> str:
    """What a key takes, in words."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    arguments = get_args(hint)
    if hint == Options:
        return "keys with plain values"
    if is_dataclass(hint):
        return f"keys and values ({', '.join(each.name for each in fields(hint))})"
    if get_origin(hint) is Literal:
        return f"one of {', '.join(arguments)}"
    if get_origin(hint) is tuple:
        return f"a list, each entry {_takes(arguments[0])}"
    if NoneType in arguments:
        return f"{_takes(arguments[0])}, or null"
    return _takes(arguments[0]) if get_origin(hint) is Annotated else words[hint]
