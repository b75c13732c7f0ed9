"""Write for the published site what pages say about installation: names in place of a clone.

Pages are read in a clone, so their lines install from it (``pip install ".[report]"``). Where
``ascribe.steps.hints.PUBLISHED`` is true, the site has the packages' names in these lines, and what
stands between ``<!-- clone -->`` and ``<!-- /clone -->`` is left out.
"""

import re
from typing import Any

from ascribe.steps import hints

COMMAND = re.compile(r"\bpip install [^\n`#]*")
PLACES = {r"\./lab": "ascribe-lab", r"\.": hints.DISTRIBUTION}
"""What pip takes in a clone, and the same by its name."""
CLONE = re.compile(r"^<!-- clone -->\n.*?^<!-- /clone -->\n+", re.DOTALL | re.MULTILINE)


def released(page: str) -> str:
    """The page for readers who install a release."""

    def named(command: re.Match[str]) -> str:
        line = command[0]
        for place, name in PLACES.items():
            line = re.sub(rf"""(?<=[\s"']){place}(?=[\s"'[]|$)""", name, line)
        return line

    return COMMAND.sub(named, CLONE.sub("", page))


def shown(page: str) -> str:
    """The page as the site shows it."""
    return released(page) if hints.PUBLISHED else page


def _on_read(_app: Any, _page: str, source: list[str]) -> None:
    source[0] = shown(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Ask Sphinx to call us for every page."""
    app.connect("source-read", _on_read)
    return {"parallel_read_safe": True}
