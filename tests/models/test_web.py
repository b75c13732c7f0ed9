"""One exchange over HTTP, with servers that misbehave."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep

import pytest

from ascribe.models.web import Address, TooLarge, TooSlow


class Peer(BaseHTTPRequestHandler):
    """Answers by the path: says what it was sent, sends much, drips, or points elsewhere."""

    def do_GET(self) -> None:
        self.answer(b"got")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body: bytes) -> None:
        self.send_response(302 if self.path.endswith("/elsewhere") else 200)
        self.send_header("Location", "http://127.0.0.1:9/")
        self.end_headers()
        if self.path.endswith("/drip"):
            for _ in range(50):
                self.wfile.write(b".")
                sleep(0.05)
        self.wfile.write(b"x" * 5_000 if self.path.endswith("/much") else body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[Address]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Peer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Address.parse(f"http://127.0.0.1:{server.server_port}/v1")
    server.shutdown()
    server.server_close()


def test_a_post_and_a_get(address: Address) -> None:
    assert address.exchange(b'{"a": 1}', seconds=10, limit=100).content == b'{"a": 1}'
    assert address.exchange(None, path="/models", seconds=10, limit=100).content == b"got"


def test_an_answer_may_not_be_too_large(address: Address) -> None:
    with pytest.raises(TooLarge, match="more than 1,000 bytes"):
        address.exchange(b"", path="/much", seconds=10, limit=1_000)


def test_an_answer_that_drips_is_not_waited_for(address: Address) -> None:
    began = monotonic()
    with pytest.raises(TooSlow, match=r"more than 0\.3 s"):
        address.exchange(b"", path="/drip", seconds=0.3, limit=1_000)
    assert monotonic() - began < 2


def test_redirects_are_not_followed(address: Address) -> None:
    assert address.exchange(b"", path="/elsewhere", seconds=10, limit=100).status == 302


def test_the_parts_of_an_address() -> None:
    assert Address.parse("https://host/a?b=c") == Address(True, "host", None, "/a?b=c")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "file:///etc/passwd", "http://", "ftp://x"])
def test_addresses_of_other_kinds_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="looks like http://host:port"):
        Address.parse(url)
