"""Parsers: which part of a response is the action.

Every parser is a function from text to ``Parsed``; it never raises, and takes time linear in the
text. Its ``render`` goes the other way: a response that gives an action, for scripted policies.

Half surrogates in responses become U+FFFD before anything is parsed (``ascribe_lab.agents.clean``).
"""

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ascribe.groups.responses import split_thoughts, tag_bodies
from ascribe.steps.errors import InputError
from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents.agent import Parsed

PROBLEMS = {
    "empty_answer": "the response holds nothing but white space",
    "no_action": "nothing in the response looks like an action",
    "action_not_closed": "an action begins and does not end; the response may have been cut",
    "empty_action": "there is an action, but nothing in it",
    "action_too_long": "the action is longer than the parser allows",
    "no_such_choice": "the response names a letter that no action has",
    "no_thought": "there is an action, but not the thought that the parser requires",
    "several_actions": "there are several actions where the parser requires one",
}
"""Everything that can be wrong with a response."""

WITH_ACTION = ("no_thought", "several_actions")
"""With these the first action is carried out all the same, and the turn counts as invalid."""


@dataclass(frozen=True)
class ResponseParser(ABC):
    """What all parsers share: a limit of length, clean text, and checked renderings.

    Attributes:
        longest: most characters of an action.
    """

    longest: int = 10_000

    with_thought: ClassVar[str] = "<think>{thought}</think>{action}"
    """How a thought and a rendered action are written."""

    def __post_init__(self) -> None:
        if self.longest < 1:
            raise InputError(f"longest must be at least 1, not {self.longest}")

    @abstractmethod
    def _parse(self, text: str) -> Parsed:
        """Parse a response that is not blank and has no half surrogates."""

    @abstractmethod
    def _render(self, action: str, /) -> str:
        """Write the action in this format."""

    def __call__(self, text: str) -> Parsed:
        """Parse a response."""
        if not text.strip():
            return Parsed(None, problem="empty_answer")
        return self._parse(replace_surrogates(text))

    def render(self, action: str, thought: str | None = None) -> str:
        """A response that gives this action.

        Raises:
            ValueError: if there is none, for instance because the action holds a closing tag.
        """
        response = self._render(action)
        if thought is not None:
            response = self.with_thought.format(thought=thought, action=response)
        if self(response).action != action:
            raise InputError(f"no response of this format gives the action {action[:200]!r}")
        return response

    def _first_fitting(self, bodies: Sequence[str], opened: int = 0) -> tuple[int, str | None]:
        """The place of the first body of a right length, or what is wrong if there is none."""
        for place, body in enumerate(bodies):
            if 0 < len(body) <= self.longest:
                return place, None
        if bodies:
            return -1, "action_too_long" if any(bodies) else "empty_action"
        return -1, "action_not_closed" if opened else "no_action"


@dataclass(frozen=True)
class _Tagged(ResponseParser):
    needs_thought: bool = False
    only_one: bool = False

    names: ClassVar[tuple[str, ...]]

    def _action(self, _name: str, body: str, /) -> str:
        return body

    def _parse(self, text: str) -> Parsed:
        thought, parts = split_thoughts(text)
        tags, opened = tag_bodies(parts, *self.names)
        bodies = [body.strip() for _, body in tags]
        place, problem = self._first_fitting(bodies, opened)
        if problem is not None:
            return Parsed(None, thought, problem)
        if self.needs_thought and not thought:
            problem = "no_thought"
        elif self.only_one and len(bodies) > 1:
            problem = "several_actions"
        return Parsed(self._action(tags[place][0], bodies[place]), thought, problem)


class ThinkAction(_Tagged):
    """``<think>...</think><action>...</action>``: the first well-formed action is carried out.

    An action is well formed if its tag is closed, no action tag lies inside, and it holds 1 to
    ``longest`` characters besides white space around it. Actions inside a closed thought do not
    count.

    Attributes:
        longest: most characters of an action.
        needs_thought: an action without a thought is carried out, but invalid (as in verl-agent).
        only_one: of several actions the first is carried out, but invalid.
    """

    names = ("action",)

    def _render(self, action: str, /) -> str:
        return f"<action>{action}</action>"


class SearchAnswer(_Tagged):
    """``<search>...</search>`` or ``<answer>...</answer>``, whichever comes first (Search-R1).

    The action is ``search[...]`` or ``answer[...]``. ``ThinkAction`` describes what is well formed
    and what the attributes mean; verl-agent requires ``only_one``.
    """

    names = ("search", "answer")

    def _action(self, name: str, body: str, /) -> str:
        return f"{name}[{body}]"

    def _render(self, action: str, /) -> str:
        return as_tag(action)


@dataclass(frozen=True)
class WholeText(ResponseParser):
    """The whole response is the action, without white space around it.

    Attributes:
        longest: most characters of an action.
    """

    longest: int = 1_000_000

    with_thought = "{action}"

    def _parse(self, text: str) -> Parsed:
        action = text.strip()
        if len(action) > self.longest:
            return Parsed(None, problem="action_too_long")
        return Parsed(action)

    def _render(self, action: str, /) -> str:
        return action


class ChosenLetter(WholeText):
    """The letter of an admissible action, as in ``B`` or ``B. go north``; or the action itself.

    The prompt gives the actions their letters (``TextPrompt.lettered``).
    """

    def _parse(self, text: str) -> Parsed:
        if match := _CHOICE.match(text):
            return Parsed(None, choice=LETTERS.index(match[1]))
        return super()._parse(text)


def as_tag(action: str) -> str:
    """``search[x]`` as ``<search>x</search>``, ``answer[x]`` likewise, other texts as they are."""
    match = _SEARCH.fullmatch(action)
    return f"<{match['name']}>{match['body']}</{match['name']}>" if match else action


LETTERS = string.ascii_uppercase
"""Of admissible actions; those beyond the last letter have none."""
_CHOICE = re.compile(r"\s*([A-Z])(?=[.):,]|\s*$)")
_SEARCH = re.compile(r"(?P<name>search|answer)\[(?P<body>.*)\]", re.DOTALL)
