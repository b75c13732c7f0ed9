"""Text that others wrote: actions, records of JSON lines, and characters that could do harm."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ascribe.steps.errors import InputError
from ascribe.steps.problems import replace_surrogates

Record = dict[str, Any]
T = TypeVar("T")

LONGEST_LINE = 1_000_000
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
CONTROL_OR_BREAK = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def clean(text: object, *, one_line: bool = False) -> str:
    """Text that can be shown and stored anywhere.

    Control characters become blanks, tabs and line breaks only with ``one_line``; halves of
    surrogate pairs become U+FFFD.
    """
    if not isinstance(text, str):
        raise InputError(f"text was expected, not {type(text).__name__}")
    unsafe = CONTROL_OR_BREAK if one_line else CONTROL
    return replace_surrogates(unsafe.sub(" ", text))


def bracketed(action: str) -> tuple[str, str]:
    """The verb in lower case and the text of ``verb[text]``; two empty texts for other actions."""
    verb, _, rest = action.strip().partition("[")
    text = rest[:-1].strip()
    return (verb.lower(), text) if text and rest.endswith("]") else ("", "")


def read_records(path: str | Path, kind: str, build: Callable[[Record], T]) -> list[T]:
    """What ``build`` makes of each object of a JSONL file; empty lines are skipped.

    Raises:
        ValueError: if a line is too long, holds no JSON object, or is no ``kind``.
    """
    name = Path(path).name
    records = []
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            where = f"line {number} of {name}"
            if len(line) > LONGEST_LINE:
                raise InputError(f"{where} is longer than {LONGEST_LINE} characters")
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise InputError(f"{where} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise InputError(f"{where} is not a JSON object")
            try:
                records.append(build(record))
            except (ValueError, TypeError, LookupError) as error:
                raise InputError(f"{where} is no {kind}: {error!r}") from error
    return records
