"""The client of search engines, on the loopback address."""

import json
import socket
import threading
import time
from contextlib import contextmanager
from copy import deepcopy

import pytest

pytest.importorskip("snowballstemmer", reason="needs the extra search_qa")

from ascribe_lab.envs.search_qa import SearchQA, data
from ascribe_lab.envs.search_qa.data import RemoteLibrary
from ascribe_lab.models.http_client import ServerError


def whole_request(connection):
    """Reads a request to its end; closing with unread bytes would reset the connection."""
    with connection.makefile("rb") as stream:
        head = iter(stream.readline, b"\r\n")
        lengths = [line for line in head if line.lower().startswith(b"content-length:")]
        stream.read(int(lengths[0].split(b":")[1]))


@contextmanager
def answering(*answers):
    """A server that gives each connection the next of these raw answers; None hangs up.

    An answer is bytes, or a list of bytes that are sent with pauses.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    asked = []

    def run():
        for answer in answers:
            connection, _ = listener.accept()
            asked.append(answer)
            with connection:
                if answer is None:
                    # Closing with unread bytes resets the connection.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    continue
                whole_request(connection)
                try:
                    for part in answer if isinstance(answer, list) else [answer]:
                        connection.sendall(part)
                        if isinstance(answer, list):
                            time.sleep(0.1)
                except OSError:
                    pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve", asked
    finally:
        thread.join(5)
        listener.close()


def http_answer(body, status="200 OK"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


GOOD = http_answer({"result": [[{"document": {"id": "1", "contents": "t\nx"}, "score": 1.0}]]})


def test_a_refused_connection_is_tried_again_and_then_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ask = RemoteLibrary(f"http://127.0.0.1:{port}/retrieve", pause=0.01)
    with pytest.raises(ServerError, match=rf"{port}/retrieve: .*\(3 attempts\)"):
        ask("river", 1)


def test_a_connection_that_breaks_is_tried_again():
    with answering(None, None, GOOD) as (url, asked):
        assert RemoteLibrary(url, pause=0.01)("river", 1) == ["t\nx"]
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http_answer(b"", "404 Not Found"), "answered 404"),
        (http_answer(b"", "302 Found\r\nLocation: http://127.0.0.1:1/"), "answered 302"),
        (http_answer(b"<html>"), "not JSON"),
        (http_answer(b"\xff\xfe"), "not JSON"),
        (http_answer(b"[" * 100_000), "not JSON"),
        (http_answer([]), "another form"),
        (http_answer({"result": []}), "another form"),
        (http_answer({"result": [[{"document": {}}]]}), "another form"),
        (http_answer({"result": [[{"document": {"contents": 7}}]]}), "another form"),
        (http_answer({"result": {"0": []}}), "another form"),
    ],
)
def test_wrong_answers_are_refused_and_not_asked_for_again(answer, message):
    with answering(answer) as (url, asked):
        with pytest.raises(ServerError, match=message):
            RemoteLibrary(url, pause=0.01, timeout=5)("river", 1)
        assert len(asked) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http_answer({}, "500 Oh no"), "answered 500"),
        (b"not http\r\n\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "IncompleteRead"),
    ],
)
def test_a_server_in_trouble_is_asked_again(answer, message):
    with answering(answer, answer, answer) as (url, asked):
        with pytest.raises(ServerError, match=message):
            RemoteLibrary(url, pause=0.01, timeout=5)("river", 1)
        assert len(asked) == 3


def test_an_answer_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(data, "LARGEST_RESPONSE", 1_000)
    with (
        answering(http_answer(b"x" * 100_000)) as (url, _),
        pytest.raises(ServerError, match="more than 1,000 bytes"),
    ):
        RemoteLibrary(url)("river", 1)


def test_silence_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ask = RemoteLibrary(f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve", timeout=0.2)
        start = time.monotonic()
        with pytest.raises(ServerError, match=r"no response within 0.2 s"):
            ask("river", 1)
        assert time.monotonic() - start < 3


def test_an_answer_that_drips_is_not_waited_for():
    drops = [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b"x"] * 20]
    with (
        answering(drops) as (url, _),
        pytest.raises(ServerError, match=r"no response within 1 s"),
    ):
        RemoteLibrary(url, timeout=1.0)("river", 1)


def test_no_more_passages_than_were_asked_for():
    hits = [{"document": {"id": str(n), "contents": f"{n}\nx"}, "score": 1.0} for n in range(9)]
    with answering(http_answer({"result": [hits]})) as (url, _):
        assert RemoteLibrary(url)("river", 2) == ["0\nx", "1\nx"]


def test_a_failed_search_leaves_the_episode_as_it_was():
    with answering(http_answer({}, "404 Not Found"), GOOD) as (url, _):
        env = SearchQA(retriever=url)
        env.reset(seed=0)
        before = deepcopy(env.episode)
        with pytest.raises(ServerError):
            env.step("search[river]")
        assert env.episode == before
        assert env.step("search[river]")[0] == "<information>Doc 1(Title: t) x</information>"


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "file:///etc/passwd", "http://", "ftp://x/"])
def test_addresses_of_other_kinds_are_refused(url):
    with pytest.raises(ValueError, match="looks like http://host:port"):
        RemoteLibrary(url)
