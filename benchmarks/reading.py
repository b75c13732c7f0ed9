"""Reading sessions: responses in a second of CPU, and the ratio to parsing the same bytes as JSON.

Files that others published are read where there are some: those of ``--folders FOLDER FOLDER``, or
of the folders in ``ASCRIBE_TEST_DATA``; first each folder, then all files one after another. The
exponent is that of the time for one, ten and a hundred copies of a file of tau-bench, in which
sessions and calls have other names. Without such files, a log of OpenAI messages holds attempts of
ten responses, eight at each task, whose observations are JSON, sentences and lists of 20 to 400
words. The last figure is the time of the command ``ascribe import`` for a small file, with its
modules compiled. Times are seconds of CPU, of one core, and the best of three up to 50,000
responses.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common import COMMAND, ROOT, Figures
from scale import run

from ascribe.sessions.reading import import_files

TURNS, TASK = 10, 8
RATE, ALL_FILES, COMMAND_LINE = 5000.0, 20.0, 0.6
"""Responses a second; seconds of all files, and of a command."""
REAL = (
    *("tau_bench", "tau_bench_retail", "tau2_airline", "tau2_telecom", "mint_alfworld"),
    *("intercode_sql", "intercode_bash"),
)
SMALL = 50_000
"""Responses up to which a time is the best of three."""


def main() -> None:
    """Measure and print."""
    folders = {"type": Path, "nargs": "*", "default": []}
    with Figures("reading", folders=folders) as figures, TemporaryDirectory() as made:
        data = os.environ.get("ASCRIBE_TEST_DATA")
        real = figures.options.folders or [Path(data, "real", name) for name in REAL if data]
        if not real:
            print("no files of others: name --folders, or set ASCRIBE_TEST_DATA", file=sys.stderr)
        for folder in real:
            emit(figures, folder.name, folder)
        if files := [file for folder in real for file in files_of(folder)]:
            taken = best(lambda: [import_files([file]) for file in files], times=1)
            figures.emit(f"{len(files)} files", "cpu", taken, "s", "lower", ALL_FILES)
        source = next((file for file in files if file.parent.name == "tau_bench"), None)
        spent = []
        for size in (1, 4) if figures.quick else (1, 10, 100):
            log = Path(made, f"{size}.jsonl")
            if source:
                write_copies(log, source, size)
            else:
                write_log(log, 2450 * size)
            spent.append(emit(figures, f"{size} times {source.name if source else 2450}", log))
            log.unlink()
        figures.emit_exponents(spent, "{first:,} to {last:,} responses")
        figures.emit("one small file", "cpu", command(Path(made)), "s", "lower", COMMAND_LINE)


def emit(figures: Figures, case: str, path: Path) -> tuple[float, float]:
    """The figures of a file or folder; returns the responses and the time."""
    started = time.process_time()
    responses = sum(steps for steps, _ in import_files([path]).sizes)
    taken = time.process_time() - started
    if responses < SMALL:
        taken = best(lambda: import_files([path]))
    parsed = best(lambda: [json.loads(each) for f in files_of(path) for each in texts(f)], 1)
    figures.emit(case, "rate", responses / taken, "responses/s", "higher", RATE)
    figures.emit(case, "ratio to json", taken / parsed, "", "lower")
    return responses, taken


def files_of(path: Path) -> list[Path]:
    """A file, or those of a folder."""
    return sorted(path.rglob("*.json*")) if path.is_dir() else [path]


def command(folder: Path) -> float:
    """Seconds of CPU of a command, after a first one that compiles the modules."""
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [*COMMAND, "import", str(ROOT / "examples" / "conversations.jsonl"), "--quiet"]
    return min(run(words)[0] for _ in range(4))


def write_copies(path: Path, source: Path, times: int) -> None:
    """The sessions of tau-bench in a file, this many times, as others of their tasks."""
    sessions = json.loads(source.read_bytes())
    with path.open("w") as file:
        for copy in range(times):
            for each in sessions:
                line = json.dumps(each | {"trial": f"{copy}-{each['trial']}"})
                file.write(line.replace('"call_', f'"call_{copy}x') + "\n")


def best(work: Callable[[], Any], times: int = 3) -> float:
    """The fewest seconds of CPU that the work took."""
    seconds = []
    for _ in range(times):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def texts(file: Path) -> list[bytes]:
    """The JSON texts in a file."""
    content = file.read_bytes()
    return content.splitlines() if file.suffix == ".jsonl" else [content]


def write_log(path: Path, responses: int) -> None:
    """A log of sessions."""
    random = np.random.default_rng(responses)
    with path.open("w") as file:
        for number in range(responses // TURNS):
            messages = [said("system", "Use the tools."), said("user", f"Task {number // TASK}")]
            for turn in range(TURNS):
                arguments = json.dumps({"query": f"w{random.integers(100)}", "page": turn})
                function = {"name": "search", "arguments": arguments}
                call = {"id": f"call_{number}_{turn}", "type": "function", "function": function}
                messages += [
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    said("tool", observation(random)) | {"tool_call_id": call["id"]},
                ]
            record = {"task": f"task{number // TASK}", "id": str(number), "messages": messages}
            file.write(json.dumps(record | {"reward": float(random.integers(2))}) + "\n")


def said(role: str, content: str) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content}


def observation(random: Any) -> str:
    """One of a thousand texts."""
    text = int(random.integers(1000))
    words = [f"w{(text * 31 + each * 7) % 1000}" for each in range(20 + text % 380)]
    kinds = (json.dumps({"found": words, "count": text}), " ".join(words), ", ".join(words) + ".")
    return kinds[text % 3]


if __name__ == "__main__":
    main()
