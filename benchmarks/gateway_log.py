"""Logs of a gateway: time and memory of ``ascribe import`` for up to a million model calls.

A session has ten calls whose contexts grow by a response and an observation of 20 to 60 words, so
that a log holds each text up to ten times. After the sixth call the harness drops the turns so far;
the third spawns a sub-agent of two calls. 64 sessions alternate in the log, as those of concurrent
rollouts do. Eight sessions are a task. The command writes a folder of Parquet files. Times are CPU
seconds, of one core; the exponent is the slope of log time against log calls; memory is the most
that the process held.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common import COMMAND, Figures
from scale import run

CALLS, OPEN, TASK = 10, 64, 8
GIB = 2.0**30


def main() -> None:
    """Measure and print."""
    with Figures("gateway_log") as figures, TemporaryDirectory() as folder:
        sizes = [1_000, 4_000] if figures.quick else [10_000, 100_000, 1_000_000]
        seconds = []
        for size in sizes:
            log, out = Path(folder, f"{size}.jsonl"), Path(folder, str(size))
            write_log(log, size)
            cpu, _, memory = run([*COMMAND, "import", str(log), "--out", str(out), "--json"])
            case = f"{size:,} calls"
            figures.emit(case, "log", log.stat().st_size, "bytes", "lower")
            figures.emit(case, "cpu", cpu, "s", "lower")
            figures.emit(case, "memory", memory, "bytes", "lower", 2 * GIB)
            seconds.append(cpu)
            log.unlink()
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        figures.emit(f"{sizes[0]:,} to {sizes[-1]:,} calls", "exponent", slope, "", "lower", 1.05)


def write_log(path: Path, calls: int) -> None:
    """A log of sessions that alternate."""
    random = np.random.default_rng(calls)
    with path.open("w") as file:
        for start in range(0, calls // CALLS, OPEN):
            numbers = range(start, min(start + OPEN, calls // CALLS))
            for lines in zip(*(session(number, random) for number in numbers), strict=True):
                file.writelines(lines)


def session(number: int, random: Any) -> list[str]:
    """The calls of one session, in the order of time."""
    name, reward = f"task{number // TASK}:{number % TASK}", float(random.integers(2))
    task = [{"role": "system", "content": "Use the tools."}, said("user", words(random))]
    main, lines = list(task), []
    for turn in range(CALLS - 2):
        if turn == 6:
            main = [*task, *main[-2:]]
        response = said("assistant", f"{words(random, 5)} ({turn})")
        if turn == 2:
            part = words(random)
            response["tool_calls"] = [{"function": {"name": "ask", "arguments": {"prompt": part}}}]
        lines.append(line(name, main, response, reward))
        main = [*main, response]
        if turn == 2:
            helper = [said("user", part)]
            for _ in range(2):
                answer = said("assistant", words(random, 5))
                lines.append(line(name, helper, answer, reward))
                helper = [*helper, answer, said("user", words(random))]
        main = [*main, said("tool", words(random))]
    return lines


def said(role: str, content: str) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content}


def words(random: Any, count: int = 0) -> str:
    """One of a thousand texts of 20 to 60 words, or a random one of ``count`` words."""
    if count:
        return " ".join(f"w{each}" for each in random.integers(0, 1000, count))
    text = random.integers(1000)
    return " ".join(f"w{(text * 31 + each * 7) % 1000}" for each in range(20 + text % 41))


def line(name: str, messages: list[Any], response: Any, reward: float) -> str:
    """A call as the gateway records it."""
    call = {"session_id": name, "messages": messages, "response_message": response}
    return json.dumps(call | {"finish_reason": "stop", "reward": reward}) + "\n"


if __name__ == "__main__":
    main()
