"""The changes that we propose to engines, each applied to a copy of the installed package."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("engine", ["trl", "verl"])
def test_turns_are_credited_by_public_names(engine: str, tmp_path: Path) -> None:
    """With the tests of the change itself, and with ours of what it makes possible."""
    spec = find_spec(engine)
    if spec is None or spec.origin is None:
        pytest.skip(f"needs {engine}")
    package = Path(spec.origin).parent
    shutil.copytree(package, tmp_path / engine, ignore=shutil.ignore_patterns("__pycache__"))
    patch = ROOT / "examples" / "upstream" / f"{engine}.patch"
    subprocess.run(["patch", "-p1", "--input", patch], cwd=tmp_path, check=True)
    path = os.pathsep.join([str(tmp_path), str(ROOT), *filter(None, sys.path)])
    tests = [*(tmp_path / "tests").rglob("test_*.py"), ROOT / f"tests/engines/upstream_{engine}.py"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--noconftest", *tests],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
