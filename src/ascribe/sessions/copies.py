"""Sessions that a log holds twice: what proves it, and which ones are equal in words alone.

Two attempts at a task may say the same word for word, above all short ones. They do not have the
same call ids, or times to a fraction of a second, unless all sessions of a batch were given one
time; nor do they say the same where its log-probabilities are so low that it is said only once. A
session that shares these with an earlier one is a copy of it, whatever it is called. Where that
holds for whatever two files have in common and can be told, it holds for the rest, too: one file
was copied into the other.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ascribe.sessions.messages import Conversation, Message

RUN = re.compile(r"[0-9A-Za-z]{8,}")
IN_TURN = re.compile(r"[0-9][A-Za-z]+[0-9]+[A-Za-z]|[A-Za-z][0-9]+[A-Za-z]+[0-9]")
FRACTION = re.compile(r":\d\d\.(?=0*[1-9])\d{3,}")
"""Fractions of a second in a date, but for whole seconds."""

Session = Sequence[Conversation]
Proof = tuple[Hashable, ...]


@dataclass
class Copies:
    """The sessions that were there before.

    Attributes:
        once: whether sessions that are equal in words alone count once, too.
        first: the first session with each proof.
        worded: the words of the sessions that count.
        counted: how many of them each file has, by their words and what they earned.
        timed: the words of the first session with these times; None if others have other words.
        owners: the file of the first session with each proof.
        proven: the files that have sessions with these words and a proof.
        common: for two files, whether sessions with equal words are copies, of those with a proof.
        matched: how many of a file were taken for copies of those of another.
        told: of each session of the table its words, and what proves it with the reason.
    """

    once: bool = False
    first: dict[Hashable, Session] = field(default_factory=dict)
    worded: set[Hashable] = field(default_factory=set)
    counted: dict[Hashable, Counter[Path | None]] = field(default_factory=dict)
    timed: dict[Hashable, Hashable] = field(default_factory=dict)
    owners: dict[Hashable, Path | None] = field(default_factory=dict)
    proven: dict[Hashable, set[Path | None]] = field(default_factory=dict)
    common: dict[tuple[Path | None, Path | None], set[bool]] = field(default_factory=dict)
    matched: Counter[Hashable] = field(default_factory=Counter)
    told: dict[int, tuple[int, list[tuple[str, Proof]]]] = field(default_factory=dict)

    def see(self, sessions: Iterable[Session]) -> None:
        """Compare the times and the files of sessions, before any of their table is judged."""
        worded = [(session, _words(session)) for session in sessions]
        for session, words in worded:
            if (times := _times(session)) and self.timed.setdefault(times, words) != words:
                self.timed[times] = None
        self.told = {}
        for session, words in worded:
            proofs = [
                (why, proof)
                for why, proof in _proofs(session, words)
                if proof[0] != "times" or self.timed[proof[-1]] is not None
            ]
            self.told[id(session)] = words, proofs
            if proofs:
                path = session[0].path
                of = {self.owners.setdefault(proof, path) for _, proof in proofs}
                for other in self.proven.setdefault(words, set()) - {path}:
                    self.common.setdefault((path, other), set()).add(other in of)
                self.proven[words].add(path)

    def reason(self, session: Session) -> tuple[str, Session]:
        """Why a seen session is a copy, and of which; nothing and itself, if it is none."""
        path, (words, proofs) = session[0].path, self.told[id(session)]
        for why, proof in proofs:
            if proof in self.first:
                return why, self.first[proof]
        of_file = self.counted.setdefault((words, earned(session)), Counter())
        for other, count in of_file.items() if not proofs else ():
            pair = words, earned(session), path, other
            if self.common.get((path, other)) == {True} and self.matched[pair] < count:
                self.matched[pair] += 1
                return "in a copied file", session
        # What was not said is no evidence: each session without a response counts.
        equal = words in self.worded and any(each.steps for each in session)
        if equal and self.once:
            return "equal to an earlier one in all words", session
        self.first |= dict.fromkeys((proof for _, proof in proofs), session)
        of_file[path] += 1
        self.worded.add(words)
        return "equal" if equal else "", session

    def replace(self, old: Session, new: Session) -> None:
        """Let another session take the place of an earlier one."""
        for proof, first in self.first.items():
            if first is old:
                self.first[proof] = new


def earned(session: Session) -> float:
    """What a session earned, by its calls or as a whole."""
    rewards = {each.reward for each in session if each.reward is not None}
    return sum(rewards) + sum(sum(filter(None, each.rewards or ())) for each in session)


def better(new: Session, old: Session) -> bool:
    """Whether a session with the identity of an earlier one is the one to keep."""

    def worth(session: Session) -> tuple[bool, bool, int]:
        rewarded = any(e.reward is not None or any(e.rewards or ()) for e in session)
        crashed = any(each.crashed for each in session)
        return rewarded, not crashed, sum(len(each.steps) for each in session)

    return worth(new) > worth(old)


def _words(session: Session) -> int:
    """A hash of what was said and done; of later calls, of what is new in them."""
    parts: list[Hashable] = [session[0].group]
    for number, each in enumerate(session):
        start = max(0, each.context - 1) if number else 0
        parts += [said(message) for message in each.messages[start:]]
    return hash(tuple(parts))


def said(message: Message) -> Hashable:
    """What a message says and calls, without ids."""
    calls = message.get("tool_calls")
    if not calls:
        return message.get("role"), str(message.get("content")), ()
    functions = [c.get("function", c) if isinstance(c, Mapping) else c for c in calls]
    called = tuple(
        (str(f.get("name")), str(f.get("arguments"))) if isinstance(f, Mapping) else str(f)
        for f in functions
    )
    return message.get("role"), str(message.get("content")), called


def _times(session: Session) -> tuple[str, ...]:
    """When the parts of a session were written; empty if no time has fractions of a second."""
    times = [time for each in session for time in (each.time, *each.times)]
    return tuple(map(str, times)) if any(map(_is_exact, times)) else ()


def _proofs(session: Session, words: Hashable) -> Iterator[tuple[str, Proof]]:
    """What cannot coincide in two sessions, with the reason that it gives."""
    for each in session:
        if each.identity is not None:
            yield "the same id as another", ("identity", each.identity)
            break
    ids = frozenset(filter(_is_random, (name for each in session for name in _ids(each))))
    if ids:
        yield "the same call ids as another", ("ids", words, ids)
    if times := _times(session):
        yield "the same times as another", ("times", words, times)
    marks = tuple(each.logprobs for each in session if each.logprobs)
    if marks:
        yield "the same log-probabilities as another", ("logprobs", words, marks)


def _ids(each: Conversation) -> Iterator[str]:
    if each.id:
        yield each.id
    for message in each.messages[each.context :]:
        for call in message.get("tool_calls") or ():
            if isinstance(call, Mapping) and call.get("id"):
                yield str(call["id"])


@lru_cache(maxsize=1 << 16)
def _is_random(name: str) -> bool:
    """Whether an id was drawn at random, with digits and letters in turn, and not counted."""
    return any(map(IN_TURN.search, RUN.findall(name)))


def _is_exact(time: Any) -> bool:
    """Whether a time has fractions of a second."""
    if isinstance(time, float):
        return not time.is_integer()
    return isinstance(time, str) and FRACTION.search(time) is not None
