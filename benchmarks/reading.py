"""Reading sessions: responses in a second of CPU, and the ratio to parsing the same bytes as JSON.

A log of OpenAI messages holds attempts of ten responses, eight at each task, whose observations
are JSON, sentences and lists of 20 to 400 words. Files that others published are read instead if
folders of them are given: ``benchmarks/reading.py --folders FOLDER FOLDER``. Each time is the best
of three, of one core; the exponent is the slope of log time against log responses.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common import Figures

from ascribe.sessions.formats import import_files

TURNS, TASK = 10, 8
RATE = 5000.0


def main() -> None:
    """Measure and print."""
    folders = {"type": Path, "nargs": "*", "default": []}
    with Figures("reading", folders=folders) as figures, TemporaryDirectory() as made:
        for folder in figures.options.folders:
            emit(figures, folder.name, folder)
        sizes = [2450, 9800] if figures.quick else [2450, 24_500, 245_000]
        seconds = []
        for size in [] if figures.options.folders else sizes:
            log = Path(made, f"{size}.jsonl")
            write_log(log, size)
            seconds.append(emit(figures, f"{size:,} responses", log))
            log.unlink()
        if seconds:
            slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
            case = f"{sizes[0]:,} to {sizes[-1]:,} responses"
            figures.emit(case, "exponent", slope, "", "lower", 1.05)


def emit(figures: Figures, case: str, path: Path) -> float:
    """The figures of a file or folder; returns the time."""
    files = sorted(path.rglob("*.json*")) if path.is_dir() else [path]
    responses = sum(steps for steps, _ in import_files([path]).sizes)
    taken = best(lambda: import_files([path]))
    parsed = best(lambda: [json.loads(each) for file in files for each in texts(file)])
    figures.emit(case, "rate", responses / taken, "responses/s", "higher", RATE)
    figures.emit(case, "ratio to json", taken / parsed, "", "lower")
    return taken


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
