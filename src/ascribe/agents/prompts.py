"""``TextPrompt``: one user message for each decision, from four templates.

The body is written at every step. From the second step on it may hold the past, and the past holds
one piece of text for each remembered turn. The choices are written where the environment lists its
admissible actions. So the first step has no talk of a history that is not there, as in the papers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ascribe.agents.agent import Message, Turn, View
from ascribe.agents.clean import CHAT_TOKENS, mend, neutralise, shorten
from ascribe.agents.template import check_fields, fields, fill

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
        "response": "the whole answer",
    },
    "choices": {
        "admissible": "the admissible actions, one on a line",
    },
}
"""The fields that each template may use, and what they hold."""

NOTHING = "(nothing)"
"""Stands for the action of a turn at which nothing was carried out, and for an empty history."""

AS_ABOVE = "(as above)"
"""Stands for the first observation in the history, where the body shows it already."""


def as_it_is(action: str) -> str:
    """The action."""
    return action


@dataclass(frozen=True)
class TextPrompt:
    """Writes one user message for each decision. Templates that cannot work are refused when made.

    Attributes:
        body: the message.
        past: what it says of earlier steps.
        turn: what it says of one of them.
        choices: what it says of admissible actions.
        system: a system message before it, or None.
        longest: most characters of an observation; what is beyond is cut from its middle, with a
            mark. None cuts nothing: a policy refuses a prompt that is too long, loudly.
        tokens: names of chat tokens, which the message will not hold; add your tokenizer's own.
        show_action: how an action is written in the history.
        show_choice: how an admissible action is written among the choices.
    """

    body: str
    past: str = ""
    turn: str = "{observation}\n{action}"
    choices: str = ""
    system: str | None = None
    longest: int | None = None
    tokens: tuple[str, ...] = CHAT_TOKENS
    show_action: Callable[[str], str] = as_it_is
    show_choice: Callable[[str], str] = as_it_is

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < 1:
            raise ValueError(f"longest must be at least 1, not {self.longest}")
        for name, known in FIELDS.items():
            template = getattr(self, name)
            check_fields(f"the template {name}", template, known)
            self._refuse_tokens(f"the template {name}", template)
        self._refuse_tokens("the system message", self.system or "")
        self._refuse_silence()

    def __call__(self, view: View, remembered: Sequence[Turn]) -> list[Message]:
        """The chat for this decision."""
        user = {"role": "user", "content": self._safe(self._body(view, remembered))}
        if self.system is None:
            return [user]
        return [{"role": "system", "content": self.system}, user]

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
            values["past"] = fill(
                self.past,
                {
                    "taken": str(len(view.turns)),
                    "shown": str(len(remembered)),
                    "history": self._history(remembered, start),
                    "observation": observation,
                },
            )
        if view.admissible:
            listed = "\n".join(map(self.show_choice, view.admissible))
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

    def _safe(self, text: str) -> str:
        # The whole message, not its values: two values side by side could make up a token.
        return neutralise(mend(text), self.tokens)

    def _refuse_tokens(self, what: str, template: str) -> None:
        if self._safe(template) != template:
            raise ValueError(f"{what} holds the name of a chat token or half a surrogate pair")

    def _refuse_silence(self) -> None:
        """Refuse templates that would leave out what they were written for."""
        body, past = fields(self.body), fields(self.past)
        if "observation" not in body and not ("start" in body and "observation" in past):
            raise ValueError(
                "the templates must show the observation: {observation} in the body, "
                "or {start} in the body and {observation} in the past"
            )
        for name, inner in (("past", "history"), ("choices", "admissible")):
            template = getattr(self, name)
            if bool(template) != (name in body):
                raise ValueError(f"give the template {name} and {{{name}}} in the body, or neither")
            if template and inner not in fields(template):
                raise ValueError(f"the template {name} must show {{{inner}}}")
        if not fields(self.turn):
            raise ValueError("the template turn must show something of the turn")
