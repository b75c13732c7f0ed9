"""The change that we propose to TRL, applied to a copy of the installed package."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCH = ROOT / "examples" / "upstream" / "trl.patch"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(find_spec("trl") is None, reason="needs TRL"),
]


def test_turns_are_credited_without_private_names(tmp_path: Path) -> None:
    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    shutil.copytree(package, tmp_path / "trl", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["patch", "-p1", "--input", PATCH], cwd=tmp_path, check=True)
    path = os.pathsep.join([str(tmp_path), str(ROOT), *filter(None, sys.path)])
    tests = [*(tmp_path / "tests").rglob("test_*.py"), ROOT / "tests/engines/upstream_trl.py"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--noconftest", *tests],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
