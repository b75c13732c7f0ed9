"""Outputs are replaced as a whole: a killed or failed writer leaves the old file.

``benchmarks/attack/kill_writers.py`` and ``full_disk.py`` measure more.
"""

import gzip
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ascribe import StepTable, write_table
from ascribe.steps.atomic import replacing, replacing_folder, write_file
from ascribe.steps.files import read_table
from ascribe.steps.problems import TableError
from tests.conftest import good_rows, write_jsonl

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


def test_a_folder_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    model = tmp_path / "runs" / "model"
    with pytest.raises(OSError, match="full"), replacing_folder(model) as draft:
        write_and_fail(draft / "model.safetensors")
    assert names(tmp_path / "runs") == []
    (tmp_path / "runs" / f".model.{'0' * 16}.draft").mkdir()  # of a killed writer
    with replacing_folder(model) as draft:
        (draft / "model.safetensors").write_text("weights")
        (draft / "parts").mkdir()
        (draft / "parts" / "1").write_text("one")
    (model / "notes.txt").write_text("mine")
    with replacing_folder(model) as draft:
        (draft / "model.safetensors").write_text("other weights")
    assert names(tmp_path / "runs") == ["model"]
    assert names(model) == [".ascribe.json", "model.safetensors", "notes.txt"]
    assert (model / "model.safetensors").read_text() == "other weights"


def write_and_fail(path: Path) -> None:
    path.write_text("half of the wei")
    raise OSError("the disk is full")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_json_lines_that_were_cut_short_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    table = StepTable.from_dicts(good_rows())
    write_table(table, path)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    assert len(lines) == 51
    for kept in range(1, 51):
        with opened(path, "wb") as file:
            file.write(b"".join(lines[:kept]))
        with pytest.raises(TableError, match=f"without its end mark, after {kept} rows"):
            read_table(path)
    with opened(path, "wb") as file:
        file.write(b"".join(lines[:20] + lines[21:]))
    with pytest.raises(TableError, match="49 rows, and its end mark says 50"):
        read_table(path)
    with opened(path, "wb") as file:
        file.write(b"".join(lines).rstrip())  # without the end of the last line, it is whole
    assert read_table(path).to_dicts() == table.to_dicts()


def test_json_lines_of_others_and_several_in_one_are_accepted(tmp_path: Path) -> None:
    rows = good_rows()
    assert len(read_table(write_jsonl(tmp_path / "others.jsonl", rows[:7]))) == 7
    table = StepTable.from_dicts(rows)
    for name, part in (("a", slice(20)), ("none", slice(0)), ("b", slice(20, None))):
        write_table(table.take(np.arange(50)[part]), tmp_path / f"{name}.jsonl")
    parts = [(tmp_path / name).read_bytes() for name in ("a.jsonl", "none.jsonl", "b.jsonl")]
    (tmp_path / "all.jsonl").write_bytes(b"".join(parts))
    assert read_table(tmp_path / "all.jsonl").to_dicts() == table.to_dicts()


def rollouts(path: Path, rows: int) -> Path:
    columns = {"group": ["g"] * rows, "trajectory": [f"t{n // 8}" for n in range(rows)]}
    texts = {name: [f"{name} {n}" for n in range(rows)] for name in ("state", "action")}
    steps = {"step": np.arange(rows) % 8, "reward": np.arange(rows) / 8}
    write_table(StepTable.from_columns(columns | texts | steps), path)
    return path


def test_credit_killed_while_it_writes_leaves_the_old_file(tmp_path: Path) -> None:
    path, out = rollouts(tmp_path / "a.parquet", 20_000), tmp_path / "b.jsonl"
    write_table(StepTable.from_dicts(good_rows()), out)
    before = out.read_bytes()
    words = ["credit", str(path), "--out", str(out)]
    code = "import sys; from ascribe.cli import app; app(sys.argv[1:])"
    with subprocess.Popen([sys.executable, "-c", code, *words]) as process:
        while process.poll() is None:
            draft_begun = any(name.endswith(".draft") for name in names(tmp_path))
            if draft_begun or out.read_bytes() != before:
                process.kill()
    assert process.returncode == -signal.SIGKILL
    assert out.read_bytes() == before
    assert len(read_table(out)) == 50
