"""Outputs are replaced as a whole: a killed or failed writer leaves the old file."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ascribe.steps.atomic import replacing, write_file

WRITER = """
import sys, time
from ascribe.steps.atomic import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half of the new ")
    file.flush()
    print("written", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_error_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    write_file(path, "old")
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"new", "not bytes"])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert names(tmp_path) == ["steps.jsonl"]
    assert write_file(path, "né") == 3
    assert path.read_text(encoding="utf-8") == "né"


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    write_file(path, "old")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "written\n"
        (draft,) = [name for name in names(tmp_path) if name.endswith(".draft")]
        write_file(path, "of another")  # a draft in use is left alone
        assert draft in names(tmp_path)
        process.send_signal(signal.SIGKILL)
    assert path.read_text() == "of another"
    write_file(path, "new")
    assert names(tmp_path) == ["steps.jsonl"]


def test_two_writers_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    with replacing(path) as one, replacing(path) as other:
        one.write(b"one " * 10_000)
        other.write(b"other")
    assert path.read_bytes() == b"one " * 10_000


def test_links_permissions_and_devices(tmp_path: Path) -> None:
    path, link = tmp_path / "a.html", tmp_path / "link.html"
    write_file(path, "old")
    path.chmod(0o640)
    link.symlink_to(path.name)
    write_file(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    write_file(os.devnull, "anything")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path, "anything")
    with pytest.raises(FileNotFoundError) as error:
        write_file(tmp_path / "none" / "a.html", "anything")
    assert error.value.filename == str(tmp_path / "none" / "a.html")
    write_file(tmp_path / ("é" * 127), "a name as long as a name can be")
