"""Pivots: how many verdicts a second each verifier gives, and what profiling costs besides a model.

``verdicts_per_second`` is of CPU time, on answers that are all different: some do what was
demonstrated in other words, some do not. Tool calls have four arguments, commands are pipelines of
two with a few flags, texts have 300 characters. ``effect`` plays Sokoban: it replays a turn
and steps, for both actions. ``judge`` is asked for what is in its cache.

Profiling is measured with a policy that answers at once (``no model``) and with a server on this
machine that does (``loopback server``), 8 answers to each candidate in batches of 64: what is left
is the cost of Ascribe itself, with every batch on the disk before the next one is asked for.
``resume_seconds`` is the time until a run that finds everything done has ended.
"""

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common

from ascribe.steps.strict_json import canonical
from ascribe_lab.json_journal import open_journal
from ascribe_lab.pivots import Candidate, Origin, Reference, candidate, make_verifier, profile
from ascribe_lab.pivots.chat import write_call
from ascribe_lab.pivots.text_server import TextServer
from ascribe_lab.pivots.verifiers.judge import chat, key_of, situation_of
from ascribe_lab.pivots.verifiers.shell import _reading
from ascribe_lab.pivots.verifiers.verdict import act, calls_in
from ascribe_lab.rollout import Request, Sample, Sampling

common.PACKAGES = ("ascribe-rl", "numpy", "rapidfuzz")

K = 8
BATCH = 64
Pair = tuple[Candidate, str]

TOOL = canonical(
    {
        "name": "search",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "count": {"type": "integer"},
                "sites": {"type": "array", "items": {"type": "string"}},
                "safe": {"type": "boolean"},
            },
            "required": ["query"],
        },
    }
)


def main() -> None:
    """Measure and print."""
    with common.Figures("pivots") as figures, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = 300 if figures.quick else 3_000
        verifiers(figures, folder, count)
        profiling(figures, folder, 100 if figures.quick else 1_000)


def verifiers(figures: common.Figures, folder: Path, count: int) -> None:
    """Verdicts a second."""
    calls, commands, texts = (pairs(kind, count) for kind in (a_call, a_command, a_text))
    cases: dict[str, tuple[Any, Sequence[Pair]]] = {
        "exact": ("exact", texts),
        "normalised": ("normalised", texts),
        "tool_name": ("tool_name", calls),
        "tool_call": ("tool_call", calls),
        "shell": ("shell", commands),
        "effect": ({"effect": {"environment": "sokoban", "style": "plain"}}, moves(folder, count)),
        "judge, cached": (judged(folder, texts), texts),
        "first of tool_call, normalised": ({"first": ["tool_call", "normalised"]}, texts),
    }
    if find_spec("rapidfuzz"):
        cases["edit"] = ("edit", texts)
    works = {
        name: common.Work(
            lambda spec=spec: fresh(spec), lambda verify, ones=ones: ask(verify, ones)
        )
        for name, (spec, ones) in cases.items()
    }
    for name, seconds in common.interleaved(works, rounds=3 if figures.quick else 7).items():
        rate = len(cases[name][1]) / seconds.cpu
        figures.emit(name, "verdicts_per_second", rate, "1/s", "higher")


def fresh(spec: Any) -> Any:
    """A verifier that has seen nothing."""
    for kept in (calls_in, act, _reading):
        kept.cache_clear()
    return make_verifier(spec)


def ask(verify: Callable[[Candidate, str], Any], ones: Sequence[Pair]) -> int:
    """Every verdict."""
    return sum(bool(verify(one, answer).accepted) for one, answer in ones)


# What is judged.


def pairs(kind: Callable[[int], tuple[str, str]], count: int) -> list[Pair]:
    """Candidates with an answer each."""
    return [
        (turn(action, number), answer)
        for number in range(count)
        for action, answer in [kind(number)]
    ]


def turn(action: str, number: int) -> Candidate:
    """A candidate with a history of 1,000 characters."""
    said = [{"role": "user", "content": f"{number} " + "What next? " * 90}]
    return candidate(said, action, Origin("made", str(number), 0, 1), (TOOL,))


def a_call(number: int) -> tuple[str, str]:
    """The same call with its arguments in another order, or another call."""
    given = {"query": f"number {number}", "count": number, "sites": ["a", "b"], "safe": True}
    other = dict(reversed(given.items())) if number % 2 else given | {"count": -1}
    return write_call("search", given), f"Let me look.\n{write_call('search', other)}"


def a_command(number: int) -> tuple[str, str]:
    """The same command with its flags in another order, or another command."""
    words = f"'word {number}' src/{number}"
    other = f"grep -n -i -r {words} | head -n20" if number % 2 else f"grep -rn {words} | head -n 20"
    return f"grep -rin {words} | head -n 20", other


def a_text(number: int) -> tuple[str, str]:
    """300 characters, and the same with a few changed."""
    text = " ".join(sha256(f"{number} {part}".encode()).hexdigest()[:9] for part in range(30))
    return text, text.upper() if number % 2 else text[:150] + "-----" + text[155:]


def moves(folder: Path, count: int) -> list[Pair]:
    """Turns of Sokoban's expert, with its own move and another one."""
    turns = common.expert_turns(folder / "sokoban.parquet", max(4, count // 20))[: count // 2]
    return [(one, action) for one in turns for action in (one.action, "<action>up</action>")]


def judged(folder: Path, texts: Sequence[Pair]) -> dict[str, Any]:
    """The spec of a judge that has said everything already."""
    path, url, sampling = folder / "cache.jsonl", "http://127.0.0.1:9", Sampling(0.0, max_tokens=16)
    with open_journal(path) as append:
        for one, response in texts:
            messages = chat(situation_of(one), one.action, response)
            append([{"key": key_of(url, sampling, messages), "judge": url, "said": "SAME"}])
    return {"judge": {"url": url, "cache": str(path), "max_calls": 0, "max_tokens": 16}}


# Profiling.


class AtOnce:
    """A policy that takes no time."""

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """The same for everybody."""
        del sampling
        return [Sample("<action>look around</action>", (1,) * 250, (1,) * 9) for _ in requests]

    def close(self) -> None:
        """Nothing to give back."""


def profiling(figures: common.Figures, folder: Path, count: int) -> None:
    """What an answer costs besides the model."""
    turns = [turn("<action>look</action>", number) for number in range(count)]
    with server() as url:
        policies = {"no model": AtOnce(), "loopback server": TextServer(url)}
        for name, policy in policies.items():
            case, path = f"{count}x{K}/{name}", folder / f"{name}.jsonl"
            cpu, wall = time.process_time(), time.perf_counter()
            done = profile(turns, policy, Reference(name), path, k=K, batch=BATCH)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            assert done.complete
            figures.emit(case, "cpu_milliseconds_per_candidate", 1e3 * cpu / count, "ms", "lower")
            figures.emit(case, "answers_per_second", count * K / wall, "1/s", "higher")
            size = path.stat().st_size / (count * K)
            figures.emit(case, "journal_bytes_per_answer", size, "B", "lower")
            began = time.perf_counter()
            again = profile(turns, policy, Reference(name), path, k=K, batch=BATCH)
            assert again.asked == 0
            seconds = time.perf_counter() - began
            figures.emit(case, "resume_seconds", seconds, "s", "lower")
            policy.close()


@contextmanager
def server() -> Iterator[str]:
    """A server of chat completions on this machine; its CPU time counts as well."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say({"data": [{"id": "tiny"}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"content": "<action>look around</action>"}
            self.say({"choices": [{"message": message, "finish_reason": "stop"}]})

        def say(self, value: Any) -> None:
            content = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Listening(ThreadingHTTPServer):
        request_queue_size = 128  # by default five may wait, and the sixth for a second

    listening = Listening(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


if __name__ == "__main__":
    main()
