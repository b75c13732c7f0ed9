"""Output that cannot be written: a pipe whose reader has gone, a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ascribe.steps.files import write_table
from tests.decisions.test_decisions import sessions
from tests.decisions.test_versions import version

pytestmark = pytest.mark.unit

COMMANDS = (
    "--version",
    "--help",
    "check FILE",
    "credit FILE --out -",
    "decisions FILE --json",
    "decisions FILE --fail-if success<0",
    "decisions FILE --fail-if success<2",
    "decisions FILE FILE --fail-if drop>0.5",
    "states FILE",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pipes") / "maze.parquet"
    write_table(sessions(*version(16)), path)
    return path


def ends(command: str, file: Path, out: int, err: int) -> "subprocess.CompletedProcess[str]":
    words = [str(file) if word == "FILE" else word for word in command.split()]
    return subprocess.run(
        [sys.executable, "-m", "ascribe", *words],
        stdout=out,
        stderr=err,
        text=True,
        check=False,
    )


def closed() -> int:
    """The end to write to of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_pipe_is_never_code_1(command: str, file: Path) -> None:
    """Code 1 says that a gate's condition holds; nothing else may."""
    writer = closed()
    done = ends(command, file, writer, subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("command", ["nonsense", "decisions missing.jsonl", "decisions FILE -x"])
def test_nobody_reads_the_error(command: str, file: Path) -> None:
    writer = closed()
    done = ends(command, file, subprocess.PIPE, writer)
    os.close(writer)
    assert done.returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["--version", "recipes", "decisions FILE", "check FILE --json"])
def test_a_full_disk_is_told(command: str, file: Path) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 (a device)
        done = ends(command, file, full.fileno(), subprocess.PIPE)
    assert done.returncode == 2
    assert "error: cannot write to standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_read_before_the_reader_left_is_whole(file: Path) -> None:
    words = [sys.executable, "-m", "ascribe", "decisions", str(file), "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "{\n"
        run.stdout.close()
        assert run.wait() in (0, 2)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for command in ("states", "decisions", "check", "show"):
        done = ends(f"{command} FILE", empty, subprocess.PIPE, subprocess.PIPE)
        assert done.returncode == 1, command
    gate = ends("decisions FILE --fail-if success<1", empty, subprocess.PIPE, subprocess.PIPE)
    assert gate.returncode == 2
