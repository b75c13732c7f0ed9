"""The one HTTP client: JSON to and from servers that may be slow, broken or hostile.

A time limit covers a whole exchange, from the name of the host to the parsed response, whatever
the server sends, and a response has a limit of size. Redirects are not followed, for they could
carry the key to another server, and proxies are not used. No error message holds the key.
"""

import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ascribe.steps.errors import AscribeError, InputError
from ascribe.steps.strict_json import loads

T = TypeVar("T")

JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed later."""
REFUSED = frozenset({400, 413, 422})
"""Statuses that reject this request for good; the server may accept others."""
LONGEST_PAUSE = 30.0
CHUNK = 1 << 16
PARSED_PER_SECOND = 500_000
"""Values of a response that are parsed within a second, whatever they are."""
QUOTED = 300
"""How many characters of a server's error are quoted in an error message."""


class ServerError(AscribeError, RuntimeError):
    """A server cannot be reached, or does not respond as it should."""


class RequestRefusedError(ServerError):
    """The server rejects this request, and would do so again; it may accept others."""


class _TransientError(ServerError):
    """The same request may succeed later."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


@dataclass(frozen=True)
class HttpLimits:
    """Limits of time, size and retries."""

    timeout: float = 600.0
    """Seconds for one exchange, from the name of the host to the parsed response."""
    retries: int = 4
    """How often a request that failed is sent again."""
    max_bytes: int = 16 << 20
    """Size of a response."""
    pause: float = 0.5
    """Seconds before the first retry; twice as many before each further one."""
    retry_timeouts: bool = True
    """Whether a request that timed out is sent again."""

    def __post_init__(self) -> None:
        if self.timeout <= 0 or self.retries < 0 or self.max_bytes < 1 or self.pause < 0:
            raise InputError(f"no request could succeed within these limits: {self}")


class HttpClient:
    """Sends requests to one server.

    Args:
        url: begins with ``http://`` or ``https://``; its path comes before that of each request.
        limits: of time, size and retries.
        key_variable: environment variable with the server's key. If it is set, its value is sent
            as a bearer token.

    Raises:
        ValueError: for an unusable address, one that holds a password, one to which the key
            would be sent unencrypted, or a key that no header may hold.
    """

    def __init__(
        self, url: str, limits: HttpLimits | None = None, key_variable: str | None = None
    ) -> None:
        self._address = urlsplit(url)
        self._limits, self._key_variable = limits or HttpLimits(), key_variable
        if self._address.scheme not in {"http", "https"} or not self._address.hostname:
            raise InputError(f"a server's address looks like http://host:port, not {url!r}")
        try:
            _ = self._address.port
        except ValueError as error:
            raise InputError(f"the address {url!r} has no valid port: {error}") from None
        if self._address.username is not None or self._address.fragment:
            raise InputError("a server's address must hold no user name, password or fragment")
        if key_variable is not None:
            if self._address.query:
                raise InputError(
                    f"a server's address must hold no query: keys go in {key_variable}"
                )
            encrypted = self._address.scheme == "https" or _is_loopback(self._address.hostname)
            if key_variable in os.environ and not encrypted:
                raise InputError(
                    f"{key_variable} is set and would be sent unencrypted: use https, or unset it"
                )
            key = os.environ.get(key_variable, "")
            if not (key.isascii() and key.isprintable()):  # http.client would quote the key
                raise InputError(
                    f"{key_variable} holds a line break or another character that no header may "
                    "hold: set it to the key alone"
                )

    def get(self, path: str = "") -> Any:
        """The JSON document at a path; raises what ``post`` raises."""
        return self._request("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a JSON document and return the one that comes back.

        Raises:
            RequestRefusedError: if the server rejects this very request.
            ServerError: if there is no usable response after all retries.
        """
        return self._request("POST", path, json.dumps(body).encode())

    def _request(self, method: str, path: str, body: bytes | None) -> Any:
        for attempt in range(self._limits.retries + 1):
            try:
                return self._attempt(method, path, body)
            except _TransientError as error:
                if attempt == self._limits.retries:
                    raise ServerError(f"{error} ({attempt + 1} attempts)") from error
                time.sleep(min(max(error.pause, self._limits.pause * 2**attempt), LONGEST_PAUSE))
        raise AssertionError("unreachable")

    def _attempt(self, method: str, path: str, body: bytes | None) -> Any:
        url = f"{self._address.netloc}{self._address.path.rstrip('/')}{path}"
        key = os.environ.get(self._key_variable) if self._key_variable else None
        headers = JSON_HEADERS | ({"Authorization": f"Bearer {key}"} if key else {})
        try:
            status, retry_after, content, has_length = self._exchange(method, path, body, headers)
        except TimeoutError as error:
            kind = _TransientError if self._limits.retry_timeouts else ServerError
            raise kind(f"{url}: no response within {self._limits.timeout:g} s") from error
        except (OSError, HTTPException, UnicodeError) as error:
            raise _TransientError(f"{url}: {type(error).__name__}: {str(error)[:100]}") from error
        if len(content) > self._limits.max_bytes:
            raise ServerError(f"{url}: a response of more than {self._limits.max_bytes:,} bytes")
        failure = f"{url} answered {status}: {_quoted(content, key)}"
        if status in RETRIED:
            pause = retry_after if retry_after.isascii() and retry_after.isdigit() else "0"
            raise _TransientError(failure, float(pause))
        if status in REFUSED:
            raise RequestRefusedError(failure)
        if status != HTTPStatus.OK:
            raise ServerError(failure)
        try:
            return loads(content)
        except ValueError as error:
            # Without a length, a response that was cut short looks like this.
            kind = ServerError if has_length else _TransientError
            raise kind(f"{url} answered with something that is not JSON") from error

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str, bytes, bool]:
        """Status, Retry-After, content and whether its length was given; too long ones are cut."""
        query = f"?{self._address.query}" if self._address.query else ""
        target = f"{self._address.path.rstrip('/')}{path}" or "/"
        host, port, timeout = self._address.hostname or "", self._address.port, self._limits.timeout
        if self._address.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(
                host, port, timeout=timeout, context=tls_context()
            )
        else:
            connection = HTTPConnection(host, port, timeout=timeout)
        deadline = time.monotonic() + timeout
        sockets: list[socket.socket] = []

        def exchange() -> tuple[int, str, bytes, bool]:
            connection.connect()
            sockets.append(connection.sock)
            connection.request(method, target + query, body, headers)
            with connection.getresponse() as response:
                content, has_length = bytearray(), response.chunked or response.length is not None
                while chunk := response.read1(CHUNK):
                    content += chunk
                    if len(content) > self._limits.max_bytes:
                        break
                else:
                    if response.length:
                        raise IncompleteRead(b"", response.length)
                # Parsing cannot be interrupted: a response that may take too long is not parsed.
                remaining = deadline - time.monotonic()
                if sum(map(content.count, b",[{")) > PARSED_PER_SECOND * remaining:
                    raise TimeoutError
                retry_after = response.headers.get("Retry-After", "")
                return response.status, retry_after, bytes(content), has_length

        # In a thread, since the timeout of a socket restarts with every byte that a server sends.
        try:
            return call_within(timeout, exchange)
        finally:
            for one in sockets:  # wakes a thread that still reads
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            connection.close()


tls_context = cache(ssl.create_default_context)
"""Reads the system's certificates once."""


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """The result of a call; TimeoutError if it takes longer, while a thread still waits for it."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except Exception as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(seconds)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _quoted(content: bytes, key: str | None) -> str:
    """The beginning of a server's error, without the key and with control characters escaped."""
    text = content.decode(errors="replace")
    return ascii((text.replace(key, "...") if key else text)[:QUOTED])
