"""A search engine elsewhere, asked over HTTP in the form of Search-R1.

``POST {"queries": [...], "topk": 3, "return_scores": true}`` is answered by
``{"result": [[{"document": {"id": ..., "contents": ...}, "score": ...}, ...]]}``.
"""

import json
import time
from http import HTTPStatus
from http.client import HTTPException

from ascribe.envs.search_qa.questions import clean
from ascribe.models.web import Address

LARGEST_ANSWER = 4_000_000
"""Bytes of an answer; a larger one is refused."""


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
        self._address = Address.parse(url)
        self.url = url
        self.timeout = timeout
        self.attempts = attempts
        self.pause = pause

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
            except (OSError, HTTPException) as error:
                raise RetrieverError(f"{self.url} cannot be asked: {error!r}") from error
        raise RetrieverError(
            f"{self.url} cannot be reached after {self.attempts} attempts: {failure!r}"
        ) from failure

    def _post(self, body: bytes) -> bytes:
        answer = self._address.exchange(body, seconds=self.timeout, limit=LARGEST_ANSWER)
        if answer.status != HTTPStatus.OK:
            raise RetrieverError(f"{self.url} answered with status {answer.status}")
        return answer.content
