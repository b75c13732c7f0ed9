"""Examples that need an extra: ``py`` blocks, which the test of the pages does not run."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "environments" / "contract.md"


def assert_example_prints_what_the_page_shows(section: str, **replace: str) -> None:
    """Run the example of a section; ``replace`` gives another address to the one on the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    match = re.search(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert match is not None
    code, shown = match.groups()
    for old, new in replace.items():
        code = code.replace(old, new)
    printed = io.StringIO()
    namespace: dict[str, Any] = {"__name__": "page"}
    with redirect_stdout(printed):
        exec(compile(code, "page", "exec"), namespace)
    assert printed.getvalue() == shown
