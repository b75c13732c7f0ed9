"""What can be wrong with a file of traces: an enumeration, and what to do about each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import unique

from ascribe.steps.problems import Advised, Severity, printable


@unique
class TraceFault(Advised):
    """Every fault that the readers of traces report.

    ``FATAL``: the file is refused. ``ERROR``: the trace has no right reading; the file is refused,
    unless bad traces are to be left out. ``WARNING``: a turn is left out and the rest is read.
    """

    UNREADABLE_FILE = (
        Severity.FATAL,
        "the file is damaged, cut short or not of the format its name says; write it again",
    )
    UNKNOWN_FORMAT = (
        Severity.FATAL,
        "lines hold messages (OpenAI) or conversations (ShareGPT), or the file is a table of "
        "rollouts; name the format if it was meant to be one of them",
    )
    NO_TRACES = (Severity.FATAL, "there is nothing in the file; check that it was written")
    NO_TRANSCRIPT = (
        Severity.FATAL,
        "the table has no columns prompt and response; write it with ascribe rollout",
    )
    BAD_TABLE = (Severity.FATAL, "mend the table first; ascribe check says how")
    BAD_LINE = (Severity.ERROR, "every line must be one JSON object; mend or remove the line")
    NO_MESSAGES = (Severity.ERROR, "give the trace a list of messages that is not empty")
    BAD_MESSAGE = (Severity.ERROR, "a message is an object with a role and a content; mend it")
    UNKNOWN_ROLE = (
        Severity.ERROR,
        "docs/pivots.md lists the roles that are read; rename or remove the message",
    )
    BAD_CONTENT = (
        Severity.ERROR,
        "a content is text, null beside tool calls, or a list of parts of the type text",
    )
    BAD_TOOL_CALL = (
        Severity.ERROR,
        "a tool call has a name, and arguments that are a JSON object or JSON text of one",
    )
    BAD_TOOLS = (
        Severity.ERROR,
        "tools are a list of functions, each with a name and a JSON schema of its parameters",
    )
    BAD_PROMPT = (Severity.ERROR, "the column prompt holds JSON of a list of messages; mend it")
    NO_ASSISTANT_TURN = (
        Severity.WARNING,
        "the trace gives no candidate; check the roles if it should",
    )
    EMPTY_TURN = (
        Severity.WARNING,
        "the turn holds neither text nor a call, so it demonstrates nothing; it is left out",
    )
    LOST_TRACE = (
        Severity.WARNING,
        "what led to no success demonstrates nothing; its turns are left out, unless asked for",
    )
    INVALID_TURN = (
        Severity.WARNING,
        "the environment did not understand the action; the turn is left out",
    )
    NO_HISTORY = (
        Severity.WARNING,
        "nobody spoke before this turn, so there is nothing to answer; it is left out",
    )


@dataclass(frozen=True)
class TraceProblem:
    """One fault, where it is, and a sentence about it. Lines are counted from 1; 0 is the file."""

    fault: TraceFault
    detail: str
    file: str
    line: int = 0

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.fault.severity

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        said = f"{where}: {self.fault.label}: {self.detail}"
        advice = self.fault.advice
        return f"{printable(said)}. {advice[:1].upper()}{advice[1:]}."

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "fault": self.fault.label,
            "severity": self.severity.name.lower(),
            "file": self.file,
            "line": self.line,
            "detail": self.detail,
            "advice": self.fault.advice,
        }


class TraceError(ValueError):
    """Traces that cannot be read, with the problems that say why."""

    def __init__(self, problems: Iterable[TraceProblem]) -> None:
        self.problems: Sequence[TraceProblem] = tuple(problems)
        shown = [str(problem) for problem in self.problems[:20]]
        if len(self.problems) > len(shown):
            shown.append(f"and {len(self.problems) - len(shown):,} more")
        super().__init__("\n".join(shown))
