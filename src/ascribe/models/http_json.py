"""JSON over HTTP to a server that may be slow, broken or hostile.

Every answer has a limit of size and of time. Redirects are not followed, for they could carry the
key to another server. Nothing that is raised or logged holds the key.
"""

import json
import os
import time
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ascribe.models.web import JSON_HEADERS, Address, TooLarge, TooSlow

TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
"""Answers that may be another one the next time."""
FOR_GOOD = frozenset({400, 413, 422})
"""Answers that say: not this request, however often it is sent."""
LONGEST_PAUSE = 30.0
QUOTED = 300
"""How much of a server's own words an error repeats."""


class ServerError(RuntimeError):
    """The server did not answer as it should."""


class RequestRefused(ServerError):  # noqa: N818 (named for what happened)
    """The server does not take this request, and would not the next time; others it may take."""


class _Busy(ServerError):  # noqa: N818 (named for what is wrong)
    """The server may answer the next time."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


@dataclass(frozen=True)
class Limits:
    """How patient and how generous to be with a server."""

    seconds: float = 600.0
    """For one answer, from the connection to the last byte."""
    retries: int = 4
    """How often a request is sent again, after pauses of 0.5, 1, 2, ... seconds."""
    bytes: int = 64 << 20
    """Of one answer."""

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.retries < 0 or self.bytes < 1:
            raise ValueError(f"these limits let nothing through: {self}")


class Server:
    """The address of a server, and how to ask it.

    Args:
        url: begins with ``http://`` or ``https://``; a path at the end is kept.
        key_variable: environment variable with the key; without the variable no key is sent.
        limits: of each answer.

    Raises:
        ValueError: for an address that cannot be, that holds a password, or to which the key would
            travel in the clear.
    """

    def __init__(self, url: str, key_variable: str, limits: Limits) -> None:
        self._address = Address.parse(url.rstrip("/"))
        parts = urlsplit(url)
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError(
                f"the address must hold no name, password or query; keys go into {key_variable}"
            )
        self._limits, self._key_variable = limits, key_variable
        clear = not self._address.secure and not _is_loopback(self._address.host)
        if key_variable in os.environ and clear:
            raise ValueError(
                f"{key_variable} is set and would travel in the clear: use https, or unset it"
            )

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer to a POST of ``body``, or to a GET without one, tried again within limits.

        Raises:
            RequestRefused: if the server will not take it.
            ServerError: if there is no good answer for another reason.
        """
        for attempt in range(self._limits.retries + 1):
            try:
                return self._once(path, body)
            except _Busy as busy:
                if attempt == self._limits.retries:
                    raise ServerError(f"{busy} (asked {attempt + 1} times)") from busy
                time.sleep(min(max(busy.pause, 0.5 * 2**attempt), LONGEST_PAUSE))
        raise AssertionError("unreachable")

    def _once(self, path: str, body: dict[str, Any] | None) -> Any:
        key = os.environ.get(self._key_variable)
        headers = JSON_HEADERS | ({"Authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._address.exchange(
                data,
                path=path,
                headers=headers,
                seconds=self._limits.seconds,
                limit=self._limits.bytes,
            )
        except TooLarge as error:
            raise ServerError(f"{self._where(path)}: an answer of {error}") from error
        except TooSlow as error:
            raise _Busy(f"{self._where(path)}: an answer that takes {error}") from error
        except (OSError, HTTPException) as error:
            raise _Busy(f"{self._where(path)}: {type(error).__name__}") from error
        said = f"{self._where(path)} answered {answer.status}: {_quoted(answer.content, key)}"
        if answer.status in TRY_AGAIN:
            raise _Busy(said, _seconds(answer.headers.get("Retry-After")))
        if answer.status in FOR_GOOD:
            raise RequestRefused(said)
        if answer.status != HTTPStatus.OK:
            raise ServerError(said)
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError) as error:
            raise ServerError(f"{self._where(path)} answered with no JSON") from error

    def _where(self, path: str) -> str:
        at = self._address
        return f"{at.host}:{at.port or ''}{at.path}{path}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _quoted(content: bytes, key: str | None) -> str:
    """A piece of a server's own words: without the key, and with control characters escaped."""
    text = content.decode(errors="replace")
    return ascii((text.replace(key, "...") if key else text)[:QUOTED])


def _seconds(retry_after: str | None) -> float:
    return (
        float(retry_after)
        if retry_after and retry_after.isascii() and retry_after.isdigit()
        else 0.0
    )
