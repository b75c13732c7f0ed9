"""Tables that other tools wrote: CSV, other names for columns, and the name that was meant."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from ascribe.cli import app, screen
from ascribe.steps.files import read, read_rows, read_table, write
from ascribe.steps.problems import TableError
from tests.conftest import good_rows, write_jsonl

COLUMNS = ("group", "trajectory", "step", "state", "action", "reward", "valid", "truncated")
OWN = {"reward": "score", "group": "task", "state": "observation"}


def run(*arguments: object) -> Result:
    screen.out.width = screen.err.width = 300
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def rows() -> list[dict[str, object]]:
    plain = [{name: row[name] for name in COLUMNS} for row in good_rows() if not row["padding"]]
    return [row | {"state": f'{row["state"]}, "a"\nb', "note": 7} for row in plain]


@pytest.fixture
def table(rows: list[dict[str, object]], tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "steps.jsonl", rows)


def write_csv(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_csv_file_is_the_same_table(table: Path, rows: list[dict[str, object]]) -> None:
    file = write_csv(table.with_suffix(".csv"), [row | {"group": 7} for row in rows])
    left, right = read_table(table), read(file)
    assert set(right.table.group.texts()) == {"7"}
    assert right.table.state.texts() == left.state.texts()
    for name in ("step", "reward", "valid", "truncated"):
        np.testing.assert_array_equal(getattr(right.table, name), getattr(left, name))
    assert right.carried.column("note").to_pylist() == [7] * len(rows)
    assert read_rows(file, ["note"], np.array([3, 1])).column("note").to_pylist() == [7, 7]
    assert run("check", write_csv(file, rows)).exit_code == 0
    assert run("credit", file, "--out", file.with_suffix(".parquet")).exit_code == 0


@pytest.mark.parametrize("text", ["", "group,step\n1", '"a', "group\n\xff"])
def test_a_file_that_is_no_csv_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(TableError):
        read(file)
    assert run("check", file).exit_code == 1


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_columns_may_have_other_names(
    table: Path, rows: list[dict[str, object]], suffix: str
) -> None:
    own = [{OWN.get(name, name): row[name] for name in COLUMNS} for row in rows]
    own = [row | {"reward": -1.0} for row in own]  # which another column stands for
    file = table.with_name(f"own{suffix}")
    if suffix == ".parquet":
        import pyarrow as pa

        write(pa.Table.from_pylist(own), file)
    elif suffix == ".csv":
        write_csv(file, own)
    else:
        write_jsonl(file, own)
    found, expected = read(file, columns=OWN), read_table(table)
    np.testing.assert_array_equal(found.table.reward, expected.reward)
    assert found.table.state.texts() == expected.state.texts()
    assert found.carried.column_names == ["reward of the file"]
    options = [text for name, one in OWN.items() for text in ("--column", f"{name}={one}")]
    out = ["--out", table.with_name("credited.jsonl"), "--json"]
    done = run("credit", file, *options, *out)
    assert done.exit_code == 0, done.stderr
    plain = run("credit", table, *out)
    assert json.loads(done.stdout)["diagnosis"] == json.loads(plain.stdout)["diagnosis"]
    assert run("check", file, *options).exit_code == 0
    assert run("show", file, *options).exit_code == 0


def test_the_name_that_was_meant_is_offered(table: Path, rows: list[dict[str, object]]) -> None:
    own = [{"scores" if name == "reward" else name: row[name] for name in COLUMNS} for row in rows]
    own = [{"turn" if name == "step" else name: row[name] for name in row} for row in own]
    file = write_jsonl(table.with_name("own.jsonl"), own)
    result = run("check", file)
    assert result.exit_code == 1
    assert "did you mean turn for step, scores for reward?" in result.stderr
    assert "name yours with --column step=turn --column reward=scores" in result.stderr
    wrong = run("check", file, "--column", "step=turn", "--column", "reward=scores2")
    assert wrong.exit_code == 1
    assert "no column 'scores2' (for reward): did you mean scores?" in wrong.stderr
    assert run("check", file, "--column", "step=turn", "--column", "reward=scores").exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reward", "--column takes name=own"),
        ("=score", "--column takes name=own"),
        ("rewad=score", "there is no column 'rewad'\nhint: did you mean reward?"),
    ],
)
def test_a_wrong_name_of_a_column_is_said(table: Path, text: str, message: str) -> None:
    result = run("check", table, "--column", text)
    assert result.exit_code == 2
    assert message in result.stderr
