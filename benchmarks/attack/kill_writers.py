"""Commands that are killed at random moments: the old file is intact, or the new one whole.

    python benchmarks/attack/kill_writers.py [--quick] [--seed 0] [--only NAME] [--times 200]

Every command of ``COMMANDS`` is to overwrite its output 200 times, and is killed (SIGKILL) with all
processes that it started: half of the times at a random moment of its run, and half of the times at
a random moment after it began to write. ``torn`` counts outputs that are neither the old nor the
whole new one. A journal grows over several kills: ``torn`` counts journals with something that
an unbroken run does not write, or with a record twice, after a kill or once they are complete.

Commands run in forks of this process, which has imported everything and prepared the scripts of
the report: all moments are of their work.
"""

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import common

from ascribe.cli import app
from ascribe.reports.write import _library as report_scripts

WRITING = 0.1
"""Seconds after the beginning of a draft in which to kill."""
LONGEST = 600
"""Seconds of an unbroken run."""


@dataclass(frozen=True)
class Attacked:
    """A command, the inputs that it needs, and the files that it writes."""

    words: tuple[str, ...]
    inputs: Callable[[Path], None]
    outputs: tuple[str, ...] = ()
    """They exist before; the command replaces each."""
    journal: str | None = None
    """A file of JSON lines that the command continues instead."""


# Inputs.


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Steps of trajectories of 8, in groups of 8."""
    for n in range(count):
        name, step = divmod(n, 8)
        yield {
            "group": f"g{name // 8}",
            "trajectory": f"t{name}",
            "step": step,
            "state": f"room {(n * 7) % 50}",
            "action": f"go {n % 5}",
            "reward": float(step == 7 and name % 3 == 0),
        }


def write_lines(path: Path, lines: Iterator[dict[str, Any]]) -> None:
    """One object a line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def table(suffix: str, count: int) -> Callable[[Path], None]:
    """A file ``a`` of rollouts."""

    def write(folder: Path) -> None:
        write_lines(folder / "rows.jsonl", rows(count))
        words = ("credit", "rows.jsonl", "--recipe=grpo", f"--out=a{suffix}")
        assert run(words, folder) == 0

    return write


def conversations(folder: Path) -> None:
    """Chats with a tool, as OpenAI's."""
    chats = (
        {
            "task": f"task {n // 8}",
            "reward": float(n % 2),
            "messages": [
                {"role": role, "content": f"{role} {n % 13} says {turn}"}
                for turn in range(6)
                for role in ("user", "assistant")
            ],
        }
        for n in range(400)
    )
    write_lines(folder / "chats.jsonl", chats)


def candidates(folder: Path) -> None:
    """Turns to profile."""
    chats = (
        {"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": "go"}]}
        for n in range(30)
    )
    write_lines(folder / "traces.jsonl", chats)
    assert run(("pivots", "extract", "traces.jsonl", "--out=turns.jsonl"), folder) == 0


COMMANDS: dict[str, Attacked] = {
    "credit over its input": Attacked(
        ("credit", "a.parquet", "--out=a.parquet", "--force"),
        table(".parquet", 24_000),
        ("a.parquet",),
    ),
    "credit to JSON lines": Attacked(
        ("credit", "a.jsonl", "--out=a.jsonl", "--force"), table(".jsonl", 4_000), ("a.jsonl",)
    ),
    "import": Attacked(
        ("import", "chats.jsonl", "--out=steps.parquet"), conversations, ("steps.parquet",)
    ),
    "report": Attacked(
        ("report", "a.parquet", "--out=page.html", "--tables=tables"),
        table(".parquet", 800),
        ("page.html", "tables/verdict.csv", "tables/verdict.parquet"),
    ),
    "pivots profile": Attacked(
        ("pivots", "profile", "turns.jsonl", "--model=SERVER", "-k", "4", "--batch=4"),
        candidates,
        journal="turns.answers.jsonl",
    ),
}
"""``SERVER`` stands for the address of a server on the loopback interface."""


# Runs.


def start(words: tuple[str, ...], folder: Path) -> int:
    """Start a command in a fork, with a process group of its own; returns its process id."""
    if child := os.fork():
        return child
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        app(list(words))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def wait(child: int, seconds: float) -> int | None:
    """The exit code of a command; None if it runs on after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return None
        time.sleep(0.001)


def run(words: tuple[str, ...], folder: Path) -> int | None:
    """The exit code of an unbroken run."""
    return wait(start(words, folder), LONGEST)


def drafts(folder: Path) -> set[Path]:
    """Files that are being written, and those that killed commands left."""
    return set(folder.rglob(".*.draft"))


def is_killed(words: tuple[str, ...], folder: Path, after: float, *, writing: bool = False) -> bool:
    """Run a command, and kill it and all its processes after a while; false if it had ended.

    With ``writing``, the while begins when there is a new draft.
    """
    before = drafts(folder)
    child = start(words, folder)
    ended = False
    while writing and not ended and not drafts(folder) - before:
        ended = wait(child, 0.001) is not None
    ended = ended or wait(child, after) is not None
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return not ended
    if not ended:
        os.waitpid(child, 0)
    return not ended


def contents(folder: Path, names: tuple[str, ...]) -> list[bytes | None]:
    """The bytes of each file; None if there is none."""
    return [(folder / n).read_bytes() if (folder / n).exists() else None for n in names]


def replace_killed(attacked: Attacked, times: int, draw: random.Random) -> Counter[str]:
    """Count old, new and torn files after kills, and drafts after one more run."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        prepared, folder = Path(place) / "prepared", Path(place) / "folder"
        prepared.mkdir()
        attacked.inputs(prepared)
        for name in attacked.outputs:
            (prepared / name).parent.mkdir(exist_ok=True)
            if not (prepared / name).exists():
                (prepared / name).write_bytes(b"the old file\n" * 1000)
        shutil.copytree(prepared, folder)
        old = contents(folder, attacked.outputs)
        began = time.monotonic()
        assert run(attacked.words, folder) == 0
        seconds = time.monotonic() - began
        new = contents(folder, attacked.outputs)
        assert all(one != other for one, other in zip(old, new, strict=True))
        while counts["killed"] < times:
            for name, data in zip(attacked.outputs, old, strict=True):
                (folder / name).write_bytes(data or b"")
            writing = counts["killed"] % 2 == 1
            moment = draw.random() * (WRITING if writing else seconds * 1.05)
            counts["killed"] += is_killed(attacked.words, folder, moment, writing=writing)
            for one, *whole in zip(contents(folder, attacked.outputs), old, new, strict=True):
                counts["old" if one == whole[0] else "new" if one == whole[1] else "torn"] += 1
        counts["drafts after kills"] = len(drafts(folder))
        for name, data in zip(attacked.outputs, old, strict=True):
            (folder / name).write_bytes(data or b"")
        assert run(attacked.words, folder) == 0
        counts["torn"] += contents(folder, attacked.outputs) != new
        counts["drafts"] = len(drafts(folder))
    return counts


def journal_killed(attacked: Attacked, times: int, draw: random.Random) -> Counter[str]:
    """Count kills, complete journals and torn ones."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        attacked.inputs(folder)
        journal = folder / str(attacked.journal)

        def records() -> list[str]:
            lines = journal.read_text().splitlines(keepends=True) if journal.exists() else []
            return [line for line in lines if line.endswith("\n")]  # the last may be cut short

        began = time.monotonic()
        assert run(attacked.words, folder) == 0
        seconds = time.monotonic() - began
        unbroken = set(records())
        journal.unlink()
        while counts["killed"] < times:
            moment = draw.random() * seconds * 1.05
            if is_killed(attacked.words, folder, moment):
                counts["killed"] += 1
            else:
                counts["complete"] += 1
                counts["torn"] += set(records()) != unbroken
            after = records()
            counts["torn"] += not set(after) <= unbroken or len(set(after)) < len(after)
            if set(after) == unbroken:
                journal.unlink()
        assert run(attacked.words, folder) == 0
        counts["torn"] += set(records()) != unbroken
    return counts


# The server.


class Handler(BaseHTTPRequestHandler):
    """Chat completions that follow from the messages and the seed."""

    def do_GET(self) -> None:
        """List the models."""
        self.reply({"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        """Complete."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = sha256(json.dumps([body["messages"], body["seed"]]).encode()).hexdigest()
        message = {"role": "assistant", "content": text * 4}
        usage = {"prompt_tokens": 11, "completion_tokens": 5}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.reply({"choices": [choice], "usage": usage})

    def reply(self, value: Any) -> None:
        """Send JSON."""
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def server() -> Iterator[str]:
    """The address of a server in a process of its own."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # clients that were killed
        listening.serve_forever()
    listening.socket.close()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def main() -> None:
    """Kill all commands."""
    options = {
        "seed": {"type": int, "default": 0, "help": "of the moments"},
        "only": {"choices": list(COMMANDS), "help": "this command alone"},
        "times": {"type": int, "default": 200, "help": "kills of each command"},
    }
    with common.Figures("attack/kill_writers", **options) as figures, server() as address:
        report_scripts()
        times = 4 if figures.quick else figures.options.times
        for name, attacked in COMMANDS.items():
            if figures.options.only not in (None, name):
                continue
            words = tuple(word.replace("SERVER", address) for word in attacked.words)
            attack = replace_killed if attacked.journal is None else journal_killed
            draw = random.Random(figures.options.seed)
            counts = attack(replace(attacked, words=words), times, draw)
            for metric, count in counts.items():
                goal = 0.0 if metric in ("torn", "drafts") else None
                better: common.Better = "higher" if metric in ("killed", "complete") else "lower"
                unit = "kills" if metric == "killed" else "files"
                figures.emit(name, metric, count, unit, better, goal)


if __name__ == "__main__":
    main()
