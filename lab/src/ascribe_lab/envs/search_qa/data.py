"""Questions and documents: reading them, matching answers, searching and showing passages.

A document has an ``id`` and ``contents``: a title in quotation marks on the first line, then the
text, as in the corpora of Search-R1.
"""

import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ascribe.steps.errors import InputError
from ascribe_lab.envs.bm25 import BM25
from ascribe_lab.envs.texts import Record, clean, read_records
from ascribe_lab.models.http_client import HttpClient, HttpLimits, ServerError

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
TAG = re.compile(r"<(/?information)>", re.IGNORECASE)
LARGEST_RESPONSE = 4_000_000
RETRIES = 2

Document = dict[str, str]


@dataclass(frozen=True)
class Question:
    """A question."""

    text: str
    answers: tuple[str, ...]
    """Any of these is right."""
    family: str = "question"
    searches: tuple[str, ...] = ()
    """The searches of an expert."""


def normalise(text: str) -> str:
    """Lower case without punctuation, articles and needless blanks (the rule of SQuAD)."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, golden: Sequence[str]) -> bool:
    """Whether an answer equals a golden one after both are normalised."""
    return normalise(answer) in map(normalise, golden)


def load_questions(path: str | Path) -> list[Question]:
    """Read questions from a JSONL file with ``question`` and ``golden_answers`` on each line.

    ``data_source`` (the family) and ``searches`` (for the expert) are optional.
    """
    questions = read_records(path, "question", _question)
    if not questions:
        raise InputError(f"{Path(path).name} holds no questions")
    return questions


def _question(record: Record) -> Question:
    answers = record["golden_answers"]
    if not isinstance(answers, list) or not answers:
        raise InputError("golden_answers must be a list with at least one answer")
    return Question(
        text=clean(record["question"]),
        answers=tuple(clean(answer) for answer in answers),
        family=clean(record.get("data_source", "question")),
        searches=tuple(clean(query) for query in record.get("searches", [])),
    )


def load_documents(path: str | Path) -> list[Document]:
    """Read documents from a JSONL file with ``id`` and ``contents`` on each line."""

    def document(record: Record) -> Document:
        contents = clean(record["contents"])
        return {"id": clean(str(record["id"])), "contents": contents}

    return read_records(path, "document", document)


class Library:
    """Documents in memory, searched with BM25."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = list(documents)
        self._index = BM25(document["contents"] for document in self.documents)

    def __call__(self, query: str, limit: int) -> list[str]:
        """The contents of the best documents, best first."""
        hits = self._index.search(query, limit)
        return [self.documents[number]["contents"] for number, _ in hits]


class RemoteLibrary:
    """A search engine on a server of the Search-R1 form.

    ``POST {"queries": [...], "topk": 3, "return_scores": true}`` is answered by
    ``{"result": [[{"document": {"id": ..., "contents": ...}, "score": ...}, ...]]}``. A request
    that timed out is not sent again.

    Args:
        url: such as ``http://127.0.0.1:8000/retrieve``.
        timeout: seconds that one attempt may take.
        pause: seconds before the first retry; twice as many before each further one.
    """

    def __init__(self, url: str, *, timeout: float = 30.0, pause: float = 0.5) -> None:
        self.url = url
        self._client = HttpClient(
            url, HttpLimits(timeout, RETRIES, LARGEST_RESPONSE, pause, retry_timeouts=False)
        )

    def __call__(self, query: str, limit: int) -> list[str]:
        """The contents of the best documents, best first."""
        request = {"queries": [clean(query)], "topk": limit, "return_scores": True}
        response = self._client.post("", request)
        try:
            return [clean(hit["document"]["contents"]) for hit in response["result"][0][:limit]]
        except (ValueError, TypeError, LookupError) as error:
            raise ServerError(
                f"{self.url} responded in another form than Search-R1's: {error!r}"
            ) from error


def render(contents: Sequence[str]) -> str:
    """Passages as the agent reads them: ``<information>Doc 1(Title: ...) text ...</information>``.

    A passage cannot close the block: its own ``information`` tags get a blank.
    """
    rendered = []
    for number, content in enumerate(contents, 1):
        title, _, text = TAG.sub(r"< \1>", content).partition("\n")
        rendered.append(f"Doc {number}(Title: {title}) {text}")
    return "<information>" + "\n".join(rendered) + "</information>"
