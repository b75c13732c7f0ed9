"""Questions with their answers, and when an answer counts as one of them."""

import json
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_LINE = 1_000_000
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class Question:
    """A question."""

    text: str
    answers: tuple[str, ...]
    """Any of these is right."""
    family: str = "question"
    searches: tuple[str, ...] = ()
    """What somebody would search for who knows how to find the answer."""


def normalise(text: str) -> str:
    """Lower case without punctuation, articles and needless blanks (the rule of SQuAD)."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, golden: Sequence[str]) -> bool:
    """Whether an answer is one of the golden ones after both are normalised."""
    given = normalise(answer)
    return any(given == normalise(right) for right in golden)


def clean(text: object) -> str:
    """Text that can be shown and stored anywhere.

    Control characters but for tabs and line breaks become blanks, half surrogate pairs U+FFFD.
    """
    if not isinstance(text, str):
        raise ValueError(f"text was expected, not {type(text).__name__}")
    return SURROGATE.sub("\ufffd", UNSAFE.sub(" ", text))


def load(path: str | Path) -> list[Question]:
    """Read questions from a JSONL file with ``question`` and ``golden_answers`` on each line.

    ``data_source`` (the family) and ``searches`` (for the expert) may be there too.

    Raises:
        ValueError: if a line is not what it should be, or there is none.
    """
    questions = []
    for where, record in lines(path):
        try:
            questions.append(_question(record))
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(f"{where} is no question: {error!r}") from error
    if not questions:
        raise ValueError(f"{Path(path).name} holds no questions")
    return questions


def lines(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSONL file, each with its place; empty lines are left out."""
    name = Path(path).name
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            where = f"line {number} of {name}"
            if len(line) > LONGEST_LINE:
                raise ValueError(f"{where} is longer than {LONGEST_LINE} characters")
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (json.JSONDecodeError, RecursionError) as error:
                raise ValueError(f"{where} is not JSON: {error}") from error
            if not isinstance(record, dict):
                raise ValueError(f"{where} is not a JSON object")
            yield where, record


def _question(record: dict[str, Any]) -> Question:
    answers = record["golden_answers"]
    if not isinstance(answers, list) or not answers:
        raise ValueError("golden_answers must be a list with at least one answer")
    return Question(
        text=clean(record["question"]),
        answers=tuple(clean(answer) for answer in answers),
        family=clean(record.get("data_source", "question")),
        searches=tuple(clean(query) for query in record.get("searches", [])),
    )
