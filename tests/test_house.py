"""Rules for both packages: names that occur once, and what an import loads.

Who may import whom is in ``pyproject.toml``, and ``lint-imports`` holds it.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "lab" / "src").rglob("*.py")])


def test_every_class_has_a_name_of_its_own() -> None:
    names = Counter(
        node.name
        for path in SOURCES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("module", "most"),
    [("ascribe", 30), ("ascribe.reports", 74), ("ascribe.engines.trl.trainer", 65)],
)
def test_an_import_loads_few_modules_and_none_of_the_laboratory(module: str, most: int) -> None:
    if module.endswith("trainer"):
        pytest.importorskip("trl", reason="needs the extra trl")
    code = f"import {module}, sys; print(*(m for m in sys.modules if m.startswith('ascribe')))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert len(loaded) <= most
    assert not [name for name in loaded if name.startswith("ascribe_lab")]


def test_tests_of_the_library_do_without_the_laboratory() -> None:
    """They pass where it is not installed."""
    imported = re.compile(r"^\s*(from|import) (ascribe_lab|lab)\b", re.M)
    tests = (ROOT / "tests").rglob("*.py")
    assert [path for path in tests if imported.search(path.read_text(encoding="utf-8"))] == []
