"""Profiling: K responses of a frozen policy to each candidate, kept in a journal.

A response is identified by the candidate, its number k, its seed, the model and how it was sampled.
The seed follows from the candidate and k alone. So order and batches change nothing, a larger K
keeps the responses of a smaller one, and a run that continues after a kill requests only what is
missing.

Verdicts are not in the journal: responses cost a model's time, and verdicts are computed from them,
so another verifier can judge the same responses later.

If a client is killed while a server works on its requests, the responses are paid for and lost. So
the command only displays what a worker process does (``profile_in_worker``). If the command ends,
however it ends, the worker waits for its current batch, writes it into the journal, and exits. The
next command waits for it, and requests nothing twice. Only the end of the worker itself can lose
responses, at most one batch.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, get_type_hints

from ascribe.steps.errors import AscribeError, InputError
from ascribe.steps.problems import replace_surrogates
from ascribe.steps.strict_json import canonical
from ascribe_lab.json_journal import JournalError, open_journal, read_journal
from ascribe_lab.models import SCRIPTED, make_policy
from ascribe_lab.models.http_client import ServerError
from ascribe_lab.models.policy import Request, Sample, Sampling, SamplingPolicy
from ascribe_lab.pivots.candidates import Candidate, read_turns
from ascribe_lab.pivots.text_server import REFUSED, IncompleteBatchError, TextSample, TextServer


@dataclass(frozen=True)
class Reference:
    """The frozen policy π₀ and how it samples. The defaults are those of training rollouts."""

    model: str
    """A name for the model; responses under another name are another model's."""
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def label(self) -> str:
        """How it is sampled, as one text."""
        return canonical(asdict(self.sampling))

    @property
    def key(self) -> tuple[str, str]:
        """The model and how it is sampled."""
        return self.model, self.label


@dataclass(frozen=True)
class ProfileResponse:
    """One response to a candidate: a record of the journal."""

    candidate: str
    k: int
    seed: int
    model: str
    sampling: str
    text: str
    finish: str
    prompt_tokens: int
    response_tokens: int
    refusal: str = ""
    """The server's message, if it refused the request for good."""


def seed_of(candidate: str, k: int) -> int:
    """The seed of response k to a candidate: 63 bits of a hash of the two."""
    return int.from_bytes(sha256(f"{candidate}/{k}".encode()).digest()[:8]) >> 1


def read_responses(
    path: str | Path, reference: Reference | None = None
) -> Iterator[ProfileResponse]:
    """The responses of a journal, those of a reference or all.

    Raises:
        JournalError: if something else is in it.
    """
    kinds = get_type_hints(ProfileResponse)
    for record in read_journal(path):
        try:
            response = ProfileResponse(**record)
        except TypeError:
            response = None
        if response is None or any(type(record[name]) is not kinds[name] for name in record):
            raise JournalError(f"{Path(path).name} holds something else than responses")
        if reference is None or (response.model, response.sampling) == reference.key:
            yield response


@dataclass
class Profiled:
    """The result of profiling."""

    wanted: int
    """Responses that there should be."""
    before: int
    """Of these, how many were there already."""
    asked: int = 0
    """Responses that were requested."""
    prompt_tokens: int = 0
    response_tokens: int = 0
    """0 if a server does not count them."""
    seconds: float = 0.0
    """That the requests took."""
    refused: int = 0
    """Of those requested, how many the server refused for good."""
    refusal: str = ""
    """Its message, the first time."""

    @property
    def complete(self) -> bool:
        """Whether all are there."""
        return self.before + self.asked == self.wanted


def profile(
    candidates: Sequence[Candidate],
    policy: SamplingPolicy,
    reference: Reference,
    path: str | Path,
    *,
    k: int = 8,
    batch: int = 64,
    limit: int | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _wanted: None,
    on_message: Callable[[str], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Profiled:
    """Request what is missing of K responses to each candidate, batch by batch.

    Every batch is in the journal before the next is requested. Candidates are taken in the order of
    their ids, which are hashes: with a limit, those that are done are a random sample. Requests
    that the server refuses for good are in the journal as well, and not sent again.

    Args:
        candidates: the turns.
        policy: samples the responses; it is not closed.
        reference: the policy's name, and how it samples.
        path: the journal.
        k: responses to each candidate.
        batch: responses that are requested at once.
        limit: stop after so many responses.
        on_progress: called with the responses that are there and that there should be, after each
            batch.
        on_message: called if another process has the journal open; this one continues after it.
        should_stop: called before each batch.

    Raises:
        ServerError: if the server fails, or refuses everything. Responses so far are kept.
    """
    if k < 1 or batch < 1:
        raise InputError("k and batch must be at least 1")
    waiting = "Another run is writing its last responses; waiting for it."
    with open_journal(path, lambda: on_message(waiting)) as append:
        present = {(one.candidate, one.k, one.seed) for one in read_responses(path, reference)}
        missing = [
            (one, number, seed)
            for one in sorted(candidates, key=lambda one: one.id)
            for number in range(k)
            if (one.id, number, seed := seed_of(one.id, number)) not in present
        ]
        wanted = len(candidates) * k
        done = Profiled(wanted, wanted - len(missing))
        on_progress(done.before, wanted)
        requested = missing[:limit]
        for start in range(0, len(requested), batch):
            if should_stop():
                break
            began = time.monotonic()
            responses, error = _sample(policy, requested[start : start + batch], reference)
            refusals = [one.refusal for one in responses if one.finish == REFUSED]
            if start == 0 and responses and len(refusals) == len(responses):
                _check_refusal(policy, candidates, reference)
            append(map(asdict, responses))
            if error is not None:
                raise error
            done.prompt_tokens += sum(response.prompt_tokens for response in responses)
            done.response_tokens += sum(response.response_tokens for response in responses)
            done.asked += len(responses)
            done.seconds += time.monotonic() - began
            done.refused += len(refusals)
            done.refusal = done.refusal or next(iter(refusals), "")
            on_progress(done.before + done.asked, wanted)
    return done


def _sample(
    policy: SamplingPolicy, requested: Sequence[tuple[Candidate, int, int]], reference: Reference
) -> tuple[list[ProfileResponse], IncompleteBatchError | None]:
    """The responses that arrived, and the error because of which others did not."""
    requests = [Request(one.messages, seed) for one, _, seed in requested]
    samples: Sequence[Sample | None]
    failure = None
    try:
        samples = policy(requests, reference.sampling)
    except IncompleteBatchError as error:
        samples, failure = error.samples, error
    responses = []
    for (one, number, seed), sample in zip(requested, samples, strict=True):
        if sample is None:
            continue
        # The token ids, or the server's count of them.
        counts = len(sample.prompt_ids), len(sample.response_ids), ""
        if isinstance(sample, TextSample):
            counts = sample.prompt_tokens, sample.response_tokens, sample.refusal
        text = replace_surrogates(sample.text)
        key = (one.id, number, seed, *reference.key)
        responses.append(ProfileResponse(*key, text, sample.finish, *counts))
    return responses, failure


def _check_refusal(
    policy: SamplingPolicy, candidates: Sequence[Candidate], reference: Reference
) -> None:
    """Raise if even the shortest candidate is refused: the model's name or an option is wrong.

    Otherwise all candidates would be recorded as refused, for good.
    """
    responses, error = _sample(policy, [(min(candidates, key=_length), 0, 0)], reference)
    if error is not None:
        raise error
    if responses[0].finish == REFUSED:
        raise ServerError(f"the server refuses everything: {responses[0].refusal}")


def _length(one: Candidate) -> int:
    return sum(len(message["content"]) for message in one.messages)


# The worker process.


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
            raise InputError(f"{self.model} acts in environments, and there is none in a trace")
        if self.model.startswith(("http://", "https://")):
            return TextServer(self.model, self.served, at_once=min(self.batch, 64))
        return make_policy(self.model, backend=self.backend, dtype=self.dtype, context=self.context)


class ProfilingError(AscribeError, RuntimeError):
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
    on_message: Callable[[str], None] = lambda _: None,
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
            elif kind == "message":
                on_message(value)
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
        while os.read(0, 1):  # not sys.stdin, whose lock would abort the interpreter's exit
            pass
        orphaned.set()

    threading.Thread(target=watch, daemon=True).start()

    def send(kind: str, value: Any) -> None:
        try:
            print(json.dumps([kind, value]), file=events)
        except OSError:
            orphaned.set()

    try:
        result = run_profile(
            ProfileTask(**json.loads(line)),
            on_progress=lambda *counts: send("progress", counts),
            on_message=lambda text: send("message", text),
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
