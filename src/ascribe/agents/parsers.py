"""Parsers: which part of an answer is the action.

Every parser is a function from text to ``Parsed``; it never raises, and takes time linear in the
text. Its ``render`` goes the other way: an answer that gives an action, for scripted policies.

Half surrogates in answers become U+FFFD before anything is read (``ascribe.agents.clean``).
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ascribe.agents.agent import Parsed
from ascribe.agents.clean import mend
from ascribe.agents.tags import bodies, split_thoughts

PROBLEMS = {
    "empty_answer": "the answer holds nothing but white space",
    "no_action": "nothing in the answer looks like an action",
    "action_not_closed": "an action begins and does not end; the answer may have been cut",
    "empty_action": "there is an action, but nothing in it",
    "action_too_long": "the action is longer than the parser allows",
    "bad_json": "the tool call is not strict JSON, or is nested too deeply",
    "duplicate_key": "the tool call gives a key twice",
    "not_a_call": "the JSON has no name of a tool, or arguments that are no object",
    "no_thought": "there is an action, but not the thought that the parser demands",
    "several_actions": "there are several actions where the parser demands one",
}
"""Everything that can be wrong with an answer. With the last two the first action is carried out
all the same, and the turn counts as invalid."""


class AnswerParser(ABC):
    """What all parsers share: answers are mended before they are read, renderings are checked."""

    @abstractmethod
    def _parse(self, text: str) -> Parsed:
        """Read an answer that has more in it than white space, and no half surrogates."""

    @abstractmethod
    def _render(self, action: str, thought: str | None, /) -> str:
        """Write an answer that ought to give the action."""

    def __call__(self, text: str) -> Parsed:
        """Read an answer."""
        return self._parse(mend(text)) if text.strip() else Parsed(None, problem="empty_answer")

    def render(self, action: str, thought: str | None = None) -> str:
        """An answer that gives this action.

        Raises:
            ValueError: if there is none, for instance because the action holds a closing tag.
        """
        answer = self._render(action, thought)
        if self(answer).action != action:
            raise ValueError(f"no answer of this format gives the action {action[:200]!r}")
        return answer


@dataclass(frozen=True)
class _Tagged(AnswerParser):
    longest: int = 10_000
    needs_thought: bool = False
    only_one: bool = False

    names: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        check_longest(self.longest)

    @abstractmethod
    def _action(self, name: str, body: str, /) -> str:
        """The action that a tag stands for."""

    def _parse(self, text: str) -> Parsed:
        thought, parts = split_thoughts(text)
        tags = bodies(parts, self.names)
        found = [(name, body.strip()) for name, body in tags.found]
        fitting = [(name, body) for name, body in found if 0 < len(body) <= self.longest]
        if not fitting:
            return Parsed(None, thought, _why_none([body for _, body in found], tags.opened))
        problem = None
        if self.needs_thought and not thought:
            problem = "no_thought"
        elif self.only_one and len(found) > 1:
            problem = "several_actions"
        return Parsed(self._action(*fitting[0]), thought, problem)


class ThinkAction(_Tagged):
    """``<think>...</think><action>...</action>``: the first well-formed action is carried out.

    Well formed is an action whose tag is closed, that has no action tag inside, and that holds 1 to
    ``longest`` characters besides white space around it. Actions inside a closed thought are only
    thought of.

    Attributes:
        longest: most characters of an action.
        needs_thought: an action without a thought is carried out, but invalid (as in verl-agent).
        only_one: of several actions the first is carried out, but invalid.
    """

    names = ("action",)

    def _action(self, _name: str, body: str, /) -> str:
        return body

    def _render(self, action: str, thought: str | None, /) -> str:
        return f"{in_think(thought)}<action>{action}</action>"


class SearchAnswer(_Tagged):
    """``<search>...</search>`` or ``<answer>...</answer>``, whichever comes first (Search-R1).

    The action is ``search[...]`` or ``answer[...]``. ``ThinkAction`` tells what is well formed and
    what the attributes mean; verl-agent demands ``only_one``.
    """

    names = ("search", "answer")

    def _action(self, name: str, body: str, /) -> str:
        return f"{name}[{body}]"

    def _render(self, action: str, thought: str | None, /) -> str:
        return in_think(thought) + as_tag(action)


@dataclass(frozen=True)
class ThoughtAction(AnswerParser):
    """``Thought: ...`` and ``Action: ...``, each label at the beginning of a line (ReAct).

    The action is the rest of the line after ``Action:``, or the next line that is not empty; the
    first such action counts. Labels may be numbered, as in ``Action 3:``. The thought is what
    ``Thought:`` says, or without this label what stands before the first label.

    Attributes:
        longest: most characters of an action.
    """

    longest: int = 10_000

    def __post_init__(self) -> None:
        check_longest(self.longest)

    def _parse(self, text: str) -> Parsed:
        labels = list(_LABEL.finditer(text))
        edges = [*(label.start() for label in labels), len(text)]
        said = [
            (label["name"].lower(), text[label.end() : end].strip())
            for label, end in zip(labels, edges[1:], strict=True)
        ]
        thoughts = [body for name, body in said if name == "thought"]
        thought = thoughts[0] if thoughts else text[: edges[0]].strip() or None
        actions = [body.partition("\n")[0].rstrip() for name, body in said if name == "action"]
        fitting = [action for action in actions if 0 < len(action) <= self.longest]
        if fitting:
            return Parsed(fitting[0], thought)
        return Parsed(None, thought, _why_none(actions, opened=False))

    def _render(self, action: str, thought: str | None, /) -> str:
        said = "" if thought is None else f"Thought: {thought}\n"
        return f"{said}Action: {action}"


@dataclass(frozen=True)
class WholeText(AnswerParser):
    """The whole answer is the action, without white space around it.

    Attributes:
        longest: most characters of an action.
    """

    longest: int = 1_000_000

    def __post_init__(self) -> None:
        check_longest(self.longest)

    def _parse(self, text: str) -> Parsed:
        action = text.strip()
        if len(action) > self.longest:
            return Parsed(None, problem="action_too_long")
        return Parsed(action)

    def _render(self, action: str, _thought: str | None, /) -> str:
        return action


def as_tag(action: str) -> str:
    """``search[x]`` as ``<search>x</search>``, ``answer[x]`` likewise, other texts as they are."""
    found = _SEARCH.fullmatch(action)
    return f"<{found['name']}>{found['body']}</{found['name']}>" if found else action


def in_think(thought: str | None) -> str:
    """The thought inside its tags, or nothing."""
    return "" if thought is None else f"<think>{thought}</think>"


def _why_none(found: list[str], opened: bool) -> str:
    """What is wrong if none of these actions will do."""
    if any(found):
        return "action_too_long"
    if found:
        return "empty_action"
    return "action_not_closed" if opened else "no_action"


def check_longest(longest: int) -> None:
    """Refuse a limit that nothing could keep."""
    if longest < 1:
        raise ValueError(f"longest must be at least 1, not {longest}")


_LABEL = re.compile(
    r"^[ \t]*(?P<name>thought|action|observation)(?:[ \t]+\d+)?[ \t]*:",
    re.IGNORECASE | re.MULTILINE | re.ASCII,
)
_SEARCH = re.compile(r"(?P<name>search|answer)\[(?P<body>.*)\]", re.DOTALL)
