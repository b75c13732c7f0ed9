"""Strict YAML parsing of untrusted files."""

import re
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

from ascribe.steps.errors import InputError, MissingPackageError
from ascribe.steps.strict_json import MAX_DEPTH

MOST_VALUES = 100_000
"""Values of a document in which every alias counts as what it stands for."""


def import_yaml() -> Any:
    """PyYAML, or an error that says how to install it."""
    try:
        return import_module("yaml")
    except ImportError as error:
        raise MissingPackageError("needs PyYAML: pip install pyyaml") from error


def read_yaml(path: str | Path) -> Any:
    """The document of a YAML file: plain values, no repeated keys, and a limit of size.

    Aliases of aliases can make a document of a few lines larger than any memory, once it is walked
    over or written. So a document is measured before it is made.

    Args:
        path: of the file.

    Raises:
        ValueError: if it is not such a file.
        ImportError: without PyYAML.
        OSError: if it cannot be opened.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8") from error
    yaml = import_yaml()
    try:
        return yaml.load(text, _strict_loader(yaml))
    # PyYAML lets the errors of numbers, dates and keys pass.
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path} is not a YAML file: {error}") from error


def _strict_loader(yaml: Any) -> Any:
    def fail(problem: str, node: Any) -> None:
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    class Strict(yaml.SafeLoader):  # type: ignore[misc]
        def get_single_node(self) -> Any:
            node = super().get_single_node()
            size = 0 if node is None else _size(node, {})
            if size == inf:
                fail("a value holds itself", node)
            if size > MOST_VALUES:
                fail(f"there are more than {MOST_VALUES:,} values, aliases included", node)
            return node

        def fetch_flow_collection_start(self, kind: Any) -> None:
            if self.flow_level > MAX_DEPTH:  # PyYAML takes quadratic time
                raise yaml.scanner.ScannerError(None, None, "nested too deeply", self.get_mark())
            super().fetch_flow_collection_start(kind)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for name, _ in node.value:
                if not isinstance(name, yaml.ScalarNode):
                    fail("a key is no plain value", name)
                if name.value in seen:
                    fail(f"the key {name.value!r} is there twice", name)
                seen.add(name.value)
            return super().construct_mapping(node, deep)

    # PyYAML follows YAML 1.1, in which 1e-6 is text; in YAML 1.2 it is a number.
    number = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9]*)?[eE][-+]?[0-9]+")
    Strict.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return Strict


def _size(node: Any, sizes: dict[int, float]) -> float:
    """How many values a node stands for; infinitely many if it holds itself."""
    if id(node) not in sizes:
        sizes[id(node)] = inf
        parts = node.value if isinstance(node.value, list) else []
        children = [part for one in parts for part in (one if isinstance(one, tuple) else [one])]
        sizes[id(node)] = 1 + sum(_size(child, sizes) for child in children)
    return sizes[id(node)]
