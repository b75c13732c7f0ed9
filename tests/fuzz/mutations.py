"""Random damage, the same for the same seed: to the bytes of a file, and to the values in it."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

TOKENS = (b"null", b"NaN", b"-Infinity", b"1e999", b'"', b"{", b"}", b"[", b",", b"\n", b"0", b"-")
TOKENS += (
    b"e9",
    b"true",
    b"1.5",
    b"\\ud800",
    b"\\u0000",
    b"\xff",
    b"\xc3",
    b"\xe2\x80\xae",
    b"\x00",
)

VALUES: tuple[Any, ...] = (None, True, False, 0, 1, 2, -1, 7, 0.5, 1.0, -2.25, 1e90, -1e101)
VALUES += (float("nan"), float("inf"), 2**62, 2**63, 10**400, "", " ", "0", "a", "x" * 10_000)
VALUES += ("tâche 0", "tâche 1/2", "hall 1", "\x00", "\ud800", "\u202e", "\x1b[31m", [], [1], {})
VALUES += ([1.0, 0.5, -2], [0, 1e39, 0], [1.0, None, 2.0])

COLUMNS = ("group", "trajectory", "step", "state", "action", "reward", "agent", "valid")
COLUMNS += ("terminated", "truncated", "padding", "family", "fingerprint")


def bytes_of(data: bytes, random: Random) -> bytes:
    """The file with a few bytes changed, lost, doubled, moved or added."""
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        data = random.choice(BYTE_MUTATIONS)(data, random)
    return data


def _flip(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def _overwrite(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    filling = random.choice((bytes(end - start), random.randbytes(end - start)))
    return data[:start] + filling + data[end:]


def _lose(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _double(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:end] + data[start:end] + data[end:]


def _copy_over(data: bytes, random: Random) -> bytes:
    """One stretch written where another of the same length belongs, as when a disk errs."""
    start, end = _span(data, random)
    to = random.randrange(max(len(data) - (end - start), 0) + 1)
    return data[:to] + data[start:end] + data[to + end - start :]


def _insert(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(TOKENS) + data[place:]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 4, 16, 64, 512)))


BYTE_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...]
BYTE_MUTATIONS = (_flip, _flip, _flip, _overwrite, _lose, _double, _copy_over, _insert, _cut)


def lines_of(rows: list[Row], random: Random) -> bytes:
    """The rows as JSON lines, with a few values, keys, rows or lines changed."""
    rows = [dict(row) for row in rows]
    for _ in range(random.choice((1, 1, 2, 4))):
        random.choice(ROW_MUTATIONS)(rows, random)
    lines = [json.dumps(row, ensure_ascii=random.random() < 0.5 or _needs(row)) for row in rows]
    if lines and random.random() < 0.1:
        place = random.randrange(len(lines))
        lines[place] = random.choice(("", " \t", "[]", "null", lines[place][:-1] + ', "step": 0}'))
    return random.choice(("\n", "\r\n")).join(lines).encode()


def _needs(row: Row) -> bool:
    return "\\ud800" in json.dumps(row)


def _set_value(rows: list[Row], random: Random) -> None:
    if rows:
        random.choice(rows)[random.choice(COLUMNS)] = random.choice(VALUES)


def _swap_values(rows: list[Row], random: Random) -> None:
    """Two rows exchange a value: the file stays well typed, and means something else."""
    if rows:
        one, other, name = random.choice(rows), random.choice(rows), random.choice(COLUMNS)
        one[name], other[name] = other.get(name), one.get(name)


def _set_reward(rows: list[Row], random: Random) -> None:
    if rows:
        random.choice(rows)["reward"] = random.choice((random.gauss(0, 1), random.randint(-3, 3)))


def _lose_key(rows: list[Row], random: Random) -> None:
    if rows:
        random.choice(rows).pop(random.choice(COLUMNS), None)


def _lose_column(rows: list[Row], random: Random) -> None:
    name = random.choice(COLUMNS)
    for row in rows:
        row.pop(name, None)


def _fill_column(rows: list[Row], random: Random) -> None:
    name, value = random.choice(COLUMNS), random.choice(VALUES)
    for row in rows:
        row[name] = value


def _number_column(rows: list[Row], random: Random) -> None:
    """Integers instead of names, throughout."""
    name, number = random.choice(("group", "trajectory", "state", "agent")), {}
    for row in rows:
        row[name] = number.setdefault(str(row.get(name)), 17 - len(number))


def _strange_key(rows: list[Row], random: Random) -> None:
    if rows:
        row, name = random.choice(rows), random.choice(("note", "advantage", "\ud800", "", "Step"))
        row[name] = random.choice(VALUES)


def _rename_key(rows: list[Row], random: Random) -> None:
    if rows:
        row, name = random.choice(rows), random.choice(COLUMNS)
        row[name + "s"] = row.pop(name, None)


def _lose_row(rows: list[Row], random: Random) -> None:
    if rows:
        del rows[random.randrange(len(rows))]


def _lose_trajectory(rows: list[Row], random: Random) -> None:
    if rows:
        name = random.choice(rows).get("trajectory")
        rows[:] = [row for row in rows if row.get("trajectory") != name]


def _double_row(rows: list[Row], random: Random) -> None:
    if rows:
        row = dict(random.choice(rows))
        if random.random() < 0.5:
            row["padding"] = True
        rows.insert(random.randrange(len(rows) + 1), row)


def _shuffle(rows: list[Row], random: Random) -> None:
    random.shuffle(rows)


ROW_MUTATIONS: tuple[Callable[[list[Row], Random], None], ...]
ROW_MUTATIONS = (_set_value, _set_value, _swap_values, _set_reward, _lose_key, _lose_column)
ROW_MUTATIONS += (_fill_column, _number_column, _strange_key, _rename_key, _lose_row)
ROW_MUTATIONS += (_lose_trajectory, _double_row, _shuffle)


TYPES = (pa.string(), pa.large_string(), pa.binary(), pa.int8(), pa.int64(), pa.uint64())
TYPES += (pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null(), pa.decimal128(20, 5))
TYPES += (pa.dictionary(pa.int16(), pa.string()), pa.list_(pa.string()), pa.timestamp("s"))


def arrow_of(rows: list[Row], random: Random) -> pa.Table:
    """The rows as an Arrow table, with a few values, types, columns or chunks changed."""
    rows = [dict(row) for row in rows]
    for _ in range(random.choice((0, 1, 1, 2))):
        random.choice(ROW_MUTATIONS)(rows, random)
    arrays = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowException, ValueError, OverflowError):
            arrays[name] = pa.array(list(map(json.dumps, values)))
        if pa.types.is_struct(arrays[name].type):  # Parquet knows no empty ones
            arrays[name] = pa.array(list(map(json.dumps, values)))
    arrays = {name: array for name, array in arrays.items() if name.isprintable()}
    if arrays and random.random() < 0.5:
        name = random.choice(list(arrays))
        arrays[name] = _cast(arrays[name], random.choice(TYPES))
    names, columns = list(arrays), list(arrays.values())
    if names and random.random() < 0.1:
        names[random.randrange(len(names))] = random.choice([*COLUMNS, "note"])
    order = random.sample(range(len(names)), len(names))
    table = pa.table([columns[i] for i in order], names=[names[i] for i in order])
    if len(table) and random.random() < 0.5:
        cut = random.randrange(len(table))
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    return table


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_dictionary(kind):
            return array.cast(kind.value_type).dictionary_encode().cast(kind)
        return array.cast(kind)
    except (pa.ArrowException, ValueError):
        return pa.nulls(len(array), pa.null() if pa.types.is_dictionary(kind) else kind)
