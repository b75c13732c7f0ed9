"""``profile_in_worker``: profiling in a worker process that survives a kill of the command.

If a client is killed while a server works on its requests, the responses are paid for and lost. So
the command only displays what a worker does. If the command ends, however it ends, the worker waits
for its current batch, writes it into the journal, and exits. The next command waits for it, and
requests nothing twice. Only the end of the worker itself can lose responses, at most one batch.
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
from ascribe.pivots.profile import CostEstimate, Profiled, Reference, profile
from ascribe.pivots.text_server import TextServer


@dataclass(frozen=True)
class ProfileTask:
    """What to profile and with which model, in plain values.

    Attributes:
        candidates: the file of candidates.
        journal: the journal of responses.
        model: a model folder, ``smollm2``, or the address of a server.
        k: responses to each candidate.
        batch: responses that are requested at once.
        temperature: of sampling.
        top_p: of sampling.
        max_tokens: that a response may have.
        stop: a response ends after any of these texts.
        limit: stop after so many responses.
        backend: what runs a model folder.
        dtype: type to compute in; None: the backend's choice.
        context: tokens that prompt and response may have together; None: the model's limit.
        tokenizer: for a server with token ids: the folder of its tokenizer. Without one the server
            is asked for text alone.
        served: the name of the model on a server; None if it has only one.
        label: the model's name in the journal; None: ``served`` or ``model``.
    """

    candidates: str
    journal: str
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
        """The model's name, and how it samples."""
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


class ProfilingError(RuntimeError):
    """The worker could not continue; responses so far are in the journal."""


def run_profile(task: ProfileTask, **callbacks: Any) -> Profiled:
    """Profile in this process; the callbacks are those of ``profile``."""
    candidates = read_turns(task.candidates).candidates
    with closing(task.open()) as policy:
        return profile(
            candidates,
            policy,
            task.reference,
            task.journal,
            k=task.k,
            batch=task.batch,
            limit=task.limit,
            **callbacks,
        )


def profile_in_worker(
    task: ProfileTask,
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _wanted: None,
    on_estimate: Callable[[CostEstimate], None] = lambda _: None,
    on_wait: Callable[[], None] = lambda: None,
) -> Profiled:
    """Profile in a worker process, which outlives this one by at most a batch.

    An interrupt (Ctrl-C) stops it after its current batch; a second one ends it at once. The
    callbacks are those of ``profile``.

    Raises:
        ProfilingError: with the reason.
    """

    def listen(events: Any) -> Profiled | str | None:
        """The result, or what went wrong; None if the worker reported neither."""
        for line in events:
            kind, value = json.loads(line)
            if kind == "progress":
                on_progress(*value)
            elif kind == "estimate":
                on_estimate(CostEstimate(**value))
            elif kind == "wait":
                on_wait()
            else:
                return Profiled(**value) if kind == "done" else str(value)
        return None

    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # the terminal's signals are for the command
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            process.stdin.write(json.dumps(asdict(task)).encode() + b"\n")
            process.stdin.flush()
            try:
                result = listen(process.stdout)
            except KeyboardInterrupt:
                process.stdin.close()
                result = listen(process.stdout)
        except BrokenPipeError:
            result = None
        except BaseException:
            process.kill()
            raise
        with suppress(OSError):
            process.stdin.close()
    if isinstance(result, Profiled):
        return result
    raise ProfilingError(result or f"the worker ended with exit code {process.returncode}")


def main() -> None:
    """The worker: a task on standard input, events on standard output.

    The end of standard input means that the command is gone.
    """
    # The output of other packages must not come between the events.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):  # the command was gone before it had sent the task
        return
    orphaned = threading.Event()

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            pass
        orphaned.set()

    threading.Thread(target=watch, daemon=True).start()

    def send(kind: str, value: Any = None) -> None:
        try:
            print(json.dumps([kind, value]), file=events)
        except OSError:
            orphaned.set()

    try:
        result = run_profile(
            ProfileTask(**json.loads(line)),
            on_progress=lambda *counts: send("progress", counts),
            on_estimate=lambda estimate: send("estimate", asdict(estimate)),
            on_wait=lambda: send("wait"),
            should_stop=orphaned.is_set,
        )
    except (ImportError, OSError, ValueError, TypeError, RuntimeError) as error:
        send("failed", f"{type(error).__name__}: {error}")
    else:
        send("done", asdict(result))
    # The command may be gone, so what is left in the buffer cannot be written.
    with suppress(OSError):
        events.close()


def journal_beside(candidates: str | Path) -> Path:
    """The default journal: beside the candidates."""
    path = Path(candidates)
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.answers.jsonl")
