"""Files of JSON lines that others wrote: strict, of limited size, and never half believed."""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from ascribe.steps.strict_json import loads

LONGEST_LINE = 64 << 20
"""Bytes of one line; a trace of a thousand long turns has fewer."""


class NotALine(ValueError):  # noqa: N818 (named for what is wrong)
    """A line that is not one strict JSON object."""


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
        value = loads(line.decode("utf-8"))
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
