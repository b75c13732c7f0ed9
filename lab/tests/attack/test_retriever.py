"""The retriever checks Host and content type, and survives clients that drip.

Issue 16, point 12.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

pytest.importorskip("snowballstemmer", reason="needs the extra search_qa")

from ascribe_lab.envs import json_server
from ascribe_lab.envs.search_qa.data import Library, RemoteLibrary
from ascribe_lab.envs.search_qa.server import RetrieverServer

BODY = json.dumps({"queries": ["river"]})


@pytest.fixture(scope="module")
def server() -> Iterator[RetrieverServer]:
    with RetrieverServer(Library([{"id": "1", "contents": "Elbe\nA river."}]), port=0) as running:
        yield running


def status_of(server: RetrieverServer, **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    sent = {"Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    try:
        connection.request("POST", "/retrieve", BODY, sent)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "evil.example@127.0.0.1.example",
        "[::1",
        "",
    ],
)
def test_a_name_that_is_not_the_servers_is_refused(server: RetrieverServer, host: str) -> None:
    """A page of evil.example could otherwise query the server after a change of the DNS entry."""
    assert status_of(server, Host=host) == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LocalHost:1", "[::1]:8000"])
def test_addresses_and_localhost_are_accepted(server: RetrieverServer, host: str) -> None:
    assert status_of(server, Host=host) == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
def test_forms_of_web_pages_are_refused(server: RetrieverServer, kind: str) -> None:
    assert status_of(server, Content_Type=kind) == 415


def test_clients_that_drip_are_dropped_and_others_are_served(
    server: RetrieverServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_server._Handler, "timeout", 0.6)
    address = server.server_address[:2]
    starts = [
        b"",
        b"POST /retr",
        b"POST /retrieve HTTP/1.1\r\nX: ",
        b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n",
    ]
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(40)]
        for number, client in enumerate(clients):
            client.sendall(starts[number % len(starts)])
            client.settimeout(5)
        began, answered, open_clients = time.monotonic(), 0, set(clients)
        while open_clients and time.monotonic() - began < 5:
            assert RemoteLibrary(server.url, timeout=3.0)("river", 1) == ["Elbe\nA river."]
            answered += 1
            for client in tuple(open_clients):
                try:
                    client.sendall(b"x")
                    client.setblocking(False)
                    if client.recv(1) == b"":
                        open_clients.discard(client)
                except BlockingIOError:
                    pass
                except OSError:
                    open_clients.discard(client)
            time.sleep(0.05)
        assert not open_clients
        assert time.monotonic() - began < 2.5
    assert answered > 3


def test_a_client_that_hangs_up_causes_no_traceback(
    server: RetrieverServer, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(5):
        with socket.create_connection(server.server_address[:2]) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(server) == 200
    time.sleep(0.1)
    assert capfd.readouterr().err == ""
