"""Traces in: every assistant turn of a file becomes a candidate.

Three formats: OpenAI's chats and ShareGPT's conversations (one trace on each line), and tables of
rollouts that Ascribe wrote. Files are hostile until read: whatever cannot be read is reported with
its line, a reason and what to do.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import unique
from pathlib import Path
from typing import Any, NamedTuple

from ascribe.agents.clean import replace_surrogates, safe
from ascribe.agents.prompts import is_chat
from ascribe.groups.responses import ToolCallError, name_and_arguments
from ascribe.models.policy import mix_seeds
from ascribe.pivots.candidates import Candidate, Message, Origin, ReplayPoint, candidate, distinct
from ascribe.pivots.chat import describe_tools, tool_output, write_call
from ascribe.steps.files import read
from ascribe.steps.hints import page, unknown
from ascribe.steps.journal import LineError, numbered_lines, parse_object
from ascribe.steps.problems import ERROR, FATAL, WARNING, Advised, TableError, printable
from ascribe.steps.strict_json import canonical, loads

FORMATS = ("openai", "sharegpt", "ascribe")


# Problems.


@unique
class TraceFault(Advised):
    """Every fault that reading traces can report, with its severity and what to do about it.

    ``FATAL``: the file is refused. ``ERROR``: the trace cannot be read; the file is refused, unless
    bad traces are to be left out. ``WARNING``: a turn is left out and the rest is read.
    """

    UNREADABLE_FILE = FATAL, "the file is damaged, cut short or of another format; write it again"
    UNKNOWN_FORMAT = (
        FATAL,
        "lines hold messages (OpenAI) or conversations (ShareGPT), or the file is a table of "
        "rollouts; name the format if it was meant to be one of them",
    )
    NO_TRACES = FATAL, "there is nothing in the file; check that it was written"
    NO_TRANSCRIPT = FATAL, "it lacks the column prompt or response; write it with ascribe rollout"
    BAD_TABLE = FATAL, "fix the table first; ascribe check says how"
    BAD_LINE = ERROR, "every line must be one JSON object; fix or remove the line"
    NO_MESSAGES = ERROR, "give the trace a list of messages that is not empty"
    BAD_MESSAGE = ERROR, "a message is an object with a role and a content; fix it"
    UNKNOWN_ROLE = ERROR, f"rename or remove the message; the known roles: {page('pivots')}"
    BAD_CONTENT = ERROR, "a content is text, null beside tool calls, or a list of text parts"
    BAD_TOOL_CALL = (
        ERROR,
        "a call has a name, and arguments that are a JSON object or JSON text of one",
    )
    BAD_TOOLS = ERROR, "tools are a list of functions, each with a name and a schema of parameters"
    BAD_PROMPT = ERROR, "the column prompt holds JSON of a list of messages; fix it"
    NO_ASSISTANT_TURN = WARNING, "the trace gives no candidate; check the roles if it should"
    EMPTY_TURN = WARNING, "the turn holds neither text nor a call; it is left out"
    LOST_TRACE = WARNING, "the episode was not won, so its turns are left out; --lost includes them"
    INVALID_TURN = WARNING, "the environment did not understand the action; the turn is left out"
    NO_HISTORY = WARNING, "no user message comes before this turn, so there is no prompt for it"


class TraceFaultError(ValueError):
    """One fault, where it is, and a sentence about it. Lines are counted from 1; 0 is the file."""

    def __init__(self, fault: TraceFault, detail: str, line: int = 0) -> None:
        super().__init__(detail)
        self.fault, self.detail, self.file, self.line = fault, detail, "", line

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        advice = self.fault.advice
        problem = printable(f"{where}: {self.fault.label}: {self.detail}")
        return f"{problem}. {advice[:1].upper()}{advice[1:]}."

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "fault": self.fault.label,
            "severity": self.fault.severity.name.lower(),
            "file": self.file,
            "line": self.line,
            "detail": self.detail,
            "advice": self.fault.advice,
        }


class TraceError(ValueError):
    """Traces that cannot be read, with the problems that say why."""

    def __init__(self, problems: Sequence[TraceFaultError]) -> None:
        self.problems = problems
        shown = [str(problem) for problem in problems[:20]]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown):,} more")
        super().__init__("\n".join(shown))


# Chats: OpenAI's and ShareGPT's.


class _Message(NamedTuple):
    """A message of a trace in any format."""

    role: str
    """system, user, tool or assistant."""
    text: str
    """A turn of the assistant holds its calls."""
    demonstrated: bool = True
    """Whether a turn of the assistant is to be learned from."""


def _openai(value: dict[str, Any]) -> _Message:
    """A message of OpenAI's chat format, with tool calls in it.

    A message of the assistant with ``weight`` 0 is part of the history and not demonstrated, as in
    OpenAI's fine-tuning files.
    """
    role, text = value.get("role"), _text(value.get("content"))
    if role == "assistant":
        calls, old = value.get("tool_calls"), value.get("function_call")
        if calls is None:
            calls = [] if old is None else [old]
        if not isinstance(calls, list):
            raise TraceFaultError(TraceFault.BAD_TOOL_CALL, "tool_calls is no list")
        return _Message(role, _turn(text, calls), value.get("weight") != 0)
    if not isinstance(role, str) or role not in OPENAI_ROLES:
        raise TraceFaultError(TraceFault.UNKNOWN_ROLE, f"the role {str(role)[:40]!r}")
    return _Message(OPENAI_ROLES[role], text)


def _text(content: Any) -> str:
    """The text of a message: text, nothing, or parts of the type text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        return "\n".join(part["text"] for part in content)
    raise TraceFaultError(TraceFault.BAD_CONTENT, f"a content is {type(content).__name__}")


def _sharegpt(value: dict[str, Any]) -> _Message:
    """A turn of ShareGPT: ``from`` and ``value``.

    ``function_call`` turns hold the JSON of a call, or of a list of calls; ``observation`` turns
    hold the output of a tool.
    """
    speaker, text = value.get("from"), value.get("value")
    role = ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise TraceFaultError(TraceFault.UNKNOWN_ROLE, f"from {str(speaker)[:40]!r}")
    if not isinstance(text, str):
        raise TraceFaultError(TraceFault.BAD_CONTENT, f"a value is {type(text).__name__}")
    if speaker != "function_call":
        return _Message(role, _turn(text) if role == "assistant" else text)
    try:
        calls = loads(text)
    except ValueError as error:
        raise TraceFaultError(TraceFault.BAD_TOOL_CALL, f"it is not JSON: {error}") from error
    return _Message(role, _turn("", calls if isinstance(calls, list) else [calls]))


def _turn(text: str, calls: Sequence[Any] = ()) -> str:
    """The text of a turn with its calls."""
    try:
        written = [write_call(*name_and_arguments(call)) for call in calls]
    except ToolCallError as error:
        raise TraceFaultError(TraceFault.BAD_TOOL_CALL, str(error)) from error
    return "\n".join([*([replace_surrogates(text)] if text.strip() else []), *written])


OPENAI_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "tool": "tool",
    "function": "tool",
}
ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
    "function_response": "tool",
}
"""The speakers of ShareGPT files, by the names that are in use."""

READERS: dict[str, tuple[str, str, Callable[[dict[str, Any]], _Message]]] = {
    "openai": ("messages", "message", _openai),
    "sharegpt": ("conversations", "turn", _sharegpt),
}
"""The key of a line with the messages, what they are called, and how one is read."""


def _chat(
    row: dict[str, Any], form: str, file: str, trace: str
) -> Iterator[Candidate | TraceFaultError]:
    """The candidates of one trace, and why turns were skipped."""
    tools = _functions(row.get("tools", row.get("functions") if form == "openai" else None))
    messages: list[Message] = []
    turns: list[tuple[int, int, str]] = []
    number, previous = 0, ""
    for one in _messages(row, form):
        if one.role == "assistant":
            if one.demonstrated and not one.text:
                yield TraceFaultError(TraceFault.EMPTY_TURN, f"turn {number} holds nothing")
            elif one.demonstrated and all(message["role"] == "system" for message in messages):
                yield TraceFaultError(TraceFault.NO_HISTORY, f"turn {number} opens the trace")
            elif one.demonstrated:
                turns.append((number, len(messages), one.text))
            number += 1
        if one.role == "tool" and previous == "tool":
            messages[-1]["content"] += f"\n{tool_output(one.text)}"
        elif one.role == "tool":
            messages.append({"role": "user", "content": tool_output(one.text)})
        else:
            messages.append({"role": one.role, "content": safe(one.text)})
        previous = one.role
    added = 0
    if tools and messages[0]["role"] == "system":
        messages[0]["content"] += f"\n\n{describe_tools(tools)}"
    elif tools:
        messages.insert(0, {"role": "system", "content": describe_tools(tools)})
        added = 1
    for turn, place, action in turns:
        origin = Origin(file, trace, turn, number)
        yield candidate(messages[: place + added], action, origin, tools)


def _messages(row: dict[str, Any], form: str) -> Iterator[_Message]:
    """The messages of a trace; faults say which one they are in."""
    key, name, read_message = READERS[form]
    values = row.get(key)
    if not isinstance(values, list) or not values:
        raise TraceFaultError(TraceFault.NO_MESSAGES, f"{key} is no list, or an empty one")
    if form == "sharegpt" and isinstance(row.get("system"), str) and row["system"].strip():
        yield _Message("system", row["system"])
    for number, value in enumerate(values):
        try:
            if not isinstance(value, dict):
                raise TraceFaultError(TraceFault.BAD_MESSAGE, f"it is {type(value).__name__}")
            message = read_message(value)
        except TraceFaultError as error:
            raise TraceFaultError(error.fault, f"{name} {number}: {error.detail}") from error
        yield message


def _functions(value: Any) -> tuple[str, ...]:
    """The tools of a trace, each as canonical JSON with its name; also from JSON text of a list."""
    if isinstance(value, str):
        try:
            value = loads(value) if value.strip() else None
        except ValueError as error:
            raise TraceFaultError(TraceFault.BAD_TOOLS, f"they are not JSON: {error}") from error
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TraceFaultError(TraceFault.BAD_TOOLS, "they are not a list")
    functions = []
    for tool in value:
        wrapped = isinstance(tool, dict) and isinstance(tool.get("function"), dict)
        function = tool["function"] if wrapped else tool
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise TraceFaultError(TraceFault.BAD_TOOLS, "one has no name")
        if not function["name"] or not isinstance(function.get("parameters", {}), dict):
            detail = "one has an empty name, or parameters that are not a schema"
            raise TraceFaultError(TraceFault.BAD_TOOLS, detail)
        functions.append(replace_surrogates(canonical(function)))
    return tuple(functions)


# Tables of rollouts.


@dataclass(frozen=True)
class RolloutOptions:
    """How the episodes of a table of rollouts were started.

    Attributes:
        seed: the ``--seed`` of ``ascribe rollout`` or ``ascribe eval``.
        first: the ``--first`` of ``ascribe eval``; None for a rollout.
        lost: whether turns of episodes that were not won are demonstrations too.
    """

    seed: int = 0
    first: int | None = None
    lost: bool = False


_LEFT_OUT = {
    TraceFault.LOST_TRACE: "episodes were not won",
    TraceFault.INVALID_TURN: "turns were not valid",
    TraceFault.EMPTY_TURN: "turns hold nothing",
}


def _rollouts(path: Path, options: RolloutOptions, extracted: "Extracted") -> None:
    """Each row's prompt is the state and its response the action.

    The actions before it are kept, so that verifiers can try other actions there.
    """
    try:
        rollouts = read(path)
    except TableError as error:
        extracted.problems += [
            TraceFaultError(TraceFault.BAD_TABLE, str(p)) for p in error.problems
        ]
        return
    columns = {
        name: rollouts.carried.column(name).to_pylist()
        for name in ("prompt", "response", "won")
        if name in rollouts.carried.column_names
    }
    missing = {"prompt", "response"} - columns.keys()
    if missing:
        detail = f"there is no column {' and no column '.join(sorted(missing))}"
        raise TraceFaultError(TraceFault.NO_TRANSCRIPT, detail)
    traces: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place, row in enumerate(rollouts.table.to_dicts()):
        row |= {name: values[place] for name, values in columns.items()}
        if not row.get("padding"):
            traces[row["trajectory"]].append(row | {"line": place + 1})
    extracted.traces += len(traces)
    left_out: Counter[TraceFault] = Counter()
    for name in sorted(traces):
        rows = sorted(traces[name], key=lambda row: row["step"])
        if rows[-1].get("won") is False and not options.lost:
            left_out[TraceFault.LOST_TRACE] += 1
            continue
        try:
            file = replace_surrogates(path.name)
            extracted.candidates += _episode(file, name, rows, options, left_out)
        except TraceFaultError as error:
            extracted.problems.append(error)
    extracted.problems += [
        TraceFaultError(fault, f"{count:,} {_LEFT_OUT[fault]}") for fault, count in left_out.items()
    ]


def _episode(
    file: str,
    trace: str,
    rows: Sequence[dict[str, Any]],
    options: RolloutOptions,
    left_out: Counter[TraceFault],
) -> list[Candidate]:
    candidates: list[Candidate] = []
    actions: list[str] = []
    for turn, row in enumerate(rows):
        response = row["response"] or ""
        if not response.strip():
            left_out[TraceFault.EMPTY_TURN] += 1
        elif row.get("valid") is False:
            left_out[TraceFault.INVALID_TURN] += 1
        else:
            messages = _prompt_messages(row)
            origin, scene = Origin(file, trace, turn, len(rows)), _scene(row, actions, options)
            action = replace_surrogates(response)
            candidates.append(candidate(messages, action, origin, scene=scene))
        if row["action"]:
            actions.append(row["action"])
    return candidates


def _scene(row: dict[str, Any], actions: list[str], options: RolloutOptions) -> ReplayPoint | None:
    """None if the group was not named by Ascribe, or there is no state."""
    number = row["group"].rpartition("/")[2]
    if not number.isascii() or not number.isdigit() or row["state"] is None:
        return None
    task = None if options.first is None else options.first + int(number)
    return ReplayPoint(mix_seeds(options.seed, int(number)), task, tuple(actions), row["state"])


def _prompt_messages(row: dict[str, Any]) -> list[Message]:
    try:
        messages: Any = loads(row["prompt"]) if isinstance(row["prompt"], str) else None
    except ValueError as error:
        raise TraceFaultError(TraceFault.BAD_PROMPT, str(error), row["line"]) from error
    if not is_chat(messages):
        detail = "it is no list of messages with a role and a content"
        raise TraceFaultError(TraceFault.BAD_PROMPT, detail, row["line"])
    return [{**message, "content": safe(message["content"])} for message in messages]


# Files.


@dataclass
class Extracted:
    """The candidates of files of traces."""

    candidates: list[Candidate] = field(default_factory=list)
    """Each once."""
    traces: int = 0
    turns: int = 0
    """Demonstrated turns, copies included."""
    problems: list[TraceFaultError] = field(default_factory=list)
    """What was left out, and why."""


def extract(
    paths: Iterable[str | Path],
    form: str | None = None,
    *,
    rollouts: RolloutOptions | None = None,
    skip_bad: bool = False,
) -> Extracted:
    """Every assistant turn of these files as a candidate, each distinct one once.

    Args:
        paths: ``.jsonl``, ``.jsonl.gz`` or ``.parquet``.
        form: one of ``FORMATS``; None: detected.
        rollouts: how the episodes of rollouts were started.
        skip_bad: leave out traces that cannot be read; they are among the problems.

    Raises:
        TraceError: if a file, or without ``skip_bad`` a trace, cannot be read.
        OSError: if a file cannot be opened.
    """
    if form is not None and form not in FORMATS:
        raise ValueError(unknown("format", form, FORMATS))
    extracted = Extracted()
    for path in map(Path, paths):
        before = len(extracted.problems)
        try:
            detected = form or _detect(path)
            if detected == "ascribe":
                _rollouts(path, rollouts or RolloutOptions(), extracted)
            else:
                _lines(path, detected, extracted)
        except TraceFaultError as error:
            extracted.problems.append(error)
        except LineError as error:
            fault = TraceFaultError(TraceFault.UNREADABLE_FILE, str(error))
            extracted.problems.append(fault)
        for problem in extracted.problems[before:]:
            problem.file = replace_surrogates(path.name)
    limit = FATAL if skip_bad else ERROR
    if worst := [one for one in extracted.problems if one.fault.severity >= limit]:
        raise TraceError(worst)
    extracted.turns = len(extracted.candidates)
    extracted.candidates = distinct(extracted.candidates)
    return extracted


def _detect(path: Path) -> str:
    """The format of the first line that can be read."""
    if path.suffix == ".parquet":
        return "ascribe"
    for number, line in numbered_lines(path):
        try:
            row = parse_object(line)
        except LineError:
            continue
        if row.keys() >= {"group", "trajectory", "step"}:
            return "ascribe"
        for name, (key, _, _) in READERS.items():
            if key in row:
                return name
        keys = ", ".join(sorted(row)[:8])
        detail = f"the keys are {keys[:200]}" if keys else "the object is empty"
        raise TraceFaultError(TraceFault.UNKNOWN_FORMAT, detail, number)
    raise TraceFaultError(TraceFault.NO_TRACES, "no line holds a JSON object")


def _lines(path: Path, form: str, extracted: Extracted) -> None:
    before = extracted.traces
    for number, line in numbered_lines(path):
        extracted.traces += 1
        results: list[Candidate | TraceFaultError]
        try:
            row = parse_object(line)
            results = list(_chat(row, form, replace_surrogates(path.name), _name(row, number)))
        except LineError as error:
            results = [TraceFaultError(TraceFault.BAD_LINE, str(error))]
        except TraceFaultError as error:
            results = [error]
        if not results:
            detail = "there is no assistant turn"
            results = [TraceFaultError(TraceFault.NO_ASSISTANT_TURN, detail)]
        for one in results:
            if isinstance(one, Candidate):
                extracted.candidates.append(one)
            else:
                one.line = number
                extracted.problems.append(one)
    if extracted.traces == before:
        raise TraceFaultError(TraceFault.NO_TRACES, "there is no line")


def _name(row: dict[str, Any], number: int) -> str:
    """The trace's own name, or its line."""
    name = row.get("id")
    if isinstance(name, str | int) and not isinstance(name, bool):
        return replace_surrogates(str(name)[:200])
    return f"line {number}"
