"""The time limit covers the whole exchange with a server, and short responses are retried.

``benchmarks/attack/servers.py`` lists and measures the behaviours.
"""

import re
import threading
import time
from pathlib import Path

import pytest

import ascribe
import ascribe_lab
from ascribe_lab.models.http_client import HttpClient, HttpLimits, ServerError
from benchmarks.attack.servers import OK, SHORT, is_requested_again, measure, says, serving

LIMIT = 1.0


def test_no_behaviour_takes_a_second_more_than_the_limit() -> None:
    seconds = measure(LIMIT)
    assert len(seconds) >= 58
    assert {name: one for name, one in seconds.items() if one > LIMIT + 1} == {}


@pytest.mark.parametrize("name", SHORT)
def test_a_response_that_ends_early_is_requested_again(name: str) -> None:
    assert is_requested_again(SHORT[name])


def test_a_whole_response_that_is_no_json_is_not_requested_again() -> None:
    with serving(says(OK + b"Content-Length: 6\r\n\r\n<html>")) as (port, connections):
        with pytest.raises(ServerError, match="not JSON"):
            HttpClient(f"http://127.0.0.1:{port}", HttpLimits(5.0, pause=0.0)).get("/")
        assert len(connections) == 1


@pytest.mark.parametrize("content", [b"1e999", b'{"a": 1, "a": 2}', b"[" * 102 + b"]" * 102])
def test_responses_are_strict_json(content: bytes) -> None:
    head = OK + f"Content-Length: {len(content)}\r\n\r\n".encode()
    with serving(says(head + content)) as (port, _), pytest.raises(ServerError, match="not JSON"):
        HttpClient(f"http://127.0.0.1:{port}").get("/")


def test_a_response_is_refused_only_if_it_may_take_too_long_to_parse() -> None:
    with serving(says(OK + b"\r\n[" + b"[]," * 1_000_000 + b"[]]")) as (port, _):
        address = f"http://127.0.0.1:{port}"
        assert len(HttpClient(address).get("/")) == 1_000_001
        with pytest.raises(ServerError, match="no response within 3 s"):
            HttpClient(address, HttpLimits(3.0, retries=0)).get("/")


def test_a_repeated_key_among_many_is_found_at_once() -> None:
    keys = ", ".join(f'"{number}": 0' for number in range(50_000))
    content = f'{{{keys}, "49999": 1}}'.encode()
    head = OK + f"Content-Length: {len(content)}\r\n\r\n".encode()
    began = time.monotonic()
    with serving(says(head + content)) as (port, _), pytest.raises(ServerError, match="not JSON"):
        HttpClient(f"http://127.0.0.1:{port}").get("/")
    assert time.monotonic() - began < 2


def test_a_host_name_that_cannot_be_encoded_is_an_error_of_the_server() -> None:
    with pytest.raises(ServerError, match=r"UnicodeError|gaierror"):
        HttpClient(f"http://{'a' * 70}.example", HttpLimits(1.0, retries=0)).get("/")


def test_there_is_one_http_client() -> None:
    """No other module opens connections; the pool's sockets are between its own processes."""
    networking = re.compile(
        r"^ *(?:from|import) (?:http\.client|urllib\.request|requests|httpx|aiohttp|websockets)\b",
        re.MULTILINE,
    )
    users = {
        path.relative_to(root.parent).as_posix()
        for root in (Path(package.__file__ or "").parent for package in (ascribe, ascribe_lab))
        for path in root.rglob("*.py")
        if networking.search(path.read_text(encoding="utf-8"))
    }
    assert users == {"ascribe_lab/models/http_client.py"}


def test_no_thread_is_left_waiting_for_a_server() -> None:
    with serving(says(OK + b"Content-Length: 2\r\n\r\n{}")) as (port, _):
        client = HttpClient(f"http://127.0.0.1:{port}")
        client.get("/")
        before = threading.active_count()
        for _ in range(5):
            client.get("/")
        assert threading.active_count() <= before + 1
