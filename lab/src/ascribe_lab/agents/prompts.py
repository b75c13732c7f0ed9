r"""Prompts: what the model reads.

``TextPrompt`` writes one user message from templates, ``ChatPrompt`` shows an observation that is a
chat already, and ``CorrectionPrompt`` shows several attempts and asks for a right one.

A template is text with named fields in braces: ``{task}`` is a field, ``{{`` and ``}}`` are braces.
Values are put in as they are, in one pass: a value that holds ``{task}``, ``%s`` or ``\1`` stays
so. A template that cannot work is refused when the prompt is made.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from ascribe.steps.errors import InputError
from ascribe_lab.agents.agent import Message, Prompt, Turn, View
from ascribe_lab.agents.clean import CHAT_TOKENS, neutralise, safe, shorten
from ascribe_lab.agents.parsers import LETTERS

_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")


@lru_cache(maxsize=512)
def _pieces(template: str) -> tuple[tuple[str, str | None], ...]:
    """The template as pairs of plain text and the field after it; the last has no field."""
    pieces: list[tuple[str, str | None]] = []
    plain, start = "", 0
    for brace in _BRACES.finditer(template):
        plain += template[start : brace.start()]
        start = brace.end()
        if brace[1] is not None:
            pieces.append((plain, brace[1]))
            plain = ""
        elif len(brace[0]) == 2:
            plain += brace[0][0]
        else:
            raise InputError(
                f"a single {brace[0]!r} at character {brace.start()} of the template",
                hint="write {{ or }} for a brace",
            )
    return (*pieces, (plain + template[start:], None))


def fields(template: str) -> frozenset[str]:
    """The names of the template's fields; ``ValueError`` for a brace that belongs to no field."""
    return frozenset(name for _, name in _pieces(template) if name is not None)


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its fields replaced by their values, in one pass."""
    return "".join(
        plain + (values[name] if name is not None else "") for plain, name in _pieces(template)
    )


def check_template(
    name: str, template: str, allowed: Collection[str], tokens: Sequence[str] = CHAT_TOKENS
) -> None:
    """Refuse a template with unknown fields, a stray brace or the name of a chat token.

    Raises:
        ValueError: with the reason.
    """
    unknown = sorted(fields(template) - set(allowed))
    if unknown:
        raise InputError(
            f"{name} has unknown fields: {', '.join(unknown)}",
            hint=f"it may use: {', '.join(allowed)}",
        )
    if safe(template, tokens) != template:
        raise InputError(f"{name} holds the name of a chat token or half a surrogate pair")


def _check_longest(longest: int | None) -> None:
    if longest is not None and longest < 1:
        raise InputError(f"longest must be at least 1, not {longest}")


FIELDS: dict[str, dict[str, str]] = {
    "body": {
        "task": "the task in words",
        "step": "the number of this step, from 1",
        "start": "the first observation of the episode",
        "observation": "the present observation",
        "past": "the template `past`, filled; nothing at the first step",
        "choices": "the template `choices`, filled; nothing where no actions are listed",
    },
    "past": {
        "taken": "how many steps were taken",
        "shown": "how many of them the memory shows",
        "history": "the template `turn`, filled for each of these, oldest first",
        "observation": "the present observation",
    },
    "turn": {
        "observation": "what was seen",
        "action": "what was carried out",
        "response": "the whole response",
    },
    "choices": {
        "admissible": "the admissible actions, one on a line",
    },
}
"""The fields that each template of ``TextPrompt`` may use, and what they hold."""

NOTHING = "(nothing)"
"""Stands for the action of a turn at which nothing was carried out, and for an empty history."""

AS_ABOVE = "(as above)"
"""Stands for the first observation in the history, where the body shows it already."""


@dataclass(frozen=True)
class TextPrompt:
    """Writes one user message for each decision, from four templates.

    The body is written at every step. From the second step on it may hold the past, and the past
    holds one piece of text for each remembered turn. The choices are written where the environment
    lists its admissible actions.

    Attributes:
        body: the message.
        past: what it says of earlier steps.
        turn: what it says of one of them.
        choices: what it says of admissible actions.
        longest: most characters of an observation; what is beyond is cut from its middle, with a
            mark. None cuts nothing, and policies refuse a prompt that is too long.
        tokens: names of chat tokens that the message must not hold; add your tokenizer's own.
        show_action: how an action is written in the history.
        show_choice: how an admissible action is written among the choices.
        lettered: whether each choice has a letter, as ``ChosenLetter`` expects.
    """

    body: str
    past: str = ""
    turn: str = "{observation}\n{action}"
    choices: str = ""
    longest: int | None = None
    tokens: tuple[str, ...] = CHAT_TOKENS
    show_action: Callable[[str], str] = str
    show_choice: Callable[[str], str] = str
    lettered: bool = False

    def __post_init__(self) -> None:
        _check_longest(self.longest)
        for name, allowed in FIELDS.items():
            check_template(f"the template {name}", getattr(self, name), allowed, self.tokens)
        self._check_shown()

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:
        """The chat for this decision."""
        # The whole message, not its values: two values side by side could make up a token.
        return [{"role": "user", "content": safe(self._body(view, remembered), self.tokens)}]

    def _body(self, view: View, remembered: Sequence[Turn]) -> str:
        start = view.turns[0].observation if view.turns else view.observation
        observation = shorten(view.observation, self.longest)
        values = {
            "task": view.task,
            "step": str(len(view.turns) + 1),
            "start": shorten(start, self.longest),
            "observation": observation,
            "past": "",
            "choices": "",
        }
        if view.turns:
            past = {
                "taken": str(len(view.turns)),
                "shown": str(len(remembered)),
                "history": self._history(remembered, start),
                "observation": observation,
            }
            values["past"] = fill(self.past, past)
        if view.admissible:
            shown = [self.show_choice(action) for action in view.admissible]
            if self.lettered:
                pairs = zip_longest(LETTERS[: len(shown)], shown)
                shown = [f"{letter}. {action}" if letter else action for letter, action in pairs]
            listed = "\n".join(shown)
            values["choices"] = fill(self.choices, {"admissible": listed})
        return fill(self.body, values)

    def _history(self, remembered: Sequence[Turn], start: str) -> str:
        above = start if "start" in fields(self.body) else None
        lines = [
            fill(
                self.turn,
                {
                    "observation": AS_ABOVE
                    if turn.observation == above
                    else shorten(turn.observation, self.longest),
                    "action": self.show_action(turn.action) if turn.action else NOTHING,
                    "response": turn.response,
                },
            )
            for turn in remembered
        ]
        return "\n".join(lines) or NOTHING

    def _check_shown(self) -> None:
        """Refuse templates that would leave out what they were written for."""
        body, past = fields(self.body), fields(self.past)
        if "observation" not in body and not ("start" in body and "observation" in past):
            raise InputError(
                "the templates must show the observation: {observation} in the body, "
                "or {start} in the body and {observation} in the past"
            )
        for name, inner in (("past", "history"), ("choices", "admissible")):
            template = getattr(self, name)
            if bool(template) != (name in body):
                raise InputError(f"give the template {name} and {{{name}}} in the body, or neither")
            if template and inner not in fields(template):
                raise InputError(f"the template {name} must show {{{inner}}}")
        if not fields(self.turn):
            raise InputError("the template turn must show something of the turn")


@dataclass(frozen=True)
class ChatPrompt:
    """Shows the messages of an observation that is JSON of a list of ``role`` and ``content``.

    Any other observation is shown as one user message.

    Attributes:
        tokens: names of chat tokens that the messages must not hold.
    """

    tokens: tuple[str, ...] = CHAT_TOKENS

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:  # noqa: ARG002
        """The chat for this decision."""
        try:
            chat = json.loads(view.observation)
        except (ValueError, RecursionError):
            chat = None
        if not is_chat(chat):
            chat = [{"role": "user", "content": view.observation}]
        return [{**message, "content": safe(message["content"], self.tokens)} for message in chat]


def is_chat(value: Any) -> bool:
    """Whether a value is a list of messages, at least one, each with a known role and a text."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and set(one) == {"role", "content"} for one in value)
        and all(one["role"] in ("system", "user", "assistant") for one in value)
        and all(isinstance(one["content"], str) for one in value)
    )


CORRECTION_FIELDS: dict[str, dict[str, str]] = {
    "body": {
        "task": "the prompt of the attempts, with what it says about the form of the response",
        "count": "how many attempts there are",
        "attempts": "the template `attempt`, filled for each of them",
    },
    "alone": {
        "task": "the same",
        "attempts": "the template `attempt`, filled for the one attempt",
    },
    "attempt": {
        "number": "the number of the attempt, from 1",
        "text": "the attempt",
    },
}
"""The fields of ``CorrectionPrompt``'s templates; ``count`` and ``number`` may be left out."""

FENCE = ("<attempt", "</attempt")
"""The texts that delimit an attempt in the default template."""


@dataclass(frozen=True)
class CorrectionPrompt:
    """Writes the chat that asks for a correction of several attempts.

    The comparison by correction of IBPO (Appendix C.1), reworded. It does not say which of the
    attempts are right, or who wrote them.

    Attributes:
        body: the message.
        alone: the message for one attempt without others beside it.
        attempt: how one attempt is shown in it.
        fence: texts that no attempt may hold, since they would end it early: each gets a space
            after its first character, as the names of chat tokens do.
        longest: most characters of an attempt; what is beyond is cut from its middle, with a mark.
            None cuts nothing.
        tokens: names of chat tokens that the message must not hold; add your tokenizer's own.
    """

    body: str = (
        "{task}\n\n"
        "Above is a problem. Below are {count} attempts to solve it; any of them may be wrong.\n\n"
        "{attempts}\n\n"
        "Go through the attempts step by step and side by side. Say where they differ and which "
        "steps are mistaken. Then write one solution without the mistakes, and end with the final "
        "answer in the form that the problem asks for."
    )
    alone: str = (
        "{task}\n\n"
        "Above is a problem. Below is an attempt to solve it, which may be wrong.\n\n"
        "{attempts}\n\n"
        "Go through the attempt step by step. Say which steps are mistaken. Then write one "
        "solution without the mistakes, and end with the final answer in the form that the problem "
        "asks for."
    )
    attempt: str = "<attempt {number}>\n{text}\n</attempt {number}>"
    fence: tuple[str, ...] = FENCE
    longest: int | None = None
    tokens: tuple[str, ...] = CHAT_TOKENS

    def __post_init__(self) -> None:
        _check_longest(self.longest)
        for name, allowed in CORRECTION_FIELDS.items():
            template = getattr(self, name)
            check_template(f"the template {name}", template, allowed, self.tokens)
            missing = sorted(allowed.keys() - {"count", "number"} - fields(template))
            if missing:
                raise InputError(f"the template {name} must show {{{missing[0]}}}")
        neutralise("", self.fence)  # refuses a fence that no space can break

    def __call__(
        self, task: str, target: str, references: Sequence[str], *, place: int = 0
    ) -> list[Message]:
        """The chat for the correction of one trajectory.

        Args:
            task: the prompt of the attempts.
            target: the wrong attempt.
            references: the K - 1 attempts beside it, or none.
            place: the target's place among them, from 0. Always first (the paper's order) lets a
                policy learn to copy what comes second; draw it at random to prevent that.

        Raises:
            ValueError: if the place is out of range.
        """
        if not 0 <= place <= len(references):
            raise InputError(f"place is {place}, but must lie between 0 and {len(references)}")
        texts = [*references[:place], target, *references[place:]]
        attempts = [
            fill(
                self.attempt,
                {
                    "number": str(number),
                    "text": neutralise(shorten(text, self.longest), self.fence),
                },
            )
            for number, text in enumerate(texts, start=1)
        ]
        values = {"task": task, "count": str(len(texts)), "attempts": "\n\n".join(attempts)}
        body = self.body if references else self.alone
        return [{"role": "user", "content": safe(fill(body, values), self.tokens)}]


@dataclass(frozen=True)
class CorrectingPrompt:
    """Asks for a correction where the view has attempts; elsewhere it is ``prompt``.

    The task of a correction is the last message of ``prompt``, with all that it says about the form
    of the response; messages before it stay. So the same checks judge responses and corrections.

    Attributes:
        prompt: the prompt without attempts.
        correction: the prompt with them.
    """

    prompt: Prompt
    correction: CorrectionPrompt = CorrectionPrompt()

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:
        """The chat for this decision."""
        chat = self.prompt(view, remembered)
        if not view.attempts:
            return chat
        first, *others = view.attempts
        return [*chat[:-1], *self.correction(chat[-1]["content"], first, others)]
