"""From plain Python or numpy columns to a ``StepTable``, refusing what has no one meaning.

Each column is read strictly: text is text (or integers throughout, which become their digits), a
step is an integer, a reward a number, a flag true or false. Everything else is a ``Problem`` with
its rows, and all problems of all columns are raised together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ascribe.steps.arrays import Ints
from ascribe.steps.problems import Problem, ProblemKind, TableError
from ascribe.steps.table import MISSING_STEP, Coded, StepTable

TEXT_COLUMNS = ("group", "trajectory", "state", "action", "agent", "family", "corrects")
NUMBER_COLUMNS = ("reward", "without")
FLAG_COLUMNS = ("valid", "terminated", "truncated", "padding")
REQUIRED_COLUMNS = ("group", "trajectory", "step", "state", "action", "reward")
KNOWN_COLUMNS = (
    *(*REQUIRED_COLUMNS, "agent", "family", *FLAG_COLUMNS),
    *("fingerprint", "without", "corrects"),
)

Column = Sequence[Any] | npt.NDArray[Any]


def columns_from_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """One list per known column; ``None`` where a row lacks the key."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    known = [name for name in KNOWN_COLUMNS if name in names]
    return {name: [row.get(name) for row in rows] for name in known}


def missing_columns(present: Iterable[str]) -> list[Problem]:
    """A problem if required columns are not there."""
    missing = [name for name in REQUIRED_COLUMNS if name not in set(present)]
    if not missing:
        return []
    return [
        Problem(ProblemKind.MISSING_COLUMN, f"no column {' or '.join(missing)}", count=len(missing))
    ]


def table_from_columns(columns: Mapping[str, Column]) -> StepTable:
    """A table from one sequence per known column; other columns are not read.

    Raises:
        TableError: with every problem of every column.
        ValueError: if the columns differ in length.
    """
    lengths = {name: len(columns[name]) for name in KNOWN_COLUMNS if name in columns}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns differ in length: {lengths}")
    problems = missing_columns(columns)
    read: dict[str, Any] = {}
    for name in lengths:
        found: list[Problem] = []
        read[name] = _reader(name)(name, columns[name], found)
        problems += found
    if problems:
        raise TableError(problems)
    return StepTable(**read)


def _reader(name: str) -> Callable[[str, Column, list[Problem]], Any]:
    if name in TEXT_COLUMNS:
        return _text
    if name in FLAG_COLUMNS:
        return _flag
    if name in NUMBER_COLUMNS:
        return _number
    return {"step": _step, "fingerprint": _fingerprint}[name]


def _text(name: str, values: Column, problems: list[Problem]) -> Coded | None:
    values = _plain(values)
    kinds = _kinds(values)
    texts = {kind for kind in kinds if issubclass(kind, str)}
    whole = {kind for kind in kinds if _is_integer(kind)}
    others = kinds - texts - whole - {type(None)}
    if others:
        problems.append(_wrong_type(name, "text", values, others))
        return None
    if texts and whole:
        rare = whole if _count(values, whole) <= _count(values, texts) else texts
        rows = _rows_of(values, rare)
        detail = f"column {name} holds both text and integers"
        problems.append(Problem(ProblemKind.MIXED_TYPES, detail, rows, int(rows.size)))
        return None
    if whole:
        values = [None if value is None else str(int(value)) for value in values]
    coded = Coded.encode(values)
    broken = [i for i, value in enumerate(coded.values) if not encodable(value)]
    if broken:
        rows = np.flatnonzero(np.isin(coded.codes, broken))
        detail = f"column {name} holds text that is not valid Unicode"
        problems.append(Problem(ProblemKind.MALFORMED_TEXT, detail, rows, int(rows.size)))
    return coded


def _step(name: str, values: Column, problems: list[Problem]) -> Ints | None:
    values = _plain(values)
    wrong = {kind for kind in _kinds(values) if not _is_integer(kind)} - {type(None)}
    if wrong:
        problems.append(_wrong_type(name, "an integer", values, wrong))
        return None
    try:
        return np.array([MISSING_STEP if value is None else value for value in values], np.int64)
    except OverflowError:
        rows = np.array([i for i, v in enumerate(values) if v is not None and abs(v) >= 2**63])
        detail = "column step holds integers beyond 64 bits"
        problems.append(Problem(ProblemKind.WRONG_TYPE, detail, rows, int(rows.size)))
        return None


def _number(name: str, values: Column, problems: list[Problem]) -> npt.NDArray[np.float64] | None:
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        return values.astype(np.float64)
    values = _plain(values)
    wrong = {
        kind
        for kind in _kinds(values)
        if not (issubclass(kind, (float, np.floating)) or _is_integer(kind))
    } - {type(None)}
    if wrong:
        problems.append(_wrong_type(name, "a number", values, wrong))
        return None
    try:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    except OverflowError:
        rows = np.array([i for i, v in enumerate(values) if isinstance(v, int) and abs(v) > 1e100])
        detail = f"column {name} holds integers beyond 64-bit floating point"
        problems.append(Problem(ProblemKind.REWARD_TOO_LARGE, detail, rows, int(rows.size)))
        return None


def _flag(name: str, values: Column, problems: list[Problem]) -> npt.NDArray[np.bool_] | None:
    values = _plain(values)
    kinds = _kinds(values)
    wrong = kinds - {bool, np.bool_, type(None)}
    if wrong:
        problems.append(_wrong_type(name, "true or false", values, wrong))
        return None
    if type(None) in kinds:
        rows = _rows_of(values, {type(None)})
        if rows.size == len(values):
            return None  # given nowhere is the same as absent
        detail = f"column {name} is empty in some rows"
        problems.append(Problem(ProblemKind.PARTIAL_FLAG, detail, rows, int(rows.size)))
        return None
    return np.array(values, dtype=np.bool_)


def _fingerprint(
    name: str,  # noqa: ARG001 (there is one such column)
    values: Column,
    problems: list[Problem],
) -> npt.NDArray[Any] | None:
    some = next((row for row in values if row is not None), None)
    if some is None:
        return None  # given nowhere is the same as absent
    try:
        nothing = np.zeros(len(some))
        matrix = np.array([nothing if row is None else row for row in values])
    except (TypeError, ValueError):  # a row is no list, or rows differ in length
        matrix = np.empty(len(values))
    return checked_fingerprints(matrix, problems)


def checked_fingerprints(
    matrix: npt.NDArray[Any], problems: list[Problem]
) -> npt.NDArray[Any] | None:
    """Fingerprints in half or single precision, if every row has as many and all are finite."""
    if matrix.ndim != 2 or matrix.shape[1] == 0 or matrix.dtype.kind not in "fiu":
        detail = "fingerprints must have as many numbers in every row"
        problems.append(Problem(ProblemKind.BAD_FINGERPRINT, detail, count=len(matrix)))
        return None
    if matrix.dtype not in (np.float16, np.float32):
        with np.errstate(over="ignore"):  # what single precision cannot hold is infinite
            matrix = matrix.astype(np.float32)
    rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if rows.size:
        detail = "fingerprints hold numbers that are not finite"
        problems.append(Problem(ProblemKind.BAD_FINGERPRINT, detail, rows, int(rows.size)))
        return None
    return matrix


def _plain(values: Column) -> Sequence[Any]:
    return values.tolist() if isinstance(values, np.ndarray) else values


def _kinds(values: Sequence[Any]) -> set[type]:
    return set(map(type, values))


def _is_integer(kind: type) -> bool:
    return issubclass(kind, (int, np.integer)) and not issubclass(kind, bool)


def _rows_of(values: Sequence[Any], kinds: set[type]) -> Ints:
    return np.array([i for i, value in enumerate(values) if type(value) in kinds], dtype=np.int64)


def _count(values: Sequence[Any], kinds: set[type]) -> int:
    return sum(type(value) in kinds for value in values)


def _wrong_type(name: str, wanted: str, values: Sequence[Any], kinds: set[type]) -> Problem:
    rows = _rows_of(values, kinds)
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    return Problem(
        ProblemKind.WRONG_TYPE, f"column {name} must be {wanted}, not {found}", rows, int(rows.size)
    )


def encodable(text: str) -> bool:
    """Whether the text is Unicode throughout, without half a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
