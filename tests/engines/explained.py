"""Metrics as the pages name them."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "check.md"
LOGGED = dict(re.findall(r"^\| `ascribe/(\S+)` \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE))
"""What each metric means, by its name without ``ascribe/``. A word in capitals stands for many."""


def explained(name: str) -> str | None:
    """The documented name that a logged name stands under, if there is one."""
    for known in LOGGED:
        pattern = re.sub(r"[A-Z]+", ".+", known)
        if re.fullmatch(f"ascribe/{pattern}", name):
            return known
    return None
