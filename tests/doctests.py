"""The examples in the docstrings of the names that are listed on the API page."""

import doctest
import re
from contextlib import chdir
from importlib import import_module
from inspect import getdoc
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def listed(package: str) -> list[str]:
    """The public names of a package."""
    names = re.findall(r"^\.\. auto\w+:: (\S+)$", PAGE, re.MULTILINE)
    return [name for name in names if name.partition(".")[0] == package]


def shared() -> dict[str, Any]:
    """What the first example of the page makes; all others may use it."""
    first = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert first is not None
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(first[1], names)
    del names["print"]
    return names


def failures(name: str, folder: Path) -> str:
    """What the example of a public name prints instead of what it should; run in ``folder``."""
    module, _, last = name.rpartition(".")
    doc = getdoc(getattr(import_module(module), last)) or ""
    test = doctest.DocTestParser().get_doctest(doc, shared(), name, None, 0)
    if not test.examples:
        return f"{name} has no example"
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    said = StringIO()
    with chdir(folder):
        doctest.DocTestRunner().run(test, out=said.write)
    return said.getvalue()
