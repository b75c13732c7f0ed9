"""Profiling: K answers of a frozen policy to each candidate, on paper as soon as they are there.

An answer is known by the candidate, its number k, its seed, the model and how it was sampled. The
seed follows from the candidate and k alone. So order and batches change nothing, a larger K keeps
the answers of a smaller one, and whoever goes on after a kill asks only for what is not in the
journal.

Verdicts are not in the journal: answers cost a model's time, verdicts are computed from them. The
same answers can be judged by another verifier later.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ascribe.agents.clean import replace_surrogates
from ascribe.models.http_client import ServerError
from ascribe.models.policy import Request, Sample, Sampling, SamplingPolicy
from ascribe.pivots.candidates import Candidate
from ascribe.pivots.estimate import Estimate, Meter
from ascribe.pivots.journal import BrokenJournal, Journal
from ascribe.pivots.text_server import REFUSED, Unfinished
from ascribe.steps.strict_json import canonical


@dataclass(frozen=True)
class Reference:
    """Who answers, and how: the frozen policy π₀. The defaults are those of training rollouts."""

    model: str
    """A name for the model; answers of another name are others'."""
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def label(self) -> str:
        """How it is sampled, as one text."""
        return canonical(asdict(self.sampling))


@dataclass(frozen=True)
class Answer:
    """One answer to a candidate."""

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
    """The server's words, if it refused the request for good."""

    @property
    def key(self) -> tuple[str, int, int, str, str]:
        """What it is known by."""
        return self.candidate, self.k, self.seed, self.model, self.sampling


def seed_of(candidate: str, k: int) -> int:
    """The seed of answer k to a candidate: 63 bits of a hash of the two."""
    return int.from_bytes(sha256(f"{candidate}/{k}".encode()).digest()[:8]) >> 1


def read_answers(path: str | Path, reference: Reference | None = None) -> Iterator[Answer]:
    """The answers of a journal, those of a reference or all.

    Raises:
        BrokenJournal: if something else is in it.
    """
    for record in Journal.records(path):
        try:
            answer = Answer(**record)
        except TypeError as error:
            raise BrokenJournal(f"{Path(path).name} holds something else than answers") from error
        if reference is None or (answer.model, answer.sampling) == (
            reference.model,
            reference.label,
        ):
            yield answer


def references(path: str | Path) -> list[tuple[str, str]]:
    """Whose answers a journal holds: models and how they were sampled, in order of appearance."""
    found = ((answer.model, answer.sampling) for answer in read_answers(path))
    return list(dict.fromkeys(found))


Progress = Callable[[int, int], None]
"""Told how many answers are there, and of how many."""


@dataclass(frozen=True)
class Profiled:
    """What came of profiling."""

    wanted: int
    """Answers that there should be."""
    before: int
    """Of these, how many were there already."""
    asked: int
    prompt_tokens: int
    response_tokens: int
    seconds: float
    refused: int = 0
    """Of those asked for, how many the server refused for good."""
    refusal: str = ""
    """Its words, the first time."""

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
    progress: Progress = lambda _done, _all: None,
    told: Callable[[Estimate], None] = lambda _: None,
    waiting: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
) -> Profiled:
    """Ask for what is missing of K answers to each candidate, batch by batch.

    Every batch is in the journal before the next is asked for. Candidates are asked about in the
    order of their ids, which are hashes: with a limit, those that are done are a random sample.
    What the server refuses for good is in the journal as well, and not asked for again.

    Args:
        candidates: whom to ask about.
        policy: who answers; it is not closed.
        reference: what the policy is called, and how it samples.
        path: the journal.
        k: answers to each candidate.
        batch: answers that are asked for at once.
        limit: stop after so many answers.
        progress: told how far it is, after each batch.
        told: given the estimate of what is left, before the first batch from the lengths of the
            prompts and after it from what it took.
        waiting: called if another process is at the journal; this one goes on after it.
        stop: asked before each batch.

    Raises:
        ServerError: if the server fails, or refuses everything. What it answered is in the journal.
    """
    if k < 1 or batch < 1:
        raise ValueError("k and batch must be at least 1")
    started = time.monotonic()
    wanted = len(candidates) * k
    refusals: list[str] = []
    with Journal(path, waiting) as journal:
        known = {answer.key for answer in read_answers(path, reference)}
        missing = [
            (one, number, seed)
            for one in sorted(candidates, key=lambda one: one.id)
            for number in range(k)
            if (one.id, number, (seed := seed_of(one.id, number)), *_who(reference)) not in known
        ]
        before = wanted - len(missing)
        meter = Meter([_length(one) for one, _, _ in missing], reference.sampling.max_tokens)
        told(meter.estimate())
        progress(before, wanted)
        asked = missing[:limit]
        for start in range(0, len(asked), batch):
            if stop():
                break
            part = asked[start : start + batch]
            began = time.monotonic()
            answers, failure = _ask(policy, part, reference)
            if start == 0 and answers and all(answer.finish == REFUSED for answer in answers):
                _knock(policy, candidates, reference)
            journal.append(map(asdict, answers))
            if failure is not None:
                raise failure
            refusals += [answer.refusal for answer in answers if answer.finish == REFUSED]
            meter.count(answers, time.monotonic() - began)
            if start == 0:
                told(meter.estimate())
            progress(before + meter.done, wanted)
    seconds = time.monotonic() - started
    return Profiled(
        wanted,
        before,
        meter.done,
        meter.prompt_tokens,
        meter.response_tokens,
        seconds,
        len(refusals),
        refusals[0] if refusals else "",
    )


def _ask(
    policy: SamplingPolicy, asked: Sequence[tuple[Candidate, int, int]], reference: Reference
) -> tuple[list[Answer], Unfinished | None]:
    """The answers that arrived, and the failure because of which others did not."""
    requests = [Request(one.messages, seed) for one, _, seed in asked]
    samples: Sequence[Sample | None]
    failure = None
    try:
        samples = policy(requests, reference.sampling)
    except Unfinished as error:
        samples, failure = error.samples, error
    answers = [
        _answer(one, number, seed, reference, sample)
        for (one, number, seed), sample in zip(asked, samples, strict=True)
        if sample is not None
    ]
    return answers, failure


def _knock(policy: SamplingPolicy, candidates: Sequence[Candidate], reference: Reference) -> None:
    """Raise if even the shortest candidate is refused: then it is the model's name or an option.

    Else all candidates would be written down as refused, for good.
    """
    shortest = min(candidates, key=_length)
    request = Request(shortest.messages, seed_of(shortest.id, 0))
    (sample,) = policy([request], reference.sampling)
    if sample.finish == REFUSED:
        raise ServerError(f"the server refuses everything: {getattr(sample, 'refusal', '')}")


def _who(reference: Reference) -> tuple[str, str]:
    return reference.model, reference.label


def _length(one: Candidate) -> int:
    return sum(len(message["content"]) for message in one.messages)


def _answer(one: Candidate, number: int, seed: int, reference: Reference, sample: Sample) -> Answer:
    return Answer(
        one.id,
        number,
        seed,
        *_who(reference),
        replace_surrogates(sample.text),
        sample.finish,
        _tokens(sample, "prompt"),
        _tokens(sample, "response"),
        getattr(sample, "refusal", ""),
    )


def _tokens(sample: Sample, side: str) -> int:
    """Tokens of the prompt or the response: the ids, or what the server counted."""
    ids: Sequence[Any] = getattr(sample, f"{side}_ids")
    counted: int = getattr(sample, f"{side}_tokens", 0)
    return len(ids) or counted
