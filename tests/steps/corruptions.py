"""Every way to spoil a clean file that ``ascribe.steps.problems.ProblemKind`` has a name for.

A corruption takes clean rows and spoils them, and knows what must be found: the kind, the rows and
the number of things that show it. Where rows cannot express the damage (two columns of one name, a
file cut short), it spoils an Arrow table or the bytes of a file instead.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ascribe import ProblemKind, StepTable
from ascribe.steps.files import write_table
from tests.conftest import Row, good_rows, write_jsonl

Found = tuple[list[int], int]
"""The rows that must be reported, rising, and the count."""

EVERY_ROW = list(range(50))


@dataclass(frozen=True)
class Corruption:
    """One way to spoil a clean file.

    Attributes:
        kind: what must be found.
        how: a few words, to tell corruptions of one kind apart.
        write: writes the spoilt file, given a path without a suffix; returns the path.
        found: the rows and the count that must be reported.
        also: kinds that cannot be avoided besides.
        group_size: what to declare.
    """

    kind: ProblemKind
    how: str
    write: Callable[[Path], Path]
    found: Found
    also: frozenset[ProblemKind] = frozenset()
    group_size: int | None = None

    def __str__(self) -> str:
        return f"{self.kind.label}-{self.how}".replace(" ", "_")


CORRUPTIONS: list[Corruption] = []

ROW_CORRUPTIONS: list[tuple[Corruption, list[Row]]] = []
"""Those that rows in memory can express, with the rows."""

JSONL = (".jsonl",)
BOTH = (".jsonl", ".jsonl.gz", ".parquet")


def row_corruption(
    kind: ProblemKind,
    how: str,
    *,
    formats: tuple[str, ...] = BOTH,
    also: tuple[ProblemKind, ...] = (),
    group_size: int | None = None,
    in_memory: bool = True,
) -> Callable[[Callable[[list[Row]], Found]], None]:
    """Register a function that spoils rows in place and returns what must be found."""

    def register(spoil: Callable[[list[Row]], Found]) -> None:
        rows = good_rows()
        found = spoil(rows)
        for suffix in formats:
            corruption = Corruption(
                kind,
                f"{how} {suffix}",
                lambda path, rows=rows, suffix=suffix: write_rows(path, rows, suffix),
                found,
                frozenset(also),
                group_size,
            )
            CORRUPTIONS.append(corruption)
        if in_memory:
            ROW_CORRUPTIONS.append((corruption, rows))

    return register


def arrow_corruption(kind: ProblemKind, how: str, found: Found) -> Callable[[Any], None]:
    """Register a function that spoils an Arrow table of clean rows."""

    def register(spoil: Callable[[pa.Table], pa.Table]) -> None:
        def write(path: Path) -> Path:
            path = path.with_suffix(".parquet")
            pq.write_table(spoil(pa.Table.from_pylist(good_rows())), path)
            return path

        CORRUPTIONS.append(Corruption(kind, f"{how} arrow", write, found))

    return register


def byte_corruption(
    kind: ProblemKind, how: str, suffix: str, found: Found = ([], 1)
) -> Callable[[Any], Any]:
    """Register a function that spoils the bytes of a clean file, as Ascribe writes it."""

    def register(spoil: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def write(path: Path) -> Path:
            path = path.with_suffix(suffix)
            write_table(StepTable.from_dicts(good_rows()), path)
            path.write_bytes(spoil(path.read_bytes()))
            return path

        CORRUPTIONS.append(Corruption(kind, f"{how} {suffix}", write, found))
        return spoil

    return register


def write_rows(path: Path, rows: list[Row], suffix: str) -> Path:
    """Rows in one of the formats, without the help of Ascribe's writers."""
    path = path.with_suffix(suffix)
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix == ".jsonl.gz":
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        write_jsonl(path, rows)
    return path


def of(rows: list[Row], **wanted: Any) -> list[int]:
    """Numbers of the rows with these values."""
    return [i for i, row in enumerate(rows) if wanted.items() <= row.items()]


FIRST, SECOND, THIRD = "tâche 0", "tâche 1", "tâche 2"
ONE = "tâche 1/2"
"""The trajectory that most corruptions spoil; it has three steps and ends by itself."""


def change(rows: list[Row], numbers: list[int], **values: Any) -> Found:
    """Set values in some rows, which then are the rows to be found."""
    for number in numbers:
        rows[number].update(values)
    return numbers, len(numbers)


def copied(rows: list[Row]) -> list[int]:
    """Write the trajectory ``ONE`` over the last one of its group; the rows of that one."""
    last = f"{SECOND}/3"
    rows[:] = [row for row in rows if row["trajectory"] != last] + [
        rows[number] | {"trajectory": last} for number in of(rows, trajectory=ONE)
    ]
    return of(rows, trajectory=last)


# The file.


@byte_corruption(ProblemKind.UNREADABLE_FILE, "cut in the middle", ".parquet")
@byte_corruption(ProblemKind.UNREADABLE_FILE, "cut in the middle", ".jsonl.gz")
def _(data: bytes) -> bytes:
    return data[: len(data) // 2]


@byte_corruption(ProblemKind.UNREADABLE_FILE, "cut by one byte", ".parquet")
@byte_corruption(ProblemKind.UNREADABLE_FILE, "cut by one byte", ".jsonl.gz")
def _(data: bytes) -> bytes:
    return data[:-1]


@byte_corruption(ProblemKind.UNREADABLE_FILE, "empty", ".parquet")
def _(data: bytes) -> bytes:
    return b""


@byte_corruption(ProblemKind.UNREADABLE_FILE, "one bit of a page", ".parquet")
@byte_corruption(ProblemKind.UNREADABLE_FILE, "one bit of the packed lines", ".jsonl.gz")
def _(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


@byte_corruption(ProblemKind.UNREADABLE_FILE, "one bit of the footer", ".parquet")
def _(data: bytes) -> bytes:
    place = len(data) - 100
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@byte_corruption(ProblemKind.UNREADABLE_FILE, "another format", ".parquet")
@byte_corruption(ProblemKind.UNREADABLE_FILE, "another format", ".jsonl.gz")
def _(data: bytes) -> bytes:
    return b'{"group": "a"}\n'


@arrow_corruption(ProblemKind.UNREADABLE_FILE, "a carried column of broken text", ([], 1))
def _(table: pa.Table) -> pa.Table:
    return table.append_column("note", _broken_text(table, 3))


@byte_corruption(ProblemKind.BAD_LINE, "a line cut short", ".jsonl", ([4], 1))
def _(data: bytes) -> bytes:
    lines = data.splitlines()
    lines[4] = lines[4][:-7]
    return b"\n".join(lines)


@byte_corruption(ProblemKind.BAD_LINE, "two lines that are not objects", ".jsonl", ([2, 9], 2))
def _(data: bytes) -> bytes:
    lines = data.splitlines()
    lines[2], lines[9] = b"[1, 2]", b'"text"'
    return b"\n".join(lines)


@byte_corruption(ProblemKind.BAD_LINE, "bytes that are not UTF-8", ".jsonl", ([1], 1))
def _(data: bytes) -> bytes:
    lines = data.splitlines()
    lines[1] = lines[1].replace(b"go ", b"g\xff ")
    return b"\n".join(lines)


@byte_corruption(ProblemKind.BAD_LINE, "an abyss of brackets", ".jsonl", ([51], 1))
def _(data: bytes) -> bytes:
    return data + b"[" * 100_000


@byte_corruption(ProblemKind.BAD_LINE, "a number of 5,000 digits", ".jsonl", ([51], 1))
def _(data: bytes) -> bytes:
    return data + b'{"reward": ' + b"9" * 5000 + b"}\n"


@byte_corruption(ProblemKind.DUPLICATE_KEY, "a key twice", ".jsonl", ([3], 1))
def _(data: bytes) -> bytes:
    lines = data.splitlines()
    lines[3] = lines[3][:-1] + b', "reward": 99.0}'
    return b"\n".join(lines)


@byte_corruption(ProblemKind.DUPLICATE_KEY, "a key twice deep inside", ".jsonl", ([3], 1))
def _(data: bytes) -> bytes:
    lines = data.splitlines()
    lines[3] = lines[3][:-1] + b', "note": [{"a": 1, "a": 2}]}'
    return b"\n".join(lines)


@arrow_corruption(ProblemKind.DUPLICATE_KEY, "a column twice", ([], 1))
def _(table: pa.Table) -> pa.Table:
    return table.append_column("reward", pa.array([0.0] * len(table)))


@arrow_corruption(ProblemKind.DUPLICATE_KEY, "an unknown column twice", ([], 1))
def _(table: pa.Table) -> pa.Table:
    note = pa.array(["x"] * len(table))
    return table.append_column("note", note).append_column("note", note)


@arrow_corruption(ProblemKind.UNKNOWN_FORMAT, "the next version", ([], 1))
def _(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata({"ascribe.step_table": "2"})


# The columns.


@row_corruption(ProblemKind.MISSING_COLUMN, "no reward")
def _(rows: list[Row]) -> Found:
    for row in rows:
        del row["reward"]
    return [], 1


@row_corruption(ProblemKind.MISSING_COLUMN, "neither group nor step")
def _(rows: list[Row]) -> Found:
    for row in rows:
        del row["group"], row["step"]
    return [], 2


@row_corruption(ProblemKind.WRONG_TYPE, "a step as text", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [5], step="1")


@row_corruption(ProblemKind.WRONG_TYPE, "two fractional steps", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [5, 7], step=1.5)


@row_corruption(ProblemKind.WRONG_TYPE, "a yes for a step", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [1], step=True)


@row_corruption(ProblemKind.WRONG_TYPE, "a step beyond 64 bits", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [5], step=2**63)


@row_corruption(ProblemKind.WRONG_TYPE, "a reward as text", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [6], reward="0.5")


@row_corruption(ProblemKind.WRONG_TYPE, "a list for a state", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [6], state=["hall", "door"])


@row_corruption(ProblemKind.WRONG_TYPE, "fractions for groups", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [6, 7], group=1.0)


@row_corruption(ProblemKind.WRONG_TYPE, "a number for a flag", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [6], valid=1)


@arrow_corruption(ProblemKind.WRONG_TYPE, "steps as floats", (EVERY_ROW, 50))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "step", table.column("step").cast(pa.float64()))


@arrow_corruption(ProblemKind.WRONG_TYPE, "rewards as text", (EVERY_ROW, 50))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "reward", table.column("reward").cast(pa.string()))


@arrow_corruption(ProblemKind.WRONG_TYPE, "flags as integers", (EVERY_ROW, 50))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "valid", table.column("valid").cast(pa.int8()))


@arrow_corruption(ProblemKind.WRONG_TYPE, "states as bytes", (EVERY_ROW, 50))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "state", table.column("state").cast(pa.binary()))


@row_corruption(ProblemKind.MIXED_TYPES, "two integers among names", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [8, 9], group=1)


@row_corruption(ProblemKind.MALFORMED_TEXT, "half a surrogate pair", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [8, 30], state="half \ud83d pair")


@row_corruption(
    ProblemKind.MALFORMED_TEXT, "a broken name of a column", formats=JSONL, in_memory=False
)
def _(rows: list[Row]) -> Found:
    rows[3]["\udc00"] = 1
    return [], 1


@arrow_corruption(ProblemKind.MALFORMED_TEXT, "broken UTF-8", ([3], 1))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "state", _broken_text(table, 3))


@row_corruption(ProblemKind.PARTIAL_FLAG, "empty in two rows")
def _(rows: list[Row]) -> Found:
    return change(rows, [2, 4], terminated=None)


@row_corruption(ProblemKind.PARTIAL_FLAG, "absent in one row", formats=JSONL)
def _(rows: list[Row]) -> Found:
    del rows[10]["padding"]
    return [10], 1


@row_corruption(ProblemKind.BAD_FINGERPRINT, "not as many numbers in every row")
def _(rows: list[Row]) -> Found:
    for number, row in enumerate(rows):
        row["fingerprint"] = [0.5] * (2 + number % 2)
    return [], len(rows)


@row_corruption(ProblemKind.BAD_FINGERPRINT, "a number that is not finite")
def _(rows: list[Row]) -> Found:
    for row in rows:
        row["fingerprint"] = [1.0, 0.0]
    rows[3]["fingerprint"] = [1.0, float("inf")]
    return [3], 1


@row_corruption(ProblemKind.BAD_FINGERPRINT, "one shorter than the others")
def _(rows: list[Row]) -> Found:
    change(rows, [4], fingerprint=[1.0, 0.0])
    return [], 50


@row_corruption(ProblemKind.BAD_FINGERPRINT, "not a number")
def _(rows: list[Row]) -> Found:
    return change(rows, [4, 5], fingerprint=[1.0, float("nan"), 0.0])


@row_corruption(ProblemKind.BAD_FINGERPRINT, "beyond single precision")
def _(rows: list[Row]) -> Found:
    return change(rows, [4], fingerprint=[1.0, -1e39, 0.0])


@row_corruption(ProblemKind.BAD_FINGERPRINT, "of no numbers", formats=JSONL)
def _(rows: list[Row]) -> Found:
    change(rows, list(range(len(rows))), fingerprint=[])
    return [], 50


@row_corruption(ProblemKind.BAD_FINGERPRINT, "text", formats=JSONL)
def _(rows: list[Row]) -> Found:
    change(rows, [4], fingerprint="1.0, 0.0, 0.0")
    return [], 50


@arrow_corruption(ProblemKind.BAD_FINGERPRINT, "of no numbers", ([], 50))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "fingerprint", pa.array([[]] * 50, pa.list_(pa.float32())))


@arrow_corruption(ProblemKind.BAD_FINGERPRINT, "a number left out", ([], 50))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "fingerprint", pa.array([[1.0, None, 0.0]] * 50))


@arrow_corruption(ProblemKind.WRONG_TYPE, "fingerprints as text", (EVERY_ROW, 50))
def _(table: pa.Table) -> pa.Table:
    return _replaced(table, "fingerprint", pa.array([["1.0"]] * 50))


@row_corruption(ProblemKind.UNKNOWN_COLUMN, "a misspelt and another column", in_memory=False)
def _(rows: list[Row]) -> Found:
    for row in rows:
        row |= {"truncted": False, "points": 1}
    return [], 2


@row_corruption(ProblemKind.EMPTY_TABLE, "nothing but padding")
def _(rows: list[Row]) -> Found:
    change(rows, list(range(len(rows))), padding=True)
    return [], 0


@byte_corruption(ProblemKind.EMPTY_TABLE, "no lines", ".jsonl", ([], 0))
def _(data: bytes) -> bytes:
    return b"\n\n"


@arrow_corruption(ProblemKind.EMPTY_TABLE, "no rows", ([], 0))
def _(table: pa.Table) -> pa.Table:
    return table.slice(0, 0)


# Which decision a row is.


@row_corruption(ProblemKind.MISSING_GROUP, "in one trajectory", also=(ProblemKind.UNEVEN_GROUPS,))
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, trajectory=ONE), group=None)


@row_corruption(ProblemKind.MISSING_TRAJECTORY, "in one trajectory")
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, trajectory=ONE), trajectory=None)


@row_corruption(ProblemKind.MISSING_STEP, "in one trajectory")
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, trajectory=ONE), step=None)


@row_corruption(ProblemKind.NEGATIVE_STEP, "in one trajectory")
def _(rows: list[Row]) -> Found:
    numbers = of(rows, trajectory=ONE)
    for number in numbers:
        rows[number]["step"] -= 9
    return numbers, len(numbers)


@row_corruption(ProblemKind.DUPLICATE_ROW, "one row again")
def _(rows: list[Row]) -> Found:
    rows.append(dict(rows[of(rows, trajectory=ONE, step=1)[0]]))
    return [len(rows) - 1], 1


@row_corruption(ProblemKind.DUPLICATE_ROW, "rows of two trajectories again, one of them twice")
def _(rows: list[Row]) -> Found:
    one, other = of(rows, trajectory=ONE, step=1)[0], 0
    rows += [dict(rows[one]), dict(rows[one]), dict(rows[other])]
    return [len(rows) - 3, len(rows) - 2, len(rows) - 1], 2


@row_corruption(ProblemKind.DUPLICATE_STEP, "a step with another action")
def _(rows: list[Row]) -> Found:
    rows.append(rows[of(rows, trajectory=ONE, step=1)[0]] | {"action": "stay"})
    return [len(rows) - 1], 1


@row_corruption(ProblemKind.GAP_IN_STEPS, "a row lost")
def _(rows: list[Row]) -> Found:
    del rows[of(rows, trajectory=ONE, step=1)[0]]
    return of(rows, trajectory=ONE, step=2), 1


@row_corruption(ProblemKind.GAP_IN_STEPS, "two trajectories numbered by twos")
def _(rows: list[Row]) -> Found:
    others = (ONE, "tâche 0/0")
    numbers = [number for name in others for number in of(rows, trajectory=name)]
    for number in numbers:
        rows[number]["step"] *= 2
    return sorted(number for number in numbers if rows[number]["step"]), 2


@row_corruption(ProblemKind.LATE_START, "the first row lost")
def _(rows: list[Row]) -> Found:
    del rows[of(rows, trajectory=ONE, step=0)[0]]
    return of(rows, trajectory=ONE, step=1), 1


@row_corruption(ProblemKind.LATE_START, "numbered from one")
def _(rows: list[Row]) -> Found:
    for number in of(rows, trajectory=ONE):
        rows[number]["step"] += 1
    return of(rows, trajectory=ONE, step=1), 1


@row_corruption(ProblemKind.STEPS_AFTER_END, "terminated at the start")
def _(rows: list[Row]) -> Found:
    rows[of(rows, trajectory=ONE, step=0)[0]]["terminated"] = True
    return [*of(rows, trajectory=ONE, step=1), *of(rows, trajectory=ONE, step=2)], 1


@row_corruption(ProblemKind.STEPS_AFTER_END, "truncated in the middle")
def _(rows: list[Row]) -> Found:
    rows[of(rows, trajectory=ONE, step=1)[0]]["truncated"] = True
    return of(rows, trajectory=ONE, step=2), 1


@row_corruption(ProblemKind.TRAJECTORY_IN_TWO_GROUPS, "one row in another group")
def _(rows: list[Row]) -> Found:
    rows[of(rows, trajectory=ONE, step=1)[0]]["group"] = FIRST
    return of(rows, trajectory=ONE), 1


@row_corruption(
    ProblemKind.TRAJECTORY_IN_TWO_GROUPS,
    "a name used in two groups",
    also=(ProblemKind.DUPLICATE_STEP, ProblemKind.STEPS_AFTER_END),
)
def _(rows: list[Row]) -> Found:
    change(rows, of(rows, trajectory="tâche 0/0"), trajectory=ONE)
    return of(rows, trajectory=ONE), 1


# What a row holds.


@row_corruption(ProblemKind.MISSING_REWARD, "in two trajectories")
def _(rows: list[Row]) -> Found:
    return change(rows, [4, 40], reward=None)


@row_corruption(ProblemKind.MISSING_REWARD, "not a number")
def _(rows: list[Row]) -> Found:
    return change(rows, [4], reward=float("nan"))


@row_corruption(ProblemKind.NON_FINITE_REWARD, "missing in every trajectory")
def _(rows: list[Row]) -> Found:
    return change(rows, [n for n, row in enumerate(rows) if not row["padding"]], reward=None)


@row_corruption(ProblemKind.NO_RESPONSE, "of one trajectory")
def _(rows: list[Row]) -> Found:
    first, *others = of(rows, trajectory=ONE)
    change(rows, [first], state=None, action=None, terminated=True)
    for number in reversed(others):
        del rows[number]
    return [first], 1


@row_corruption(ProblemKind.NON_FINITE_REWARD, "infinite")
def _(rows: list[Row]) -> Found:
    return change(rows, [4, 5], reward=-float("inf"))


@row_corruption(ProblemKind.REWARD_TOO_LARGE, "beyond 1e100")
def _(rows: list[Row]) -> Found:
    return change(rows, [4, 5], reward=-1.1e100)


@row_corruption(ProblemKind.REWARD_TOO_LARGE, "an integer beyond floating point", formats=JSONL)
def _(rows: list[Row]) -> Found:
    return change(rows, [4], reward=10**400)


@row_corruption(ProblemKind.MISSING_STATE, "in two rows")
def _(rows: list[Row]) -> Found:
    return change(rows, [2, 4], state=None)


@row_corruption(ProblemKind.EMPTY_STATE, "empty and white space")
def _(rows: list[Row]) -> Found:
    change(rows, [2], state="")
    change(rows, [6], state=" \t\n")
    return [2, 6], 2


@row_corruption(ProblemKind.MISSING_ACTION, "in two rows")
def _(rows: list[Row]) -> Found:
    return change(rows, [2, 3], action=None)


@row_corruption(ProblemKind.EMPTY_ACTION, "empty and white space")
def _(rows: list[Row]) -> Found:
    change(rows, [2], action="")
    change(rows, [6], action="\u00a0")
    return [2, 6], 2


@row_corruption(ProblemKind.MISSING_AGENT, "in one row")
def _(rows: list[Row]) -> Found:
    return change(rows, [7], agent=None)


@row_corruption(ProblemKind.PARENT_NOT_BEFORE, "two steps name each other")
def _(rows: list[Row]) -> Found:
    for row in rows:
        row["parent"] = None
    change(rows, of(rows, trajectory=ONE, step=2), parent=1)
    return change(rows, of(rows, trajectory=ONE, step=1), parent=2)[0], 1


@row_corruption(ProblemKind.ORPHAN_STEP, "the parent was not written")
def _(rows: list[Row]) -> Found:
    for row in rows:
        row["parent"] = None
    return change(rows, of(rows, trajectory=ONE, step=2), parent=9)[0], 1


@row_corruption(ProblemKind.REWARD_PER_STEP, "the final one on all steps")
def _(rows: list[Row]) -> Found:
    for number, name in enumerate(sorted({row["trajectory"] for row in rows})):
        change(rows, of(rows, trajectory=name), reward=float(number))
    real = of(rows, padding=False)
    return real, len({rows[row]["trajectory"] for row in real})


@row_corruption(ProblemKind.TERMINATED_AND_TRUNCATED, "at an end")
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, trajectory=ONE, step=2), terminated=True, truncated=True)


@row_corruption(ProblemKind.UNFINISHED_TRAJECTORY, "an end not marked")
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, trajectory=ONE, step=2), terminated=False)


@row_corruption(ProblemKind.ALL_ACTIONS_INVALID, "in one trajectory")
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, trajectory=ONE), valid=False)[0], 1


# What a group can teach.


@row_corruption(ProblemKind.GROUP_OF_ONE, "three trajectories lost")
def _(rows: list[Row]) -> Found:
    rows[:] = [row for row in rows if row["group"] != SECOND or row["trajectory"] == ONE]
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.PARTIAL_GROUP, "a trajectory lost", group_size=4)
def _(rows: list[Row]) -> Found:
    rows[:] = [row for row in rows if row["trajectory"] != ONE]
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.PARTIAL_GROUP, "all smaller than declared", group_size=5)
def _(rows: list[Row]) -> Found:
    return of(rows, padding=False), 3


@row_corruption(ProblemKind.OVERFULL_GROUP, "a trajectory more", group_size=4)
def _(rows: list[Row]) -> Found:
    more = [rows[number] | {"trajectory": "one more"} for number in of(rows, trajectory=ONE)]
    more[-1]["action"] = "wait"
    rows += more
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.UNEVEN_GROUPS, "a trajectory lost")
def _(rows: list[Row]) -> Found:
    rows[:] = [row for row in rows if row["trajectory"] != ONE]
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.EQUAL_TRAJECTORIES, "another one overwritten, where all do the same")
def _(rows: list[Row]) -> Found:
    change(rows, of(rows, group=SECOND), action="go on")
    return copied(rows), 1


@row_corruption(ProblemKind.TWIN_TRAJECTORIES, "another one with long texts overwritten")
def _(rows: list[Row]) -> Found:
    for number in of(rows, trajectory=ONE):
        rows[number]["action"] = f"I think that {number} is best. " * 20
    return copied(rows), 1


@row_corruption(ProblemKind.PADDING_IN_GROUP, "copies of real rows")
def _(rows: list[Row]) -> Found:
    rows += [rows[0] | {"padding": True}, rows[9] | {"padding": True}]
    return [len(rows) - 2, len(rows) - 1], 2


@row_corruption(ProblemKind.EQUAL_RETURNS, "all failed")
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, group=SECOND), reward=0.0, valid=True)[0], 1


@row_corruption(ProblemKind.ONLY_PENALTIES_DIFFER, "all failed, some clumsily")
def _(rows: list[Row]) -> Found:
    for number in of(rows, group=SECOND):
        rows[number]["reward"] = 0.0 if rows[number]["valid"] else -0.125
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.MIXED_TASKS, "two tasks under one name")
def _(rows: list[Row]) -> Found:
    for trajectory in ("tâche 1/0", "tâche 1/1"):
        change(rows, of(rows, trajectory=trajectory, step=0), state="a quite different hall")
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.UNSTABLE_START, "a workspace in the prompt")
def _(rows: list[Row]) -> Found:
    for number in range(4):
        found = of(rows, trajectory=f"tâche 1/{number}", step=0)
        change(rows, found, state=f"You work in /tmp/run{number}/src since 2026-01-0{number + 1}.")
    return of(rows, group=SECOND), 1


TOLD = "I want to {} the flight from {} to {} that I booked with the {} card last {} morning"
WORDS = [
    ["move", "Oslo", "Lima", "blue", "Monday"],
    ["cancel", "Cairo", "Quito", "red", "Friday"],
    ["pay", "Perth", "Delhi", "green", "Sunday"],
]


@row_corruption(ProblemKind.REWORDED_START, "by a simulated user")
def _(rows: list[Row]) -> Found:
    for group, words in enumerate(WORDS):
        for number in of(rows, group=f"tâche {group}", step=0):
            trajectory = int(rows[number]["trajectory"][-1])
            hello = "" if group != 1 else ["", "hello", "dear agent", "help"][trajectory]
            rows[number]["state"] = f"{hello} {TOLD.format(*words)}"
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.SEVERAL_VERSIONS, "in one group")
def _(rows: list[Row]) -> Found:
    for row in rows:
        row["version"] = "old"
    change(rows, of(rows, trajectory=ONE), version="new")
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.DIFFERENT_STARTS, "one starts elsewhere")
def _(rows: list[Row]) -> Found:
    change(rows, of(rows, trajectory=ONE, step=0), state="room 1.0")
    return of(rows, group=SECOND), 1


@row_corruption(
    ProblemKind.ALL_STATES_DISTINCT,
    "a clock in the observation",
    also=(ProblemKind.DIFFERENT_STARTS,),
)
def _(rows: list[Row]) -> Found:
    for number in of(rows, group=SECOND):
        rows[number]["state"] += f" at {number} o'clock"
    return of(rows, group=SECOND), 1


@row_corruption(ProblemKind.ONE_STATE_ONLY, "the task instead of the observation")
def _(rows: list[Row]) -> Found:
    return change(rows, of(rows, group=SECOND), state="find a mug")[0], 1


@row_corruption(ProblemKind.STATE_ACROSS_TASKS, "one hall for two tasks")
def _(rows: list[Row]) -> Found:
    change(rows, of(rows, state="hall 2"), state="hall 0")
    return of(rows, state="hall 0"), 1


def _replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _broken_text(table: pa.Table, row: int) -> pa.Array:
    """The states, but for one row that holds bytes which are not UTF-8."""
    texts = [text.encode() for text in table.column("state").to_pylist()]
    texts[row] = b"caf\xe9"
    broken = pa.array(texts, pa.binary())
    return pa.StringArray.from_buffers(len(broken), *broken.buffers()[1:])
