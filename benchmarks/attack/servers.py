"""Servers that are slow, broken or hostile, against the time limit of the one HTTP client.

    python benchmarks/attack/servers.py [--quick] [--limit 2]

Every behaviour of ``BEHAVIOURS`` gets a server of its own on the loopback address and one request
with a time limit. The figures are the seconds that the request took beyond the limit, for each
behaviour, and how many took more than a second beyond it, which should be none. ``SHORT`` are
responses that end early: each is requested again.
"""

import gzip
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Figures

from ascribe_lab.models.http_client import HttpClient, HttpLimits, ServerError, tls_context

Behaviour = Callable[[socket.socket], None]

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = OK + b'Content-Length: 6\r\n\r\n"good"'
LONGEST = 60.0
"""Seconds that a server keeps a connection, if the client does not close it."""
LARGE = 15_000_000
"""Bytes of a body that is just within the client's limit of size."""


def pause(seconds: float) -> None:
    """Wait, also where a test has replaced ``time.sleep``."""
    threading.Event().wait(seconds)


def read_request(connection: socket.socket) -> None:
    """Read a request to the end of its body, if it has one."""
    data = b""
    while b"\r\n\r\n" not in data and (part := connection.recv(65536)):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    missing = int(lengths[0].split(b":")[1]) - len(body) if lengths else 0
    while missing > 0 and (part := connection.recv(65536)):
        missing -= len(part)


def sends(start: bytes = b"", again: bytes = b"", every: float = 0.02) -> Behaviour:
    """Some bytes at once, then the same bytes again and again; without the latter, silence."""

    def behave(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(start)
        end = time.monotonic() + LONGEST
        while again and time.monotonic() < end:
            connection.sendall(again)
            pause(every)
        wait_for_end(connection)

    return behave


def says(response: bytes, *, reset: bool = False) -> Behaviour:
    """These bytes, then the end of the connection."""

    def behave(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(response)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    return behave


def fills(start: bytes, part: bytes, end: bytes) -> Behaviour:
    """A body as large as the client takes: a beginning, a part again and again, and an end."""

    def behave(connection: socket.socket) -> None:
        says(OK + b"\r\n" + start + part * (LARGE // len(part)) + end)(connection)

    return behave


def repeats_no_key(connection: socket.socket) -> None:
    """An object with as many keys as the client takes, all different."""
    keys = b",".join(b'"%x":0' % number for number in range(LARGE // 10))
    says(OK + b"\r\n{" + keys + b"}")(connection)


def drips(response: bytes) -> Behaviour:
    """A whole response, byte by byte."""

    def behave(connection: socket.socket) -> None:
        read_request(connection)
        for place in range(len(response)):
            connection.sendall(response[place : place + 1])
            pause(0.05)
        wait_for_end(connection)

    return behave


def wait_for_end(connection: socket.socket) -> None:
    """Say nothing until the client closes the connection."""
    connection.settimeout(LONGEST)
    while connection.recv(65536):
        pass


def reads_nothing(connection: socket.socket) -> None:  # noqa: ARG001
    """Leaves the request in the buffers, which do not hold all of it."""
    pause(LONGEST / 10)


def reads_byte_by_byte(connection: socket.socket) -> None:
    """Takes the request one byte at a time."""
    while connection.recv(1):
        pause(0.02)


def half_closes(connection: socket.socket) -> None:
    """Ends its own direction at once, and keeps the other one open."""
    connection.shutdown(socket.SHUT_WR)
    wait_for_end(connection)


def shakes_hands_slowly(start: bytes) -> Behaviour:
    """TLS records, byte by byte, that never make up a handshake."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(start)
        while start:
            connection.sendall(b"\0")
            pause(0.05)
        wait_for_end(connection)

    return behave


BODY = b"x" * 100_000
BEHAVIOURS: dict[str, Behaviour] = {
    # Before the response.
    "accepts and says nothing": sends(),
    "reads nothing of a large request": reads_nothing,
    "reads the request byte by byte": reads_byte_by_byte,
    "half-closes at once": half_closes,
    "hangs up at once": lambda _: None,
    # The status line.
    "drips a status line without end": sends(b"HTTP/1.1 200 ", b"O"),
    "drips a whole response": drips(OK + b"X-A: b\r\n" * 40 + b"Content-Length: 2\r\n\r\n{}"),
    "floods the status line": sends(b"HTTP/1.1 200 ", b"O" * 60_000),
    "sends no HTTP": sends(b"220 mail.example ESMTP\r\n", b"250-OK\r\n"),
    "sends an HTTP/0.9 body": sends(b"{}\r\n", b" "),
    # Interim responses.
    "repeats 100 Continue": sends(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "floods with 100 Continue": sends(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500),
    "drips headers of a 100 Continue": sends(b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n"),
    "repeats 103 Early Hints": sends(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "switches protocols": sends(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"\0"),
    # Headers.
    "drips a header's name": sends(OK, b"x"),
    "drips a header's value": sends(OK + b"X-Header: ", b"x"),
    "repeats whole headers": sends(OK, b"X-Header: y\r\n", 0.05),
    "drips continuation lines": sends(OK + b"X-Header: y\r\n", b" z\r\n", 0.05),
    "gives a wrong length, then drips": sends(OK + b"Content-Length: -7\r\n\r\n", b"x"),
    # Bodies.
    "drips a body with a length": sends(OK + b"Content-Length: 100000\r\n\r\n", b"x"),
    "drips a body without a length": sends(OK + b"\r\n", b" "),
    "stops in the middle of a body": sends(OK + b"Content-Length: 100000\r\n\r\n" + BODY[:5_000]),
    "announces a petabyte": sends(OK + b"Content-Length: 1125899906842624\r\n\r\n"),
    "sends more than the limit of size": sends(OK + b"\r\n", BODY, 0.0),
    "drips white space before JSON": sends(OK + b"Content-Length: 100000\r\n\r\n", b"\n"),
    "sends 100,000 empty lists": says(OK + b"\r\n[" + b"[]," * 100_000 + b"[]]"),
    "compresses its body": says(OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(BODY)),
    # Bodies that parse slowly.
    "sends millions of empty lists": fills(b"[", b"[],", b"[]]"),
    "sends millions of empty objects": fills(b"[", b"{},", b"{}]"),
    "sends millions of nested lists": fills(b"[", b"[[[[[[[]]]]]]],", b"[]]"),
    "sends lists nested to the limit": fills(b"[", b"[" * 98 + b"]" * 98 + b",", b"[]]"),
    "sends millions of nested objects": fills(b"[", b'{"":{"":{"":{"":[]}}}},', b"0]"),
    "nests lists without end": fills(b"", b"[", b""),
    "nests objects without end": fills(b"", b'{"a":', b""),
    "sends millions of keys": repeats_no_key,
    "repeats a key": fills(b"{", b'"a":0,', b'"a":0}'),
    "sends millions of numbers": fills(b"[", b"1,", b"1]"),
    "sends a number of millions of digits": fills(b"1.", b"1", b""),
    "sends numbers of thousands of digits": fills(b"[", b"1" * 4_300 + b",", b"1]"),
    "sends millions of escapes": fills(b'"', b"\\ud800\\udc00", b'"'),
    "sends lists in UTF-16": fills(b"\xff\xfe[\0", "[],".encode("utf-16-le"), b"1\0]\0"),
    # Chunks.
    "drips a chunk's size": sends(CHUNKED, b"0"),
    "drips a chunk's extension": sends(CHUNKED + b"5;x=", b"y"),
    "drips a chunk": sends(CHUNKED + b"ffff\r\n", b"x"),
    "repeats chunks of one byte": sends(CHUNKED, b"1\r\nx\r\n"),
    "floods with chunks of one byte": sends(CHUNKED, b"1\r\nx\r\n" * 1_000),
    "never sends the last chunk": sends(CHUNKED + b"2\r\n{}\r\n"),
    "drips a trailer": sends(CHUNKED + b"2\r\n{}\r\n0\r\n", b"x"),
    "repeats whole trailers": sends(CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n"),
    # Other statuses.
    "redirects to itself": says(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
    "asks to come back in a year": says(
        b"HTTP/1.1 503 Busy\r\nRetry-After: 31536000\r\nContent-Length: 0\r\n\r\n"
    ),
    "drips the body of an error": sends(b"HTTP/1.1 500 Oh\r\nContent-Length: 9999\r\n\r\n", b"x"),
}
"""What servers do, by name."""

TLS: dict[str, Behaviour] = {
    "says nothing to a TLS handshake": shakes_hands_slowly(b""),
    "drips a TLS handshake": shakes_hands_slowly(b"\x16\x03\x03\x3f\xff\x02"),
    "drips a TLS alert": shakes_hands_slowly(b"\x15\x03\x03\x00"),
}
"""What servers do to a client that wants an encrypted connection."""

SHORT: dict[str, Behaviour] = {
    "a body shorter than its length": says(OK + b"Content-Length: 9\r\n\r\n1"),
    "an empty body with a length": says(OK + b"Content-Length: 9\r\n\r\n"),
    "a body without a length": says(OK + b'\r\n{"a": 1, "b'),
    "an empty body without a length": says(OK + b"\r\n"),
    "a chunk shorter than its size": says(CHUNKED + b"4\r\n1"),
    "no last chunk": says(CHUNKED + b"2\r\n12\r\n"),
    "a cut chunk size": says(CHUNKED + b"2"),
    "cut headers": says(OK + b"Content-Le"),
    "a cut status line": says(b"HTTP/1."),
    "nothing": says(b""),
    "a reset": says(OK, reset=True),
}
"""Responses that end early."""


@contextmanager
def serving(*behaviours: Behaviour) -> Iterator[tuple[int, list[socket.socket]]]:
    """The port of a server, and its connections; the last behaviour stays."""
    connections: list[socket.socket] = []

    def answer(connection: socket.socket, behave: Behaviour) -> None:
        with connection, suppress(OSError):
            behave(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # holds little unread

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    behave = behaviours[min(len(connections), len(behaviours) - 1)]
                    connections.append(connection)
                    threading.Thread(target=answer, args=(connection, behave), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], connections
        listener.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()


def limits(limit: float, retries: int = 0) -> HttpLimits:
    """The client's limits."""
    return HttpLimits(timeout=limit, retries=retries, pause=0.01)


def seconds_of(url: str, limit: float, body: dict[str, Any]) -> float:
    """Seconds until a request is refused or answered."""
    client, began = HttpClient(url, limits(limit)), time.monotonic()
    with suppress(ServerError):
        client.post("/x", body)
    return time.monotonic() - began


def against(behaviour: Behaviour, limit: float, scheme: str = "http") -> float:
    """Seconds that one request takes against one behaviour."""
    large = behaviour in (reads_nothing, reads_byte_by_byte)
    with serving(behaviour) as (port, _):
        body = {"text": "x" * (6_000_000 if large else 10)}
        return seconds_of(f"{scheme}://127.0.0.1:{port}", limit, body)


def never_accepts(limit: float) -> float:
    """Seconds that one request takes against a server whose queue of connections is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address, waiting = listener.getsockname(), []
        for _ in range(3):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(address)
        # A host may have several addresses, and all of them are tried within the limit.
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)] * 3
        with patch.object(socket, "getaddrinfo", return_value=found):
            seconds = seconds_of("http://many.example:1", limit, {})
        for one in waiting:
            one.close()
    return seconds


def resolves_slowly(limit: float) -> float:
    """Seconds that one request takes if the name of the host is not resolved."""

    def never(*_: Any, **__: Any) -> Any:
        pause(limit + 5)
        raise OSError("no such host")

    with patch.object(socket, "getaddrinfo", never):
        return seconds_of("http://slow.example:1", limit, {})


def measure(limit: float) -> dict[str, float]:
    """Seconds of each behaviour.

    Most of the time is waiting, so they run at the same time. A behaviour that takes too long is
    measured again, alone, and the best of three counts: the machine may have been busy.
    """
    cases: dict[str, Callable[[], float]] = {}
    for scheme, behaviours in (("http", BEHAVIOURS), ("https", TLS)):
        for name, behaviour in behaviours.items():
            cases[name] = lambda one=behaviour, kind=scheme: against(one, limit, kind)
    tls_context()  # reads the system's certificates, which takes a while
    with ThreadPoolExecutor(16) as threads:
        futures = {name: threads.submit(case) for name, case in cases.items()}
        seconds = {name: future.result() for name, future in futures.items()}
    late = [name for name, one in seconds.items() if one > limit + 1]
    seconds |= {name: min(cases[name]() for _ in range(3)) for name in late}
    seconds["accepts no connection at any of three addresses"] = never_accepts(limit)
    seconds["does not resolve the name of the host"] = resolves_slowly(limit)
    return seconds


def is_requested_again(behaviour: Behaviour) -> bool:
    """Whether the client gets a good response from a server whose first one ended early."""
    with serving(behaviour, says(GOOD)) as (port, connections):
        client = HttpClient(f"http://127.0.0.1:{port}", limits(5.0, retries=1))
        with suppress(ServerError):
            return client.post("/x", {}) == "good" and len(connections) == 2
    return False


def main() -> None:
    """Measure all behaviours."""
    arguments = {"limit": {"type": float, "default": 2.0, "help": "the client's limit in seconds"}}
    with Figures("attack/servers", **arguments) as figures:
        limit = 0.5 if figures.quick else figures.options.limit
        beyond = {name: one - limit for name, one in measure(limit).items()}
        for name, seconds in beyond.items():
            figures.emit(name, "beyond_limit", max(0.0, seconds), "s", "lower", 1.0)
        late = sum(seconds > 1 for seconds in beyond.values())
        figures.emit("all", "behaviours", len(beyond), "behaviours", "higher")
        figures.emit("all", "late", late, "behaviours", "lower", 0.0)
        again = sum(map(is_requested_again, SHORT.values()))
        figures.emit(
            "short responses", "requested_again", again, "responses", "higher", float(len(SHORT))
        )


if __name__ == "__main__":
    main()
