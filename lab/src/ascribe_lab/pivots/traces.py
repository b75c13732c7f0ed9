"""Traces in: every assistant turn of a file becomes a candidate.

Chats are OpenAI messages, one trace on each line, as ``ascribe.sessions`` reads them; those of
ShareGPT are put into that form first. Tables of rollouts that Ascribe wrote are traces too. Files
are hostile until read: whatever cannot be read is reported with its line and the reason.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ascribe.groups.responses import name_and_arguments
from ascribe.sessions.messages import MEDIA, check_form, text_of
from ascribe.sessions.reading.format import formats
from ascribe.sessions.reading.records import STEPS, Record
from ascribe.steps.errors import InputError
from ascribe.steps.files import read
from ascribe.steps.lines import LineError, numbered_lines
from ascribe.steps.problems import Problem, TableError, replace_surrogates
from ascribe.steps.strict_json import canonical, loads
from ascribe_lab.agents.clean import safe
from ascribe_lab.agents.prompts import is_chat
from ascribe_lab.json_journal import parse_object
from ascribe_lab.models.policy import mix_seeds
from ascribe_lab.pivots.candidates import (
    Candidate,
    Message,
    Origin,
    ReplayPoint,
    candidate,
    distinct,
)
from ascribe_lab.pivots.chat import describe_tools, tool_output, write_call


@dataclass
class Extracted:
    """The candidates of files of traces."""

    candidates: list[Candidate] = field(default_factory=list)
    """Each once."""
    traces: int = 0
    turns: int = 0
    """Demonstrated turns, copies included."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many turns or traces gave no candidate, by the reason."""
    problems: list[Problem] = field(default_factory=list)
    """Traces that cannot be read."""


def extract(
    paths: Iterable[str | Path],
    *,
    seed: int = 0,
    first: int | None = None,
    lost: bool = False,
    skip_bad: bool = False,
) -> Extracted:
    """Every assistant turn of these files as a candidate, each distinct one once.

    Args:
        paths: ``.jsonl``, ``.jsonl.gz`` or ``.parquet``.
        seed: for rollouts: the ``--seed`` of ``ascribe rollout`` or ``ascribe eval``.
        first: for rollouts: the ``--first`` of ``ascribe eval``.
        lost: for rollouts: whether turns of episodes that were not won are demonstrations too.
        skip_bad: leave out traces that cannot be read; they are among the problems.

    Raises:
        TableError: if a file, or without ``skip_bad`` a trace, cannot be read.
        OSError: if a file cannot be opened.
    """
    extracted = Extracted()
    for path in map(Path, paths):
        with Record(None, path).refusing():
            if _is_table(path):
                _read_table(path, extracted, seed, first, lost=lost)
            else:
                _read_chats(path, extracted)
    if extracted.problems and not skip_bad:
        raise TableError(extracted.problems)
    extracted.turns = len(extracted.candidates)
    extracted.candidates = distinct(extracted.candidates)
    return extracted


def _is_table(path: Path) -> bool:
    """Whether the first line that can be read is a step."""
    if path.suffix == ".parquet":
        return True
    for _, line in numbered_lines(path):
        with suppress(LineError):
            return parse_object(line).keys() >= STEPS
    return False


# Chats.

SPEAKERS = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function_response": "tool",
}
"""OpenAI's roles of the speakers of ShareGPT files, where they have other names."""

ROLES = {"developer": "system", "function": "tool", "demonstration": "assistant"}
"""Roles that are read as another one."""


def _read_chats(path: Path, extracted: Extracted) -> None:
    number = 0
    for number, line in numbered_lines(path):
        extracted.traces += 1
        record = Record(None, path, number)
        try:
            with record.refusing():
                row = parse_object(line)
                extracted.candidates += _chat(row, record, extracted.skipped)
        except TableError as error:
            extracted.problems += error.problems
    if not number:
        raise InputError("there is nothing in the file", hint="check that it was written")


def _chat(row: dict[str, Any], record: Record, skipped: Counter[str]) -> list[Candidate]:
    """The candidates of one trace."""
    with Record(None, record.path, record.line, "tools").refusing():
        tools = _tools(row.get("tools", row.get("functions")))
    messages: list[Message] = []
    turns: list[tuple[int, int, str]] = []
    number, previous = 0, ""
    for place, value in enumerate(_messages(row)):
        with Record(None, record.path, record.line, f"message {place}").refusing():
            message = _openai_message(value)
            role, text = _role_and_text(message)
        if role == "assistant":
            if message["role"] == "demonstration" or message.get("weight") == 0:
                pass  # history alone, as in OpenAI's fine-tuning files
            elif not text:
                skipped["empty_turn"] += 1
            elif all(before["role"] == "system" for before in messages):
                skipped["no_history"] += 1
            else:
                turns.append((number, len(messages), text))
            number += 1
        if role == "tool" and previous == "tool":
            messages[-1]["content"] += f"\n{tool_output(text)}"
        elif role == "tool":
            messages.append({"role": "user", "content": tool_output(text)})
        else:
            messages.append({"role": role, "content": safe(text)})
        previous = role
    if not number:
        skipped["no_assistant_turn"] += 1
    added = 0
    if tools and messages[0]["role"] == "system":
        messages[0]["content"] += f"\n\n{describe_tools(tools)}"
    elif tools:
        messages.insert(0, {"role": "system", "content": describe_tools(tools)})
        added = 1
    file, name = replace_surrogates(record.path.name), row.get("id")
    named = isinstance(name, str | int) and not isinstance(name, bool)
    trace = replace_surrogates(str(name)[:200]) if named else record.short()
    return [
        candidate(messages[: place + added], action, Origin(file, trace, turn, number), tools)
        for turn, place, action in turns
    ]


def _messages(row: dict[str, Any]) -> list[Any]:
    """The messages of a trace as they are."""
    key = next((key for key in ("messages", "conversations") if key in row), None)
    if key is None:
        titles = [form.title for form in formats().values() if form.fits(row)]
        keys = ", ".join(sorted(row)[:8]) or "nothing"
        unread = f"{titles[0]} are not read here" if titles else f"an object of {keys[:200]}"
        raise InputError(unread, hint="write OpenAI messages, one trace on a line")
    values = row[key]
    if not isinstance(values, list) or not values:
        raise InputError(f"{key} must be a list that is not empty")
    system = row.get("system") if key == "conversations" else None
    return [*([{"from": "system", "value": system}] if system else []), *values]


def _openai_message(value: Any) -> Any:
    """A turn of ShareGPT in OpenAI's form, not yet checked; anything else as it is."""
    if not isinstance(value, dict) or "from" not in value:
        return value
    speaker, text = str(value["from"]), value.get("value")
    if not isinstance(text, str):
        raise InputError("its value must be text")
    message: dict[str, Any] = {"role": SPEAKERS.get(speaker, speaker), "content": text}
    if speaker == "function_call":
        try:
            calls = loads(text)
        except ValueError as error:
            raise InputError(f"a function_call must be JSON: {error}") from error
        message |= {"content": None, "tool_calls": calls if isinstance(calls, list) else [calls]}
    return message


def _role_and_text(value: Any) -> tuple[str, str]:
    """The role of a message, and its text with its calls written into it."""
    check_form(value)
    content, role = value.get("content"), ROLES.get(value["role"], value["role"])
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and MEDIA.fullmatch(str(part.get("type", "text"))):
            raise InputError("its content holds a picture or a file, and policies read text alone")
    text = text_of(content)
    if role != "assistant":
        return role, text
    calls = value.get("tool_calls") or filter(None, [value.get("function_call")])
    written = [write_call(*name_and_arguments(call)) for call in calls]
    return role, "\n".join([*([replace_surrogates(text)] if text.strip() else []), *written])


def _tools(value: Any) -> tuple[str, ...]:
    """The tools of a trace, each as canonical JSON with its name; also from JSON text of a list."""
    if isinstance(value, str):
        value = loads(value) if value.strip() else None
    if not isinstance(value, list | None):
        raise InputError("tools must be a list of functions")
    functions = []
    for tool in value or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else {}
        name = function.get("name") if isinstance(function, dict) else None
        if not name or not isinstance(name, str):
            raise InputError("a tool has no name")
        if not isinstance(function.get("parameters", {}), dict):
            raise InputError("the parameters of a tool must be a JSON schema")
        functions.append(replace_surrogates(canonical(function)))
    return tuple(functions)


# Tables of rollouts.


def _read_table(
    path: Path, extracted: Extracted, seed: int, first: int | None, *, lost: bool
) -> None:
    """Each row's prompt is the state and its response the action.

    The actions before it are kept, so that verifiers can try other actions there.
    """
    rollouts = read(path)
    columns = {
        name: rollouts.carried.column(name).to_pylist()
        for name in ("prompt", "response", "won")
        if name in rollouts.carried.column_names
    }
    if missing := {"prompt", "response"} - columns.keys():
        names = " and no column ".join(sorted(missing))
        raise InputError(f"there is no column {names}", hint="write it with ascribe rollout")
    traces: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place, row in enumerate(rollouts.table.to_dicts()):
        row |= {name: values[place] for name, values in columns.items()}
        if not row.get("padding"):
            traces[row["trajectory"]].append(row | {"line": place + 1})
    extracted.traces += len(traces)
    for name in sorted(traces):
        rows = sorted(traces[name], key=lambda row: row["step"])
        if rows[-1].get("won") is False and not lost:
            extracted.skipped["lost_trace"] += 1
            continue
        try:
            extracted.candidates += _episode(path, rows, extracted.skipped, seed, first)
        except TableError as error:
            extracted.problems += error.problems


def _episode(
    path: Path, rows: Sequence[dict[str, Any]], skipped: Counter[str], seed: int, first: int | None
) -> list[Candidate]:
    candidates: list[Candidate] = []
    actions: list[str] = []
    number = rows[0]["group"].rpartition("/")[2]
    named = number.isascii() and number.isdigit()  # by Ascribe: the number of the task
    for turn, row in enumerate(rows):
        response = row["response"] or ""
        if not response.strip():
            skipped["empty_turn"] += 1
        elif row.get("valid") is False:
            skipped["invalid_turn"] += 1
        else:
            with Record(None, path, row["line"], "prompt").refusing():
                messages = loads(row["prompt"] or "")
                if not is_chat(messages):
                    raise InputError("it is no list of messages with a role and a content")
            scene = None
            if named and row["state"] is not None:
                task = None if first is None else first + int(number)
                start = mix_seeds(seed, int(number))
                scene = ReplayPoint(start, task, tuple(actions), row["state"])
            candidates.append(
                candidate(
                    [{**message, "content": safe(message["content"])} for message in messages],
                    replace_surrogates(response),
                    Origin(replace_surrogates(path.name), row["trajectory"], turn, len(rows)),
                    scene=scene,
                )
            )
        if row["action"]:
            actions.append(row["action"])
    return candidates
