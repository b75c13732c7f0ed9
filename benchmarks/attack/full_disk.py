"""A disk that is full after some bytes, for every writer: the old file stands.

    python benchmarks/attack/full_disk.py [--quick] [--seed 0] [--only NAME]

Every writer of ``WRITERS`` writes its files once; then it is to write others over them, 50 times
with room for a random number of bytes on a small tmpfs, which needs the right to mount one, and 50
times with a limit of the size of a file (``RLIMIT_FSIZE``). Afterwards every file is the old one or
the whole new one, and no draft is left. ``torn`` counts files that are neither.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import common

from ascribe import StepTable, recipe
from ascribe.engines.crediting import save_history
from ascribe.groups.fingerprints import normalised
from ascribe.reports import picture
from ascribe.reports.write import write_tables
from ascribe.sessions.formats import import_files, write_credit
from ascribe.steps.files import write_table
from ascribe_lab.calibrate.choose import Calibration, calibrate
from ascribe_lab.calibrate.setting import Setting, write_setting
from ascribe_lab.json_journal import open_journal, read_journal
from ascribe_lab.pivots import Origin, candidate, write_turns
from ascribe_lab.train.load import load_config
from ascribe_lab.train.metrics_file import MetricsFile
from ascribe_lab.train.resolve import write_config

Writer = Callable[[Path, int], None]
"""Writes the files of version 0 or 1 into a folder."""

ROWS = 4_000
DISK = 64 << 20
"""Bytes of the tmpfs."""


def table(version: int, rows: int = ROWS) -> StepTable:
    """Steps of trajectories of 8; the two versions have other texts and rewards."""
    random = np.random.default_rng(version)
    trajectory = np.arange(rows) // 8
    return StepTable.from_columns(
        {
            "group": [f"task {t // 8}" for t in trajectory],
            "trajectory": [f"t{t}" for t in trajectory],
            "step": np.arange(rows) % 8,
            "state": [f"room {n} of version {version}" for n in random.integers(0, 99, rows)],
            "action": [f"go {n}" for n in random.integers(0, 10**6, rows)],
            "reward": random.random(rows),
        }
    )


def _tables(suffix: str) -> Writer:
    tables = [table(version) for version in range(2)]
    return lambda folder, version: write_table(tables[version], folder / f"steps{suffix}")


def _report() -> Writer:
    with tempfile.TemporaryDirectory() as folder:
        pages = []
        for version in range(2):
            write_table(table(version, 160), Path(folder) / "a.parquet")
            pages.append(picture([Path(folder) / "a.parquet"], recipe("gigpo")))

    def run(folder: Path, version: int) -> None:
        pages[version].write(folder / "page.html")
        write_tables(pages[version].tables(), folder / "tables")

    return run


def _figures() -> Writer:
    with tempfile.TemporaryDirectory() as folder:
        write_table(table(0, 160), Path(folder) / "a.parquet")
        page = picture([Path(folder) / "a.parquet"], recipe("gigpo"))
    from ascribe.reports.write import write_figures  # noqa: PLC0415

    return lambda folder, version: void(write_figures(page.figures[version:][:1], folder))


def calibration() -> Calibration:
    """Of two layers with planted states."""
    random = np.random.default_rng(0)
    task, state = np.arange(640) // 40, np.arange(640) % 10
    vectors = 2 * np.eye(32)[0] + np.eye(32)[1 + state] + 0.4 * np.eye(32)[12 + task % 4]
    vectors = vectors + 0.05 * random.standard_normal((640, 32))
    features = {(layer, "last"): normalised(vectors.astype(np.float32)) for layer in (1, 2)}
    return calibrate(features, task, task % 4, random)


def _calibrate() -> Writer:
    result = calibration()

    def run(folder: Path, version: int) -> None:
        setting = Setting(
            f"model {version}", 4, result.layer, result.pooling, result.radius, "prompt",
            chat=False, most_tokens=512, dtype="float32",
        )  # fmt: skip
        path = folder / "calibration.yaml"
        write_setting(path, setting, result, rollouts={"file": "a"}, seed=version)

    return run


def _configs() -> Writer:
    values = {"model.path": "m", "environment.name": "sokoban", "output.folder": "f"}
    changes = [values | {"update.seed": version} for version in range(2)]
    configs = [load_config(None, each).config for each in changes]
    return lambda folder, version: write_config(configs[version], folder / "config.yaml")


def chat(text: str) -> list[dict[str, str]]:
    """A question and its answer."""
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "gone"}]


def _turns() -> Writer:
    turns = [
        [
            candidate(chat(f"{n} " * 50)[:1], "go", Origin("f", "t", n, 300), (), None)
            for n in range(version, 300 + version)
        ]
        for version in range(2)
    ]
    return lambda folder, version: write_turns(folder / "pivots.jsonl", turns[version])


def _history(folder: Path, version: int) -> None:
    save_history({"streams": ["a"], "mean": [0.1], "variance": [0.2], "samples": version}, folder)


def _metrics(folder: Path, version: int) -> None:
    if version == 0:
        metrics = MetricsFile(folder)
        for iteration in range(1, 200):
            metrics.add(iteration, {"loss": iteration / 3})
    else:
        MetricsFile(folder, done=100)


def _conversations() -> Writer:
    episodes = [
        {"id": f"task {n // 4}:{n}", "trajectories": [
            {"name": "a", "reward": float(n % 2), "steps": [{"chat_completions": chat("go")}]}
        ]}
        for n in range(400)
    ]  # fmt: skip
    lines = "".join(json.dumps(episode) + "\n" for episode in episodes)

    def run(folder: Path, version: int) -> None:
        with tempfile.TemporaryDirectory() as other:
            path = Path(other) / "rllm.jsonl"
            path.write_text(lines)
            imported = import_files([path])
            advantages = np.full(len(imported.table), float(version))
            write_credit(path, imported, advantages, folder / "rllm.jsonl")

    return run


WRITERS: dict[str, Callable[[], Writer]] = {
    "table.parquet": lambda: _tables(".parquet"),
    "table.jsonl": lambda: _tables(".jsonl"),
    "table.jsonl.gz": lambda: _tables(".jsonl.gz"),
    "report page and tables": _report,
    "report figures": _figures,
    "calibration": _calibrate,
    "config": _configs,
    "pivots": _turns,
    "conversations": _conversations,
    "history": lambda: _history,
    "metrics": lambda: _metrics,
}


def void(_: object) -> None:
    """Nothing."""


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "filler"
    }


@contextmanager
def room_by_limit(_: Path, size: int) -> Iterator[None]:
    """No file may have more bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def room_on_disk(disk: Path, size: int) -> Iterator[None]:
    """Another file takes the place, but for so many bytes."""
    status = os.statvfs(disk)
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, status.f_bavail * status.f_frsize - size))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def tmpfs() -> Iterator[Path | None]:
    """A small disk in memory; None without the right to mount one."""
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder]
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
        try:
            yield Path(folder) if mounted else None
        finally:
            if mounted:
                subprocess.run(["umount", folder], check=True)


def attack(
    writer: Writer,
    disk: Path,
    room: Callable[[Path, int], Any],
    times: int,
    draw: random.Random,
) -> Counter[str]:
    """How many writes were refused, and how many files are torn; a draft counts as one."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        writer(Path(folder), 0)
        old = contents(Path(folder))
        writer(Path(folder), 1)
        new = contents(Path(folder))
    largest = max(map(len, new.values()))
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=disk) as folder:
            place = Path(folder)
            writer(place, 0)
            with room(disk, draw.randrange(int(1.1 * largest) + 2)):
                try:
                    writer(place, 1)
                    counts["written"] += 1
                except OSError:
                    counts["refused"] += 1
            after = contents(place)
            for name in old.keys() | after.keys():
                counts["torn"] += after.get(name) not in (old.get(name), new.get(name))
    return counts


def journal(disk: Path, room: Callable[[Path, int], Any], times: int, draw: random.Random) -> int:
    """How often a journal had something else than whole records, or lost one."""
    broken = 0
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=disk) as folder:
            path = Path(folder) / "journal.jsonl"
            with open_journal(path) as append:
                append([{"n": n, "text": "x" * 100} for n in range(100)])
                written = path.stat().st_size
                size = draw.randrange(30_000)
                appended = 0
                with room(disk, size + written * (room is room_by_limit)), suppress(OSError):
                    for n in range(100, 300):
                        append([{"n": n, "text": "y" * 100}])
                        appended += 1
                append([{"n": -1}])  # there is room again
            numbers = [record["n"] for record in read_journal(path)]
            broken += numbers != [*range(100 + appended), -1]
    return broken


def main() -> None:
    """Measure all writers."""
    options = {
        "seed": {"type": int, "default": 0, "help": "of the numbers of bytes"},
        "only": {"choices": [*WRITERS, "journal"], "help": "this writer alone"},
    }
    with common.Figures("attack/full_disk", **options) as figures, tmpfs() as mounted:
        times = 3 if figures.quick else 50
        rooms = {"limit": (Path(tempfile.gettempdir()), room_by_limit)}
        if mounted is not None:
            rooms["tmpfs"] = (mounted, room_on_disk)
        for name, make in WRITERS.items():
            if figures.options.only not in (None, name):
                continue
            try:
                writer = make()
            except ImportError as error:
                print(f"{name}: left out: {error}", file=sys.stderr)
                continue
            for kind, (disk, room) in rooms.items():
                draw = random.Random(figures.options.seed)
                counts = attack(writer, disk, room, times, draw)
                case = f"{name}, {kind}"
                figures.emit(case, "refused", counts["refused"], f"of {times} writes", "higher")
                figures.emit(case, "torn", counts["torn"], "files", "lower", 0.0)
        for kind, (disk, room) in rooms.items():
            if figures.options.only not in (None, "journal"):
                continue
            draw = random.Random(figures.options.seed)
            broken = journal(disk, room, times, draw)
            figures.emit(f"journal, {kind}", "torn", broken, f"of {times} journals", "lower", 0.0)


if __name__ == "__main__":
    main()
