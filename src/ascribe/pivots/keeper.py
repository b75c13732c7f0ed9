"""``keep_profile``: profiling in a process of its own, which a kill of the command does not reach.

Whoever is killed while a server works on their requests has paid for answers that nobody writes
down. So the command only shows what a second process does. If the command goes, however it goes,
that process waits for the batch it has asked for, writes it into the journal, and ends. The next
command waits for it, and asks for nothing twice.

Only the end of this second process itself can lose answers, and then at most one batch of them.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ascribe.models import SCRIPTED, make_policy
from ascribe.models.policy import Sampling, SamplingPolicy
from ascribe.pivots.candidates import read_turns
from ascribe.pivots.estimate import Estimate
from ascribe.pivots.profile import Profiled, Progress, Reference, profile
from ascribe.pivots.text_server import TextServer


@dataclass(frozen=True)
class Order:
    """What to profile, by whom, in plain values.

    Attributes:
        candidates: the file of candidates.
        answers: the journal.
        model: a model folder, ``smollm2``, or the address of a server.
        k: answers to each candidate.
        batch: answers that are asked for at once.
        temperature: of sampling.
        top_p: of sampling.
        max_tokens: that an answer may have.
        stop: an answer ends after any of these texts.
        limit: stop after so many answers.
        backend: who runs a model folder.
        dtype: type to compute in; None: the backend's choice.
        context: tokens that prompt and answer may have together; None: what the model can.
        tokenizer: for a server with token ids: the folder of its tokenizer. Without one the server
            is asked for text alone.
        served: the name of the model on a server; None if it has only one.
        label: what the model is called in the journal; None: what ``model`` says.
    """

    candidates: str
    answers: str
    model: str
    k: int = 8
    batch: int = 64
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: Sequence[str] = ()
    limit: int | None = None
    backend: str = "transformers"
    dtype: str | None = None
    context: int | None = None
    tokenizer: str | None = None
    served: str | None = None
    label: str | None = None

    @property
    def reference(self) -> Reference:
        """Who answers, and how."""
        sampling = Sampling(self.temperature, self.top_p, self.max_tokens, tuple(self.stop))
        return Reference(self.label or self.served or self.model, sampling)

    def open(self) -> SamplingPolicy:
        """The policy; close it after use."""
        if self.model in SCRIPTED:
            raise ValueError(f"{self.model} acts in environments, and there is none in a trace")
        if self.model.startswith(("http://", "https://")) and self.tokenizer is None:
            return TextServer(self.model, self.served, at_once=min(self.batch, 64))
        return make_policy(
            self.model,
            backend=self.backend,
            dtype=self.dtype,
            context=self.context,
            tokenizer=self.tokenizer,
        )


class ProfilingFailed(RuntimeError):  # noqa: N818 (named for what happened)
    """The process that profiles could not go on; what it was answered is in the journal."""


def run_profile(
    order: Order,
    *,
    progress: Progress = lambda _done, _all: None,
    told: Callable[[Estimate], None] = lambda _: None,
    waiting: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
) -> Profiled:
    """Profile by an order, in this process."""
    candidates = read_turns(order.candidates).candidates
    with closing(order.open()) as policy:
        return profile(
            candidates,
            policy,
            order.reference,
            order.answers,
            k=order.k,
            batch=order.batch,
            limit=order.limit,
            progress=progress,
            told=told,
            waiting=waiting,
            stop=stop,
        )


def keep_profile(
    order: Order,
    *,
    progress: Progress = lambda _done, _all: None,
    told: Callable[[Estimate], None] = lambda _: None,
    waiting: Callable[[], None] = lambda: None,
) -> Profiled:
    """Profile by an order, in a process that outlives this one by a batch.

    An interrupt (Ctrl-C) stops it after the batch that it is at; a second one ends it at once.

    Raises:
        ProfilingFailed: with the reason.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # the terminal's signals are for us
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
            process.stdin.flush()
            listeners = (progress, told, waiting)
            try:
                found = _listen(process.stdout, *listeners)
            except KeyboardInterrupt:
                process.stdin.close()
                found = _listen(process.stdout, *listeners)
        except BrokenPipeError:
            found = None
        except BaseException:
            process.kill()
            raise
        with suppress(OSError):
            process.stdin.close()
    if isinstance(found, Profiled):
        return found
    raise ProfilingFailed(found or f"the process that profiles ended with {process.returncode}")


def _listen(
    events: Any,
    progress: Progress,
    told: Callable[[Estimate], None],
    waiting: Callable[[], None],
) -> Profiled | str | None:
    """What came of it, or what went wrong; None if the process said neither."""
    for line in events:
        kind, value = json.loads(line)
        if kind == "progress":
            progress(*value)
        elif kind == "estimate":
            told(Estimate(**value))
        elif kind == "waiting":
            waiting()
        elif kind == "done":
            return Profiled(**value)
        else:
            return str(value)
    return None


def main() -> None:
    """The process that profiles: an order on standard input, events on standard output.

    The end of standard input means that nobody listens any more.
    """
    # What other packages print must not come between the events.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    told = sys.stdin.buffer.readline()
    if not told.endswith(b"\n"):  # the command was gone before it had said what to do
        return
    order = Order(**json.loads(told))
    alone = threading.Event()

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            pass
        alone.set()

    threading.Thread(target=watch, daemon=True).start()

    def say(kind: str, value: Any = None) -> None:
        try:
            print(json.dumps([kind, value]), file=events)
        except OSError:
            alone.set()

    try:
        done = run_profile(
            order,
            progress=lambda *counts: say("progress", counts),
            told=lambda estimate: say("estimate", asdict(estimate)),
            waiting=lambda: say("waiting"),
            stop=alone.is_set,
        )
    except (ImportError, OSError, ValueError, TypeError, RuntimeError) as error:
        say("failed", f"{type(error).__name__}: {error}")
    else:
        say("done", asdict(done))
    # Nobody may be there to read what is left in the buffer.
    with suppress(OSError):
        events.close()


def answers_file(candidates: str | Path) -> Path:
    """Where answers go if nothing else is said: beside the candidates."""
    path = Path(candidates)
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.answers.jsonl")
