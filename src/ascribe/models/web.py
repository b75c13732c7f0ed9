"""One exchange over HTTP with a server that may be slow, broken or hostile.

The answer has a limit of size and of time. There are no redirects and no proxies.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

CHUNK = 1 << 16
JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class TooLarge(OSError):  # noqa: N818 (named for what is wrong)
    """The answer has more bytes than allowed."""


class TooSlow(TimeoutError):  # noqa: N818 (named for what is wrong)
    """The answer takes longer than allowed."""


@dataclass(frozen=True)
class Answer:
    """What a server sent."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    secure: bool
    host: str
    port: int | None
    path: str

    @staticmethod
    def parse(url: str) -> "Address":
        """The parts of an address.

        Raises:
            ValueError: if it is not one of HTTP.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"an address of a server looks like http://host:port, not {url!r}")
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        return Address(parts.scheme == "https", parts.hostname, parts.port, path)

    def exchange(
        self,
        body: bytes | None,
        *,
        path: str = "",
        headers: Mapping[str, str] = JSON_HEADERS,
        seconds: float,
        limit: int,
    ) -> Answer:
        """The answer to a POST of ``body``, or to a GET without one.

        Args:
            body: what to send.
            path: goes behind the address's own.
            headers: of the request.
            seconds: for the whole exchange.
            limit: bytes that the answer may have.

        Raises:
            OSError: if the server cannot be reached; ``TooLarge`` and ``TooSlow`` are of this kind.
            HTTPException: if it does not speak HTTP.
        """
        deadline = time.monotonic() + seconds
        kind = HTTPSConnection if self.secure else HTTPConnection
        connection = kind(self.host, self.port, timeout=seconds)
        method = "GET" if body is None else "POST"
        try:
            connection.request(method, (self.path + path) or "/", body, dict(headers))
            with connection.getresponse() as response:
                content = bytearray()
                while chunk := response.read1(CHUNK):
                    content += chunk
                    if len(content) > limit:
                        raise TooLarge(f"more than {limit:,} bytes")
                    # The timeout of a socket starts anew with every byte that drips in.
                    if time.monotonic() > deadline:
                        raise TooSlow(f"more than {seconds:g} s")
                return Answer(response.status, dict(response.headers), bytes(content))
        finally:
            connection.close()
