"""Files that other tools wrote, as tables of steps; and credit back into them.

Each module reads one format. ``read_rollouts`` takes any file that Ascribe can read: a table of
steps, or conversations in one of these formats.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args

import numpy as np

from ascribe.groups.keys import StateKey
from ascribe.sessions.forest import Forest, link
from ascribe.sessions.formats.known import CHATS, FORMATS, Format
from ascribe.sessions.formats.records import STEPS, Record, read_records
from ascribe.sessions.formats.rewards import SessionRewards
from ascribe.sessions.formats.states import Choice, ChosenState, choose
from ascribe.sessions.messages import Conversation, State
from ascribe.sessions.tables import owners_of_rows, session_rewards, to_table
from ascribe.steps.arrays import Floats
from ascribe.steps.atomic import replacing
from ascribe.steps.files import SUFFIXES as TABLES
from ascribe.steps.files import Progress, Rollouts, coded, read
from ascribe.steps.hints import option, unknown
from ascribe.steps.problems import Problem, ProblemKind, TableError, counted, one_line

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".eval", ".traj", ".parquet")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Imported(Rollouts):
    """A table of steps made from conversations, and how it was made.

    Attributes:
        format: name of the format.
        also: formats of further records, of those that are told apart by their messages.
        sizes: number of steps of each conversation, in the order of the rows.
        chosen: the state that was taken, and what others would give.
        arguments: the files and options of ``ascribe import``.

    Example:
        >>> from ascribe.sessions.formats import import_files
        >>> imported = import_files(["examples/conversations.jsonl"])
        >>> imported.title, imported.state
        ('OpenAI messages', 'observation')
    """

    format: str
    sizes: Sequence[int]
    chosen: ChosenState
    also: Sequence[str] = ()
    arguments: Sequence[str] = ()

    @property
    def state(self) -> Choice:
        """What counts as the state."""
        return self.chosen.state

    @property
    def alone(self) -> Mapping[Choice, float]:
        """Share of the steps that are alone in their state, for each choice that was measured."""
        return self.chosen.alone

    @property
    def title(self) -> str:
        """What the formats are called in which the records were read."""
        return " and ".join(FORMATS[name].title for name in (self.format, *self.also))

    def sentence(self) -> str:
        """What was understood."""
        others = ", ".join(
            f"{c}: {share:.1%}" for c, share in self.alone.items() if c != self.state
        )
        return (
            f"{self.title}, {counted(len(self.table), 'step')} in "
            f"{counted(self.table.trajectory.values.size, 'trajectory')}. State: {self.state}; "
            f"{self.alone[self.state]:.1%} of the steps have no other step in the same state to "
            f"compare with{others and f' ({others})'}."
            + (f" {counted(len(self.notes), 'problem')}: see ascribe check." if self.notes else "")
        )

    def advice(self) -> str:
        """The command that takes other states, where that may be better; else nothing."""
        return self.chosen.advice(self.arguments)


class SessionOptions(TypedDict, total=False):
    """How to read sessions, where a file does not say it; the arguments of ``import_parts``."""

    form: str | None
    group: str | None
    reward: str | None
    state: Choice | None


def read_rollouts(
    path: str | Path,
    progress: Progress = lambda _: None,
    wanted: Callable[[str], bool] = lambda _: True,
    columns: Mapping[str, str] | None = None,
    **options: Unpack[SessionOptions],
) -> Rollouts:
    """A table of steps (``ascribe.steps.files.read``), or sessions of a known format.

    Only a table has ``columns`` that can be renamed, only sessions have ``options``.

    Raises:
        TableError: if the file cannot be read, with every reason found.
        OSError: if it cannot be opened.
        ValueError: if a table has options, or sessions have columns.
    """
    path = Path(path)
    if not are_sessions(path, columns, **options):
        return read(path, progress, wanted, columns)
    return import_files([path], progress=progress, **options)


def are_sessions(
    path: Path, columns: Mapping[str, str] | None = None, **options: Unpack[SessionOptions]
) -> bool:
    """Whether a file or folder holds sessions, not a table of steps.

    Raises:
        ValueError: for options of the other kind.
    """
    if columns:
        refuse_options(path.name, **options)
        return False
    if options.get("form") is not None:
        return True
    if path.name.endswith(TABLES):
        foreign = path.suffix != ".csv" and not is_table(path)
    else:
        tables = map(is_table, path.glob("*.parquet"))
        foreign = path.suffix in SUFFIXES or (path.is_dir() and not any(tables))
    if not foreign:
        refuse_options(path.name, **options)
    return foreign


def refuse_options(name: str, **options: Unpack[SessionOptions]) -> None:
    """Raise ``ValueError`` if a table of steps has options for sessions."""
    if any(value is not None for value in options.values()):
        raise ValueError(
            f"{one_line(name)} is read as a table of steps: {option('reward')}, {option('group')}, "
            f"{option('state')} and {option('form')} are for sessions; name its columns with "
            f"{option('columns', {'reward': 'score'})}"
        )


def import_files(
    paths: Iterable[str | Path],
    form: str | None = None,
    *,
    group: str | None = None,
    reward: str | None = None,
    state: Choice | None = None,
    progress: Progress = lambda _: None,
) -> Imported:
    """The sessions of files or folders as one table of steps; arguments of ``import_parts``.

    Raises:
        TableError: if a file cannot be read, with the file, the line and the field.
        OSError: if a file cannot be opened.

    Example:
        >>> from ascribe.sessions.formats import import_files
        >>> import_files(["examples/conversations.jsonl"]).table
        StepTable(705 rows, 5 groups, 120 trajectories, 15 states)
    """
    options: SessionOptions = {"form": form, "group": group, "reward": reward, "state": state}
    (imported,) = import_parts(paths, **options, progress=progress, most_steps=None)
    return imported


def import_parts(
    paths: Iterable[str | Path],
    form: str | None = None,
    *,
    group: str | None = None,
    reward: str | None = None,
    state: Choice | None = None,
    progress: Progress = lambda _: None,
    most_steps: int | None = 50_000,
) -> Iterator[Imported]:
    """The conversations of files or folders as tables of steps, so that files may be large.

    Names of trajectories are unique over all tables.

    Args:
        paths: files, or folders with files of one format.
        form: one of ``FORMATS``; None: detected.
        group: the field that names the task, if not the usual one; dots lead into objects.
        reward: the field that holds the reward; or a ``.csv`` file with the columns ``session`` and
            ``reward``, and ``group`` if sessions are to have other groups.
        state: what counts as the state of a step; None: the first of ``CHOICES`` with about the
            fewest steps of the first table alone in their state.
        progress: called with the share that is done.
        most_steps: about how many steps are in a table; None: one table.

    Raises:
        TableError: if a file cannot be read, with the file, the line and the field.
        OSError: if a file cannot be opened.
    """
    places = [Path(path) for path in paths]
    named = {"--format": form, "--group": group, "--reward": reward}
    options = [word for name, value in named.items() if value for word in (name, value)]
    arguments = [*map(str, places), *options]
    files, name = _files(places, form)
    also: set[str] = set()
    # A trajectory that may go on in the next record is in one table.
    limit = math.inf if most_steps is None or FORMATS[name].continued else most_steps
    rewards = None
    if reward is not None and reward.endswith(".csv"):
        rewards, reward = SessionRewards.read(reward), None
    batch: list[Conversation] = []
    seen: set[tuple[Any, ...]] = set()
    steps, parts, rewarded, key = 0, 0, False, None
    for records in _sessions(files, FORMATS[name], progress):
        if steps >= limit:
            imported = _imported(batch, (name, *sorted(also)), state, key, whole=False)
            state, key = imported.state, imported.chosen.key
            batch, steps, parts = [], 0, parts + 1
            yield replace(imported, arguments=arguments)
        conversations = _conversations(records, FORMATS[name], group, reward, seen)
        if rewards is not None:
            conversations = [rewards.join(conversation) for conversation in conversations]
        if name in CHATS:
            also |= {_format_of(records[0]) or name} - {name}
        batch += conversations
        steps += sum(len(each.steps) for each in conversations)
        rewarded |= any(e.reward is not None or any(e.rewards or ()) for e in conversations)
    if not steps and not parts:
        raise _error(f"no message of an assistant in {_names(files)}")
    if rewards is not None:
        rewards.check()
    elif not rewarded:
        raise _error(
            f"no conversation in {_names(files)} has a reward; name the field that holds it: "
            f"{option('reward', 'FIELD')}, or a file with the columns session and reward: "
            f"{option('reward', 'FILE.csv')}"
        )
    if steps:
        imported = _imported(batch, (name, *sorted(also)), state, key, whole=most_steps is None)
        yield replace(imported, arguments=arguments)


def _imported(
    conversations: Sequence[Conversation],
    names: Sequence[str],
    state: Choice | None,
    key: StateKey | None,
    *,
    whole: bool,
) -> Imported:
    """The table of conversations; of a part, with that state alone."""
    forest = link(conversations)
    conversations = forest.conversations
    tables = {}
    only = "observation" if state == "cleaned" else state
    for choice in get_args(State):
        has_keys = choice != "key" or all(
            conversation.states is not None for conversation in conversations
        )
        if has_keys and (whole or only in (None, choice)):
            tables[choice] = to_table(forest, choice)
    if only is not None and only not in tables:
        raise _error(
            f"{FORMATS[names[0]].title} have no keys of states; choose another {option('state')}"
        )
    iteration = [each.extra.get("iteration") for each in owners_of_rows(conversations)]
    if None not in iteration:
        numbers = np.array(iteration, dtype=np.int64)
        tables = {choice: replace(table, iteration=numbers) for choice, table in tables.items()}
    table, chosen = choose(tables, state, key)
    carried = _carried(forest, whole=whole)
    return Imported(
        table,
        carried,
        carried.select([]),
        notes=tuple(forest.problems),
        format=names[0],
        also=names[1:],
        sizes=[len(conversation.steps) for conversation in conversations],
        chosen=chosen,
    )


def write_credit(path: str | Path, imported: Imported, advantages: Floats, out: str | Path) -> None:
    """Write a file again, with the advantage of every step where its format has a place for it.

    Args:
        path: the file that ``imported`` was read from.
        imported: its steps.
        advantages: the advantage of each row, 0 where there is none.
        out: the file to write.

    Raises:
        OSError: if a file cannot be opened or written.
        ValueError: if the format has no place for credit.

    Example:
        >>> from ascribe.sessions.formats import import_files, write_credit
        >>> path = "examples/conversations.jsonl"
        >>> imported = import_files([path])
        >>> try:
        ...     write_credit(path, imported, imported.table.reward, "out.jsonl")
        ... except ValueError as error:
        ...     print(error)
        OpenAI messages have no place for credit
    """
    put = FORMATS[imported.format].put
    if put is None:
        raise ValueError(f"{FORMATS[imported.format].title} have no place for credit")
    path, out = Path(path), Path(out)
    ends = np.cumsum(imported.sizes)
    parts = iter(part.tolist() for part in np.split(advantages[: ends[-1]], ends[:-1]))
    with replacing(out) as file:
        values = []
        for record in read_records(path):
            put(record.value, parts)
            values.append(json.dumps(record.value, ensure_ascii=False, allow_nan=False))
            if path.suffix != ".json":
                file.write(f"{values.pop()}\n".encode())
        if values:
            file.write((values[0] if len(values) == 1 else f"[{','.join(values)}]").encode())


# Files and their conversations.


def is_table(path: Path) -> bool:
    """Whether records are not of a known format; damaged ones are left to the reader."""
    try:
        first = next(read_records(path), None)
    except TableError:
        return True
    return first is None or _format_of(first) is None


def _format_of(record: Record) -> str | None:
    value = record.value
    if not isinstance(value, dict) or value.keys() >= STEPS:
        return None
    return next((name for name, each in FORMATS.items() if each.recognises(value)), None)


def _files(paths: Iterable[Path], form: str | None) -> tuple[list[Path], str]:
    """The files to read, those of a folder by name, and their format."""
    if form is not None and form not in FORMATS:
        raise _error(unknown("format", form, FORMATS))
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [
                each
                for each in sorted(path.rglob("*"))
                if each.name.endswith(SUFFIXES) and each.is_file() and not each.is_symlink()
            ]
            formats = {each: _detect(each, strict=False) for each in inside}
            form = form or next(filter(None, formats.values()), None)
            files += [each for each, name in formats.items() if name == form is not None]
            for each in inside if form is None else ():
                _detect(each)
        else:
            form = form or _detect(path)
            files.append(path)
        if form is None or not files:
            raise _error(
                f"{one_line(path)} holds no conversation of a known format; name it with "
                f"{option('form')}: {', '.join(FORMATS)}"
            )
    return files, str(form)


def _detect(path: Path, *, strict: bool = True) -> str | None:
    try:
        first = next(read_records(path), None)
    except TableError:
        if strict:
            raise
        return None
    return None if first is None else _format_of(first)


def _sessions(
    files: Sequence[Path], form: Format, progress: Progress
) -> Iterator[Sequence[Record]]:
    """The records of each session, in the order of the files; one for each without ``session``.

    Sessions that alternate in a log are read twice: once to count the records of each, and again to
    hand out a session when its last record is there. So only the open ones are held.
    """
    left: Counter[Hashable] = Counter()
    of_trace: dict[Hashable, Hashable] = {}
    if form.session is not None:
        pairs = Counter(
            _session_and_trace(each, form) for file in files for each in _read(file, form)
        )
        for session, trace in pairs:
            if session is not None and trace is not None:
                # A trace with several sessions, such as an evaluation of many, is none of them.
                of_trace[trace] = session if of_trace.get(trace, session) == session else None
        for (session, trace), count in pairs.items():
            left[session or of_trace.get(trace) or trace] += count
    open_sessions: defaultdict[Hashable, list[Record]] = defaultdict(list)
    for number, file in enumerate(files):
        for record in _read(file, form):
            if form.session is None:
                yield [record]
                continue
            session, trace = _session_and_trace(record, form)
            name = session or of_trace.get(trace) or trace
            open_sessions[name].append(record)
            left[name] -= 1
            if not left[name]:
                yield _unique(open_sessions.pop(name), form)
        progress((number + 1) / len(files))


def _read(file: Path, form: Format) -> Iterator[Record]:
    for record in read_records(file):
        if not isinstance(record.value, dict):
            raise record.error("it must be an object")
        yield from form.split(record)


def _session_and_trace(record: Record, form: Format) -> tuple[Hashable, Hashable]:
    """Names of different kinds differ; None is no name."""
    session = form.session(record) if form.session else None
    trace = form.trace(record) if form.trace else None
    if session is None and trace is None:  # a session of its own
        trace = record.path, record.line, record.field
    return (
        None if session is None else ("session", session),
        None if trace is None else ("trace", trace),
    )


def _unique(records: Sequence[Record], form: Format) -> Sequence[Record]:
    """The records without those that were written twice."""
    kept: dict[Hashable, Record] = {}
    for place, record in enumerate(records):
        name = record.get(form.identity).optional_name() if form.identity else None
        if name is None and form.identity and record.get("timestamp"):
            name = repr(record.value)  # of a copy, even the time is the same
        first = kept.setdefault(place if name is None else name, record)
        if first is not record and first.value != record.value:
            detail = f"{first.place()} has the same name and other content; keep one of them"
            raise record.get(form.identity).error(detail)
    return list(kept.values())


def _conversations(
    records: Sequence[Record],
    form: Format,
    group: str | None,
    reward: str | None,
    seen: set[tuple[Any, ...]],
) -> list[Conversation]:
    """The conversations of a session, or of a record, with the fields that the caller named."""
    record = records[-1]
    with record.refusing():
        conversations = list(form.read(record if form.session is None else records))
    if group is not None:
        name = _named(records, group, form)
        conversations = [replace(conversation, group=name.name()) for conversation in conversations]
    if form.session is not None:
        found = form.reward(records, reward)
        if reward is not None and not any(found):
            raise found[-1].error(f"no such field; there are: {_keys(record)}")
        conversations = _rewarded(conversations, found, records, form)
    elif reward is not None:
        score = form.score(_named(records, reward, form))
        conversations = [replace(each, reward=score, rewards=None) for each in conversations]
    with record.refusing():
        session_rewards(conversations, {})
        for each in conversations:
            each.check()
            # Pairs of whether a conversation ends there, and where: none may end in another.
            parts, refusal = each.extra.get("parts", ((), ""))
            if any((not last, mark) in seen for last, mark in parts):
                raise ValueError(refusal)
            seen.update(parts)
    for mark in (f" ({record.place()})", f" ({record.place()}, {len(seen)})"):
        if any(each.extra.get("named") for each in conversations) or seen.isdisjoint(
            (f"{each.group}/{each.trajectory}",) for each in conversations
        ):
            break
        conversations = [
            replace(each, trajectory=f"{each.trajectory}{mark}") for each in conversations
        ]
    seen.update((f"{each.group}/{each.trajectory}",) for each in conversations)
    return conversations


def _named(records: Sequence[Record], name: str, form: Format) -> Record:
    """The first field of this name in the records of a session."""
    fields = [form.field(record, name) for record in records]
    for each in fields:
        if each:
            return each
    raise fields[-1].error(f"no such field; there are: {_keys(records[-1])}")


def _rewarded(
    conversations: Sequence[Conversation],
    rewards: Sequence[Record],
    records: Sequence[Record],
    form: Format,
) -> list[Conversation]:
    """The conversations of a session with the rewards of its records.

    If one record has a reward, or all have the same, it is the session's. Different ones are
    rewards of steps: of the last one of the record, or of its trace.
    """
    values = {place: form.score(each) for place, each in enumerate(rewards) if each}
    if len(set(values.values())) <= 1:
        reward = next(iter(values.values()), None)
        return [replace(each, reward=reward) for each in conversations]
    last: dict[Hashable, int] = {}
    for number, each in enumerate(conversations):
        if each.steps:
            place = each.extra["record"]
            trace = _session_and_trace(records[place], form)[1]
            last |= {place: number} if trace is None else {place: number, trace: number}
    steps = [[0.0] * len(each.steps) for each in conversations]
    for place, value in values.items():
        owner = last.get(place, last.get(_session_and_trace(records[place], form)[1]))
        if owner is None:
            detail = "its session has different rewards, and this one belongs to no response"
            raise rewards[place].error(f"{detail}; name another field with {option('reward')}")
        steps[owner][-1] += value
    return [replace(each, rewards=own) for each, own in zip(conversations, steps, strict=True)]


def _keys(record: Record) -> str:
    return ", ".join(one_line(key, 40) for key in sorted(record.value)[:12])


def _names(files: Sequence[Path]) -> str:
    more = f" and {len(files) - 3} more files" if len(files) > 3 else ""
    return ", ".join(one_line(file.name) for file in files[:3]) + more


def _error(detail: str) -> TableError:
    return TableError([Problem(ProblemKind.NO_CONVERSATIONS, detail)])


# Columns for reports and checks.


def _carried(forest: Forest, *, whole: bool) -> "pa.Table":
    """The messages of each step, how it ended, and if its context was rewritten.

    If ``whole``, what is the same for all steps is left out: none was cut, none rewritten.
    """
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in ("messages", "finish")}
    seen: set[tuple[str, str]] = set()
    for conversation in forest.conversations:
        steps, start = conversation.steps, 0
        if (conversation.group, conversation.trajectory) in seen and steps:
            roles = [message["role"] for message in conversation.messages[: steps[0]]]
            start = max((i for i, role in enumerate(roles) if role == "assistant"), default=-1) + 1
        seen.add((conversation.group, conversation.trajectory))
        for turn, place in enumerate(steps):
            end = place + 1 if place != steps[-1] else len(conversation.messages)
            new = [dict(message) for message in conversation.messages[start:end]]
            columns["messages"].append(json.dumps(new, ensure_ascii=False))
            columns["finish"].append("length" if turn in conversation.truncated_turns else "stop")
            start = end
    for each in owners_of_rows(forest.conversations)[len(columns["messages"]) :]:
        shown = [dict(message) for message in each.messages]
        columns["messages"].append(json.dumps(shown, ensure_ascii=False))
        columns["finish"].append("stop")
    if whole and "length" not in columns["finish"]:
        del columns["finish"]
    rewritten = {each.previous for each in forest.links if each and each.kind == "rewriting"}
    if rewritten or not whole:
        columns["rewritten"] = [row in rewritten for row in range(len(columns["messages"]))]
    kept = {name: values for name, values in columns.items() if None not in values}
    return pa.table(kept)


CHECKED_COLUMNS = ("finish",)


def check_carried(rollouts: Rollouts) -> list[Problem]:
    """Problems that the table alone does not show: cut responses."""
    table, carried = rollouts.table, rollouts.carried
    real = ~table.flag("padding", default=False)
    problems = []
    if "finish" in carried.column_names:
        finish = coded(carried.column("finish"))
        cut = np.append(finish.values == "length", False)[finish.codes]
        rows = np.flatnonzero(real & cut.astype(np.bool_))
        if rows.size:
            detail = f"{rows.size:,} of {int(real.sum()):,} responses were cut by a limit on tokens"
            problems.append(Problem(ProblemKind.CUT_RESPONSE, detail, rows, int(rows.size)))
    return problems
