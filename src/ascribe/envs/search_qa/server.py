"""A small search engine with the HTTP form of Search-R1: BM25 over a file of documents.

::

    python -m ascribe.envs.search_qa.server --corpus documents.jsonl --port 8000

It is made for tests and small corpora. It listens on the loopback address unless told otherwise.
It has no notion of users: whoever can reach it can read the corpus.
"""

import argparse
import json
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ascribe.envs.search_qa import passages
from ascribe.envs.search_qa.demo import demo
from ascribe.envs.search_qa.passages import Library

LARGEST_REQUEST = 1_000_000
MOST_QUERIES = 512
MOST_DOCUMENTS = 100


class BadRequestError(ValueError):
    """A request that cannot be answered."""


class RetrieverServer(ThreadingHTTPServer):
    """Serves a library.

    Args:
        library: the documents.
        host: the address to listen on.
        port: 0 takes any that is free; ``url`` says which.
    """

    daemon_threads = True

    def __init__(self, library: Library, host: str = "127.0.0.1", port: int = 8000) -> None:
        self.library = library
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Where to send queries."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/retrieve"


class _Handler(BaseHTTPRequestHandler):
    timeout = 30
    """A client that goes silent is let go after so many seconds."""

    def do_POST(self) -> None:
        """Answer a search."""
        if self.path != "/retrieve":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "POST to /retrieve"})
            return
        assert isinstance(self.server, RetrieverServer)
        try:
            result = retrieve(self.server.library, self._body())
        except BadRequestError as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        else:
            self._answer(HTTPStatus.OK, {"result": result})

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise BadRequestError("the request has no length")
        if int(length) > LARGEST_REQUEST:
            raise BadRequestError(f"the request is larger than {LARGEST_REQUEST} bytes")
        return self.rfile.read(int(length))

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Say nothing: what clients send does not belong on the screen."""


def retrieve(library: Library, body: bytes) -> list[list[Any]]:
    """The answer to a request: for each query its documents, with scores if they were asked for.

    Raises:
        BadRequestError: if the body is not of the expected form.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(request, dict):
        raise BadRequestError("the body is not a JSON object")
    queries, limit = request.get("queries"), request.get("topk", 3)
    scored = request.get("return_scores", False)
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise BadRequestError("queries must be a list of texts")
    if len(queries) > MOST_QUERIES:
        raise BadRequestError(f"there are more than {MOST_QUERIES} queries")
    if limit is None:
        limit = 3
    if type(limit) is not int or not 1 <= limit <= MOST_DOCUMENTS:
        raise BadRequestError(f"topk must be a number from 1 to {MOST_DOCUMENTS}")
    found = [library.search(query, limit) for query in queries]
    if not scored:
        return [[document for document, _ in hits] for hits in found]
    return [[{"document": document, "score": score} for document, score in hits] for hits in found]


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m ascribe.envs.search_qa.server",
        description="Search a corpus over HTTP, in the form of Search-R1.",
    )
    parser.add_argument("--corpus", help="JSONL with id and contents; the demo corpus without it")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any that is free")
    given = parser.parse_args(arguments)
    documents = demo().documents if given.corpus is None else passages.load(given.corpus)
    with RetrieverServer(Library(documents), given.host, given.port) as server:
        print(f"{len(documents)} documents at {server.url}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped", flush=True)


if __name__ == "__main__":
    main()
