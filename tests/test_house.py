"""Rules for the whole package: who may import whom, and names that occur once."""

import ast
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "lab" / "src").rglob("*.py")])


def test_imports_keep_to_the_floors() -> None:
    """The contracts in ``pyproject.toml``; ``lint-imports`` prints what breaks them."""
    cli = pytest.importorskip("importlinter.cli", reason="needs the group dev")
    assert cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_every_class_has_a_name_of_its_own() -> None:
    names = Counter(
        node.name
        for path in SOURCES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
