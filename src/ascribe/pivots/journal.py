"""``Journal``: an append-only file of JSON lines that survives the end of its writer.

Records are on the disk (``fsync``) before ``append`` returns. One process writes at a time; another
waits. A last line that was cut short by a crash is no record: readers pass over it, and the next
record takes its place, if it begins as the record does. Nothing else is ever taken away: the file
may be no journal.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from ascribe.pivots.lines import NotALine, as_object, numbered


class BrokenJournal(ValueError):  # noqa: N818 (named for what is wrong)
    """A line of a journal is no record, so something else was written there."""


class Journal:
    """A journal that is open for writing.

    Args:
        path: the file; it is made if it is not there.
        waiting: called once if another process has it open.

    Raises:
        BrokenJournal: on entering it, if the last line is neither whole nor part of a record.
    """

    def __init__(self, path: str | Path, waiting: Callable[[], None] = lambda: None) -> None:
        self.path = Path(path)
        self._waiting = waiting
        self._file: int | None = None

    def __enter__(self) -> Self:
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _lock(self._file, self._waiting)
            self._torn("{")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)  # and with it the lock
            self._file = None

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Put records at the end; they are on the disk when this returns.

        Raises:
            BrokenJournal: if the last line was cut short and is no part of such a record.
        """
        assert self._file is not None, "the journal is not open"
        lines = [json.dumps(record, ensure_ascii=True, allow_nan=False) for record in records]
        if not lines:
            return
        first_key, _, _ = lines[0].partition(":")
        os.ftruncate(self._file, self._torn(first_key))
        data = memoryview("".join(f"{line}\n" for line in lines).encode())
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def _torn(self, begin: str) -> int:
        """Where a last line that was cut short starts; it must begin so, as far as it goes."""
        assert self._file is not None
        place = _whole(self._file)
        os.lseek(self._file, place, os.SEEK_SET)
        found = os.read(self._file, len(begin.encode()))
        if not begin.encode().startswith(found):
            raise BrokenJournal(
                f"{self.path.name} is no journal, or was changed by something else: its last line "
                "is no part of a record; the file was left as it is"
            )
        return place

    @staticmethod
    def records(path: str | Path) -> Iterator[dict[str, Any]]:
        """The records of a journal, oldest first; none if there is no file.

        Raises:
            BrokenJournal: for a line that is no record, unless it is the last and cut short.
        """
        path = Path(path)
        if not path.exists():
            return
        try:
            for number, line in numbered(path):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield as_object(line)
                except NotALine as error:
                    raise BrokenJournal(
                        f"line {number} of {path.name} is no record: {error}; the file was changed "
                        "by something else: remove the line, and what it held is asked for again"
                    ) from error
        except NotALine as error:
            raise BrokenJournal(f"{path.name} is no journal: {error}") from error


def _lock(file: int, waiting: Callable[[], None]) -> None:
    try:
        import fcntl
    except ImportError:  # a system without such locks: two writers are the user's mistake
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(file, fcntl.LOCK_EX)


def _whole(file: int) -> int:
    """How many bytes of the file are whole lines."""
    end = os.fstat(file).st_size
    step = 1 << 16
    while end > 0:
        begin = max(0, end - step)
        os.lseek(file, begin, os.SEEK_SET)
        found = os.read(file, end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
