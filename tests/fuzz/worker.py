"""Damage many files and say how each ended.

``python -m tests.fuzz.worker FAMILY FIRST LAST FOLDER``.

Runs as a process of its own, so that a crash or a hang inside a reader is seen from outside. Prints
one JSON object per case, as soon as it is over: the number of the case, how it ended, and why.

- ``refused``: a problem with its kind was reported, where one was due;
- ``right``: the answer is that of the oracle, or of the file before it was damaged;
- ``changed``: another answer, where the file holds nothing to tell it by;
- ``wrong``: another answer, or a refusal of what was sound, or none where one was due.

Any other exception ends the process.
"""

import gzip
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from ascribe import ProblemKind, Severity, StepTable, TableError, check, recipe
from ascribe.cli import app
from ascribe.steps.files import read_table, table_to_arrow, write_table
from tests.conftest import good_rows
from tests.fuzz.mutations import arrow_of, bytes_of, lines_of
from tests.fuzz.oracle import advantages, parse_lines

Outcome = tuple[str, str]
GIGPO = recipe("gigpo")


def answer(path: Path) -> list[float] | TableError:
    """Ascribe's advantages for a file, or its refusal."""
    try:
        table = read_table(path)
        report = check(table)
        fatal = report.worst is Severity.FATAL
        answer = GIGPO(table).advantage.tolist()
    except TableError as refusal:
        return refusal
    assert not fatal, "a table with a fatal problem was credited"
    return answer


def kinds(refusal: TableError) -> str:
    """What was refused, by the names of the problems, of which there is at least one."""
    assert refusal.problems
    assert all(line.isprintable() for line in str(refusal).split("\n"))
    return ", ".join(problem.kind.label for problem in refusal.problems)


def judge(found: list[float] | TableError, due: list[float] | None) -> Outcome:
    """Compare an answer or a refusal with the one that was due."""
    if isinstance(found, TableError):
        return ("refused" if due is None else "wrong"), kinds(found)
    if due is None:
        return "wrong", "answered, and should have been refused"
    if len(found) == len(due) and all(
        math.isclose(one, other, rel_tol=0, abs_tol=1e-9)
        for one, other in zip(found, due, strict=True)
    ):
        return "right", ""
    return "wrong", f"{found} is not {due}"


def lines_by_bytes(random: Random, folder: Path) -> Outcome:
    """A JSONL file with bytes changed."""
    return _lines(bytes_of(clean(folder, ".jsonl"), random), folder)


def lines_by_values(random: Random, folder: Path) -> Outcome:
    """A JSONL file with values changed."""
    return _lines(lines_of(good_rows(), random), folder)


def _lines(data: bytes, folder: Path) -> Outcome:
    path = folder / "case.jsonl"
    path.write_bytes(data)
    rows = parse_lines(data)
    return judge(answer(path), None if rows is None else advantages(rows))


def packed(random: Random, folder: Path) -> Outcome:
    """A packed JSONL file with bytes changed, before or after it was packed."""
    data = clean(folder, ".jsonl.gz")
    if random.random() < 0.2:
        data = gzip.compress(bytes_of(clean(folder, ".jsonl"), random))
    else:
        data = bytes_of(data, random)
    path = folder / "case.jsonl.gz"
    path.write_bytes(data)
    try:
        rows = parse_lines(gzip.decompress(data))
    except Exception:  # whatever the damage
        rows = None
    return judge(answer(path), None if rows is None else advantages(rows))


def parquet_by_bytes(random: Random, folder: Path) -> Outcome:
    """A Parquet file that Ascribe wrote, with bytes changed."""
    return _damaged(clean(folder, ".parquet"), random, folder, otherwise="wrong")


def foreign_parquet_by_bytes(random: Random, folder: Path) -> Outcome:
    """A Parquet file of another writer, with bytes changed: page checksums, but no seal."""
    path = folder / "foreign.parquet"
    if not path.exists():
        table = table_to_arrow(StepTable.from_dicts(good_rows()))
        size = len(table) // 3 + 1
        pq.write_table(table, path, write_page_checksum=True, row_group_size=size)
    return _damaged(path.read_bytes(), random, folder, otherwise="changed")


def _damaged(data: bytes, random: Random, folder: Path, *, otherwise: str) -> Outcome:
    path = folder / "case.parquet"
    path.write_bytes(bytes_of(data, random))
    found = answer(path)
    if isinstance(found, TableError):
        return "refused", kinds(found)
    end, why = judge(found, advantages(good_rows()))
    return (otherwise if end == "wrong" else end), why


def parquet_by_values(random: Random, folder: Path) -> Outcome:
    """A Parquet file with values, types and columns changed."""
    table = arrow_of(good_rows(), random)
    path = folder / "case.parquet"
    pq.write_table(table, path)
    table = pq.ParquetFile(path).read()
    twice = len(set(table.column_names)) < table.num_columns
    due = None if twice else advantages(_plain(table))
    end, why = judge(answer(path), due)
    # Arrow has more types than Python: to refuse one that the format does not list is right.
    return (
        ("refused", why) if end == "wrong" and why == ProblemKind.WRONG_TYPE.label else (end, why)
    )


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    half = [name for name in table.column_names if table.schema.field(name).type == pa.float16()]
    for name in half:
        wide = table.column(name).cast(pa.float64())
        table = table.set_column(table.column_names.index(name), name, wide)
    return table.to_pylist()


def clean(folder: Path, suffix: str) -> bytes:
    """The bytes of a clean file, as Ascribe writes it."""
    path = folder / f"clean{suffix}"
    if not path.exists():
        write_table(StepTable.from_dicts(good_rows()), path)
    return path.read_bytes()


FAMILIES: dict[str, Callable[[Random, Path], Outcome]] = {
    family.__name__: family
    for family in (
        lines_by_bytes,
        lines_by_values,
        packed,
        parquet_by_bytes,
        foreign_parquet_by_bytes,
        parquet_by_values,
    )
}


def by_command(folder: Path, suffix: str, *, refused: bool) -> None:
    """The command must end as the library does, and print JSON."""
    result = CliRunner().invoke(app, ["check", str(folder / f"case{suffix}"), "--json"])
    assert result.exit_code == int(refused), result.output
    assert json.loads(result.stdout)["refused"] in (True, False)


def main() -> None:
    """Run the cases that the arguments name."""
    family, first, last, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    for case in range(first, last):
        end, why = FAMILIES[family](Random(f"{family} {case}"), folder)
        if case % 10 == 0:
            suffix = {"lines": ".jsonl", "packed": ".jsonl.gz"}.get(family.split("_")[0])
            # A recipe refuses a missing reward; a command leaves that trajectory out.
            refused = end == "refused" and why != ProblemKind.MISSING_REWARD.label
            by_command(folder, suffix or ".parquet", refused=refused)
        print(json.dumps({"case": case, "end": end, "why": why[:500]}), flush=True)


if __name__ == "__main__":
    main()
