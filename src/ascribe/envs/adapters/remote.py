"""JSON over HTTP with a server that nobody vouches for: limits of time and size, no redirects."""

import json
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from ascribe.models.web import Address, TooLarge, TooSlow


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
    address = Address.parse(url)
    try:
        answer = address.exchange(json.dumps(body).encode(), seconds=timeout, limit=limit)
    except TooLarge as error:
        raise RemoteError(f"{url} answered with {error}") from error
    except TooSlow as error:
        raise RemoteError(f"{url} took {error}") from error
    except (OSError, HTTPException) as error:
        raise RemoteError(f"{url}: {type(error).__name__}: {str(error)[:200]}") from error
    if answer.status != HTTPStatus.OK:
        raise RemoteError(f"{url} answered with status {answer.status}")
    return decode(answer.content, url)


def decode(raw: bytes, source: str) -> Any:
    """A JSON document that somebody else wrote; infinity and NaN, which JSON lacks, are refused."""
    try:
        return json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"{source} answered with something that is not JSON") from error


def _refuse(constant: str) -> None:
    raise ValueError(constant)
