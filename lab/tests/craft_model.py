"""The tiny model of ``scripts/make_tiny_model.py``, for tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from make_tiny_model import OPTIONS, TASKS, train, write_tiny

__all__ = ["OPTIONS", "TASKS", "train", "write_tiny"]
