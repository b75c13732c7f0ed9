"""JSON over HTTP with a server that nobody vouches for: limits of time and size, no redirects."""

import json
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit


class RemoteError(RuntimeError):
    """A server could not be reached, or its answer cannot be used."""


def post(url: str, body: dict[str, Any], *, timeout: float, limit: int) -> Any:
    """Send a JSON document and read one back.

    Args:
        url: where to; ``http`` or ``https``.
        body: the document.
        timeout: seconds for the whole exchange, as far as the server sends anything at all.
        limit: an answer of more bytes is refused.

    Raises:
        RemoteError: whatever went wrong.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an address of a server: {url!r}")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    deadline = time.monotonic() + timeout
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    try:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", parts.path or "/", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RemoteError(f"{url} answered with status {response.status}")
        raw = bytearray()
        while chunk := response.read1(65_536):
            raw += chunk
            if len(raw) > limit:
                raise RemoteError(f"{url} answered with more than {limit:,} bytes")
            if time.monotonic() > deadline:
                raise RemoteError(f"{url} took longer than {timeout:g} seconds")
    except (OSError, HTTPException) as error:
        raise RemoteError(f"{url}: {type(error).__name__}: {str(error)[:200]}") from error
    finally:
        connection.close()
    return decode(bytes(raw), url)


def decode(raw: bytes, source: str) -> Any:
    """A JSON document that somebody else wrote; infinity and NaN, which JSON lacks, are refused."""
    try:
        return json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"{source} answered with something that is not JSON") from error


def _refuse(constant: str) -> None:
    raise ValueError(constant)
