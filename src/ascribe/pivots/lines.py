"""Files of JSON lines that others wrote: strict, of limited size, and never half believed."""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import IO, Any

LONGEST_LINE = 64 << 20
"""Bytes of one line; a trace of a thousand long turns has fewer."""

DEEPEST = 100
"""How many lists and objects a value may stand in, so that functions that call themselves can walk
over it."""


class NotALine(ValueError):  # noqa: N818 (named for what is wrong)
    """A line that is not one strict JSON object."""


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def strict(text: str | bytes) -> Any:
    """The value of a JSON text without doubled keys, NaN, infinite numbers, or deep nesting.

    Raises:
        ValueError: if it is none, or one of more than ``DEEPEST`` levels.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if any(depth > DEEPEST for depth, _ in enumerate(levels(value))):
        raise ValueError("it is nested too deeply")
    return value


def levels(value: Any) -> Iterator[list[Any]]:
    """The value, then what it holds, then what that holds, and so on; nothing here recurses."""
    level = [value]
    while level:
        yield level
        level = [
            entry
            for one in level
            if isinstance(one, dict | list)
            for entry in (one.values() if isinstance(one, dict) else one)
        ]


def numbered(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, plain or ``.gz``, that are not blank, and their numbers from 1.

    Raises:
        NotALine: for a line that is too long.
        OSError: if the file cannot be opened or unpacked.
    """
    with _opened(path) as file:
        number = 0
        try:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise NotALine(f"line {number} has more than {LONGEST_LINE >> 20} MiB")
                if line.strip():
                    yield number, line
        except (EOFError, zlib.error) as error:
            raise OSError(f"line {number + 1} cannot be unpacked: {error}") from error


def as_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line.

    Raises:
        NotALine: if it is none.
    """
    try:
        value = strict(line.decode("utf-8"))
    except ValueError as error:
        raise NotALine(str(error)[:200]) from None
    if not isinstance(value, dict):
        raise NotALine(f"it is {type(value).__name__}, not an object")
    return value


def write_objects(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one object on a line, whole or not at all: the old file stays until the new is there.

    Raises:
        OSError: if the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _finite(number: str) -> float:
    found = float(number)
    if isinf(found):
        raise ValueError("a number is too large")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
