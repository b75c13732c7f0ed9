"""An append-only journal: a file of JSON lines.

A journal survives the end of its writer: records are on the disk (``fsync``) before appending
returns, and one process writes at a time. A last line that was cut short by a crash is no record:
readers skip it, and the next record replaces it if it begins like a record. Nothing else is ever
removed, in case the file is no journal.
"""

import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascribe.steps.atomic import lock_file, sync
from ascribe.steps.errors import InputError
from ascribe.steps.lines import LineError, numbered_lines
from ascribe.steps.strict_json import loads


class JournalError(InputError):
    """A line of a journal is no record, so something else was written there."""


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line; ``LineError`` if it is none."""
    try:
        value = loads(line.decode("utf-8"))
    except ValueError as error:
        raise LineError(str(error)[:200]) from None
    if not isinstance(value, dict):
        raise LineError(f"it is {type(value).__name__}, not an object")
    return value


@contextmanager
def open_journal(
    path: str | Path, on_wait: Callable[[], None] = lambda: None
) -> Iterator[Callable[[Iterable[Mapping[str, Any]]], None]]:
    """A function that appends records to a journal; they are on the disk when it returns.

    Args:
        path: the file; it is created if needed.
        on_wait: called once if another process has it open, before waiting for it.

    Raises:
        JournalError: on entering and on appending, if the last line was cut short and is no part of
            such a record.
    """
    path = Path(path)
    file = _open_locked(path, on_wait)
    end, partial = 0, b""

    def check(begin: bytes) -> None:
        if not begin.startswith(partial[: len(begin)]):
            raise JournalError(
                f"{path.name} is no journal, or was changed by something else: its last line "
                "is no part of a record; the file was left as it is"
            )

    def append(records: Iterable[Mapping[str, Any]]) -> None:
        nonlocal end, partial
        lines = [json.dumps(record, ensure_ascii=True, allow_nan=False) for record in records]
        if not lines:
            return
        if partial:
            check(lines[0].partition(":")[0].encode())
            os.ftruncate(file, end)
            partial = b""
        data = "".join(f"{line}\n" for line in lines).encode()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        except OSError:  # the disk is full: what was written of the records is no record
            os.ftruncate(file, end)
            raise
        end += len(data)

    try:
        end, partial = _partial_line(file)
        check(b"{")
        yield append
    finally:
        os.close(file)  # and with it the lock


def read_journal(path: str | Path) -> Iterator[dict[str, Any]]:
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


def _open_locked(path: Path, on_wait: Callable[[], None]) -> int:
    """The journal, locked; a new one if the process that had it locked has removed it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            lock_file(file, on_wait)
            if os.fstat(file).st_nlink:
                sync(path.parent)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _partial_line(file: int) -> tuple[int, bytes]:
    """How many bytes of the file are whole lines, and the beginning of what follows them."""
    if not os.fstat(file).st_size:
        return 0, b""
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as data:
        end = data.rfind(b"\n") + 1
        return end, data[end : end + 1_000]
