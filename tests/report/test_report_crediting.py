"""Batches are read, credited by themselves and put together without losing anything."""

from pathlib import Path

import numpy as np
import pytest

from ascribe import ProblemKind, StepTable, TableError, assign, recipe
from ascribe.estimators import GiGPO, ReinforcePP
from ascribe.reports import picture, reading
from ascribe.reports.crediting import credit_batches
from ascribe.reports.reading import read_batches, read_transcript
from ascribe.steps.check import arrange
from ascribe.steps.files import read, table_to_arrow, write, write_table
from tests.conftest import good_rows, write_jsonl
from tests.report.toys import Row, batch, sound


def two_batches() -> tuple[list[Row], list[Row]]:
    late = [row | {"reward": 2.0 * row["reward"]} for row in sound(groups=3, length=7)]
    return sound(groups=4), late


def test_each_batch_is_credited_by_itself() -> None:
    first, second = two_batches()
    found = credit_batches([batch(first, "a"), batch(second, "b")], ReinforcePP())
    alone = [assign(StepTable.from_dicts(rows), ReinforcePP()).credit for rows in (first, second)]
    expected = np.concatenate([credit.advantage for credit in alone])
    np.testing.assert_array_equal(found.credit.advantage, expected)
    assert found.batch.tolist() == [0] * len(first) + [1] * len(second)
    assert found.row.tolist() == [*range(len(first)), *range(len(second))]


def test_groups_of_two_batches_stay_apart() -> None:
    first, second = two_batches()
    found = credit_batches([batch(first, "a"), batch(second, "b")], GiGPO())
    assert arrange(found.table).group_count == 7
    assert found.table.group.texts()[0] == "a: task 0"
    labels = found.credit.terms["step"].labels
    assert set(labels[found.batch == 0]).isdisjoint(labels[found.batch == 1])


def test_names_that_differ_are_left_alone() -> None:
    first = sound(groups=2)
    second = [
        row | {"group": f"b{row['group']}", "trajectory": f"b{row['trajectory']}"} for row in first
    ]
    found = credit_batches([batch(first, "a"), batch(second, "b")], GiGPO())
    assert found.table.group.texts() == [row["group"] for row in first + second]


def test_columns_that_a_batch_lacks_get_their_default() -> None:
    first, second = two_batches()
    bare = [
        {name: value for name, value in row.items() if name not in ("valid", "family")}
        for row in second
    ]
    table = credit_batches([batch(first, "a"), batch(bare, "b")], GiGPO()).table
    assert table.valid is not None
    assert table.valid.all()
    assert table.family is not None
    assert set(table.family.texts()[len(first) :]) == {None}


def test_texts_survive_the_joining() -> None:
    first, second = two_batches()
    table = credit_batches([batch(first, "a"), batch(second, "b")], GiGPO()).table
    for name in ("state", "action", "family"):
        expected = [row[name] for row in first + second]
        assert getattr(table, name).texts() == expected


def test_problems_of_all_batches_are_counted() -> None:
    first, second = two_batches()
    equal = [row | {"reward": 0.0} for row in second]
    found = credit_batches([batch(equal, "a"), batch(first, "b"), batch(equal, "c")], GiGPO())
    problem = next(p for p in found.report.problems if p.kind is ProblemKind.EQUAL_RETURNS)
    assert problem.count == 6
    assert problem.detail.endswith("; and in 1 more iteration")
    assert problem.rows.max() == 2 * len(equal) + len(first) - 1


def test_a_batch_that_leaves_nothing_is_refused() -> None:
    rows = [row | {"step": -1} for row in sound()]
    with pytest.raises(TableError):
        credit_batches([batch(rows)], GiGPO())


# Files.


@pytest.fixture(params=[".parquet", ".jsonl", ".jsonl.gz"])
def played(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    import pyarrow as pa

    rows = good_rows()
    table = table_to_arrow(StepTable.from_dicts(rows))
    number = pa.array(range(len(rows)))
    for name, column in {
        "observation": [f"saw {i}" for i in range(len(rows))],
        "response": [f"said {i}" for i in range(len(rows))],
        "won": [bool(i % 2) for i in range(len(rows))],
        "iteration": [i // 20 for i in range(len(rows))],
        "prompt_ids": [[i] for i in range(len(rows))],
        "trained_advantage": [float(i) for i in range(len(rows))],
    }.items():
        table = table.append_column(name, pa.array(column))
    assert len(number) == table.num_rows
    path = tmp_path / f"played{request.param}"
    write(table, path)
    return path


def test_what_a_report_reads_is_what_the_file_says(played: Path) -> None:
    batches = read_batches([played], fingerprints=True)
    whole = read(played).table.to_dicts()
    assert [each.name for each in batches] == ["iteration 0", "iteration 1", "iteration 2"]
    for each in batches:
        assert each.table.to_dicts() == [whole[row] for row in each.rows]
        assert each.won is not None
        assert each.won.tolist() == [bool(row % 2) for row in each.rows]
        assert each.trained is not None
        assert each.trained.tolist() == each.rows.tolist()


def test_what_was_said_is_read_for_chosen_rows(played: Path) -> None:
    batches = read_batches([played], fingerprints=False)
    numbers, rows = np.array([1, 1, 0, 1, 2]), np.array([5, 0, 7, 3, 2])
    assert read_transcript(batches, numbers, rows) == {
        "observation": [f"saw {20 * n + row}" for n, row in zip(numbers, rows, strict=True)],
        "response": [f"said {20 * n + row}" for n, row in zip(numbers, rows, strict=True)],
    }


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_file_is_read_once_for_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """However many iterations it holds."""
    rows = [row | {"iteration": n // 5, "observation": f"{n}"} for n, row in enumerate(sound())]
    path = write_jsonl(tmp_path / "steps.jsonl", rows)
    if suffix == ".parquet":
        rollouts = read(path)
        table = table_to_arrow(rollouts.table)
        for name in rollouts.carried.column_names:
            table = table.append_column(name, rollouts.carried.column(name))
        path = tmp_path / "steps.parquet"
        write(table, path)
    batches = read_batches([path], fingerprints=False)
    assert len(batches) == 24
    opened, original = [], reading.read_rows
    monkeypatch.setattr(reading, "read_rows", lambda *what: opened.append(what) or original(*what))
    found = read_transcript(batches, np.arange(24), np.zeros(24, dtype=np.int64))
    assert found == {"observation": [str(5 * n) for n in range(24)]}
    assert len(opened) == 1


def test_what_was_said_is_found_in_every_part_of_a_file(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = good_rows()
    table = table_to_arrow(StepTable.from_dicts(rows))
    told = [f"saw {i}" for i in range(len(rows))]
    path = tmp_path / "parts.parquet"
    pq.write_table(table.append_column("observation", pa.array(told)), path, row_group_size=7)
    batches = read_batches([path], fingerprints=False)
    chosen = np.random.default_rng(0).permutation(len(rows))[:20]
    assert read_transcript(batches, np.zeros_like(chosen), chosen) == {
        "observation": [told[row] for row in chosen]
    }


def test_fingerprints_are_left_out_unless_wanted(played: Path) -> None:
    if played.suffix == ".parquet":
        assert read_batches([played], fingerprints=False)[0].table.fingerprint is None
    assert read_batches([played], fingerprints=True)[0].table.fingerprint is not None


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        paths.append(write_jsonl(tmp_path / folder / "steps.jsonl", good_rows()))
    names = [each.name for each in read_batches(paths, fingerprints=False)]
    assert names == ["1: steps.jsonl", "2: steps.jsonl"]


@pytest.mark.parametrize("damage", ["cut", "changed", "other"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "steps.parquet"
    write_table(StepTable.from_dicts(good_rows()), path)
    whole = bytearray(path.read_bytes())
    if damage == "changed":
        whole[len(whole) // 3] ^= 1
    path.write_bytes({"cut": whole[:-9], "changed": whole, "other": b"no Parquet"}[damage])
    with pytest.raises(TableError, match="unreadable_file"):
        read_batches([path], fingerprints=False)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    for name in ("none.parquet", "none.jsonl"):
        with pytest.raises(FileNotFoundError):
            read_batches([tmp_path / name], fingerprints=False)


def test_columns_of_other_types_are_left_alone(tmp_path: Path) -> None:
    rows = [row | {"won": "yes", "trained_advantage": "?"} for row in sound()]
    path = write_jsonl(tmp_path / "odd.jsonl", rows)
    (each,) = read_batches([path], fingerprints=False)
    assert each.won is None
    assert each.trained is None
    assert credit_batches([each], recipe("gigpo")).names == ("odd.jsonl",)


def test_tables_in_memory_are_reported_like_their_files(tmp_path: Path) -> None:
    tables = [StepTable.from_dicts(sound(groups=3)), StepTable.from_dicts(sound(groups=2))]
    files = [tmp_path / f"{number}.parquet" for number in range(2)]
    for table, file in zip(tables, files, strict=True):
        write_table(table, file)
    by = recipe("gigpo")
    one, two = picture(tables[0], by), picture(tables, by)
    assert one.tables() == picture(str(files[0]), by).tables() | {
        "iterations": one.tables()["iterations"]
    }
    assert [row["batch"] for row in two.tables()["iterations"]] == ["table 1", "table 2"]
    read = picture(files, by)
    assert two.verdict == read.verdict
    assert two.browser["chunks"] == read.browser["chunks"]
    assert two.write(tmp_path / "report.html") > 0
    mixed = picture([tables[0], files[1]], by)
    assert [row["batch"] for row in mixed.tables()["iterations"]] == ["table 1", "1.parquet"]


def test_a_table_with_iterations_is_reported_by_iteration() -> None:
    rows = [row | {"iteration": n} for n in (4, 9) for row in sound(groups=1)]
    page = picture(StepTable.from_dicts(rows), recipe("grpo"))
    assert [row["iteration"] for row in page.tables()["iterations"]] == [4, 9]
