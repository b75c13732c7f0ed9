"""Traces in: one reader for each format, and every assistant turn a candidate."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ascribe.agents.clean import replace_surrogates
from ascribe.pivots.candidates import Candidate, distinct
from ascribe.pivots.faults import TraceError, TraceFault, TraceProblem
from ascribe.pivots.lines import NotALine, as_object, numbered
from ascribe.pivots.traces import chat, rollouts, sharegpt
from ascribe.pivots.traces.conversation import Conversation, Unreadable
from ascribe.pivots.traces.rollouts import Play
from ascribe.steps.problems import Severity

Format = Literal["openai", "sharegpt", "ascribe"]

READERS: dict[str, Callable[[dict[str, Any]], Conversation]] = {
    "openai": chat.conversation,
    "sharegpt": sharegpt.conversation,
}
"""How a line of each format becomes a conversation."""

ROLLOUT_KEYS = {"group", "trajectory", "step"}


@dataclass(frozen=True)
class Extracted:
    """What was found in files of traces."""

    candidates: tuple[Candidate, ...]
    """Each once."""
    traces: int
    turns: int
    """Demonstrated turns, copies included."""
    problems: tuple[TraceProblem, ...]
    """What was left out, and why."""


def extract(
    paths: Iterable[str | Path],
    form: Format | None = None,
    *,
    play: Play | None = None,
    skip_bad: bool = False,
) -> Extracted:
    """Every assistant turn of these files as a candidate, each distinct one once.

    Args:
        paths: ``.jsonl``, ``.jsonl.gz`` or ``.parquet``.
        form: the format; None: told by the file itself.
        play: how the episodes of rollouts were begun.
        skip_bad: leave out traces that cannot be read; they are among the problems.

    Raises:
        TraceError: if a file, or without ``skip_bad`` a trace, cannot be read.
        OSError: if a file cannot be opened.
    """
    if form is not None and form not in get_args(Format):
        known = ", ".join(get_args(Format))
        raise ValueError(f"there is no format {form!r}; there are: {known}")
    found: list[Candidate] = []
    traces = 0
    problems: list[TraceProblem] = []
    for path in map(Path, paths):
        one, count, wrong = _file(path, form, play or Play())
        found += one
        traces += count
        problems += wrong
    limit = Severity.FATAL if skip_bad else Severity.ERROR
    if worst := [problem for problem in problems if problem.severity >= limit]:
        raise TraceError(worst)
    return Extracted(tuple(distinct(found)), traces, len(found), tuple(problems))


def _file(
    path: Path, form: Format | None, play: Play
) -> tuple[list[Candidate], int, list[TraceProblem]]:
    chosen = form
    if chosen is None:
        told = "ascribe" if path.suffix == ".parquet" else _told(path)
        if isinstance(told, TraceProblem):
            return [], 0, [told]
        chosen = told
    if chosen == "ascribe":
        return rollouts.turns(path, play)
    return _lines(path, READERS[chosen])


def _told(path: Path) -> Format | TraceProblem:
    """The format that the first line that can be read shows."""
    file = replace_surrogates(path.name)
    try:
        for number, line in numbered(path):
            try:
                row = as_object(line)
            except NotALine:
                continue
            if row.keys() >= ROLLOUT_KEYS:
                return "ascribe"
            if chat.KEY in row:
                return "openai"
            if sharegpt.KEY in row:
                return "sharegpt"
            keys = ", ".join(sorted(row)[:8])
            detail = f"the keys are {keys[:200]}" if keys else "the object is empty"
            return TraceProblem(TraceFault.UNKNOWN_FORMAT, detail, file, number)
    except NotALine as error:
        return TraceProblem(TraceFault.UNREADABLE_FILE, str(error), file)
    return TraceProblem(TraceFault.NO_TRACES, "no line holds a JSON object", file)


def _lines(
    path: Path, reader: Callable[[dict[str, Any]], Conversation]
) -> tuple[list[Candidate], int, list[TraceProblem]]:
    file = replace_surrogates(path.name)
    found: list[Candidate] = []
    problems: list[TraceProblem] = []
    traces = 0
    try:
        for number, line in numbered(path):
            traces += 1
            try:
                row = as_object(line)
                conversation = reader(row)
            except NotALine as error:
                problems.append(TraceProblem(TraceFault.BAD_LINE, str(error), file, number))
                continue
            except Unreadable as error:
                problems.append(TraceProblem(error.fault, error.detail, file, number))
                continue
            problems += [
                TraceProblem(fault, detail, file, number) for fault, detail in conversation.skipped
            ]
            turns = list(conversation.candidates(file, _name(row, number)))
            if not turns and not conversation.skipped:
                fault = TraceFault.NO_ASSISTANT_TURN
                problems.append(TraceProblem(fault, "the assistant says nothing", file, number))
            found += turns
    except NotALine as error:
        problems.append(TraceProblem(TraceFault.UNREADABLE_FILE, str(error), file))
    if not traces:
        problems.append(TraceProblem(TraceFault.NO_TRACES, "there is no line", file))
    return found, traces, problems


def _name(row: dict[str, Any], number: int) -> str:
    """The trace's own name, or its line."""
    name = row.get("id")
    if isinstance(name, str | int) and not isinstance(name, bool):
        return replace_surrogates(str(name)[:200])
    return f"line {number}"


__all__ = [
    "READERS",
    "Extracted",
    "Format",
    "Play",
    "TraceError",
    "TraceFault",
    "TraceProblem",
    "extract",
]
