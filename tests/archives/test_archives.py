"""Archives are credited in parts, and the result is that of the whole table in memory."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from ascribe import StepTable, recipe
from ascribe.archives import (
    check_archive,
    convert,
    credit_archive,
    run,
    sample_archive,
)
from ascribe.archives.partition import ArchiveParts, keys_of
from ascribe.archives.places import Place, open_archive
from ascribe.cli import app, decisions
from ascribe.decisions import find_decisions
from ascribe.estimators.assign import assign
from ascribe.estimators.credit import credit_arrays, credit_columns
from ascribe.reports import picture
from ascribe.steps.check import check
from ascribe.steps.files import Rollouts, read, read_parts, table_to_arrow, write
from ascribe.steps.problems import ProblemKind, TableError
from ascribe.steps.table import KNOWN_COLUMNS
from tests.estimators.test_events import sessions

SMALL = 1
"""Bytes of memory: parts are as small as can be."""


def steps(groups: int = 60, *, seed: int = 0, width: int = 0) -> dict[str, Any]:
    """Columns of tasks of four trajectories of about 12 steps, a quarter of them alone."""
    random = np.random.default_rng(seed)
    length = random.integers(6, 20, groups * 4)
    trajectory = np.repeat(np.arange(length.size), length)
    step = np.arange(trajectory.size) - np.repeat(np.cumsum(length) - length, length)
    group = trajectory // 4
    state = group * 10 + random.integers(0, 8, step.size)
    state = np.where(random.random(step.size) < 0.25, 10_000 + np.arange(step.size), state)
    last = step == np.repeat(length, length) - 1
    columns = {
        "group": [f"task {n}" for n in group],
        "trajectory": [f"run {n}" for n in trajectory],
        "step": step,
        "state": [f"shelf {n}" for n in state],
        "action": [f"go to {n}" for n in random.integers(0, 3, step.size)],
        "reward": np.where(last, random.choice([0.0, 1.0, 0.3], size=step.size), 0.0),
        "valid": random.random(step.size) < 0.9,
        "terminated": last,
        "note": [f"row {n}" if n % 3 else None for n in range(step.size)],
    }
    if width:
        centre = np.random.default_rng(1).normal(size=(state.max() + 1, width))
        vectors = centre[state] + 0.05 * random.normal(size=(step.size, width))
        columns["fingerprint"] = list(vectors.astype(np.float32))
    return columns


def written(
    folder: Path, columns: dict[str, Any], *, files: int = 3, order: Any = None, rows: int = 500
) -> Path:
    """The columns as files of a folder, in small row groups."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if order is not None:
        table = table.take(pa.array(order))
    folder.mkdir()
    for number in range(files):
        first, last = (table.num_rows * n // files for n in (number, number + 1))
        part = table.slice(first, last - first)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=rows)
    return folder


def in_memory(folder: Path, estimator: Any, policy: Any = "raise") -> pa.Table:
    """What the command writes for the whole table."""
    whole = folder.with_suffix(".parquet")
    if folder.is_dir():
        pq.write_table(pq.read_table(folder), whole)
    rollouts = read(whole if folder.is_dir() else folder)
    table = table_to_arrow(rollouts.table)
    for name in rollouts.carried.column_names:
        table = table.append_column(name, rollouts.carried.column(name))
    credit = assign(rollouts.table, estimator, policy).credit
    for name, column in credit_columns(credit_arrays(credit)).items():
        table = table.append_column(name, column)
    write(table, whole)
    return plain(whole)


def plain(path: Path) -> pa.Table:
    """A table with text as text; its schema is compared before."""
    table = pq.read_table(path)
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_coded = pa.types.is_dictionary(column.type)
        columns[f"{name}: {column.type}"] = column.cast(pa.string()) if is_coded else column
    return pa.table(columns).combine_chunks()


def hidden(folder: Path) -> list[str]:
    """What a run leaves beside its output."""
    return sorted(path.name for path in folder.glob(".*"))


def same(first: pa.Table, second: pa.Table) -> bool:
    assert first.column_names == second.column_names
    return bool(first.equals(second))


@pytest.mark.parametrize(
    ("order", "name", "parameters"),
    [
        ("sorted", "gigpo", {}),
        ("in large row groups", "gigpo", {}),
        ("scattered", "gigpo", {}),
        ("scattered", "sbc", {"states": "exact"}),
        ("scattered", "bipace_q", {}),
        ("scattered", "ibpo", {"compare": "consistency"}),
    ],
)
def test_parts_give_the_bits_of_the_whole(
    tmp_path: Path, order: str, name: str, parameters: dict[str, Any]
):
    columns = steps(width=8 if name == "bipace_q" else 0)
    size = len(columns["step"])
    places = np.random.default_rng(3).permutation(size) if order == "scattered" else None
    large = {"files": 1, "rows": size} if order == "in large row groups" else {}
    source = written(tmp_path / "in", columns, order=places, **large)
    estimator = recipe(name, **parameters)
    expected = in_memory(source, estimator)
    for out in (tmp_path / "out.parquet", tmp_path / "out"):
        credited = credit_archive(source, out, estimator, memory=SMALL)
        assert same(plain(out), expected)
        assert credited.diagnosis.rows == size
        assert not (tmp_path / f".{out.name}.ascribe").exists()


def test_a_part_that_is_dropped_has_no_terms(tmp_path: Path):
    columns = steps(40)
    first = columns["group"].index("task 10")
    columns["reward"][first : columns["group"].index("task 16")] = np.inf
    source = written(tmp_path / "in", columns)
    credit_archive(source, tmp_path / "out", recipe("gigpo"), "drop", memory=SMALL)
    assert same(plain(tmp_path / "out"), in_memory(source, recipe("gigpo"), "drop"))


def test_iterations_are_apart_and_a_recipe_may_need_one_as_a_whole(tmp_path: Path):
    parts = [steps(25, seed=seed) for seed in range(4)]  # names repeat
    columns = {name: [v for part in parts for v in part[name]] for name in parts[0]}
    columns["iteration"] = np.repeat(np.arange(4), [len(part["step"]) for part in parts])
    order = np.random.default_rng(0).permutation(len(columns["step"]))
    source = written(tmp_path / "in", columns, order=order)
    for name in ("gigpo", "reinforce_pp"):
        expected = in_memory(source, recipe(name))
        credit_archive(source, tmp_path / name, recipe(name), memory=1 << 30)
        assert same(plain(tmp_path / name), expected)
    large = written(tmp_path / "large", steps(200))
    with pytest.raises(ValueError, match="does not fit into memory"):
        credit_archive(large, tmp_path / "no", recipe("reinforce_pp"), memory=SMALL)
    assert not (tmp_path / "no").exists()


def test_damaged_groups_are_dropped_with_those_they_touch(tmp_path: Path):
    columns = steps()
    columns["group"][0] = None  # with the rest of its trajectory
    columns["reward"][500] = np.inf
    second = columns["group"].index("task 40")
    columns["trajectory"][second] = "run 20"  # a trajectory in two groups, and a gap
    columns["padding"] = np.zeros(len(columns["step"]), dtype=bool)
    columns["padding"][-3:] = True
    order = np.random.default_rng(5).permutation(len(columns["step"]))
    source = written(tmp_path / "in", columns, order=order)
    expected = in_memory(source, recipe("gigpo"), "drop")
    credited = credit_archive(source, tmp_path / "out", recipe("gigpo"), "drop", memory=SMALL)
    assert same(plain(tmp_path / "out"), expected)
    assert credited.dropped_groups > 3

    with pytest.raises(TableError) as refused:
        credit_archive(source, tmp_path / "no", recipe("gigpo"), memory=SMALL)
    assert not list(tmp_path.glob("no*"))
    assert hidden(tmp_path) == [".no.lock", ".out.lock"]
    in_parts = {problem.kind: problem.rows.tolist() for problem in refused.value.problems}
    row = np.flatnonzero(order == 500).tolist()
    assert in_parts[ProblemKind.NON_FINITE_REWARD] == row
    assert ProblemKind.TRAJECTORY_IN_TWO_GROUPS in in_parts


def test_check_finds_in_parts_what_it_finds_in_the_whole(tmp_path: Path):
    columns = steps()
    columns["reward"][7] = np.inf
    columns["state"][100] = ""
    source = written(tmp_path / "in", columns)
    report = check_archive(source, memory=SMALL, work=tmp_path / "work")
    whole = check(StepTable.from_columns({n: v for n, v in columns.items() if n != "note"}))
    across = {"uneven_groups", "state_across_tasks", "unknown_column"}
    counts = {n: c for n, c in report.counts().items() if n not in across}
    assert counts == {n: c for n, c in whole.counts().items() if n not in across}
    assert report.rows == len(columns["step"])
    first = next(p for p in report.problems if p.kind is ProblemKind.NON_FINITE_REWARD)
    assert first.rows.tolist() == [7]


@pytest.mark.parametrize("name", ["scan_task", "scatter_task", "credit_part", "write_task"])
def test_a_run_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    columns = steps(90)
    order = np.random.default_rng(0).permutation(len(columns["step"]))
    source, out = written(tmp_path / "in", columns, order=order), tmp_path / "out"
    task, done = getattr(run, name), list[int]()

    def dies(job: Any, number: int) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(number)
        task(job, number)

    with monkeypatch.context() as patch:
        patch.setattr(run, name, dies)
        with pytest.raises(KeyboardInterrupt):
            credit_archive(source, out, recipe("gigpo"), memory=SMALL)
    assert not out.exists()
    again: list[int] = []

    def counts(job: Any, number: int) -> None:
        again.append(number)
        task(job, number)

    with monkeypatch.context() as patch:
        patch.setattr(run, name, counts)
        credit_archive(source, out, recipe("gigpo"), memory=SMALL)
    assert again
    assert not set(done) & set(again)
    assert same(plain(out), in_memory(source, recipe("gigpo")))


def test_a_run_that_was_killed_while_it_cleaned_up_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, out = written(tmp_path / "in", steps(60)), tmp_path / "out"
    remove = Place.remove

    def dies(place: Place) -> None:
        files = sorted(Path(place.path).rglob("*[0-9].*[nw]"))  # .bin and .arrow
        if not files:
            remove(place)
            return
        for file in files[::2]:
            file.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Place, "remove", dies)
        with pytest.raises(KeyboardInterrupt):
            credit_archive(source, out, recipe("gigpo"), memory=SMALL)
    first = plain(out)
    credit_archive(source, out, recipe("gigpo"), memory=SMALL, force=True)
    assert same(plain(out), first)


def test_more_than_one_process_needs_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = written(tmp_path / "in", steps(4))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs Ray; pip install .*\[ray\]"):
        credit_archive(source, tmp_path / "out", recipe("gigpo"), ray="local")


def conversations(seed: int = 0) -> dict[str, Any]:
    """Columns of sessions with tool calls, some refused, some with ids that others write too."""
    rows = sessions(seed, tasks=24, attempts=4)
    random = np.random.default_rng(seed)
    for row in rows:
        row["version"] = f"v{hash_of(row['trajectory']) % 3}"
        if row["action"].startswith("{") and random.random() < 0.4:
            called = json.loads(row["action"])
            called["arguments"]["at"] = f"order_{random.integers(30):016d}a"
            row["action"] = json.dumps(called)
    return {name: [row[name] for row in rows] for name in rows[0]}


def hash_of(name: str) -> int:
    return sum(map(ord, name))


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize(
    "parameters", [{}, {"fallback": "returns", "normalise": "mean", "truncation": "exclude"}]
)
def test_events_are_fitted_to_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, parameters: dict[str, Any]
):
    columns = conversations()
    order = np.random.default_rng(1).permutation(len(columns["step"]))
    source = written(tmp_path / "in", columns, order=order)
    expected = in_memory(source, recipe("events", **parameters))
    monkeypatch.setattr(run, "divide", lambda *a, **k: ArchiveParts(count))
    credit_archive(source, tmp_path / "out", recipe("events", **parameters))
    found = plain(tmp_path / "out")
    assert found.column_names == expected.column_names
    for name, column, known in zip(found.column_names, found, expected, strict=True):
        if name.startswith("advantage"):
            assert column.is_null().equals(known.is_null())
            assert (
                np.abs(column.fill_null(0).to_numpy() - known.fill_null(0).to_numpy()).max() < 1e-9
            )
        else:
            assert column.equals(known)


def in_files(folder: Path, columns: dict[str, Any], count: int) -> Path:
    """The rows in no order, in so many files."""
    folder.mkdir()
    whole = pa.table(columns)
    whole = whole.take(np.random.default_rng(count).permutation(whole.num_rows))
    ends = np.linspace(0, whole.num_rows, count + 1).astype(int).tolist()
    for number in range(count):
        part = whole.slice(ends[number], ends[number + 1] - ends[number])
        pq.write_table(part, folder / f"{number:02d}.parquet", row_group_size=40 + 9 * count)
    return folder


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("memory", [1 << 30, 700_000])
def test_findings_of_an_archive_are_those_of_its_tasks_in_any_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, memory: int
):
    columns = conversations()
    source = in_files(tmp_path / "in", columns, count)
    rollouts, rows, size = sample_archive(source, memory, KNOWN_COLUMNS.__contains__)
    assert (rows.size == size) == (memory == 1 << 30)
    tasks = {*rollouts.table.group.texts()}
    alone = in_files(tmp_path / "alone", columns, 1)
    assert tasks == {
        *sample_archive(alone, memory, KNOWN_COLUMNS.__contains__)[0].table.group.values
    }
    chosen = np.flatnonzero([name in tasks for name in columns["group"]])
    assert rows.size == chosen.size
    table = StepTable.from_columns(columns).take(chosen)
    known = find_decisions(Rollouts(table, pa.table({}), pa.table({})))
    assert known.findings
    assert find_decisions(rollouts).as_dict() == known.as_dict()

    monkeypatch.setattr(decisions, "sample_archive", partial(sampled_within, memory))
    shown = CliRunner().invoke(app, ["decisions", str(source), "--json"])
    found = json.loads(shown.stdout)
    assert found["decisions"] == json.loads(json.dumps(known.as_dict()["decisions"]))
    assert ("A sample: " in found["notes"][0]) == (rows.size < size) if found["notes"] else True


def sampled_within(memory: int, source: Path, _: int, wanted: Any, **sessions: Any) -> Any:
    return sample_archive(source, memory, wanted, **sessions)


@pytest.mark.parametrize("after", [0, 7, 25])
def test_passes_that_were_killed_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int):
    source, out = written(tmp_path / "in", conversations()), tmp_path / "out"
    monkeypatch.setattr(run, "divide", lambda *a, **k: ArchiveParts(3))
    credit_archive(source, tmp_path / "whole", recipe("events"))
    task, done = run.pass_task, list[int]()

    def dies(what: Any, job: Any, number: int) -> None:
        task(what, job, number)
        done.append(number)
        if len(done) > after:  # what is kept was written, what was found was not
            job.work.child(what[-1].format(number)).remove()
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "pass_task", dies)
        with pytest.raises(KeyboardInterrupt):
            credit_archive(source, out, recipe("events"))
    credit_archive(source, out, recipe("events"))
    assert same(plain(out), plain(tmp_path / "whole"))


def test_events_of_an_archive_are_those_of_one_iteration(tmp_path: Path):
    columns = conversations()
    columns["iteration"] = [int(name[1:]) % 2 for name in columns["group"]]
    source = written(tmp_path / "in", columns)
    with pytest.raises(ValueError, match="carries statistics from iteration to iteration"):
        credit_archive(source, tmp_path / "out", recipe("events"), memory=SMALL)


def test_the_commands_take_folders(tmp_path: Path):
    source, out = written(tmp_path / "in", steps()), tmp_path / "out"
    ran = CliRunner().invoke(app, ["credit", str(source), "--out", str(out), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["diagnosis"]["rows"] == pq.read_table(out).num_rows
    again = CliRunner().invoke(app, ["credit", str(source), "--out", str(out)])
    assert again.exit_code == 2
    assert "not empty" in again.stderr
    checked = CliRunner().invoke(app, ["check", str(out), "--json"])
    assert json.loads(checked.stdout)["worst"] == "warning"
    damaged = next(out.glob("*.parquet"))
    contents = bytearray(damaged.read_bytes())
    contents[len(contents) // 2] ^= 1
    damaged.write_bytes(contents)
    broken = CliRunner().invoke(app, ["check", str(out), "--json"])
    assert broken.exit_code == 1
    assert json.loads(broken.stdout)["problems"][0]["kind"] == "unreadable_file"


def as_text(path: Path, columns: dict[str, Any]) -> Path:
    """The columns as JSON lines or CSV."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        write(table, path)
    return path


@pytest.mark.parametrize("name", ["steps.jsonl", "steps.jsonl.gz", "steps.csv"])
def test_text_larger_than_memory_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    columns = steps(40)
    size = len(columns["step"])
    columns["score"] = [None] * (size // 2) + [0.5] * (size - size // 2)
    if name == "steps.csv":  # which has the types of the first part
        columns["score"] = np.arange(size)
    source = as_text(tmp_path / name, columns)
    sizes: list[int] = []

    def parts(*arguments: Any) -> Any:
        for table in read_parts(*arguments, part_bytes=20_000):
            sizes.append(table.num_rows)
            yield table

    monkeypatch.setattr(convert, "read_parts", parts)
    assert run.is_archive(str(source), 500_000) is True
    assert run.is_archive(str(source), 1 << 30) is False
    expected = in_memory(source, recipe("gigpo"))
    credit_archive(source, tmp_path / "out", recipe("gigpo"), memory=SMALL)
    assert len(sizes) > 5
    assert same(plain(tmp_path / "out"), expected)
    report = check_archive(source, memory=SMALL, work=tmp_path / "work")
    assert report.rows == sum(sizes) / 2 == size
    rollouts, rows, _ = sample_archive(source, 1 << 30, KNOWN_COLUMNS.__contains__)
    assert rollouts.table.state.texts() == [columns["state"][row] for row in rows]
    assert hidden(tmp_path) == [".out.lock", ".work.lock"]


def test_text_that_is_read_in_parts_is_refused_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(convert, "read_parts", partial(read_parts, part_bytes=20_000))
    columns = steps(40)
    lines = as_text(tmp_path / "steps.jsonl", columns).read_text().splitlines()
    for name, value, first, message in (
        ("reward", "much", 1200, "column reward must be a number"),
        ("note", 3, 900, "column 'note' holds int64"),
    ):
        rows = [json.loads(line) | {name: value} for line in lines[first:-1]]
        source = tmp_path / f"{name}.jsonl"
        source.write_text("\n".join([*lines[:first], *map(json.dumps, rows), lines[-1]]))
        with pytest.raises(TableError) as refused:
            credit_archive(source, tmp_path / "out", recipe("gigpo"), memory=SMALL)
        problem = refused.value.problems[0]
        assert message in problem.detail
        assert name == "note" or problem.rows[0] == first
        assert hidden(tmp_path) == [".out.lock"]


def test_steps_without_a_parent_may_fill_a_part(tmp_path: Path):
    """Only the last task has a sub-agent."""
    columns = steps(40)
    size = len(columns["step"])
    columns["agent"] = ["main"] * size
    columns["parent"] = pa.array([None] * (size - 1) + [0], pa.int64())
    source = written(tmp_path / "in", columns)
    expected = in_memory(source, recipe("gigpo"))
    credit_archive(source, tmp_path / "out", recipe("gigpo"), memory=SMALL)
    assert same(plain(tmp_path / "out"), expected)


def test_keys_do_not_depend_on_the_process(tmp_path: Path):
    table = pa.table({"group": ["a", "b", None], "trajectory": ["x", "y", "y"]})
    keys, real, (trajectories,) = keys_of(table, by_group=True)
    assert keys[0] == 1448221015866675537
    assert keys[2] == trajectories[2] == trajectories[1]
    assert real.all()
    parts = ArchiveParts(4).part_of(keys, np.array([True, True, False]), 2)
    assert parts[2] == 0
    assert open_archive(written(tmp_path / "in", steps(4))).rows == len(steps(4)["step"])


def test_a_report_on_a_large_archive_reads_a_sample_of_whole_groups(tmp_path: Path):
    columns = steps(200)
    source = written(tmp_path / "in", columns)
    rollouts, rows, size = sample_archive(source, 2_000_000, KNOWN_COLUMNS.__contains__)
    assert size == len(columns["step"])
    assert 0.02 * size < rows.size < 0.9 * size
    table = rollouts.table
    assert table.state.texts() == [columns["state"][row] for row in rows]
    names, counts = np.unique(columns["group"], return_counts=True)
    whole = dict(zip(names, counts, strict=True))
    sampled, counts = np.unique(np.array(table.group.texts()), return_counts=True)
    assert [whole[name] for name in sampled] == counts.tolist()
    page = picture([source], recipe("gigpo"), memory=2_000_000)
    assert "a sample of whole groups" in page.notes[0]
    everything = picture([source], recipe("gigpo"))
    assert everything.facts.diagnosis.rows == size
    assert not everything.notes
