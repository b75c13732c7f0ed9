"""Small files that expand: the memory and the time that commands take for them.

    python benchmarks/attack/bombs.py [--quick] [--only NAME]

Four of them are a few kilobytes and hold gigabytes once they are decoded: a folder with a Parquet
file in which one long text repeats (in a column that is carried along, in one that is checked, and
inside lists); packed JSON lines of empty objects; an Inspect log of such; and a trace of verifiers
with a branch at each node. They are refused, or read a little at a time. The others are as large as
is still read. Every command runs in a process of its own, whose peak is measured, and which may
have 4 GiB of addresses, so that a fault does not take the machine along. ``exit`` is its exit code:
0 or 1, where a traceback has 1 as well and is counted by ``tracebacks``.
"""

import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import common

ADDRESSES = 4 << 30
GOAL = float(1 << 30)
ROW = {"group": "g", "trajectory": "t", "state": "s", "action": "a", "reward": 1.0}


def parquet(folder: Path, name: str, rows: int, *, lists: bool = False) -> Path:
    """A folder with a file in which a text of 4 MiB is in every row."""
    column: Any = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, dtype=np.int32)), pa.array(["x" * (1 << 22)])
    )
    if lists:
        column = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), column)
    names = pa.array([f"t{row // 4}" for row in range(rows)])
    columns = {each: pa.array([value] * rows) for each, value in ROW.items()}
    columns |= {"trajectory": names, "step": pa.array(np.arange(rows) % 4), name: column}
    target = folder / name
    target.mkdir()
    pq.write_table(pa.table(columns), target / "a.parquet", compression="zstd", store_schema=False)
    return target


def lines(folder: Path, name: str, junk: Any, rows: int) -> Path:
    """Packed JSON lines, each with some junk."""
    target = folder / f"{name}.jsonl.gz"
    with gzip.open(target, "wb") as file:
        for step in range(rows):
            row = json.dumps(ROW | {"step": step, "junk": junk}, separators=(",", ":"))
            file.write(f"{row}\n".encode())
    return target


def log(folder: Path, name: str, samples: int, **fields: Any) -> Path:
    """An Inspect log."""
    target = folder / f"{name}.eval"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(samples):
            sample = {"id": "a", "epoch": number, "target": "", "scores": {"s": {"value": 1.0}}}
            content = json.dumps(sample | fields, separators=(",", ":"))
            archive.writestr(f"samples/{number}.json", content)
    return target


def traces(folder: Path, nodes: int) -> Path:
    """A trace in which every second message is answered by one without an answer of its own."""
    found = [
        {"parent": None if n == 0 else (n - 1) // 2 * 2, "sampled": True, "message": ANSWER}
        for n in range(nodes)
    ]
    trace = {"id": "t", "task": {"key": "k"}, "nodes": found, "rewards": {"r": {"score": 1.0}}}
    target = folder / "traces.jsonl"
    target.write_text(json.dumps(trace, separators=(",", ":")))
    return target


ANSWER = {"role": "assistant", "content": ""}
CHAT = [{"role": "user", "content": ""}, ANSWER]

BOMBS: dict[str, tuple[Callable[[Path, int], Path], str]] = {
    "parquet, credit": (lambda folder, size: parquet(folder, "notes", 25 * size), "credit"),
    "parquet, check": (lambda folder, size: parquet(folder, "notes", 25 * size), "check"),
    "parquet, version": (lambda folder, size: parquet(folder, "version", 25 * size), "check"),
    "parquet, lists": (
        lambda folder, size: parquet(folder, "notes", 25 * size, lists=True),
        "credit",
    ),
    "json lines": (lambda folder, size: lines(folder, "many", [{}] * 100_000, 4 * size), "credit"),
    "inspect log": (
        lambda folder, size: log(folder, "log", 1, messages=CHAT, x=[{}] * (700_000 * size)),
        "check",
    ),
    "verifiers traces": (lambda folder, _: traces(folder, 1400), "check"),
    "most objects": (lambda folder, _: lines(folder, "most", [{}] * 100_000, 19), "check"),
    "most text": (lambda folder, _: lines(folder, "text", "x" * 1_000_000, 130), "check"),
    "most messages": (lambda folder, _: log(folder, "chats", 70, messages=CHAT * 5000), "check"),
}
"""How to write each of them, and the command that reads it."""


def measure(source: Path, command: str, out: Path) -> tuple[int, float, int, str]:
    """Peak bytes, seconds of a processor, exit code, and what was printed."""
    arguments = [sys.executable, "-m", "ascribe", command, str(source)]
    arguments += ["--out", str(out)] if command == "credit" else []
    process = subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    resource.prlimit(process.pid, resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    return usage.ru_maxrss * 1024, seconds, process.returncode, printed


def main() -> None:
    """Write and read every bomb."""
    options = {"only": {"choices": BOMBS, "help": "this one alone"}}
    with common.Figures("attack/bombs", **options) as figures:
        only = figures.options.only
        for name in [only] if only else [*BOMBS][: 7 if figures.quick else None]:
            write, command = BOMBS[name]
            with tempfile.TemporaryDirectory() as folder:
                # In another process: the peak of a command is at least that of its parent.
                arguments = (Path(folder), 20 if figures.quick else 100)
                writer = get_context("fork").Process(target=write, args=arguments)
                writer.start()
                writer.join()
                (source,) = Path(folder).iterdir()
                size = sum(f.stat().st_size for f in [source, *source.rglob("*")] if f.is_file())
                peak, seconds, code, printed = measure(
                    source, command, Path(folder) / "out.parquet"
                )
            figures.emit(name, "size", size, "bytes", "lower")
            figures.emit(name, "peak_bytes", peak, "bytes", "lower", GOAL)
            figures.emit(name, "cpu_seconds", seconds, "s", "lower", 120.0)
            figures.emit(name, "exit", code, "exit code", "lower", 1.0)
            figures.emit(name, "tracebacks", "Traceback" in printed, "of 1", "lower", 0.0)
            print(name, printed[-400:], file=sys.stderr)


if __name__ == "__main__":
    main()
