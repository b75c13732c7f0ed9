"""Lines of files that may come from others, with limits on their size."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from ascribe.steps.errors import InputError

LONGEST_LINE = 64 << 20
"""Bytes of one line; a trace of a thousand long turns has fewer."""
SMALLEST_LIMIT = 1 << 28
"""Bytes of memory that a compressed file may expand to, however small it is."""


def expansion_limit(size: int, times: int = 500) -> int:
    """How much memory the content of a file of ``size`` may take: so many times, or 256 MiB."""
    return max(SMALLEST_LIMIT, times * size)


def json_memory(text: bytes) -> int:
    """About how many bytes of memory the values of a JSON text take at most."""
    values = text.count(b",") + text.count(b":") + text.count(b"[") + text.count(b"{")
    wide = not text.isascii() or b"\\u" in text  # one such letter makes all of a text wider
    return len(text) * (5 if wide else 2) + 64 * values


class LineError(InputError):
    """A line is not one strict JSON object, or is too long.

    Attributes:
        cut: whether the file ends in the middle of it.
    """

    def __init__(self, what: str, *, hint: str = "", cut: bool = False) -> None:
        super().__init__(what, hint=hint)
        self.cut = cut


def numbered_lines(
    path: Path,
    progress: Callable[[float], None] = lambda _: None,
    unpacked: Callable[[IO[bytes]], IO[bytes]] | None = None,
) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, plain or ``.gz``, that are not blank, and their numbers from 1.

    ``unpacked`` decompresses what has another compression.

    Raises:
        LineError: for a line that is too long, and a file that is damaged or expands too much.
        OSError: if the file cannot be opened.
    """
    opened = gzip.open if path.suffix == ".gz" else unpacked or (lambda raw: raw)
    with path.open("rb") as raw, opened(raw) as file:
        size, number, expanded = os.fstat(raw.fileno()).st_size, 0, 0
        room = expansion_limit(size)
        try:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                expanded += 0 if file is raw else json_memory(line)
                if len(line) > LONGEST_LINE:
                    raise LineError(f"line {number} has more than {LONGEST_LINE >> 20} MiB")
                if expanded > room:
                    what = f"its {size:,} bytes expand to more than {room:,}"
                    raise LineError(what, hint="if you trust it, decompress it first")
                if number % 10_000 == 1 and size:
                    progress(raw.tell() / size)
                if line.strip():
                    yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            message = f"line {number + 1} cannot be decompressed: {error}"
            raise LineError(message, cut=isinstance(error, EOFError)) from error
