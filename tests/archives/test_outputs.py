"""Outputs of archives: one writer at a time, swapped as a whole, no file of others destroyed."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from typer.testing import CliRunner

from ascribe import recipe
from ascribe.archives import credit_archive, places, run
from ascribe.archives.places import Place, open_archive
from ascribe.cli import app
from ascribe.steps.atomic import replacing_folder
from tests.archives.test_archives import (
    SMALL,
    as_text,
    hidden,
    in_memory,
    plain,
    same,
    steps,
    written,
)
from tests.conftest import good_rows

LIST = ".ascribe.json"
WHERE = ["path", "file", "objects"]
OWN = """
from dataclasses import dataclass
from ascribe.estimators.gigpo import GiGPO
from helper import FACTOR

@dataclass(frozen=True, kw_only=True)
class Mine(GiGPO):
    name = "mine"

    def rewards(self, steps):
        return FACTOR * super().rewards(steps)
"""


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def call(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def location(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str) -> Any:
    """Names a folder by its path, by a URI, or as objects that are not local files."""
    if where != "objects":
        return lambda name: f"file://{tmp_path}/{name}"[7 * (where == "path") :]
    system, real = SubTreeFileSystem(str(tmp_path.parent), LocalFileSystem()), places._opened
    begin = "objects://KEY:SECRET@"

    def opened(uri: str) -> Any:
        return (system, uri.removeprefix(begin)) if uri.startswith(begin) else real(uri)

    monkeypatch.setattr(places, "_opened", opened)
    return lambda name: f"{begin}{tmp_path.name}/{name}"


@contextmanager
def during(name: str, then: Callable[[], object], after: int) -> Iterator[list[Any]]:
    """Call something before a task of the run, once some others are done; gives those done."""
    task, done, called = getattr(run, name), list[Any](), list[bool]()

    def replaced(job: Any, number: Any) -> None:
        if len(done) == after and not called:
            called.append(True)
            then()
        done.append(number)
        task(job, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, name, replaced)
        yield done


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", WHERE)
def test_a_second_run_on_one_output_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: Any
) -> None:
    source, refused = written(tmp_path / "in", steps(90)), list[BaseException]()

    def second() -> None:
        with pytest.raises(BlockingIOError) as error:
            credit_archive(source, location("out"), recipe("grpo"), memory=SMALL)
        refused.append(error.value)

    with during("credit_part", second, after=1):
        credit_archive(source, location("out"), recipe("gigpo"), memory=SMALL)
    assert "another run is writing it" in str(refused[0])
    assert "SECRET" not in str(refused[0])
    monkeypatch.undo()
    assert same(plain(tmp_path / "out"), in_memory(source, recipe("gigpo")))
    assert not list(tmp_path.glob(".out.leases/*"))


@pytest.mark.parametrize("where", ["objects"])
def test_a_lease_that_a_killed_run_left_is_named(tmp_path: Path, location: Any) -> None:
    source = written(tmp_path / "in", steps(10))
    (tmp_path / ".out.leases").mkdir()
    (tmp_path / ".out.leases" / "left").touch()
    with pytest.raises(BlockingIOError, match=r"remove its lease subtree://.*/\.out\.leases/left"):
        credit_archive(source, location("out"), recipe("gigpo"), memory=SMALL)
    (tmp_path / ".out.leases" / "left").unlink()
    credit_archive(source, location("out"), recipe("gigpo"), memory=SMALL)


@pytest.mark.parametrize("changed", ["mine.py", "helper.py", "parts/core.py", "nothing"])
def test_a_run_does_not_go_on_with_the_credit_of_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    code = tmp_path / "code"
    (code / "parts").mkdir(parents=True)
    (code / "mine.py").write_text(OWN)
    (code / "helper.py").write_text("from parts.core import FACTOR\n")
    (code / "parts" / "core.py").write_text("FACTOR = 1.0\n")
    monkeypatch.syspath_prepend(code)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = ("helper", "mine", "parts", "parts.core")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    columns = steps(90)
    order = np.random.default_rng(0).permutation(len(columns["step"]))
    source, out = written(tmp_path / "in", columns, order=order), tmp_path / "out"
    mine = importlib.import_module("mine")
    with during("credit_part", interrupt, after=2) as done, pytest.raises(KeyboardInterrupt):
        credit_archive(source, out, mine.Mine(), memory=SMALL)
    if changed == "mine.py":
        (code / "mine.py").write_text(OWN.replace("FACTOR *", "-3 *"))
    elif changed != "nothing":
        (code / changed).write_text("FACTOR = -3.0\n")
    importlib.invalidate_caches()
    for name in names:
        sys.modules.pop(name)
    again = importlib.import_module("mine").Mine()
    with during("credit_part", interrupt, after=-1) as redone:
        credit_archive(source, out, again, memory=SMALL)
    assert set(done) <= set(redone) or changed == "nothing"
    assert not set(done) & set(redone) or changed != "nothing"
    assert same(plain(out), in_memory(source, again))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("way", ["another path", "renamed", "copied"])
def test_a_run_does_not_go_on_with_the_credit_of_another_input(
    tmp_path: Path, kind: str, way: str
) -> None:
    columns, out = steps(90), tmp_path / "out"
    files = [tmp_path / name / f"in.{kind}" for name in ("first", "second")]
    for file in files:
        file.parent.mkdir()
        columns["reward"] = 1.0 - np.round(columns["reward"])
        if kind == "jsonl":
            as_text(file, columns)
        else:
            table = pa.table(columns)
            pq.write_table(table, file, compression="none", use_dictionary=False)
        os.utime(file, (1e9, 1e9))
    first, second = files
    assert first.stat().st_size == second.stat().st_size
    with during("credit_part", interrupt, after=2) as done, pytest.raises(KeyboardInterrupt):
        credit_archive(first, out, recipe("gigpo"), memory=SMALL)
    assert done
    shutil.copy2(second, tmp_path / second.name)
    if way == "renamed":
        second.replace(first)
    elif way == "copied":
        shutil.copy2(second, first)
    source = second if way == "another path" else first
    credit_archive(source, out, recipe("gigpo"), memory=SMALL)
    assert same(plain(out), in_memory(tmp_path / second.name, recipe("gigpo")))


@pytest.mark.parametrize("stage", ["credit_part", "write_task"])
def test_a_damaged_intermediate_result_is_never_used(tmp_path: Path, stage: str) -> None:
    columns = steps(60)
    order = np.random.default_rng(0).permutation(len(columns["step"]))
    source, out = written(tmp_path / "in", columns, order=order), tmp_path / "out"
    expected, kinds = in_memory(source, recipe("gigpo")), set[str]()
    while True:
        with during(stage, interrupt, after=1), pytest.raises(KeyboardInterrupt):
            credit_archive(source, out, recipe("gigpo"), memory=SMALL)
        files = [path for path in (tmp_path / ".out.ascribe").rglob("*") if path.is_file()]
        left = [path for path in files if path.name.split("-")[0] not in kinds]
        left = sorted(
            (p for p in left if p.suffix != ".parquet"), key=lambda p: p.name
        )  # which have a seal
        if not left:
            break
        kinds.add(left[0].name.split("-")[0])
        damaged = bytearray(left[0].read_bytes())
        damaged[len(damaged) // 2] ^= 4
        left[0].write_bytes(damaged)
        try:
            credit_archive(source, out, recipe("gigpo"), memory=SMALL)
        except ValueError as error:
            assert f"{left[0].name} is damaged" in str(error)  # noqa: PT017
            credit_archive(source, out, recipe("gigpo"), memory=SMALL)
        assert same(plain(out), expected)
        shutil.rmtree(out)
    assert {"pairs", "rows", "part", "credit", "plan.json"} <= kinds


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_others_is_never_an_output(
    tmp_path: Path, location: Any, where: str, *, force: bool
) -> None:
    source = written(tmp_path / "in", steps(20))
    important = tmp_path / "important"
    (important / "deep").mkdir(parents=True)
    (important / "deep" / "thesis.txt").write_text("the only copy")
    before, options = contents(tmp_path), ["--force"] * force
    refused = call("credit", location("in"), "--out", location("important"), *options)
    assert refused.exit_code == 2
    assert "deep/thesis.txt" in refused.stderr
    for out in ("in", "in/new", "in/../in", "."):
        again = call("credit", location("in"), "--out", location(out), *options)
        assert again.exit_code == 2, out
    link = tmp_path / "link"
    link.symlink_to(source)
    assert call("credit", source, "--out", link, *options).exit_code == 2
    link.unlink()
    (tmp_path / "notes").write_text("mine")
    assert call("credit", location("in"), "--out", location("notes"), *options).exit_code == 2
    (tmp_path / "notes").unlink()
    assert {k: v for k, v in contents(tmp_path).items() if not k.startswith(".")} == {
        k: v for k, v in before.items() if not k.startswith(".")
    }
    assert not list(source.glob(".*.ascribe"))


@pytest.mark.parametrize("where", WHERE)
def test_force_replaces_what_an_earlier_run_wrote_and_nothing_else(
    tmp_path: Path, location: Any, where: str
) -> None:
    source, small = written(tmp_path / "in", steps(60)), written(tmp_path / "less", steps(3))
    out, words = tmp_path / "out", ["--out", location("out"), "--memory", "0.5"]
    assert call("credit", location("in"), *words).exit_code == 0
    first = open_archive(location("out")).rows
    assert first == pq.read_table(source).num_rows
    refused = call("credit", location("less"), *words)
    assert refused.exit_code == 2
    assert "add --force" in refused.stderr
    replaced = call("credit", location("less"), *words, "--force")
    assert replaced.exit_code == 0, replaced.output
    assert "SECRET" not in replaced.output
    rows = pq.read_table(small).num_rows
    assert open_archive(location("out")).rows == pq.read_table(out).num_rows == rows
    (out / "mine.txt").write_text("mine")
    refused = call("credit", location("in"), *words, "--force")
    assert refused.exit_code == 2
    assert "mine.txt" in refused.stderr
    assert (out / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("where", ["objects"])
def test_objects_of_two_outputs_are_never_read_together_whatever_is_killed(
    tmp_path: Path, location: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, small = written(tmp_path / "in", steps(40)), written(tmp_path / "less", steps(3))
    sizes = [pq.read_table(source).num_rows, pq.read_table(small).num_rows]
    credit_archive(source, location("out"), recipe("gigpo"), memory=SMALL)
    write, left = Place.write, list[int]()

    def dies(place: Place, contents: bytes) -> None:
        write(place, contents)
        if place.name == LIST and not left.pop():
            raise KeyboardInterrupt

    def killed(number: int) -> None:
        left[:] = [*range(number + 1)]
        with monkeypatch.context() as patch:
            patch.setattr(Place, "write", dies)
            with pytest.raises(KeyboardInterrupt):
                credit_archive(small, location("out"), recipe("gigpo"), memory=SMALL, force=True)

    killed(0)  # before the files are moved
    assert open_archive(location("out")).rows == sizes[0]
    killed(1)  # after that
    with pytest.raises(ValueError, match=r"of \d+ files in out are unfinished"):
        open_archive(location("out"))
    credit_archive(small, location("out"), recipe("gigpo"), memory=SMALL, force=True)
    assert open_archive(location("out")).rows == sizes[1]
    assert pq.read_table(tmp_path / "out").num_rows == sizes[1]


@pytest.mark.parametrize("command", ["check", "credit", "report"])
@pytest.mark.parametrize(
    ("contents", "said"),
    [
        ('{"unfinished": ["0.parquet", "2.parquet"]}', "2 of 3 files in in are unfinished"),
        ('{"files": 5}', "is damaged hint: remove it"),
        ("[", "is damaged hint: remove it"),
        ("\udcff", "is damaged hint: remove it"),
    ],
)
def test_a_list_among_the_data_hides_no_file(
    tmp_path: Path, command: str, contents: str, said: str
) -> None:
    source = written(tmp_path / "in", steps(20))
    out = tmp_path / ("out.html" if command == "report" else "out")
    (source / LIST).write_bytes(contents.encode(errors="surrogateescape"))
    refused = call(command, source, "--json", *(["--out", out] if command != "check" else []))
    assert refused.exit_code in (1, 2)
    assert isinstance(refused.exception, SystemExit)
    assert said in " ".join(refused.output.split())
    assert not out.exists()


@pytest.mark.parametrize("source", ["in", "steps.jsonl"])
def test_a_folder_in_the_place_of_an_output_file_is_refused_at_once(
    tmp_path: Path, source: str
) -> None:
    written(tmp_path / "in", steps(20))
    as_text(tmp_path / "steps.jsonl", steps(20))
    out = tmp_path / "out.parquet"
    out.mkdir()
    refused = call("credit", tmp_path / source, "--out", out)
    assert refused.exit_code == 2
    assert "is a folder hint: name a file that can be replaced" in " ".join(refused.stderr.split())
    assert not hidden(tmp_path)
    assert not list(out.iterdir())


def test_a_link_stays_a_link_and_paths_are_resolved(tmp_path: Path) -> None:
    source, real, link = written(tmp_path / "in", steps(9)), tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    assert call("credit", source, "--recipe", "gigpo", "--out", link).exit_code == 0
    assert (
        call(
            "credit",
            source,
            "--recipe",
            "gigpo",
            "--out",
            tmp_path / "real" / ".." / "link",
            "--force",
        ).exit_code
        == 0
    )
    assert link.is_symlink()
    assert same(plain(real), in_memory(source, recipe("gigpo")))
    assert hidden(tmp_path) == [".real.lock"]


KILLED = """
import os, signal, sys
from pathlib import Path
count, path = int(sys.argv[1]), sys.argv[2]

def hook(event, arguments):
    global count
    if event in ("os.rename", "os.remove", "os.rmdir") and path in str(arguments):
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)

from ascribe.steps.atomic import replacing_folder
with replacing_folder(path) as draft:
    for number in range(5):
        (draft / f"{number}.parquet").write_text("new")
    sys.addaudithook(hook)
"""


def test_a_folder_is_swapped_as_a_whole_whatever_is_killed(tmp_path: Path) -> None:
    out, states, count = tmp_path / "out", list[str](), 0
    while True:
        with replacing_folder(out) as draft:
            for number in range(7):
                (draft / f"{number}.parquet").write_text("old")
        (out / "mine.txt").write_text("mine")
        words = [sys.executable, "-c", KILLED, str(count), str(out)]
        code = subprocess.run(words, check=False).returncode
        files = sorted(out.glob("*.parquet"))
        found = {path.read_text() for path in files}
        states.append(f"{found} {len(files)}")
        assert (found, len(files)) in [(set(), 0), ({"old"}, 7), ({"new"}, 5)]
        with replacing_folder(out) as draft:
            (draft / "0.parquet").write_text("next")
        assert (out / "mine.txt").read_text() == "mine"
        assert sorted(path.name for path in out.iterdir()) == [LIST, "0.parquet", "mine.txt"]
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        if code == 0:
            break
        assert code == -signal.SIGKILL
        count += 1
    assert len(set(states)) == 3  # the old one, none (between the renames), the new one


def test_the_next_call_puts_back_what_a_kill_between_the_renames_left(tmp_path: Path) -> None:
    source, out = written(tmp_path / "in", steps(20)), tmp_path / "out"
    assert call("credit", source, "--out", out).exit_code == 0
    before = contents(out)
    out.rename(tmp_path / f".out.{'0' * 16}.old")
    refused = call("credit", source, "--out", out)
    assert refused.exit_code == 2
    assert "add --force" in refused.stderr
    assert contents(out) == before


def test_import_into_a_folder_has_the_same_guard(tmp_path: Path) -> None:
    lines = [
        {"task": "t", "reward": n % 2, "messages": [{"role": "user", "content": "go"},
         {"role": "assistant", "content": f"left {n}"}]} for n in range(4)
    ]  # fmt: skip
    traces = tmp_path / "traces" / "a.jsonl"
    traces.parent.mkdir()
    traces.write_text("\n".join(map(json.dumps, lines)))
    out, words = tmp_path / "out", ["--group", "task"]
    assert call("import", traces, "--out", out, *words).exit_code == 0
    assert call("import", traces, "--out", out, *words).exit_code == 2
    assert call("import", traces, "--out", out, *words, "--force").exit_code == 0
    (out / "mine.txt").write_text("mine")
    for place, options in ((out, ["--force"]), (traces.parent, ["--force"]), (tmp_path, [])):
        refused = call("import", traces, "--out", place, *words, *options)
        assert refused.exit_code == 2
    assert (out / "mine.txt").exists()
    assert traces.exists()


@pytest.mark.parametrize("command", ["credit", "check"])
@pytest.mark.parametrize("json_", [[], ["--json"]])
@pytest.mark.parametrize(
    "uri",
    [
        "s3://KEY:SECRET@bucket/in?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1",
        "s3://KEY:SEC/SECRET@bucket/in",
        "nope://KEY:SECRET@bucket/in",
    ],
)
def test_credentials_are_not_shown(
    tmp_path: Path, command: str, json_: list[str], uri: str
) -> None:
    out = ["--out", uri + "/out"] if command == "credit" else []
    shown = call(command, uri, *out, *json_)
    assert shown.exit_code == 2
    assert shown.stderr
    assert "SECRET" not in shown.output + str(shown.exception)
    assert "SECRET" not in repr(Place(uri, "bucket/in"))
    if command == "credit":
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, good_rows())))
        shown = call("credit", tmp_path / "a.jsonl", "--out", uri, *json_)
        assert shown.exit_code == 2
        assert "SECRET" not in shown.output + str(shown.exception)
