"""Metrics as the pages name them."""

import re

from ascribe.engines.metrics import LOGGED


def explained(name: str) -> str | None:
    """The documented name that a logged name stands under, if there is one."""
    for known in LOGGED:
        pattern = re.sub(r"[A-Z]+", ".+", known)
        if re.fullmatch(f"ascribe/{pattern}", name):
            return known
    return None
