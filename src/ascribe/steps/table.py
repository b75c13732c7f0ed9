"""``StepTable``: one row per decision, and the checks of its columns.

Row order carries no meaning: estimators work on ``ascribe.steps.check.arrange(table)``, the rows in
one canonical order, so results do not depend on the row order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from operator import lt
from typing import Any, TypeAlias, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ascribe.steps.arrays import Bools, Brief, Floats, Ints, Objects
from ascribe.steps.errors import InputError
from ascribe.steps.problems import Problem, ProblemKind, TableError, counted

MISSING_STEP = int(np.iinfo(np.int64).min)
"""Stands in ``StepTable.step`` for a missing step number."""

TEXT_COLUMNS = (
    *("group", "trajectory", "state", "action", "first_tokens", "agent", "family", "corrects"),
    *("task", "version"),
)
FLAG_COLUMNS = ("valid", "terminated", "truncated", "padding")
REQUIRED_COLUMNS = ("group", "trajectory", "step", "state", "action", "reward")
INPUT_COLUMNS = ("value", "score", "step_score", "entropy")
"""Numbers that some recipes read, NaN where there is none."""
KNOWN_COLUMNS = (
    *(*REQUIRED_COLUMNS, "first_tokens", "agent", "parent", "family", "task", "version"),
    *(*FLAG_COLUMNS, "fingerprint", "without", "corrects", *INPUT_COLUMNS, "iteration"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Coded(Brief):
    """A column of text, coded once: ``values[codes[i]]`` is row i's text; code -1 is missing."""

    codes: Ints
    values: Objects

    @staticmethod
    def encode(texts: Sequence[str | None]) -> "Coded":
        """Code each distinct text by its first appearance."""
        code_of: dict[str | None, int] = {None: -1}
        for text in dict.fromkeys(texts):
            code_of.setdefault(text, len(code_of) - 1)
        codes = np.fromiter(map(code_of.__getitem__, texts), dtype=np.int64, count=len(texts))
        values = np.empty(len(code_of) - 1, dtype=object)
        values[:] = list(code_of)[1:]
        return Coded(codes, values)

    def ordered(self) -> "Coded":
        """The same column with its distinct values in rising order, whatever the row order.

        Names that end in numbers are in the order of the numbers: ``task/2`` before ``task/10``.
        """
        values = self.values
        keys = [_name_key(text) for text in values]
        if all(map(lt, keys, keys[1:])):
            return self
        order = sorted(range(len(keys)), key=keys.__getitem__)
        rename = np.empty(len(values) + 1, dtype=np.int64)
        rename[order] = np.arange(len(values))
        rename[-1] = -1
        return Coded(rename[self.codes], values[order])

    def used(self) -> "Coded":
        """The same column without the values that no row has."""
        present = np.zeros(self.values.size + 1, dtype=np.bool_)
        present[self.codes] = True
        present[-1] = False
        if present.sum() == self.values.size:
            return self
        rename = np.cumsum(present) - 1
        rename[-1] = -1
        return Coded(rename[self.codes], self.values[present[:-1]])

    def take(self, rows: Ints) -> "Coded":
        """The column at these rows, with the same ``values``."""
        return Coded(self.codes[rows], self.values)

    def texts(self) -> list[str | None]:
        """The text of every row, ``None`` where missing."""
        return [None if code < 0 else self.values[code] for code in self.codes.tolist()]

    def __len__(self) -> int:
        return int(self.codes.size)


def _name_key(text: str) -> tuple[str, int, str, str]:
    """The text before a number at the end, the number (its length, its digits), and the text."""
    before = text.rstrip("0123456789")
    digits = text[len(before) :].lstrip("0")
    return before, len(digits), digits, text


@dataclass(frozen=True, eq=False)
class StepTable:
    """One row per decision an agent took, column by column.

    Attributes:
        group: the task instance; trajectories of a group have the same start and may be compared.
        trajectory: the episode; its name is unique over the table.
        step: 0, 1, 2, ... inside a trajectory, counting the decisions of all agents.
        state: what the agent saw before it acted, as text or as a key.
        action: what the agent did, as text or as a key.
        reward: the environment's reward for the action.
        first_tokens: the first 8 tokens of the response that the action was read from, as text or
            as ids with spaces between them.
        agent: who acted, in a team or as a sub-agent.
        parent: the step of the trajectory that spawned the sub-agent, or from which the branch
            forks, that this decision belongs to; ``MISSING_STEP`` for all others.
        family: the kind of task, for reports; no recipe reads it.
        task: what identifies the task: rows with one value are attempts at the same task, whatever
            their first states say, also over iterations (absent: the name of the group, and
            attempts are taken for the same task if they begin alike).
        version: who acted: the model, the prompt or the release. Outcomes of several versions at a
            task are compared as if of one by recipes, and apart by ``decisions``.
        valid: whether the environment understood the action (absent: all were).
        terminated: whether the environment ended the episode with this step (absent: unknown).
        truncated: whether a limit cut the episode after this step (absent: none was cut).
        padding: whether the row only fills up a batch and is ignored (absent: none is).
        fingerprint: the state as a vector, one row of numbers each; zeros where there is none.
        without: the team's return in the trajectory if the acting agent had been absent; NaN for a
            decision that was sampled only to measure such a return.
        corrects: the trajectory that this one was written to correct; missing for the others.
        value: the return that a critic expects from the state on; NaN where it is unknown, as in
            the next three.
        score: how good the state is, such as the policy's probability of the right answer in it.
        step_score: what a judge, a verifier or a reward model gives for the step.
        entropy: mean entropy of the policy over the tokens of the response.
        iteration: the iteration of training that the step was sampled in (absent: one for all).
            Each iteration is checked and credited by itself: a group or trajectory of the same name
            in another iteration is another one.

    Example:
        >>> row = {"group": "sum", "trajectory": "0", "step": 0, "state": "6 times 7?"}
        >>> ascribe.StepTable.from_dicts([row | {"action": "42", "reward": 1.0}])
        StepTable(1 row, 1 group, 1 trajectory, 1 state)
        >>> table.action.texts()[:2]
        ['go to kitchen', 'take apple']
    """

    group: Coded
    trajectory: Coded
    step: Ints
    state: Coded
    action: Coded
    reward: Floats
    agent: Coded | None = None
    parent: Ints | None = None
    family: Coded | None = None
    valid: Bools | None = None
    terminated: Bools | None = None
    truncated: Bools | None = None
    padding: Bools | None = None
    fingerprint: npt.NDArray[Any] | None = None
    without: Floats | None = None
    corrects: Coded | None = None
    value: Floats | None = None
    score: Floats | None = None
    step_score: Floats | None = None
    entropy: Floats | None = None
    iteration: Ints | None = None
    first_tokens: Coded | None = None
    task: Coded | None = None
    version: Coded | None = None

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns().items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"columns differ in length: {lengths}")
        object.__setattr__(self, "group", self.group.ordered())
        object.__setattr__(self, "trajectory", self.trajectory.ordered())

    def __len__(self) -> int:
        return len(self.group)

    def __repr__(self) -> str:
        columns = {"group": self.group, "trajectory": self.trajectory, "state": self.state}
        counts = (counted(column.used().values.size, name) for name, column in columns.items())
        return f"StepTable({counted(len(self), 'row')}, {', '.join(counts)})"

    def columns(self) -> dict[str, Any]:
        """The columns that are present, by name."""
        return {name: column for name, column in vars(self).items() if column is not None}

    def take(self, rows: Ints | Bools) -> "StepTable":
        """The table of these rows, by number or by mask, in the order given."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        columns: dict[str, Any] = {
            name: column.take(index) if isinstance(column, Coded) else column[index]
            for name, column in self.columns().items()
        }
        return StepTable(**columns)

    def part(self, rows: Ints) -> "StepTable":
        """The table of these rows, without the texts that are in others alone."""
        part = self.take(rows)
        coded = ((n, c) for n, c in part.columns().items() if isinstance(c, Coded))
        texts: dict[str, Any] = {name: column.used() for name, column in coded}
        return replace(part, **texts)

    def iterations(self) -> list[tuple[int, Ints, "StepTable"]]:
        """The iterations in order: number, rows, and table of each; one without the column.

        An iteration of padding alone is counted with the next one, or else with the last.
        """
        numbers = np.zeros(1, dtype=np.int64)
        if self.iteration is not None:
            numbers = np.unique(self.iteration[~self.flag("padding", default=False)])
        if self.iteration is None or numbers.size < 2:
            return [(int(numbers.sum()), np.arange(len(self)), self)]
        place = np.searchsorted(numbers[:-1], self.iteration)
        rows = [np.flatnonzero(place == index) for index in range(numbers.size)]
        return [(n, at, self.part(at)) for n, at in zip(numbers.tolist(), rows, strict=True)]

    def flag(self, name: str, *, default: bool) -> Bools:
        """A yes/no column, filled with its documented default where it is absent."""
        column: Bools | None = getattr(self, name)
        return np.full(len(self), default) if column is None else column

    @staticmethod
    def from_columns(columns: Mapping[str, "Column"]) -> "StepTable":
        """A table from one sequence per column; columns outside the format are not read.

        Values are read strictly. Text is text, or integers in every row, which become their digits;
        a step is an integer, a reward a number, a flag true or false.

        Raises:
            TableError: with every problem of every column.
            ValueError: if the columns differ in length.
        """
        return read_columns(columns)

    @staticmethod
    def from_dicts(rows: Iterable[Mapping[str, Any]]) -> "StepTable":
        """A table from one mapping per row; see ``from_columns``."""
        rows = list(rows)
        names = {name for row in rows for name in row}
        present = [name for name in KNOWN_COLUMNS if name in names]
        return read_columns({name: [row.get(name) for row in rows] for name in present})

    def to_dicts(self) -> list[dict[str, Any]]:
        """One plain dictionary per row."""
        columns = {
            name: column.texts() if isinstance(column, Coded) else column.tolist()
            for name, column in self.columns().items()
        }
        for name in {"step", "parent"} & columns.keys():
            columns[name] = [None if s == MISSING_STEP else s for s in columns[name]]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


Column: TypeAlias = Sequence[Any] | npt.NDArray[Any] | Coded
"""The values of one column, as Python, numpy or coded text."""


Found = TypeVar("Found")


def once(function: Callable[[StepTable], Found]) -> Callable[[StepTable], Found]:
    """The function, computed once for each table, for as long as there is the table."""
    known: WeakKeyDictionary[StepTable, Found] = WeakKeyDictionary()

    @wraps(function)
    def kept(table: StepTable) -> Found:
        if table not in known:
            known[table] = function(table)
        return known[table]

    return kept


def read_columns(
    columns: Mapping[str, Any], convert: Callable[[str, Any], Column] = lambda _, values: values
) -> StepTable:
    """A table from columns of any type; ``convert(name, column)`` turns each into a ``Column``.

    Raises:
        TableError: with every problem of every column, also those that ``convert`` raises.
        ValueError: if the columns differ in length.
    """
    problems: list[Problem] = []
    lengths = {}
    for name in KNOWN_COLUMNS:
        if name in columns:
            try:
                lengths[name] = len(columns[name])
            except TypeError:
                problems += _not_a_column(name, columns[name]).problems
    if len(set(lengths.values())) > 1:
        raise InputError(f"columns differ in length: {lengths}")
    if missing := [name for name in REQUIRED_COLUMNS if name not in columns]:
        detail = f"no column {' or '.join(missing)}"
        problems.append(Problem(ProblemKind.MISSING_COLUMN, detail, count=len(missing)))
    values: dict[str, Any] = {}
    for name in lengths:
        try:
            values[name] = read_column(name, convert(name, columns[name]))
        except TableError as error:
            problems += error.problems
    if problems:
        raise TableError(problems)
    return StepTable(**values)


def column_error(kind: ProblemKind, detail: str, rows: Sequence[int] | Ints) -> TableError:
    """The error for a column with a problem at these rows."""
    return TableError([Problem(kind, detail, np.array(rows, dtype=np.int64), len(rows))])


def encodable(text: str) -> bool:
    """Whether the text is valid Unicode, without half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_column(name: str, column: Column) -> Any:
    """A column as ``StepTable`` has it, None if it is empty in every row and may be absent.

    Raises:
        TableError: if a value is not of the column's type.
    """
    if name in TEXT_COLUMNS:
        return _text(name, column)
    if name in FLAG_COLUMNS:
        return _flag(name, column)
    own = {"step": _step, "parent": _parent, "iteration": _iteration, "fingerprint": _fingerprint}
    return own.get(name, _number)(name, column)


def _text(name: str, column: Column) -> Coded:
    if isinstance(column, Coded):
        coded = column
    else:
        values = _as_list(name, column)
        kinds = _types(name, values, "text", str, int, np.integer)
        texts = {kind for kind in kinds if issubclass(kind, str)}
        if texts and kinds - texts:
            rows = min(_rows_of(values, kinds - texts), _rows_of(values, texts), key=len)
            detail = f"column {name} holds both text and integers"
            raise column_error(ProblemKind.MIXED_TYPES, detail, rows)
        if kinds - texts:
            values = [None if value is None else str(int(value)) for value in values]
        coded = Coded.encode(values)
    if not encodable("".join(coded.values)):  # one look at all of them is much faster
        broken = [code for code, text in enumerate(coded.values) if not encodable(text)]
        rows = np.flatnonzero(np.isin(coded.codes, broken)).tolist()
        detail = f"column {name} holds text that is not valid Unicode"
        raise column_error(ProblemKind.MALFORMED_TEXT, detail, rows)
    return coded


def _step(name: str, column: Column) -> Ints:
    if _is_array(column, "i"):
        return column.astype(np.int64)
    values = _as_list(name, column)
    _types(name, values, "an integer", int, np.integer)
    try:
        return np.array([MISSING_STEP if value is None else value for value in values], np.int64)
    except OverflowError as error:
        rows = [i for i, v in enumerate(values) if v is not None and abs(v) >= 2**63]
        detail = f"column {name} holds integers beyond 64 bits"
        raise column_error(ProblemKind.WRONG_TYPE, detail, rows) from error


def _parent(name: str, column: Column) -> Ints | None:
    values = _step(name, column)
    return None if (values == MISSING_STEP).all() and values.size else values


def _iteration(name: str, column: Column) -> Ints | None:
    values = _step(name, column)
    missing = np.flatnonzero(values == MISSING_STEP)
    if missing.size == values.size > 0:
        return None  # empty in every row is the same as absent
    if missing.size:
        raise column_error(ProblemKind.WRONG_TYPE, f"column {name} is empty in some rows", missing)
    return values


def _number(name: str, column: Column) -> Floats:
    if _is_array(column, "fiu"):
        return column.astype(np.float64)
    values = _as_list(name, column)
    _types(name, values, "a number", float, np.floating, int, np.integer)
    try:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    except OverflowError as error:
        rows = [i for i, v in enumerate(values) if isinstance(v, int) and abs(v) > 1e100]
        detail = f"column {name} holds integers beyond 64-bit floating point"
        raise column_error(ProblemKind.REWARD_TOO_LARGE, detail, rows) from error


def _flag(name: str, column: Column) -> Bools | None:
    if _is_array(column, "b"):
        return column.copy()
    values = _as_list(name, column)
    kinds = _types(name, values, "true or false", bool, np.bool_)
    if values and not kinds:
        return None  # empty in every row is the same as absent
    if rows := _rows_of(values, {type(None)}):
        raise column_error(ProblemKind.PARTIAL_FLAG, f"column {name} is empty in some rows", rows)
    return np.array(values, dtype=np.bool_)


def _fingerprint(name: str, column: Column) -> npt.NDArray[Any] | None:
    """Fingerprints in half or single precision; every row has as many numbers, all finite."""
    if _is_array(column, "fiu", dimensions=2):
        matrix = column
    else:
        values = [
            row.tolist() if isinstance(row, np.ma.MaskedArray) else row
            for row in _as_list(name, column)
        ]
        example = next((row for row in values if row is not None), None)
        if example is None:
            return None  # empty in every row is the same as absent
        try:
            zeros = np.zeros(len(example))
            matrix = np.array([zeros if row is None else row for row in values])
        except (TypeError, ValueError):  # a row is not a list, or rows differ in length
            matrix = np.empty(len(values))
    if matrix.ndim != 2 or matrix.shape[1] == 0 or matrix.dtype.kind not in "fiu":
        detail = f"column {name} must have as many numbers in every row"
        raise TableError([Problem(ProblemKind.BAD_FINGERPRINT, detail, count=len(matrix))])
    if matrix.dtype not in (np.float16, np.float32):
        with np.errstate(over="ignore"):  # what single precision cannot hold becomes infinite
            matrix = matrix.astype(np.float32)
    rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if rows.size:
        detail = f"column {name} holds numbers that are not finite"
        raise column_error(ProblemKind.BAD_FINGERPRINT, detail, rows)
    return matrix


def _is_array(column: Column, kinds: str, dimensions: int = 1) -> TypeGuard[npt.NDArray[Any]]:
    """Whether the column is a plain array of these kinds, so that it can be read at once.

    A masked array is not: its values also hold what is masked.
    """
    if not isinstance(column, np.ndarray):
        return False
    # A plain array needs no look at ``numpy.ma``, which takes long to import.
    if type(column) is not np.ndarray and isinstance(column, np.ma.MaskedArray):
        return False
    return column.ndim == dimensions and column.dtype.kind in kinds


def _as_list(name: str, column: Column) -> Sequence[Any]:
    """The values of a column, None where it is masked.

    Raises:
        TableError: for a mapping, a set or a text, of which the keys or letters would be read.
    """
    if isinstance(column, Coded):
        return column.texts()
    if hasattr(column, "tolist"):
        values: Sequence[Any] = column.tolist()
        return values
    if not isinstance(column, Sequence) or isinstance(column, str | bytes | bytearray):
        raise _not_a_column(name, column)
    return column


def _not_a_column(name: str, column: Any) -> TableError:
    detail = f"column {name} is a {type(column).__name__}, not a list or an array of values"
    return TableError([Problem(ProblemKind.WRONG_TYPE, detail)])


def _types(name: str, values: Sequence[Any], expected: str, *allowed: type) -> set[type]:
    """The types of the values that are not None; a type that is not allowed is an error."""
    kinds = set(map(type, values)) - {type(None)}
    disallowed = {
        kind
        for kind in kinds
        if not issubclass(kind, allowed) or (kind is bool and bool not in allowed)
    }
    if disallowed:
        types = ", ".join(sorted(kind.__name__ for kind in disallowed))
        detail = f"column {name} must be {expected}, not {types}"
        raise column_error(ProblemKind.WRONG_TYPE, detail, _rows_of(values, disallowed))
    return kinds


def _rows_of(values: Sequence[Any], kinds: set[type]) -> list[int]:
    return [row for row, value in enumerate(values) if type(value) in kinds]
