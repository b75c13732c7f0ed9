"""Marks of tests that need an engine."""

from importlib.util import find_spec

import pytest

NEEDS_VERL = pytest.mark.skipif(
    find_spec("verl") is None, reason="needs verl: scripts/make_env.sh FOLDER verl-cpu"
)
