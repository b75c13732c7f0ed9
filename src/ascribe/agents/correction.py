"""``CorrectionPrompt``: one user message that shows several attempts and asks for a right one.

The comparison by correction of IBPO (Appendix C.1), in other words. What it does not say is which
of the attempts are right, and whose they are. ``Correcting`` puts it around any agent's prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ascribe.agents.agent import Message, Prompt, Turn, View
from ascribe.agents.clean import CHAT_TOKENS, mend, neutralise, shorten
from ascribe.agents.template import check_fields, fields, fill

CORRECTION_FIELDS: dict[str, dict[str, str]] = {
    "body": {
        "task": "the prompt that was answered, with what it says about the form of the answer",
        "count": "how many attempts there are",
        "attempts": "the template `attempt`, filled for each of them",
    },
    "attempt": {
        "number": "the number of the attempt, from 1",
        "text": "the attempt",
    },
}
"""The fields of each template, and what they hold; ``count`` and ``number`` may be left out."""

FENCE = ("<attempt", "</attempt")
"""What an attempt begins and ends with in the default template."""


@dataclass(frozen=True)
class CorrectionPrompt:
    """Writes the chat that asks for a correction. Templates that cannot work are refused when made.

    Attributes:
        body: the message.
        attempt: how one attempt is shown in it.
        fence: what no attempt may hold, since it would end early and speak for the next: each gets
            a space after its first character, as the names of chat tokens do.
        longest: most characters of an attempt; what is beyond is cut from its middle, with a mark.
            None cuts nothing.
        tokens: names of chat tokens, which the message will not hold; add your tokenizer's own.
    """

    body: str = (
        "{task}\n\n"
        "Above is a problem. Below are {count} attempts to solve it; any of them may be wrong.\n\n"
        "{attempts}\n\n"
        "Go through the attempts step by step and side by side. Say where they differ and which "
        "steps are mistaken. Then write one solution without the mistakes, and end with the final "
        "answer in the form that the problem asks for."
    )
    attempt: str = "<attempt {number}>\n{text}\n</attempt {number}>"
    fence: tuple[str, ...] = FENCE
    longest: int | None = None
    tokens: tuple[str, ...] = CHAT_TOKENS

    def __post_init__(self) -> None:
        if self.longest is not None and self.longest < 1:
            raise ValueError(f"longest must be at least 1, not {self.longest}")
        for name, known in CORRECTION_FIELDS.items():
            template = getattr(self, name)
            check_fields(f"the template {name}", template, known)
            absent = sorted(known.keys() - {"count", "number"} - fields(template))
            if absent:
                raise ValueError(f"the template {name} must show {{{absent[0]}}}")
            if neutralise(mend(template), self.tokens) != template:
                raise ValueError(f"the template {name} holds the name of a chat token")
        neutralise("", self.fence)  # refuses a fence that no space can break

    def __call__(
        self, task: str, target: str, references: Sequence[str], *, place: int = 0
    ) -> list[Message]:
        """The chat for the correction of one trajectory.

        Args:
            task: the prompt that was answered.
            target: the wrong attempt.
            references: the K - 1 attempts beside it.
            place: where the target stands among them, from 0. Always first (the paper's order) lets
                a policy learn to copy what comes second; draw it at random to prevent that.

        Raises:
            ValueError: without references, or for a place that is not there.
        """
        if not references:
            raise ValueError("a correction needs a reference")
        if not 0 <= place <= len(references):
            raise ValueError(f"place is {place}, but must lie between 0 and {len(references)}")
        texts = [*references[:place], target, *references[place:]]
        shown = [
            fill(self.attempt, {"number": str(number), "text": self._fenced(text)})
            for number, text in enumerate(texts, start=1)
        ]
        values = {"task": task, "count": str(len(texts)), "attempts": "\n\n".join(shown)}
        # The whole message, not its values: two values side by side could make up a token.
        content = neutralise(mend(fill(self.body, values)), self.tokens)
        return [{"role": "user", "content": content}]

    def _fenced(self, text: str) -> str:
        return neutralise(shorten(text, self.longest), self.fence)


@dataclass(frozen=True)
class Correcting:
    """A prompt that asks for a correction where there are attempts, and is ``prompt`` elsewhere.

    The task of a correction is the last message that ``prompt`` writes, with all that it says about
    the form of the answer; messages before it stay. So whoever judges answers judges corrections.

    Attributes:
        prompt: what is asked without attempts.
        correction: what is asked with them.
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
