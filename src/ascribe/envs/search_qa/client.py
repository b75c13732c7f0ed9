"""A search engine elsewhere, asked over HTTP in the form of Search-R1.

``POST {"queries": [...], "topk": 3, "return_scores": true}`` is answered by
``{"result": [[{"document": {"id": ..., "contents": ...}, "score": ...}, ...]]}``.
"""

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from ascribe.envs.search_qa.questions import clean

LARGEST_ANSWER = 4_000_000
"""Bytes of an answer; a larger one is refused."""

CHUNK = 1 << 16


class RetrieverError(RuntimeError):
    """The search engine cannot be reached, or does not answer as it should."""


class Remote:
    """Asks a retriever at an address.

    A connection that fails is tried again. An answer that is late, too large, an error or of
    another form is not. There are no redirects and no proxies.

    Args:
        url: such as ``http://127.0.0.1:8000/retrieve``.
        timeout: seconds that one attempt may take.
        attempts: how often a connection is tried.
        pause: seconds before the second attempt; twice as many before each further one.

    Raises:
        ValueError: if the address is not one of HTTP.
    """

    def __init__(
        self, url: str, *, timeout: float = 30.0, attempts: int = 3, pause: float = 0.5
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the retriever must be an address of http or https, not {url!r}")
        self.url = url
        self.timeout = timeout
        self.attempts = attempts
        self.pause = pause
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def __call__(self, query: str, limit: int) -> list[str]:
        """The contents of the best documents, best first.

        Raises:
            RetrieverError: if there is no good answer.
        """
        request = {"queries": [clean(query)], "topk": limit, "return_scores": True}
        answer = self._ask(json.dumps(request).encode())
        try:
            found = json.loads(answer)["result"][0][:limit]
            return [clean(hit["document"]["contents"]) for hit in found]
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise RetrieverError(
                f"{self.url} answered in another form than Search-R1's: {error!r}"
            ) from error

    def _ask(self, body: bytes) -> bytes:
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            try:
                return self._post(body)
            except ConnectionError as error:
                failure: Exception = error
            except (OSError, http.client.HTTPException) as error:
                raise RetrieverError(f"{self.url} cannot be asked: {error!r}") from error
        raise RetrieverError(
            f"{self.url} cannot be reached after {self.attempts} attempts: {failure!r}"
        ) from failure

    def _post(self, body: bytes) -> bytes:
        deadline = time.monotonic() + self.timeout
        connection = self._connection()
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise RetrieverError(f"{self.url} answered with status {response.status}")
            answer = bytearray()
            while chunk := response.read1(CHUNK):
                answer += chunk
                if len(answer) > LARGEST_ANSWER:
                    raise RetrieverError(f"{self.url} answered more than {LARGEST_ANSWER} bytes")
                # The timeout of a socket starts anew with every byte that drips in.
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the answer took more than {self.timeout} seconds")
            return bytes(answer)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        kind: Any = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection: http.client.HTTPConnection = kind(self._host, self._port, timeout=self.timeout)
        return connection
