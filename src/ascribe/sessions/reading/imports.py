"""Files that other tools wrote, as tables of steps; and credit back into them.

Each module of ``sessions.formats`` reads one format. ``read`` takes any file that Ascribe can read:
a table of steps, or conversations in one of these formats.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

import numpy as np

from ascribe.groups.keys import StateKey
from ascribe.sessions.copies import Copies
from ascribe.sessions.forest import Forest, link
from ascribe.sessions.messages import Conversation, State
from ascribe.sessions.reading.advice import REWARD
from ascribe.sessions.reading.files import SUFFIXES, read_records
from ascribe.sessions.reading.format import error, format_of, named
from ascribe.sessions.reading.reader import (
    Documents,
    How,
    Reader,
    RewardsOf,
    Sessions,
    find_files,
    listed,
)
from ascribe.sessions.reading.rewards import SessionRewards
from ascribe.sessions.reading.states import Choice, ChosenState, choose
from ascribe.sessions.tables import owners_of_rows, to_tables
from ascribe.steps.arrays import Floats
from ascribe.steps.atomic import replacing
from ascribe.steps.balance import Balance
from ascribe.steps.check import no_response
from ascribe.steps.errors import InputError
from ascribe.steps.files import SUFFIXES as TABLES
from ascribe.steps.files import Progress, Rollouts, coded, columns_meant
from ascribe.steps.files import read as read_steps
from ascribe.steps.hints import option
from ascribe.steps.problems import Problem, ProblemKind, TableError, counted, one_line
from ascribe.steps.table import REQUIRED_COLUMNS, StepTable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Imported(Rollouts):
    """A table of steps made from conversations, and how it was made.

    Attributes:
        format: name of the format.
        also: formats of further records, of those that are told apart by their messages.
        sizes: number of steps of each conversation that was read, and whether it is in the table,
            in the order of the rows.
        chosen: the state that was taken, and what others would give.
        unread: the places of records that are not as their format has them.
        arguments: the files and options of ``ascribe import``.

    Example:
        >>> from ascribe.sessions.reading import import_files
        >>> imported = import_files(["examples/conversations.jsonl"])
        >>> imported.title, imported.state
        ('OpenAI messages', 'observation')
    """

    format: str
    sizes: Sequence[tuple[int, bool]]
    chosen: ChosenState
    also: Sequence[str] = ()
    unread: Collection[str] = ()
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
        return " and ".join(named(name).title for name in (self.format, *self.also))

    def sentence(self) -> str:
        """What was understood."""
        others = ", ".join(
            f"{c}: {share:.1%}" for c, share in self.alone.items() if c != self.state
        )
        return (
            f"{self.title}, {counted(len(self.table), 'step')} in "
            f"{counted(self.table.trajectory.values.size, 'session')}. State: {self.state}; "
            f"{self.alone[self.state]:.1%} of the steps have no other step in the same state to "
            f"compare with{others and f' ({others})'}."
            + (f" {counted(len(self.notes), 'problem')}: see ascribe check." if self.notes else "")
        )

    def advice(self) -> str:
        """The command that takes other states, where that may be better; else nothing."""
        return self.chosen.advice(self.arguments)


GIVEN = ("group", "reward", "messages", "actions", "observations", "session", "version")
"""Options of texts, in the order in which a command repeats them."""


class SessionOptions(TypedDict, total=False):
    """How to read sessions, where a file does not say it.

    Attributes:
        form: the name of a format; None: that of each file is detected.
        group: the field that names the task, if not the usual one; dots lead into objects.
        reward: the field that holds the reward; or a ``.csv`` file with the columns ``session`` and
            ``reward``, and ``group`` if sessions are to have other groups.
        state: what counts as the state of a step; None: the first of ``CHOICES`` with about the
            fewest steps of the first table alone in their state.
        rewards: whether the rewards in records of model calls belong to each ``call``, so that they
            add up, or to the ``session``; None: to calls if they differ in a session.
        copies: whether sessions that equal an earlier one in all words count, or ``once``. What is
            proven to be a copy, such as by its call ids, always counts once.
        crashed: whether sessions count that crashed, where the file says it.
        skip_bad: whether to leave out files and records that cannot be read, and count them.
        same_task: whether attempts in a group are at one task, however they begin.
        messages: the field that holds the messages, or steps with an action each.
        actions: the field that holds the actions, if there are no messages.
        observations: the field that holds what was observed after each action.
        session: the field that names the session.
        version: the field that names who acted.
        outcome_map: what words are worth as rewards: ``{"partial": 0.5}``.
        unrewarded: whether sessions count without a reward, if none of the first table has one.
    """

    form: str | None
    group: str | None
    reward: str | None
    state: Choice | None
    rewards: RewardsOf | None
    copies: Literal["all", "once"]
    crashed: Literal["count", "drop"]
    skip_bad: bool
    same_task: bool
    messages: str | None
    actions: str | None
    observations: str | None
    session: str | None
    version: str | None
    outcome_map: Mapping[str, float] | None
    unrewarded: bool


def read(
    path: str | Path,
    progress: Progress = lambda _: None,
    wanted: Callable[[str], bool] = lambda _: True,
    columns: Mapping[str, str] | None = None,
    **options: Unpack[SessionOptions],
) -> Rollouts:
    """Read any file or folder: sessions of a known format, or a table of steps.

    The result has the table of steps and the balance: what was seen, used and left out.

    Args:
        path: a file, a folder of files of one format, or the folder of an imported archive.
        progress: called with the share that has been read.
        wanted: whether to read the column of this name, of a table of steps.
        columns: what a table of steps calls a column of the format: ``{"reward": "score"}``.
        **options: how to read sessions; see ``SessionOptions``.

    Raises:
        TableError: if the file cannot be read, with every reason found.
        OSError: if it cannot be opened.
        ValueError: if a table has options, or sessions have columns.

    Example:
        >>> read = ascribe.read("examples/conversations.jsonl")
        >>> read.table
        StepTable(705 rows, 5 groups, 120 trajectories, 15 states)
        >>> read.balance.sentence
        '120 sessions in 1 file.'
    """
    path = Path(path)
    if not are_sessions(path, columns, **options):
        rollouts = read_steps(path, progress, wanted, columns)
        if options.get("same_task"):
            rollouts = replace(rollouts, table=replace(rollouts.table, task=rollouts.table.group))
        return replace(rollouts, balance=balance_of(rollouts.table))
    return import_files([path], progress=progress, **options)


def balance_of(table: StepTable) -> Balance:
    """The balance of a table of steps: trajectories without a reward are left out."""
    real = ~table.flag("padding", default=False) & (table.trajectory.codes >= 0)
    unlabelled = np.unique(table.trajectory.codes[real & np.isnan(table.reward)])
    balance = Balance()
    seen = np.unique(table.trajectory.codes[real]).size
    for thing, count in (("file", 1), ("record", len(table)), ("session", seen)):
        balance.see(thing, count)  # type: ignore[arg-type]
    balance.see("response", int((real & ~no_response(table)).sum()))
    balance.see("reward", seen - unlabelled.size)
    if unlabelled.size < seen:
        for name in table.trajectory.values[unlabelled]:
            balance.leave_out("session", "no reward", name)
    return balance


def are_sessions(
    path: Path, columns: Mapping[str, str] | None = None, **options: Unpack[SessionOptions]
) -> bool:
    """Whether a file or folder holds sessions, not a table of steps.

    Raises:
        TableError: if a folder holds both.
        ValueError: for options of the other kind.
    """
    if columns:
        refuse_options(path.name, **options)
        return False
    if any(options.get(name) for name in ("form", "messages", "actions")):
        return True
    if path.name.endswith((*TABLES, ".csv")) and not path.is_dir():
        foreign = not is_table(path, least=len(REQUIRED_COLUMNS) // 2)
    elif path.is_dir():
        table = next(filter(is_table, path.glob("*.parquet")), None)
        if table is not None:
            _refuse_sessions_beside(path, table)
        foreign = table is None
    else:
        foreign = path.name.endswith(SUFFIXES)
    if not foreign:
        refuse_options(path.name, **options)
    return foreign


def _refuse_sessions_beside(folder: Path, table: Path) -> None:
    """Raise ``TableError`` for a folder of tables in which a file of sessions would not be read."""
    others = (each for each in sorted(folder.iterdir()) if each.suffix != ".parquet")
    known = (each for each in others if each.name.endswith(SUFFIXES))
    if file := next((each for each in known if not is_table(each)), None):
        detail = (
            f"{one_line(folder)} holds a table of steps ({one_line(table.name)}) and sessions "
            f"({one_line(file.name)}), which would not be read"
        )
        hint = "give each a folder of its own"
        raise TableError([Problem(ProblemKind.NO_CONVERSATIONS, detail, hint=hint)])


def refuse_options(name: str, **options: Unpack[SessionOptions]) -> None:
    """Raise ``ValueError`` if a table of steps has options for sessions."""
    if any(value for name, value in options.items() if name != "same_task"):
        raise InputError(
            f"{one_line(name)} is read as a table of steps: {option('reward')}, "
            f"{option('group')}, {option('state')} and {option('form')} are for sessions",
            hint=f"name its columns with {option('columns', {'reward': 'score'})}",
        )


def import_files(
    paths: Iterable[str | Path],
    *,
    progress: Progress = lambda _: None,
    **options: Unpack[SessionOptions],
) -> Imported:
    """The sessions of files or folders as one table of steps; ``SessionOptions``.

    Raises:
        TableError: if a file cannot be read, with the file, the line and the field.
        OSError: if a file cannot be opened.

    Example:
        >>> from ascribe.sessions.reading import import_files
        >>> import_files(["examples/conversations.jsonl"]).table
        StepTable(705 rows, 5 groups, 120 trajectories, 15 states)
    """
    (imported,) = import_parts(paths, **options, progress=progress, most_steps=None)
    return imported


def import_parts(
    paths: Iterable[str | Path],
    *,
    progress: Progress = lambda _: None,
    most_steps: int | None = 50_000,
    **options: Unpack[SessionOptions],
) -> Iterator[Imported]:
    """The conversations of files or folders as tables of steps, so that files may be large.

    Names of trajectories are unique over all tables, and all share one balance, which is whole when
    the last of them is there.

    Args:
        paths: files, or folders with files.
        progress: called with the share that is done.
        most_steps: about how many steps are in a table; None: one table.
        **options: how to read sessions; see ``SessionOptions``.

    Raises:
        TableError: if a file cannot be read, with the file, the line and the field.
        OSError: if a file cannot be opened.
    """
    places, how = [Path(path) for path in paths], How(**options)
    given = {"--format": how.form} | {f"--{name}": getattr(how, name) for name in GIVEN}
    arguments = [*map(str, places), *(w for pair in given.items() if pair[1] for w in pair)]
    balance, csv = Balance(), None
    if how.reward is not None and how.reward.endswith(".csv"):
        csv, how = SessionRewards.read(how.reward), replace(how, reward=None)
    documents = Documents(skip_bad=how.skip_bad)
    found = find_files(places, how, balance, documents, None if csv is None else csv.path)
    # A trajectory that may go on in the next record is in one table.
    continued = any(named(name).continued for name in found)
    limit = math.inf if most_steps is None or continued else most_steps
    formats = list(found)
    sessions = Sessions(how, balance, Copies(how.copies == "once"))
    batch: list[Conversation] = []
    steps, parts, state, key = 0, 0, how.state, None
    keys, seen, unread = list[str](), set[tuple[Any, ...]](), set[str]()

    def table(*, whole: bool) -> Imported | None:
        kept, used = sessions.chosen(batch)
        if not kept:
            return None
        imported = _imported(kept, formats, state, key, whole=whole)
        own = iter(imported.sizes)
        sizes = [
            next(own) if is_used else (len(each.steps), False)
            for each, is_used in zip(batch, used, strict=True)
        ]
        return replace(imported, arguments=arguments, balance=balance, sizes=sizes, unread=unread)

    for name, files in found.items():
        reader = Reader(how.asked or named(name), how, balance, documents, csv, seen, unread=unread)
        for conversations in reader.sessions(files, progress):
            if steps >= limit and (imported := table(whole=False)):
                state, key = imported.state, imported.chosen.key
                batch, steps, parts = [], 0, parts + 1
                yield imported
            batch += conversations
            formats += [also for also in reader.also if also not in formats]
            keys = keys or reader.keys
            steps += sum(len(each.steps) for each in conversations)
    if csv is not None:
        csv.check(balance)
    imported = table(whole=most_steps is None) if batch else None
    if imported is not None:
        yield imported
    elif not parts:
        raise _nothing(found, balance, how.reward, keys, places)


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
    choices: list[State] = []
    only = "observation" if state == "cleaned" else state
    for choice in get_args(State):
        has_keys = choice != "key" or all(
            conversation.states is not None for conversation in conversations
        )
        if has_keys and (whole or only in (None, choice)):
            choices.append(choice)
    if only is not None and only not in choices:
        raise error(
            f"{named(names[0]).title} have no keys of states; choose another {option('state')}"
        )
    tables = to_tables(forest, choices)
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
        also=tuple(names[1:]),
        sizes=[(len(conversation.steps), True) for conversation in conversations],
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
        >>> from ascribe.sessions.reading import import_files, write_credit
        >>> path = "examples/conversations.jsonl"
        >>> imported = import_files([path])
        >>> try:
        ...     write_credit(path, imported, imported.table.reward, "out.jsonl")
        ... except ValueError as error:
        ...     print(error)
        OpenAI messages have no place for credit
    """
    put = named(imported.format).put
    if put is None:
        raise InputError(f"{named(imported.format).title} have no place for credit")
    path, out = Path(path), Path(out)
    values_of_rows = iter(advantages.tolist())
    parts = (
        [next(values_of_rows) if used else None for _ in range(steps)]
        for steps, used in imported.sizes
    )
    with replacing(out) as file:
        values = []
        for record in read_records(path, lambda _: None):
            if record.place() not in imported.unread:
                put(record.value, parts)
            values.append(json.dumps(record.value, ensure_ascii=False, allow_nan=False))
            if path.suffix != ".json":
                file.write(f"{values.pop()}\n".encode())
        if values:
            file.write((values[0] if len(values) == 1 else f"[{','.join(values)}]").encode())


# Files and their conversations.


def is_table(path: Path, least: int = 0) -> bool:
    """Whether records are not of a known format; damaged ones are left to the reader.

    ``least`` is how many columns of a table they must have, by those names or others.
    """
    try:
        first = next(read_records(path), None)
    except TableError:
        return True
    if first is None or not isinstance(first.value, dict):
        return True
    columns = {*REQUIRED_COLUMNS} & {*first.value, *columns_meant([*first.value])}
    return len(columns) >= least and format_of(first) is None


def _nothing(
    formats: Iterable[str],
    balance: Balance,
    reward: str | None,
    keys: Sequence[str],
    places: Sequence[Path],
) -> TableError:
    """The error for files without a session that counts; ``keys`` are those of a record."""
    tables = [each for place in places for each in sorted(place.rglob("*.csv"))[:1]]
    maybe = [*(str(each) for each in tables), *(k for k in keys if REWARD.fullmatch(k.lower()))]
    titles = " and ".join(named(name).title for name in formats)
    unlabelled = balance.reasons("session").get("no reward", 0)
    if not balance.seen["session"]:
        return error(f"no session in {titles}: {balance.sentence}")
    if unlabelled == balance.seen["session"] and reward is not None:
        there = f"; there are: {listed(keys)}" if keys else ""
        what = f"no session has a reward in {one_line(reward)}{there}"
        return _without_reward(what, maybe)
    if unlabelled == balance.seen["session"]:
        return _without_reward(
            f"no session has a reward ({counted(unlabelled, 'session')} of {titles})", maybe
        )
    return error(f"no session of {titles} can be used: {balance.sentence}")


def _without_reward(what: str, maybe: Sequence[str]) -> TableError:
    found = f"; perhaps {option('reward', one_line(maybe[0]))}" if maybe else ""
    hint = (
        f"name the field that holds it: {option('reward', 'FIELD')}, or a file with the columns "
        f"session and reward: {option('reward', 'FILE.csv')}{found}"
    )
    return TableError([Problem(ProblemKind.NO_CONVERSATIONS, what, hint=hint)])


# Columns for reports and checks.

_JSON = json.JSONEncoder(ensure_ascii=False, default=dict).encode


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
            columns["messages"].append(_JSON(conversation.messages[start:end]))
            columns["finish"].append("length" if turn in conversation.truncated_turns else "stop")
            start = end
    for each in owners_of_rows(forest.conversations)[len(columns["messages"]) :]:
        columns["messages"].append(_JSON(each.messages))
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
