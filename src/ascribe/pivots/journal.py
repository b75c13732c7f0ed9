"""Files of JSON lines: strict reading, atomic writing, and an append-only journal.

Files may come from others, so lines are strict JSON objects of limited size. A ``Journal`` survives
the end of its writer: records are on the disk (``fsync``) before ``append`` returns, and one
process writes at a time. A last line that was cut short by a crash is no record: readers skip it,
and the next record replaces it if it begins like a record. Nothing else is ever removed, in case
the file is no journal.
"""

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from ascribe.steps.strict_json import loads

LONGEST_LINE = 64 << 20
"""Bytes of one line; a trace of a thousand long turns has fewer."""


class LineError(ValueError):
    """A line is not one strict JSON object, or is too long."""


class JournalError(ValueError):
    """A line of a journal is no record, so something else was written there."""


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, plain or ``.gz``, that are not blank, and their numbers from 1.

    Raises:
        LineError: for a line that is too long.
        OSError: if the file cannot be opened or decompressed.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        number = 0
        try:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise LineError(f"line {number} has more than {LONGEST_LINE >> 20} MiB")
                if line.strip():
                    yield number, line
        except (EOFError, zlib.error) as error:
            raise OSError(f"line {number + 1} cannot be decompressed: {error}") from error


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line; ``LineError`` if it is none."""
    try:
        value = loads(line.decode("utf-8"))
    except ValueError as error:
        raise LineError(str(error)[:200]) from None
    if not isinstance(value, dict):
        raise LineError(f"it is {type(value).__name__}, not an object")
    return value


def write_objects(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one object on a line. The old file stays until the new one is complete."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class Journal:
    """A journal that is open for writing.

    Args:
        path: the file; it is created if needed.
        on_wait: called once if another process has it open.

    Raises:
        JournalError: on entering it, if the last line is neither whole nor part of a record.
    """

    def __init__(self, path: str | Path, on_wait: Callable[[], None] = lambda: None) -> None:
        self.path = Path(path)
        self._on_wait = on_wait
        self._file: int | None = None

    def __enter__(self) -> Self:
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _lock(self._file, self._on_wait)
            self._partial_line("{")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)  # and with it the lock
            self._file = None

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records; they are on the disk when this returns.

        Raises:
            JournalError: if the last line was cut short and is no part of such a record.
        """
        assert self._file is not None, "the journal is not open"
        lines = [json.dumps(record, ensure_ascii=True, allow_nan=False) for record in records]
        if not lines:
            return
        first_key, _, _ = lines[0].partition(":")
        os.ftruncate(self._file, self._partial_line(first_key))
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def _partial_line(self, begin: str) -> int:
        """Where a last line that was cut short starts; what there is of it must match ``begin``."""
        assert self._file is not None
        place = _end_of_lines(self._file)
        os.lseek(self._file, place, os.SEEK_SET)
        if not begin.encode().startswith(os.read(self._file, len(begin.encode()))):
            raise JournalError(
                f"{self.path.name} is no journal, or was changed by something else: its last line "
                "is no part of a record; the file was left as it is"
            )
        return place

    @staticmethod
    def records(path: str | Path) -> Iterator[dict[str, Any]]:
        """The records of a journal, oldest first; none if there is no file.

        Raises:
            JournalError: for a line that is no record, unless it is the last and cut short.
        """
        path = Path(path)
        if not path.exists():
            return
        try:
            for number, line in numbered_lines(path):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield parse_object(line)
                except LineError as error:
                    raise JournalError(
                        f"line {number} of {path.name} is no record: {error}; something else "
                        "changed the file: remove the line, and its record is requested again"
                    ) from error
        except LineError as error:
            raise JournalError(f"{path.name} is no journal: {error}") from error


def _lock(file: int, on_wait: Callable[[], None]) -> None:
    try:
        import fcntl
    except ImportError:  # a system without such locks: two writers are the user's mistake
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        fcntl.flock(file, fcntl.LOCK_EX)


def _end_of_lines(file: int) -> int:
    """How many bytes of the file are whole lines."""
    end = os.fstat(file).st_size
    while end > 0:
        begin = max(0, end - (1 << 16))
        os.lseek(file, begin, os.SEEK_SET)
        newline = os.read(file, end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0
