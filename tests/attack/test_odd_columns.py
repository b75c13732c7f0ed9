"""Columns of any type under any name: a message or an answer, never a traceback."""

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from tests.report.toys import sound

ROWS = sound(groups=1)
SIZE = len(ROWS)
ODD = {
    "list": pa.array([[1, 2]] * SIZE),
    "struct": pa.array([{"a": 1}] * SIZE),
    "map": pa.array([[("a", 1)]] * SIZE, pa.map_(pa.string(), pa.int64())),
    "text": pa.array(["x\x1b[2J\u3164"] * SIZE),
    "bytes": pa.array([b"\xff\x00"] * SIZE),
    "nan": pa.array([math.nan] * SIZE),
    "infinite": pa.array([math.inf, -math.inf] * (SIZE // 2)),
    "largest": pa.array([1e308, -1e308] * (SIZE // 2)),
    "null": pa.nulls(SIZE),
    "truth": pa.array([True] * SIZE),
    "unsigned": pa.array([2**64 - 1] * SIZE, pa.uint64()),
    "date": pa.array([dt.date(1, 1, 1)] * SIZE),
    "nanoseconds": pa.array([2**62] * SIZE, pa.timestamp("ns")),
    "duration": pa.array([2**62] * SIZE, pa.duration("s")),
    "time": pa.array([1] * SIZE, pa.time64("ns")),
    "decimal": pa.array([Decimal("1.5")] * SIZE),
}
NAMES = {
    "check": ("iteration", "agent", "without", "corrects", "fingerprint", "\u202e[red]"),
    "show": ("advantage", "reason_step", "advantage_\x1b[31m", "reason_"),
    "credit": ("iteration", "without", ""),
    "report": ("won", "observation", "trained_advantage", "family"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command, names in NAMES.items() for name in names]
)
def test_a_message_or_an_answer(tmp_path: Path, name: str, command: str) -> None:
    out = {"credit": ["--out", str(tmp_path / "out.parquet")]}
    out["report"] = ["--out", str(tmp_path / "out.html")]
    for kind, values in list(ODD.items())[:: 3 if command == "report" else 1]:
        table = pa.Table.from_pylist(ROWS)
        table = table.drop_columns([name] if name in table.column_names else [])
        file = tmp_path / f"{kind}.parquet"
        pq.write_table(table.append_column(name, values), file)
        done = CliRunner().invoke(app, [command, str(file), *out.get(command, [])])
        assert done.exit_code in (0, 1, 2), (kind, done.exception)
        assert isinstance(done.exception, SystemExit | None), (kind, done.exception)
        assert all(char.isprintable() or char == "\n" for char in done.output), kind
