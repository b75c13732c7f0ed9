"""Files: what is written, what comes back, what is refused, and what is carried along."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascribe import ProblemKind, StepTable, TableError, check, recipe
from ascribe.steps.files import (
    SEAL_MARK,
    SEAL_SIZE,
    SUFFIXES,
    read,
    read_table,
    table_from_arrow,
    table_to_arrow,
    write,
    write_table,
)
from tests.conftest import Row, good_rows, write_jsonl

pytestmark = pytest.mark.unit

suffixes = pytest.mark.parametrize("suffix", SUFFIXES)


def kinds_refused(path: Path) -> list[ProblemKind]:
    with pytest.raises(TableError) as refused:
        read(path)
    return [problem.kind for problem in refused.value.problems]


# The format.

GOLDEN_SCHEMA = """\
group: dictionary<values=string, indices=int32, ordered=0>
trajectory: dictionary<values=string, indices=int32, ordered=0>
step: int64
state: dictionary<values=string, indices=int32, ordered=0>
action: dictionary<values=string, indices=int32, ordered=0>
reward: double
agent: dictionary<values=string, indices=int32, ordered=0>
family: dictionary<values=string, indices=int32, ordered=0>
valid: bool
terminated: bool
truncated: bool
padding: bool
fingerprint: fixed_size_list<element: float>[3]
  child 0, element: float
-- schema metadata --
ascribe.step_table: '1'"""


def test_golden_schema(tmp_path: Path):
    """The schema that files have had since version 1: a change here is a change of the format."""
    table = StepTable.from_dicts(good_rows())
    write_table(table, tmp_path / "a.parquet")
    written = pq.read_schema(tmp_path / "a.parquet")
    assert written.to_string(show_schema_metadata=True) == GOLDEN_SCHEMA
    assert written.metadata == {b"ascribe.step_table": b"1"}
    # Parquet has its own name for the numbers in a list.
    in_memory = table_to_arrow(table).schema.to_string(show_schema_metadata=True)
    assert in_memory == GOLDEN_SCHEMA.replace("element", "item")


def test_golden_schema_of_required_columns(tmp_path: Path):
    names = ("group", "trajectory", "step", "state", "action", "reward")
    rows = [{name: row[name] for name in names} for row in good_rows()]
    write_table(StepTable.from_dicts(rows), tmp_path / "a.parquet")
    lines = GOLDEN_SCHEMA.splitlines()
    written = pq.read_schema(tmp_path / "a.parquet").to_string(show_schema_metadata=True)
    assert written.splitlines() == lines[:6] + lines[-2:]


def test_parquet_is_packed_and_has_page_checksums(tmp_path: Path):
    path = tmp_path / "a.parquet"
    write_table(StepTable.from_dicts(good_rows()), path)
    column = pq.read_metadata(path).row_group(0).column(5)
    assert column.compression == "ZSTD"
    data = bytearray(path.read_bytes())
    data[column.dictionary_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_jsonl_has_no_nan(tmp_path: Path):
    """JSON has no such numbers; a reward that is none is null, and refused when it is read."""
    rows = good_rows()
    for row, reward in zip(rows, (float("nan"), float("inf"), -float("inf")), strict=False):
        row["reward"] = reward
    write_table(StepTable.from_dicts(rows), tmp_path / "a.jsonl")
    written = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in written[:4]] == [None, None, None, rows[3]["reward"]]
    problem = check(read_table(tmp_path / "a.jsonl")).problems[0]
    assert (problem.kind, problem.rows.tolist()) == (ProblemKind.MISSING_REWARD, [0, 1, 2])


def test_jsonl_is_plain(tmp_path: Path):
    write_table(StepTable.from_dicts(good_rows()), tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    mark = {"ascribe.step_table": "1"}
    first, *others = good_rows()
    assert [json.loads(line) for line in lines] == [mark | first, *others, mark | {"rows": 50}]
    write_table(StepTable.from_dicts(good_rows()), tmp_path / "a.jsonl.gz")
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()).decode().splitlines() == lines


# Round trips.

STRANGE = [
    "",
    " ",
    "\x00",
    "\x1b[31m",
    "a\nb\r\u2028c",
    "\u202e",
    "🧭",
    "e\u0301",
    "é",
    "1",
    "null",
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(STRANGE)
MAYBE = st.none() | TEXT
STEP = st.none() | st.integers(-(2**63) + 1, 2**63 - 1)
REWARD = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5).map(float)
VECTOR = st.tuples(*[st.floats(-60000, 60000, width=16)] * 2).map(list)


@st.composite
def any_rows(draw: Any) -> list[Row]:
    """Rows of any content: what the format can hold, sense or not."""
    columns = {"group": MAYBE, "trajectory": MAYBE, "step": STEP, "state": MAYBE, "action": MAYBE}
    columns |= {"reward": REWARD}
    optional = {"agent": MAYBE, "family": MAYBE, "fingerprint": VECTOR}
    optional |= dict.fromkeys(("valid", "terminated", "truncated", "padding"), st.booleans())
    columns |= {name: optional[name] for name in optional if draw(st.booleans())}
    return draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=8))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(rows=any_rows())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]):
    folder = tmp_path_factory.mktemp("round")
    table = StepTable.from_dicts(rows)
    assert table.to_dicts() == rows
    assert table_from_arrow(table_to_arrow(table)).to_dicts() == rows
    for suffix in SUFFIXES:
        write_table(table, folder / f"a{suffix}")
        rollouts = read(folder / f"a{suffix}")
        assert rollouts.table.to_dicts() == rows
        assert rollouts.carried.num_columns == rollouts.credit.num_columns == 0
        assert rollouts.notes == ()


@settings(max_examples=25)
@given(rows=any_rows(), name=st.sampled_from(["group", "trajectory", "state", "action", "agent"]))
def test_integers_become_their_digits(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], name: str
):
    rows = [row | {name: [None, 7, -3, 2**62][i % 4]} for i, row in enumerate(rows)]
    said = [row | {name: None if row[name] is None else str(row[name])} for row in rows]
    path = tmp_path_factory.mktemp("digits") / "a.jsonl"
    assert StepTable.from_dicts(rows).to_dicts() == said
    assert table_from_arrow(pa.Table.from_pylist(rows)).to_dicts() == said
    assert read_table(write_jsonl(path, rows)).to_dicts() == said


@suffixes
def test_very_long_texts(tmp_path: Path, suffix: str):
    rows = good_rows()
    rows[0]["state"], rows[1]["state"] = "long " * 400_000, "long " * 400_000 + "."
    write_table(StepTable.from_dicts(rows), tmp_path / f"a{suffix}")
    assert read_table(tmp_path / f"a{suffix}").to_dicts() == rows


@suffixes
def test_credit_is_the_same_from_every_format(tmp_path: Path, suffix: str):
    table = StepTable.from_dicts(good_rows())
    write_table(table, tmp_path / f"a{suffix}")
    again = read_table(tmp_path / f"a{suffix}")
    for name in ("gigpo", "hgpo", "grpo"):
        here, there = recipe(name)(table), recipe(name)(again)
        assert here.advantage.tobytes() == there.advantage.tobytes()
        assert here.reason.tobytes() == there.reason.tobytes()


@suffixes
def test_a_part_of_a_table_is_written_without_the_rest(tmp_path: Path, suffix: str):
    """Texts of rows that were left out must not travel along in a dictionary."""
    table = StepTable.from_dicts(good_rows())
    part = table.take(np.array(table.group.texts(), dtype=object) == "tâche 1")
    assert table_to_arrow(part).column("group").chunk(0).dictionary.to_pylist() == ["tâche 1"]
    write_table(part, tmp_path / f"a{suffix}")
    again = read_table(tmp_path / f"a{suffix}")
    assert again.to_dicts() == part.to_dicts()
    assert list(again.group.values) == ["tâche 1"]
    assert repr(again) == repr(part) == "StepTable(16 rows, 1 group, 4 trajectories, 3 states)"


# Parquet and Arrow of other writers.


def test_text_types_of_arrow(tmp_path: Path):
    arrow = pa.Table.from_pylist(good_rows())
    due = StepTable.from_dicts(good_rows()).to_dicts()
    codings = [
        lambda text: text,
        lambda text: text.cast(pa.large_string()),
        lambda text: text.cast(pa.string_view()),
        lambda text: text.dictionary_encode(),
        lambda text: text.dictionary_encode().cast(pa.dictionary(pa.int8(), pa.large_string())),
        lambda text: pa.chunked_array([text.chunk(0)[:7], text.chunk(0)[:0], text.chunk(0)[7:]]),
    ]
    for coding in codings:
        table = arrow
        for name in ("group", "trajectory", "state", "action", "agent"):
            place = arrow.column_names.index(name)
            table = table.set_column(place, name, coding(arrow.column(name)))
        assert table_from_arrow(table).to_dicts() == due
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=9)
        assert read_table(tmp_path / "a.parquet").to_dicts() == due


def test_number_types_of_arrow():
    arrow = pa.Table.from_pylist(good_rows())
    due = StepTable.from_dicts(good_rows()).to_dicts()
    for step in (pa.int8(), pa.uint8(), pa.int32(), pa.uint32()):
        table = arrow.set_column(2, "step", arrow.column("step").cast(step))
        assert table_from_arrow(table).to_dicts() == due
    for reward in (pa.float16(), pa.float32(), pa.float64()):
        table = arrow.set_column(5, "reward", arrow.column("reward").cast(reward))
        assert table_from_arrow(table).to_dicts() == due
    table = arrow.set_column(5, "reward", pa.array(range(len(arrow)), pa.uint64()))
    assert table_from_arrow(table).reward.tolist() == list(map(float, range(len(arrow))))


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float16()),
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), 3),
    ],
    ids=str,
)
def test_fingerprint_types_of_arrow(tmp_path: Path, kind: pa.DataType):
    rows = good_rows()
    rows[4]["fingerprint"] = None
    arrow = pa.Table.from_pylist(rows)
    column = pa.array([row["fingerprint"] for row in rows], kind)
    arrow = arrow.set_column(arrow.column_names.index("fingerprint"), "fingerprint", column)
    pq.write_table(arrow, tmp_path / "a.parquet", row_group_size=9)
    rows[4]["fingerprint"] = [0.0, 0.0, 0.0]  # none is zeros
    for table in (table_from_arrow(arrow), read_table(tmp_path / "a.parquet")):
        assert table.to_dicts() == rows
        half = pa.types.is_float16(kind.value_type)
        assert table.fingerprint.dtype == (np.float16 if half else np.float32)


def test_fingerprints_of_integers():
    rows = [row | {"fingerprint": [1, 0]} for row in good_rows()]
    for table in (StepTable.from_dicts(rows), table_from_arrow(pa.Table.from_pylist(rows))):
        assert table.fingerprint.dtype == np.float32
        assert table.fingerprint.tolist() == [[1.0, 0.0]] * len(rows)


@suffixes
def test_fingerprints_keep_their_precision(tmp_path: Path, suffix: str):
    table = StepTable.from_dicts(good_rows())
    random = np.random.default_rng(1)
    for precision in (np.float16, np.float32):
        vectors = random.normal(size=(len(table), 5)).astype(precision)
        columns = table.columns() | {"fingerprint": vectors}
        write_table(StepTable(**columns), tmp_path / f"a{suffix}")
        again = read_table(tmp_path / f"a{suffix}").fingerprint
        assert again.tolist() == vectors.tolist()


def test_dictionary_with_repeats_nulls_and_leftovers():
    """One text is one state, however a dictionary codes it."""
    rows = good_rows()[:6]
    arrow = pa.Table.from_pylist(rows)
    codes = pa.array([0, 1, 2, 3, None, 0], pa.int8())
    states = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "a", "b", None, "left over"]))
    table = table_from_arrow(arrow.set_column(3, "state", states))
    assert table.state.texts() == ["a", "a", "b", None, None, "a"]
    assert list(table.state.values) == ["a", "b"]
    assert table.state.codes.tolist() == [0, 0, 1, -1, -1, 0]


def test_dictionary_index_to_nowhere_is_refused():
    arrow = pa.Table.from_pylist(good_rows()[:3])
    for codes in ([0, 1, 2], [0, -1, 1]):
        states = pa.DictionaryArray.from_arrays(
            pa.array(codes, pa.int8()), pa.array(["a", "b"]), safe=False
        )
        with pytest.raises(TableError, match="unreadable_file: column state is damaged"):
            table_from_arrow(arrow.set_column(3, "state", states))


def test_flag_given_nowhere_is_absent(tmp_path: Path):
    rows = [row | {"valid": None, "padding": None} for row in good_rows()[:-2]]
    for table in (
        StepTable.from_dicts(rows),
        table_from_arrow(pa.Table.from_pylist(rows)),
        read_table(write_jsonl(tmp_path / "a.jsonl", rows)),
    ):
        assert table.valid is None
        assert table.padding is None


def test_parquet_without_row_groups(tmp_path: Path):
    schema = table_to_arrow(StepTable.from_dicts(good_rows())).schema
    pq.ParquetWriter(tmp_path / "a.parquet", schema).close()
    assert len(read_table(tmp_path / "a.parquet")) == 0


def test_empty_table_is_written_and_read(tmp_path: Path):
    table = StepTable.from_dicts(good_rows()).take(np.empty(0, dtype=np.int64))
    for suffix in SUFFIXES:
        write_table(table, tmp_path / f"a{suffix}")
        assert [p.kind for p in check(read_table(tmp_path / f"a{suffix}")).problems] == [
            ProblemKind.EMPTY_TABLE
        ]


def test_progress_is_reported(tmp_path: Path):
    write_jsonl(tmp_path / "a.jsonl", good_rows())
    arrow = table_to_arrow(StepTable.from_dicts(good_rows()))
    pq.write_table(arrow, tmp_path / "a.parquet", row_group_size=20)
    for name, shares in (("a.jsonl", 1), ("a.parquet", 3)):
        seen: list[float] = []
        read(tmp_path / name, seen.append)
        assert len(seen) == shares
        assert seen == sorted(seen)
        assert 0 <= seen[0] <= seen[-1] <= 1


# The seal.


def footer_of(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@contextmanager
def flipped(path: Path, place: int, bit: int) -> Iterator[None]:
    """The file with one bit flipped, for a while."""
    with path.open("r+b", buffering=0) as file:
        file.seek(place)
        [byte] = file.read(1)
        for value in (byte ^ 1 << bit, byte):
            file.seek(place)
            file.write(bytes([value]))
            if value != byte:
                yield


def unsealed(data: bytes) -> bytes:
    """The file as another writer would have written it."""
    footer = footer_of(data)
    assert data[footer - SEAL_SIZE :].startswith(SEAL_MARK)
    return data[: footer - SEAL_SIZE] + data[footer:]


def test_one_changed_byte_anywhere_is_refused_or_harmless(tmp_path: Path):
    path = tmp_path / "a.parquet"
    write_table(StepTable.from_dicts(good_rows()), path)
    data = path.read_bytes()
    seal = footer_of(data) - SEAL_SIZE
    for place in range(len(data)):
        with flipped(path, place, place % 8):
            try:
                rows = read_table(path).to_dicts()
            except TableError as error:
                rows = [problem.kind for problem in error.problems]
        harmless = seal <= place < seal + len(SEAL_MARK)
        assert rows == (good_rows() if harmless else [ProblemKind.UNREADABLE_FILE])


def test_scratched_seal_is_still_a_seal(tmp_path: Path):
    """Damage to the mark does not make a file a stranger, whose other damage would be believed."""
    path = tmp_path / "a.parquet"
    write_table(StepTable.from_dicts(good_rows()), path)
    data = bytearray(path.read_bytes())
    seal = footer_of(bytes(data)) - SEAL_SIZE
    data[seal : seal + 10] = bytes(10)
    path.write_bytes(data)
    assert read_table(path).to_dicts() == good_rows()
    with flipped(path, 5, 0), pytest.raises(TableError, match="its seal is broken"):
        read(path)


def test_seal_tells_what_checksums_cannot(tmp_path: Path):
    """Two pages that change places have right checksums; only the seal knows."""
    path = tmp_path / "a.parquet"
    write_table(StepTable.from_dicts(good_rows()), path)
    group = pq.read_metadata(path).row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    one, other = chunks["terminated"], chunks["truncated"]
    size = one.total_compressed_size
    assert size == other.total_compressed_size
    data = bytearray(path.read_bytes())
    here = slice(one.data_page_offset, one.data_page_offset + size)
    there = slice(other.data_page_offset, other.data_page_offset + size)
    data[here], data[there] = data[there], data[here]

    path.write_bytes(unsealed(bytes(data)))
    believed = read_table(path)
    assert believed.terminated.tolist() == [row["truncated"] for row in good_rows()]
    path.write_bytes(data)
    assert kinds_refused(path) == [ProblemKind.UNREADABLE_FILE]


def test_lost_rows_are_noticed_without_a_seal(tmp_path: Path):
    """A footer that says fewer rows for a row group than for the file."""
    path = tmp_path / "a.parquet"
    arrow = table_to_arrow(StepTable.from_dicts(good_rows()))
    pq.write_table(arrow, path, write_page_checksum=True, row_group_size=17)
    data = path.read_bytes()
    # Whatever single bit of the footer is wrong: never an answer for fewer rows.
    for place in range(footer_of(data), len(data) - 8):
        if data[place] != 2 * 17:  # 17 in the variable-length integers of the footer
            continue
        for bit in range(8):
            with flipped(path, place, bit), suppress(TableError):
                assert len(read_table(path)) == len(arrow)


def test_seal_does_not_outlive_the_file(tmp_path: Path):
    """A file that another tool changed and wrote again is read, and so is one without a seal."""
    path, copy = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_table(StepTable.from_dicts(good_rows()), path)
    plain = pq.read_table(path)
    assert plain.to_pylist() == good_rows()
    pq.write_table(plain.slice(3, 20), copy)
    assert read_table(copy).to_dicts() == good_rows()[3:23]
    copy.write_bytes(unsealed(path.read_bytes()))
    assert read_table(copy).to_dicts() == good_rows()


def test_sealed_file_larger_than_one_block(tmp_path: Path):
    random = np.random.default_rng(3)
    rows = [row | {"state": random.bytes(30_000).hex()} for row in good_rows()]
    path = tmp_path / "a.parquet"
    write_table(StepTable.from_dicts(rows), path)
    data = path.read_bytes()
    assert len(data) > 2**20
    assert read_table(path).to_dicts() == rows
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert kinds_refused(path) == [ProblemKind.UNREADABLE_FILE]


# JSON lines of other writers.


def test_blank_lines_line_ends_and_key_order(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(dict(reversed(row.items()))) for row in good_rows()]
    path.write_bytes(("\r\n\r\n  \r\n".join(lines)).encode())
    assert read_table(path).to_dicts() == good_rows()


def test_a_file_that_is_no_jsonl_is_one_problem(tmp_path: Path):
    (tmp_path / "log.jsonl").write_text("an ordinary log line\n" * 3000)
    with pytest.raises(TableError) as refused:
        read(tmp_path / "log.jsonl")
    [problem] = refused.value.problems
    assert (problem.kind, problem.count, problem.rows.size) == (ProblemKind.BAD_LINE, 3000, 3000)
    assert "line 1 is not JSON" in problem.detail
    assert "2,999 lines more" in problem.detail


@suffixes
def test_no_such_file(tmp_path: Path, suffix: str):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / f"nowhere{suffix}")


# Columns that are carried along.


def test_unknown_columns_are_carried(tmp_path: Path):
    rows = [row | {"seed": i, "note": f"n{i}"} for i, row in enumerate(good_rows())]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for path in (write_jsonl(tmp_path / "a.jsonl", rows), tmp_path / "a.parquet"):
        rollouts = read(path)
        assert rollouts.table.to_dicts() == good_rows()
        assert rollouts.carried.to_pydict() == {
            "seed": list(range(50)),
            "note": [f"n{i}" for i in range(50)],
        }
        [note] = rollouts.notes
        assert (note.kind, note.count) == (ProblemKind.UNKNOWN_COLUMN, 2)
        assert "'seed', 'note'" in note.detail


def test_credit_columns_are_kept_apart(tmp_path: Path):
    rows = [row | {"advantage": 1.0, "reason_x": "r", "advantages": 2} for row in good_rows()]
    rollouts = read(write_jsonl(tmp_path / "a.jsonl", rows))
    assert rollouts.credit.column_names == ["advantage", "reason_x"]
    assert rollouts.carried.column_names == ["advantages"]


@pytest.mark.parametrize(
    ("values", "carried"),
    [
        ([1, None, 3], [1, None, 3]),
        ([[1], [], None], [[1], [], None]),
        ([{"a": 1}, {"a": 2}, None], [{"a": 1}, {"a": 2}, None]),
        ([1, "a", None], ["1", '"a"', None]),
        ([{"a": 1}, {"b": 2}, None], ['{"a": 1}', '{"b": 2}', None]),
        ([{}, {}, None], ["{}", "{}", None]),
        ([[{}], [], None], ["[{}]", "[]", None]),
        ([2**70, 1, None], [str(2**70), "1", None]),
        (["\ud800", "a", None], ['"\\ud800"', '"a"', None]),
        ([None, None, None], [None, None, None]),
    ],
)
def test_carried_values_are_as_given_or_json_text(
    tmp_path: Path, values: list[Any], carried: list[Any]
):
    rows = [row | {"info": value} for row, value in zip(good_rows(), values, strict=False)]
    rollouts = read(write_jsonl(tmp_path / "a.jsonl", rows))
    assert rollouts.carried.column("info").to_pylist() == carried
    for suffix in SUFFIXES:
        write(rollouts.carried, tmp_path / f"b{suffix}")


def test_deeply_nested_value_is_carried_or_refused(tmp_path: Path):
    for depth in (50, 400, 800, 950):
        nested: Any = 1
        for _ in range(depth):
            nested = [nested]
        rows = good_rows()
        rows[0]["deep"] = nested
        lines = [json.dumps(row) for row in rows[1:]]
        text = json.dumps(rows[0] | {"deep": None}).replace(
            '"deep": null', f'"deep": {"[" * depth}1{"]" * depth}'
        )
        (tmp_path / "a.jsonl").write_text("\n".join([text, *lines]))
        try:
            rollouts = read(tmp_path / "a.jsonl")
        except TableError as refusal:
            assert {problem.kind for problem in refusal.problems} == {ProblemKind.BAD_LINE}  # noqa: PT017
        else:
            assert len(rollouts.carried) == len(rows)


def test_numbers_that_json_lacks_are_null_however_deep(tmp_path: Path):
    nan, infinite = float("nan"), float("inf")
    columns = {
        "flat": pa.array([nan, 1.0]),
        "half": pa.array([infinite, 1.0], pa.float16()),
        "list": pa.array([[nan, 1.0], None]),
        "object": pa.array([{"a": [infinite], "b": 1}, None]),
        "map": pa.array([[("a", nan)], []], pa.map_(pa.string(), pa.float64())),
    }
    write(pa.table(columns), tmp_path / "a.jsonl")
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == [
        {
            "ascribe.step_table": "1",
            "flat": None,
            "half": None,
            "list": [None, 1.0],
            "object": {"a": [None], "b": 1},
            "map": [["a", None]],
        },
        {"flat": 1.0, "half": 1.0, "list": None, "object": None, "map": []},
        {"ascribe.step_table": "1", "rows": 2},
    ]


# Refusals of the writer.


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"\xff"]),
        pa.array([0], pa.timestamp("s")),
        pa.array([[b"\xff"]]),
        pa.array([{"when": 0}], pa.struct([("when", pa.date32())])),
    ],
)
def test_jsonl_refuses_types_that_json_lacks(tmp_path: Path, suffix: str, column: pa.Array):
    with pytest.raises(TableError, match=r"'x' is .*write \.parquet instead") as refused:
        write(pa.table({"x": column}), tmp_path / f"a{suffix}")
    assert [problem.kind for problem in refused.value.problems] == [ProblemKind.WRONG_TYPE]
    assert list(tmp_path.iterdir()) == []


def test_parquet_refuses_what_it_cannot_hold(tmp_path: Path):
    with pytest.raises(TableError, match="Parquet cannot hold these columns"):
        write(pa.table({"x": pa.array([{}])}), tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


@suffixes
def test_writing_nowhere_is_an_operating_system_error(tmp_path: Path, suffix: str):
    with pytest.raises(OSError, match="No such file"):
        write_table(StepTable.from_dicts(good_rows()), tmp_path / "nowhere" / f"a{suffix}")
