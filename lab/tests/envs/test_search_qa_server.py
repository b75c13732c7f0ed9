"""The server and the client, on the loopback address."""

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from copy import deepcopy

import pytest

pytest.importorskip("snowballstemmer", reason="needs the extra search_qa")

from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.search_qa import SearchQA, data
from ascribe_lab.envs.search_qa.data import Library, RemoteLibrary
from ascribe_lab.envs.search_qa.demo import demo
from ascribe_lab.envs.search_qa.server import LARGEST_REQUEST, RetrieverServer
from ascribe_lab.models.http_client import ServerError

LIBRARY = Library(
    [
        {"id": "1", "contents": '"Rhine"\nThe Rhine is a river.'},
        {"id": "2", "contents": '"Bern"\nBern is a capital.'},
    ]
)


@pytest.fixture(scope="module")
def server():
    with RetrieverServer(LIBRARY, port=0) as running:
        yield running


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


def post(server, body, path="/retrieve", headers=None):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    try:
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection.request("POST", path, body, sent)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_an_environment_over_http_is_the_environment_in_the_process():
    with RetrieverServer(Library(demo().documents), port=0) as running:
        near, far = SearchQA(expert=True), SearchQA(retriever=running.url, expert=True)
        for task in range(0, near.tasks, 20):
            start = near.reset(seed=0, options={"task": task})
            assert start == far.reset(seed=0, options={"task": task})
            action = start[1]["expert_action"]
            while action is not None:
                answer = near.step(action)
                assert answer == far.step(action)
                action = answer[-1]["expert_action"]
            assert answer[-1]["won"]
        report = check_environment(lambda: SearchQA(retriever=running.url), seeds=2)
        assert report.findings == ()


def test_the_schema_with_scores(server):
    request = {"queries": ["river", "capital", "x"], "topk": 1, "return_scores": True}
    status, answer = post(server, json.dumps(request))
    assert status == 200
    first, second, nothing = answer["result"]
    assert first == [{"document": LIBRARY.documents[0], "score": pytest.approx(0.34, abs=0.1)}]
    assert second[0]["document"]["id"] == "2"
    assert nothing == []


def test_the_schema_without_scores(server):
    status, answer = post(server, json.dumps({"queries": ["river"], "topk": None}))
    assert (status, answer) == (200, {"result": [[LIBRARY.documents[0]]]})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "list of texts"),
        (b'{"queries": "river"}', "list of texts"),
        (b'{"queries": [1]}', "list of texts"),
        (b'{"queries": ["river"], "topk": 0}', "topk"),
        (b'{"queries": ["river"], "topk": true}', "topk"),
        (b'{"queries": ["river"], "topk": 1e9}', "topk"),
        (json.dumps({"queries": ["x"] * 513}).encode(), "more than 512"),
    ],
)
def test_bad_requests_are_refused(server, body, message):
    status, answer = post(server, body)
    assert status == 400
    assert message in answer["error"]


def test_the_server_listens_on_the_loopback_address_and_one_path(server):
    assert server.server_address[0] == "127.0.0.1"
    assert post(server, b"{}", path="/")[0] == 404


@pytest.mark.parametrize("length", ["-1", "x", "9" * 30, "²", str(LARGEST_REQUEST + 1)])
def test_lengths_are_not_believed(server, length):
    headers = {"Content-Length": length.encode().decode("latin-1")}
    status = 413 if length == str(LARGEST_REQUEST + 1) else 411
    assert post(server, b"", headers=headers)[0] == status


def test_only_json_is_accepted(server):
    body = json.dumps({"queries": ["river"]})
    assert post(server, body, headers={"Content-Type": "text/plain"})[0] == 415


def test_strange_queries_are_answered(server):
    ask = RemoteLibrary(server.url)
    for query in ("\ud800", "\x00\x1b[2J", "[" * 10_000, "river " * 1_000, "<script>", "靴"):
        assert len(ask(query, 3)) <= 1


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


def test_the_command_serves_a_corpus(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({"id": 7, "contents": "Elbe\nA river."}), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "ascribe_lab.envs.search_qa.server"]
    with subprocess.Popen(
        [*command, "--corpus", str(corpus), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            url = re.fullmatch(r"1 documents at (http://127\.0\.0\.1:\d+/retrieve)\n", line)[1]
            assert RemoteLibrary(url)("river", 3) == ["Elbe\nA river."]
        finally:
            process.terminate()
