"""Profiling: K responses of a frozen policy to each candidate, kept in a journal.

A response is identified by the candidate, its number k, its seed, the model and how it was sampled.
The seed follows from the candidate and k alone. So order and batches change nothing, a larger K
keeps the responses of a smaller one, and a run that continues after a kill requests only what is
missing.

Verdicts are not in the journal: responses cost a model's time, and verdicts are computed from them,
so another verifier can judge the same responses later.
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
from ascribe.pivots.journal import Journal, JournalError
from ascribe.pivots.text_server import REFUSED, IncompleteBatchError
from ascribe.steps.strict_json import canonical

CHARACTERS_PER_TOKEN = 4.0
"""Of English text, before anything is measured."""


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

    @property
    def key(self) -> tuple[str, int, int, str, str]:
        """What identifies it."""
        return self.candidate, self.k, self.seed, self.model, self.sampling


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
    for record in Journal.records(path):
        try:
            response = ProfileResponse(**record)
        except TypeError as error:
            raise JournalError(f"{Path(path).name} holds something else than responses") from error
        if reference is None or (response.model, response.sampling) == reference.key:
            yield response


# What profiling costs.


@dataclass(frozen=True)
class CostEstimate:
    """What is left to do."""

    responses: int
    prompt_tokens: int
    """Prompts count once for each response, as servers bill them."""
    response_tokens: int
    seconds: float | None
    measured: bool
    """Whether a batch was measured; else the response tokens are an upper limit."""

    def __str__(self) -> str:
        about, most = ("about", "") if self.measured else ("roughly", "at most ")
        prompts = f"{about} {self.prompt_tokens:,} prompt tokens"
        responses = f"{most}{self.response_tokens:,} response tokens"
        text = f"{self.responses:,} responses to request: {prompts} and {responses}"
        if self.seconds is None:
            return text
        if self.seconds < 90:
            return f"{text}, {self.seconds:.0f} s"
        minutes = self.seconds / 60
        return f"{text}, {minutes:.0f} min" if minutes < 90 else f"{text}, {minutes / 60:.1f} h"


@dataclass
class Meter:
    """Counts the responses to a list of prompts, and estimates the rest."""

    lengths: Sequence[int]
    """Characters of each prompt, in the order of the requests."""
    max_tokens: int
    done: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    seconds: float = 0.0

    def count(self, responses: Sequence[ProfileResponse], seconds: float) -> None:
        """Add a batch."""
        lengths = self.lengths[self.done : self.done + len(responses)]
        self.done += len(responses)
        self.seconds += seconds
        for response, length in zip(responses, lengths, strict=True):
            self.prompt_tokens += response.prompt_tokens or round(length / CHARACTERS_PER_TOKEN)
            guess = round(len(response.text) / CHARACTERS_PER_TOKEN)
            self.response_tokens += response.response_tokens or guess

    def estimate(self) -> CostEstimate:
        """The cost of the rest."""
        left = len(self.lengths) - self.done
        done, rest = sum(self.lengths[: self.done]), sum(self.lengths[self.done :])
        if not self.done:
            tokens = round(rest / CHARACTERS_PER_TOKEN)
            return CostEstimate(left, tokens, left * self.max_tokens, None, measured=False)
        return CostEstimate(
            left,
            round(rest * self.prompt_tokens / max(1, done)),
            round(left * self.response_tokens / self.done),
            self.seconds / self.done * left,
            measured=True,
        )


# Profiling.


@dataclass(frozen=True)
class Profiled:
    """The result of profiling."""

    wanted: int
    """Responses that there should be."""
    before: int
    """Of these, how many were there already."""
    asked: int
    """Responses that were requested."""
    prompt_tokens: int
    response_tokens: int
    seconds: float
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
    on_estimate: Callable[[CostEstimate], None] = lambda _: None,
    on_wait: Callable[[], None] = lambda: None,
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
        on_estimate: called with the cost of the rest, before the first batch from the lengths of
            the prompts and after it from what was measured.
        on_wait: called if another process has the journal open; this one continues after it.
        should_stop: called before each batch.

    Raises:
        ServerError: if the server fails, or refuses everything. Responses so far are kept.
    """
    if k < 1 or batch < 1:
        raise ValueError("k and batch must be at least 1")
    started = time.monotonic()
    wanted = len(candidates) * k
    refusals: list[str] = []
    with Journal(path, on_wait) as journal:
        present = {response.key for response in read_responses(path, reference)}
        missing = [
            (one, number, seed)
            for one in sorted(candidates, key=lambda one: one.id)
            for number in range(k)
            if (one.id, number, (seed := seed_of(one.id, number)), *reference.key) not in present
        ]
        before = wanted - len(missing)
        meter = Meter([_length(one) for one, _, _ in missing], reference.sampling.max_tokens)
        on_estimate(meter.estimate())
        on_progress(before, wanted)
        requested = missing[:limit]
        for start in range(0, len(requested), batch):
            if should_stop():
                break
            began = time.monotonic()
            responses, error = _sample(policy, requested[start : start + batch], reference)
            refused = [one.refusal for one in responses if one.finish == REFUSED]
            if start == 0 and responses and len(refused) == len(responses):
                _check_refusal(policy, candidates, reference)
            journal.append(map(asdict, responses))
            if error is not None:
                raise error
            refusals += refused
            meter.count(responses, time.monotonic() - began)
            if start == 0:
                on_estimate(meter.estimate())
            on_progress(before + meter.done, wanted)
    return Profiled(
        wanted,
        before,
        meter.done,
        meter.prompt_tokens,
        meter.response_tokens,
        time.monotonic() - started,
        len(refusals),
        refusals[0] if refusals else "",
    )


def _sample(
    policy: SamplingPolicy, requested: Sequence[tuple[Candidate, int, int]], reference: Reference
) -> tuple[list[ProfileResponse], IncompleteBatchError | None]:
    """The responses that arrived, and the error because of which others did not."""
    samples: Sequence[Sample | None]
    failure = None
    try:
        samples = policy(
            [Request(one.messages, seed) for one, _, seed in requested], reference.sampling
        )
    except IncompleteBatchError as error:
        samples, failure = error.samples, error
    responses = [
        ProfileResponse(
            one.id,
            number,
            seed,
            *reference.key,
            replace_surrogates(sample.text),
            sample.finish,
            _tokens(sample, "prompt"),
            _tokens(sample, "response"),
            getattr(sample, "refusal", ""),
        )
        for (one, number, seed), sample in zip(requested, samples, strict=True)
        if sample is not None
    ]
    return responses, failure


def _check_refusal(
    policy: SamplingPolicy, candidates: Sequence[Candidate], reference: Reference
) -> None:
    """Raise if even the shortest candidate is refused: the model's name or an option is wrong.

    Otherwise all candidates would be recorded as refused, for good.
    """
    shortest = min(candidates, key=_length)
    request = Request(shortest.messages, seed_of(shortest.id, 0))
    (sample,) = policy([request], reference.sampling)
    if sample.finish == REFUSED:
        raise ServerError(f"the server refuses everything: {getattr(sample, 'refusal', '')}")


def _length(one: Candidate) -> int:
    return sum(len(message["content"]) for message in one.messages)


def _tokens(sample: Sample, side: str) -> int:
    """Tokens of the prompt or the response: the ids, or the server's count."""
    ids: Sequence[Any] = getattr(sample, f"{side}_ids")
    counted: int = getattr(sample, f"{side}_tokens", 0)
    return len(ids) or counted
