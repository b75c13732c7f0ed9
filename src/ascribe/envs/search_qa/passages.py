"""What a search finds: passages, how they are rendered, and a search engine over a file of them.

A document has an ``id`` and ``contents``: a title in quotation marks on the first line, then the
text, as in the corpora of Search-R1.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from ascribe.envs.bm25 import BM25
from ascribe.envs.search_qa.questions import clean, lines

Document = dict[str, str]
TAG = re.compile(r"<(/?information)>", re.IGNORECASE)


class Retriever(Protocol):
    """Finds documents."""

    def __call__(self, query: str, limit: int) -> Sequence[str]:
        """The contents of the best documents, best first."""
        ...


class Library:
    """Documents in memory, searched with BM25.

    Raises:
        MissingExtraError: without snowballstemmer (the extra ``search_qa``).
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = list(documents)
        self._index = BM25(document["contents"] for document in self.documents)

    def search(self, query: str, limit: int) -> list[tuple[Document, float]]:
        """The best documents with their scores, best first."""
        found = self._index.search(query, limit)
        return [(self.documents[number], score) for number, score in found]

    def __call__(self, query: str, limit: int) -> list[str]:
        """The contents of the best documents, best first."""
        return [document["contents"] for document, _ in self.search(query, limit)]


def load(path: str | Path) -> list[Document]:
    """Read documents from a JSONL file with ``id`` and ``contents`` on each line.

    Raises:
        ValueError: if a line is not what it should be.
    """
    documents = []
    for where, record in lines(path):
        try:
            documents.append(
                {"id": clean(str(record["id"])), "contents": clean(record["contents"])}
            )
        except (ValueError, LookupError) as error:
            raise ValueError(f"{where} is no document: {error!r}") from error
    return documents


def render(contents: Sequence[str]) -> str:
    """Passages as the agent reads them: ``<information>Doc 1(Title: ...) text ...</information>``.

    A passage cannot close the block: its own ``information`` tags get a blank.
    """
    rendered = []
    for number, content in enumerate(contents, 1):
        title, _, text = TAG.sub(r"< \1>", content).partition("\n")
        rendered.append(f"Doc {number}(Title: {title}) {text}")
    return "<information>" + "\n".join(rendered) + "</information>"
