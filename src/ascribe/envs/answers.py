"""What an environment said: whether it is well-formed, and where two answers differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.envs.protocol import INFO_KEYS

OPTIONAL_KEYS = ("example_actions", "expert_action")


@dataclass(frozen=True)
class Answer:
    """What an environment said: to ``reset`` (reward 0, no end) or to ``step``."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Mapping[str, Any]

    @property
    def over(self) -> bool:
        """Whether the episode ended here."""
        return bool(self.terminated) or bool(self.truncated)


@dataclass(frozen=True)
class Episode:
    """A recorded episode: the answer to the reset, then one for each action."""

    seed: int
    actions: Sequence[str]
    answers: Sequence[Answer]


def difference(one: Answer, other: Answer) -> str | None:
    """Where two answers differ, as far as Ascribe reads them."""
    for name in ("observation", "reward", "terminated", "truncated"):
        if not same(first := getattr(one, name), second := getattr(other, name)):
            return f"{name} is {shown(first)}, then {shown(second)}"
    for name in (*INFO_KEYS, *OPTIONAL_KEYS):
        if not same(first := one.info.get(name), second := other.info.get(name)):
            return f"{name} is {shown(first)}, then {shown(second)}"
    return None


def same(one: Any, other: Any) -> bool:
    """Equality that holds for NaN and for values that cannot be compared."""
    try:
        return bool(one == other) or repr(one) == repr(other)
    except Exception:
        return repr(one) == repr(other)


def fits(name: str, value: Any) -> bool:
    """Whether a value of info has the type that its key asks for; other keys may hold anything."""
    if name in ("won", "valid"):
        return isinstance(value, bool)
    if name in ("task", "task_family", "state"):
        return isinstance(value, str)
    if name == "expert_action":
        return value is None or isinstance(value, str)
    if name in ("admissible_actions", "example_actions"):
        listed = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return listed or (value is None and name == "admissible_actions")
    return True


def texts(answer: Answer) -> list[tuple[str, str]]:
    """Every text of an answer that Ascribe reads, by name."""
    named = [("observation", answer.observation)]
    named += [(name, answer.info.get(name)) for name in ("task", "task_family", "state")]
    named += [("expert_action", answer.info.get("expert_action"))]
    for name in ("admissible_actions", "example_actions"):
        listed = answer.info.get(name)
        named += [(name, one) for one in (listed if isinstance(listed, list) else [])]
    return [(name, text) for name, text in named if isinstance(text, str)]


def is_unicode(text: str) -> bool:
    """Whether the text can be written to a file: no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """A value in a few characters."""
    said = repr(value[:80] if isinstance(value, str) else value)
    return said if len(said) <= 80 else said[:79] + "…"


def said(error: Exception) -> str:
    """An exception in a few words."""
    return f"{type(error).__name__}: {str(error)[:200]}"
