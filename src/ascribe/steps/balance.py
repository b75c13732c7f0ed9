"""What a reader saw, what it used, and what it left out, with a reason for each kind left out."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ascribe.steps.problems import counted, one_line

Thing = Literal["file", "record", "session", "response", "reward"]
THINGS: tuple[Thing, ...] = ("file", "record", "session", "response", "reward")
MOST_NAMED = 20
"""Things left out for one reason that are named."""
MOST_VERSIONS = 6
"""Versions that a sentence names."""


@dataclass
class Balance:
    """What was seen, used and left out; what is seen is used or left out.

    Attributes:
        seen: how many of each thing.
        left_out: how many of each thing and reason were left out.
        named: the first of them.
        rewards: what the rewards of a log belong to: the ``session``, its ``calls``, or
            ``either`` where no session has two.
        unsure: whether every session repeats one reward, so that they may as well be its calls'.
        crashed: sessions that count although the file says that they crashed.
        silent: sessions that count although the model wrote nothing.
        equal: sessions that equal an earlier one of their task in all words, and count.
        versions: sessions of each version.
        fields: the fields that were taken for messages, reward and so on, and how often.
        split: tasks with one name and different questions, which count apart.

    Example:
        >>> from ascribe.sessions.formats import import_files
        >>> import_files(["examples/conversations.jsonl"]).balance.sentence
        '120 sessions in 1 file.'
    """

    seen: Counter[Thing] = field(default_factory=Counter)
    left_out: Counter[tuple[Thing, str]] = field(default_factory=Counter)
    named: dict[tuple[Thing, str], list[str]] = field(default_factory=dict)
    rewards: str = ""
    unsure: bool = False
    crashed: int = 0
    silent: int = 0
    equal: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    fields: dict[str, Counter[str]] = field(default_factory=dict)
    split: dict[str, list[str]] = field(default_factory=dict)

    def see(self, thing: Thing, count: int = 1) -> None:
        """Count things that were seen."""
        self.seen[thing] += count

    def leave_out(self, thing: Thing, reason: str, name: object = "", count: int = 1) -> None:
        """Count things that were seen and are left out."""
        if not count:
            return
        self.left_out[thing, reason] += count
        named = self.named.setdefault((thing, reason), [])
        if name and len(named) < MOST_NAMED:
            named.append(one_line(name, 200))

    def used(self, thing: Thing) -> int:
        """How many of a thing were used."""
        return self.seen[thing] - sum(n for (kind, _), n in self.left_out.items() if kind == thing)

    def reasons(self, thing: Thing) -> dict[str, int]:
        """How many of a thing were left out, by reason, the most frequent first."""
        counts = Counter({why: n for (kind, why), n in self.left_out.items() if kind == thing})
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def sentence(self) -> str:
        """One line: what was used, and what was left out and why."""
        parts = [f"{counted(self.used('session'), 'session')} in {self._files()}"]
        verbs = {"file": "not read", "record": "not read"}
        for thing in ("file", "record", "session", "reward"):
            reasons = self.reasons(thing)
            if reasons:
                why = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.items())
                verb = verbs.get(thing, "left out")
                parts.append(f"{counted(sum(reasons.values()), thing)} {verb}: {why}")
        return f"{'; '.join(parts)}."

    def _files(self) -> str:
        return counted(self.used("file"), "file")

    def details(self) -> Iterator[str]:
        """Sentences about what counts in an unusual way."""
        if self.silent:
            crashed = f", {self.crashed:,} of which crashed" if self.crashed else ""
            yield (
                f"{counted(self.silent, 'session')} without a response{crashed}: they count with "
                "their rewards."
            )
        elif self.crashed:
            yield f"{counted(self.crashed, 'session')} crashed, and count with their rewards."
        if self.equal:
            verb = "equals an earlier one" if self.equal == 1 else "equal earlier ones"
            yield (
                f"{counted(self.equal, 'session')} {verb} of the task in all words. Nothing proves "
                "that they are copies, so all count."
            )
        if self.rewards == "calls":
            yield "Rewards belong to calls: those of a session add up."
        elif self.unsure:
            yield "All calls of a session have one reward, which is taken for the session's."
        for name, parts in list(self.split.items())[:3]:
            yield f"Task {one_line(name, 60)} has different questions, and counts as {len(parts)}."
        if self.fields:
            taken = ", ".join(
                f"{what} from {' or '.join(one_line(path, 60) for path in paths)}"
                for what, paths in self.fields.items()
            )
            yield f"Fields: {taken}."
        if len(self.versions) > 1:
            shown = [f"{name} ({n:,})" for name, n in self.versions.most_common(MOST_VERSIONS)]
            more = len(self.versions) - len(shown)
            listed = ", ".join(one_line(each, 80) for each in shown)
            yield f"Versions: {listed}{f' and {more} more' if more else ''}."

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        things = {
            f"{thing}s": {
                "seen": self.seen[thing],
                "used": self.used(thing),
                "left_out": {
                    why: {"count": n, "first": self.named.get((thing, why), [])}
                    for why, n in self.reasons(thing).items()
                },
            }
            for thing in THINGS
        }
        return {
            "sentence": self.sentence,
            **things,
            "rewards_of": self.rewards,
            "rewards_unsure": self.unsure,
            "crashed": self.crashed,
            "without_response": self.silent,
            "equal_in_words": self.equal,
            "versions": [{"name": k, "sessions": n} for k, n in self.versions.most_common()],
            "fields": {what: dict(paths) for what, paths in self.fields.items()},
            "split_tasks": [{"name": k, "counts_as": names} for k, names in self.split.items()],
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Balance":
        """The balance that ``as_dict`` gave."""
        balance = cls(
            rewards=values["rewards_of"],
            unsure=values["rewards_unsure"],
            crashed=values["crashed"],
            silent=values["without_response"],
            equal=values["equal_in_words"],
            versions=Counter({each["name"]: each["sessions"] for each in values["versions"]}),
            fields={what: Counter(paths) for what, paths in values["fields"].items()},
            split={each["name"]: each["counts_as"] for each in values["split_tasks"]},
        )
        for thing in THINGS:
            balance.seen[thing] = values[f"{thing}s"]["seen"]
            for why, found in values[f"{thing}s"]["left_out"].items():
                balance.left_out[thing, why] = found["count"]
                balance.named[thing, why] = found["first"]
        return balance
