"""A small search engine in the HTTP form of Search-R1: BM25 over a file of documents.

::

    python -m ascribe_lab.envs.search_qa.server --corpus documents.jsonl --port 8000

It is made for tests and small corpora. It listens on the loopback address unless told otherwise.
It has no notion of users: whoever can reach it can read the corpus.
"""

import argparse
from collections.abc import Sequence
from functools import partial

from ascribe_lab.envs.json_server import BadRequestError, Json, JsonServer
from ascribe_lab.envs.search_qa.data import Library, load_documents
from ascribe_lab.envs.search_qa.demo import demo

LARGEST_REQUEST = 1_000_000
MOST_QUERIES = 512
MOST_DOCUMENTS = 100


class RetrieverServer(JsonServer):
    """Serves a library; ``url`` tells where."""

    def __init__(self, library: Library, host: str = "127.0.0.1", port: int = 8000) -> None:
        super().__init__({"/retrieve": partial(retrieve, library)}, host, port, LARGEST_REQUEST)

    @property
    def url(self) -> str:
        """Where to send queries."""
        return f"{self.address}/retrieve"


def retrieve(library: Library, request: Json) -> Json:
    """The response to a request: for each query its documents, with scores if asked for."""
    queries, limit = request.get("queries"), request.get("topk")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise BadRequestError("queries must be a list of texts")
    if len(queries) > MOST_QUERIES:
        raise BadRequestError(f"there are more than {MOST_QUERIES} queries")
    if limit is None:
        limit = 3
    if type(limit) is not int or not 1 <= limit <= MOST_DOCUMENTS:
        raise BadRequestError(f"topk must be a number from 1 to {MOST_DOCUMENTS}")
    scored = request.get("return_scores", False)
    return {
        "result": [
            [
                {"document": document, "score": score} if scored else document
                for document, score in library.search(query, limit)
            ]
            for query in queries
        ]
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m ascribe_lab.envs.search_qa.server",
        description="Search a corpus over HTTP, in the form of Search-R1.",
    )
    parser.add_argument("--corpus", help="JSONL with id and contents; the demo corpus without it")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any that is free")
    options = parser.parse_args(arguments)
    documents = demo().documents if options.corpus is None else load_documents(options.corpus)
    server = RetrieverServer(Library(documents), options.host, options.port)
    print(f"{len(documents)} documents at {server.url}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopped", flush=True)


if __name__ == "__main__":
    main()
