"""Credit by events of archives of 10,000 to a million real sessions: CPU, memory, the exponent.

    python benchmarks/scale_events.py [--quick] [--sessions 10000 30000 100000] [--folder FOLDER]

Each task is a task of a log of real agents that has 8 attempts or more, with 8 of its sessions, and
its digits other than 0 changed for others. Calls are then as usual in their task as in the log, and
not the same in two tasks. ``ascribe credit --recipe events`` runs in one process and 2 GiB, with
one thread for matrices, since threads that wait for a shared core count as CPU time. The exponent
is that of CPU seconds by sessions, between two sizes. One iteration of training is credited in
memory: 16 tasks of 8 sessions of 50 steps, attempts at real tasks one after the other. The logs lie
in the folder ``real`` of ``ASCRIBE_TEST_DATA``. Archives stay in ``--folder``, and a run that was
killed goes on there.
"""

import itertools
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import common
import pyarrow as pa
import pyarrow.parquet as pq
import scale

from ascribe import StepTable, recipe
from ascribe.sessions.reading import import_files

LOGS = ("tau2_airline", "tau_bench_retail", "tau_bench_checked")
ATTEMPTS, TASKS_OF_FILE = 8, 1000
GROUPS, STEPS = 16, 50
TEXTS = ("state", "action")


def main() -> None:
    """Measure every size."""
    sizes = {"type": int, "nargs": "+", "default": [10_000, 30_000, 100_000]}
    place = {"type": Path, "help": "where to keep archives"}
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with common.Figures("scale_events", sessions=sizes, folder=place) as figures:
        iteration(figures)
        sessions = [1000, 3000] if figures.quick else figures.options.sessions
        with tempfile.TemporaryDirectory() as folder:
            kept, spent = figures.options.folder or Path(folder), list[tuple[int, float]]()
            for size in sessions:
                if not (source := kept / f"events-{size}").exists():
                    archive(source, size)
                out = ["--out", str(kept / f"credited-{size}"), "--force"]
                command = [*common.COMMAND, "credit", str(source), *out, "--recipe", "events"]
                cpu, wall, peak = scale.run(command)
                spent.append((size, cpu))
                case = f"{size:,} sessions"
                rows = sum(pq.ParquetFile(f).metadata.num_rows for f in source.iterdir())
                figures.emit(case, "rows", rows, "", better="higher")
                goal = 600.0 if size == 1_000_000 else None
                figures.emit(case, "cpu", cpu, "s", goal=goal, better="lower")
                figures.emit(case, "wall", wall, "s", better="lower")
                figures.emit(case, "peak", peak / 2**30, "GiB", goal=2.0, better="lower")
            figures.emit_exponents(spent, "{first:,} to {last:,} sessions")


def iteration(figures: common.Figures) -> None:
    """Credit of one iteration, without the comparison with shuffled outcomes and with it."""
    tasks, rows = real_tasks(), list[dict[str, Any]]()
    for task in range(GROUPS):
        attempts: list[list[dict[str, Any]]] = [[] for _ in range(ATTEMPTS)]
        for number in itertools.count(1000 * task):
            if min(map(len, attempts)) >= STEPS:
                break
            for row in varied(tasks, number).to_pylist():
                attempts[int(row["trajectory"].rpartition("/")[2])].append(row)
        for attempt, given in enumerate(attempts):
            names = {"group": f"{task}", "trajectory": f"{task}/{attempt}", "terminated": False}
            kept = [row | names | {"step": step} for step, row in enumerate(given[:STEPS])]
            rows += [*kept[:-1], kept[-1] | {"terminated": True}]
    table = StepTable.from_dicts(rows)
    works = {
        f"{name}, {len(rows):,} rows": common.Work(lambda: replace(table), made)
        for name, made in (
            ("one iteration", recipe("events", shuffles=0)),
            ("one iteration with shuffled outcomes", recipe("events")),
        )
    }
    for case, measured in common.interleaved(works, rounds=9).items():
        goal = None if "shuffled" in case else 0.05
        figures.emit(case, "cpu", measured.cpu, "s", goal=goal, better="lower")


def real_tasks() -> list[list[pa.Table]]:
    """The sessions of each task with enough attempts; the columns that all logs have."""
    root, tasks = Path(os.environ["ASCRIBE_TEST_DATA"]) / "real", []
    for log in LOGS:
        files = sorted(f for f in (root / log).iterdir() if "LICENSE" not in f.name)
        table = import_files(files, unrewarded=True).table
        columns = {name: getattr(table, name).texts() for name in ("group", "trajectory", *TEXTS)}
        columns |= {"step": table.step, "reward": table.reward, "terminated": table.terminated}
        whole, sessions = pa.table(columns), dict[str, list[int]]()
        for row, name in enumerate(columns["trajectory"]):
            sessions.setdefault(name, []).append(row)
        of_task: dict[str, list[pa.Table]] = {}
        for rows in sessions.values():
            of_task.setdefault(columns["group"][rows[0]], []).append(whole.take(rows))
        tasks += [attempts for attempts in of_task.values() if len(attempts) >= ATTEMPTS]
    return tasks


def archive(folder: Path, sessions: int) -> None:
    """Write so many sessions."""
    tasks, numbers = real_tasks(), range(-(-sessions // ATTEMPTS))
    draft = folder.with_suffix(".draft")
    draft.mkdir(parents=True, exist_ok=True)
    for start in numbers[::TASKS_OF_FILE]:
        if not (file := draft / f"{start:08d}.parquet").exists():
            made = [varied(tasks, number) for number in numbers[start : start + TASKS_OF_FILE]]
            pq.write_table(pa.concat_tables(made), file, compression="zstd")
    draft.rename(folder)


def varied(tasks: list[list[pa.Table]], number: int) -> pa.Table:
    """A task with other digits."""
    random = Random(number)
    attempts = random.sample(random.choice(tasks), ATTEMPTS)
    digits = str.maketrans("123456789", "".join(random.sample("123456789", 9)))
    whole = pa.concat_tables(attempts)
    columns: dict[str, Any] = dict(zip(whole.column_names, whole.columns, strict=True))
    for name in TEXTS:
        texts = whole.column(name).to_pylist()
        columns[name] = [text and text.translate(digits) for text in texts]
    columns["group"] = [f"task {number}"] * whole.num_rows
    names = [f"run {number}/{k}" for k, each in enumerate(attempts) for _ in range(each.num_rows)]
    return pa.table(columns | {"trajectory": names})


if __name__ == "__main__":
    main()
