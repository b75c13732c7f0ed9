"""The AgentGym form both ways: a real server on this machine, and servers that mean harm."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ascribe.envs import EpisodeOverError, Info, Outcome
from ascribe.envs.adapters.agentgym import AgentGymEnvironment, AgentGymServer
from ascribe.envs.contract import check_environment
from ascribe.envs.faults import Fault
from ascribe.models.http_client import ServerError
from tests.envs.toys import Corridor, Walk


@pytest.fixture
def server() -> Iterator[AgentGymServer]:
    with AgentGymServer(Corridor, sessions=8) as serving:
        yield serving


def client(server: AgentGymServer, **options: Any) -> AgentGymEnvironment:
    return AgentGymEnvironment(server.address, **{"tasks": 8, "horizon": 12, **options})


class Walled(Corridor):
    """The corridor through a wall of HTTP says so much and no more."""

    def reset(self, **arguments: Any) -> tuple[str, Info]:
        observation, info = super().reset(**arguments)
        return f"{observation}\n\nYour task: {info['task']}", info


def test_an_environment_served_and_played_keeps_the_contract(server: AgentGymServer) -> None:
    factory = partial(AgentGymEnvironment, server.address, tasks=8, horizon=12)
    report = check_environment(factory, another_process=True)
    assert {finding.fault for finding in report.findings} == {Fault.BY_REPLAY}
    assert report.kept
    assert server._sessions == {}, "every session was closed"


def test_it_is_the_environment_that_is_served(server: AgentGymServer) -> None:
    there, here = client(server), Walled()
    for task in range(8):
        observation, info = there.reset(options={"task": task})
        expected, known = here.reset(seed=0, options={"task": task})
        assert observation == expected
        assert info["admissible_actions"] == known["admissible_actions"]
        assert info["task"] == observation, "in this form the first observation carries the task"
        over = False
        while not over:
            observation, reward, terminated, truncated, info = there.step("right")
            other = here.step("right")
            assert (observation, reward) == other[:2]
            over = terminated or truncated
            assert over == (other[2] or other[3])
            assert info["won"] == other[4]["won"]


def test_an_action_that_is_not_listed_is_invalid(server: AgentGymServer) -> None:
    env = client(server)
    env.reset(seed=1)
    assert env.step("fly")[4]["valid"] is False
    assert env.step("left")[4]["valid"] is True


def test_sessions_do_not_see_each_other(server: AgentGymServer) -> None:
    one, other = client(server), client(server)
    start = one.reset(options={"task": 0})
    other.reset(options={"task": 0})
    other.step("left")
    assert one.reset(options={"task": 0}) == start
    one.close()
    other.step("left")


def test_there_are_only_so_many_sessions() -> None:
    with AgentGymServer(Corridor, sessions=2) as serving:
        first, second, third = (client(serving) for _ in range(3))
        first.reset(seed=0)
        second.reset(seed=0)
        with pytest.raises(ServerError, match="2 sessions already"):
            third.reset(seed=0)
        first.close()
        third.reset(seed=0)


def test_an_environment_without_numbers_takes_them_as_seeds() -> None:
    class Endless(Walled):
        tasks = None

    with AgentGymServer(Endless) as serving:
        env = client(serving, tasks=100)
        for number in (0, 7, 99):
            expected = Endless().reset(seed=number)[0]
            assert env.reset(options={"task": number})[0] == expected


def test_a_crash_of_the_environment_is_said_to_the_client() -> None:
    class Fragile(Corridor):
        def act(self, episode: Walk, action: str) -> Outcome:
            raise ZeroDivisionError("by design")

    with AgentGymServer(Fragile) as serving:
        env = client(serving)
        env.reset(seed=0)
        with pytest.raises(ServerError, match="ZeroDivisionError: by design"):
            env.step("left")


def test_closing_is_harmless(server: AgentGymServer) -> None:
    env = client(server)
    env.close()
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(EpisodeOverError):
        env.step("left")
    env.reset(seed=0)


def test_closing_after_the_server_has_gone_is_no_error() -> None:
    with AgentGymServer(Corridor) as serving:
        env = client(serving)
        env.reset(seed=0)
    env.close()


def test_serving_until_told_to_stop() -> None:
    serving = AgentGymServer(Corridor)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    env = client(serving, task="walk")
    assert env.reset(seed=0)[1]["task"] == "walk"
    serving.shutdown()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert serving._sessions == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [({"task": 8}, "no task 8"), ({"task": -1}, "no task -1"), ({"colour": 1}, "colour")],
)
def test_options_that_do_not_exist_are_refused(
    server: AgentGymServer, options: dict[str, int], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        client(server).reset(options=options)


def test_it_listens_on_this_machine_alone(server: AgentGymServer) -> None:
    assert server.address.startswith("http://127.0.0.1:")


# Requests that mean harm.


def raw(server: AgentGymServer, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection(server.address.removeprefix("http://"), timeout=10)
    try:
        sent = {"Content-Type": "application/json", **headers}
        connection.request("POST", path, body, sent)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/create", b"not json", {}, 400),
        ("/create", b"[]", {}, 400),
        ("/create", b'{"a": NaN}', {}, 400),
        ("/create", b"[" * 100_000, {}, 400),
        ("/create", b"\xff\xfe\x00", {}, 400),
        ("/other", b"{}", {}, 404),
        ("/create", b"{}", {"Content-Type": "text/plain"}, 415),
        ("/create", b"{}", {"Content-Length": "-1"}, 411),
        ("/create", b"{}", {"Content-Length": "\u00b2".encode().decode("latin-1")}, 411),
        ("/create", b"{}", {"Content-Length": "99999999"}, 413),
    ],
)
def test_requests_of_another_form_are_refused(
    server: AgentGymServer, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert raw(server, path, body, **headers)[0] == status
    assert raw(server, "/create", b"{}")[0] == 200, "it goes on"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/step", {"id": 0}),
        ("/step", {"id": 0, "action": 5}),
        ("/step", {"id": 9, "action": "left"}),
        ("/step", {"id": True, "action": "left"}),
        ("/step", {"id": [1], "action": "left"}),
        ("/reset", {"id": 0, "data_idx": "7"}),
        ("/reset", {"id": 0, "data_idx": True}),
        ("/reset", {"id": 0, "data_idx": 10**30}),
        ("/close", {}),
    ],
)
def test_wrong_values_are_errors_in_the_answer(
    server: AgentGymServer, path: str, body: dict[str, Any]
) -> None:
    assert json.loads(raw(server, "/create", b"{}")[1])["id"] == 0
    status, said = raw(server, path, json.dumps(body).encode())
    assert status == 200
    assert set(json.loads(said)) == {"error"}


# Answers that mean harm.


@pytest.fixture
def liar() -> Iterator[Callable[[bytes], str]]:
    """A server that answers every request with the same bytes, status line and all."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            for part in answers[0].split(b"<wait>"):
                self.wfile.write(part)
                self.wfile.flush()
                time.sleep(0.4 * (b"<wait>" in answers[0]))

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(HTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """The client hangs up on it, which is what is tested."""

    http = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()

    def answering(whole: bytes) -> str:
        answers[:] = [whole]
        return f"http://127.0.0.1:{http.server_port}"

    yield answering
    http.shutdown()
    thread.join()
    http.server_close()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ok(b"x" * 20_000), "more than 10,000 bytes"),
        (ok(b"<html>"), "not JSON"),
        (ok(b'{"id": NaN}'), "not JSON"),
        (ok(b"[" * 9_000), "not JSON"),
        (ok(b"9" * 9_000), "not JSON"),
        (ok(b"\xff"), "not JSON"),
        (ok(b"{}<wait>{}<wait>{}<wait>{}"), "no response within 1 s"),
        (b"HTTP/1.0 302 Found\r\nLocation: http://example.invalid/\r\n\r\n", "answered 302"),
        (b"HTTP/1.0 500 Oh\r\n\r\n", "answered 500"),
        (b"SSH-2.0-hello\r\n", "BadStatusLine"),
        (b"", "RemoteDisconnected"),
        (ok(b'{"error": "\\ud800 no"}'), r"\? no"),
        (ok(b'{"id": "0"}'), "no number of a session"),
        (ok(b"true"), "no number of a session"),
        (ok(b"7"), "no observation"),
    ],
)
def test_answers_that_cannot_be_used_are_refused(
    liar: Callable[[bytes], str], answer: bytes, said: str
) -> None:
    env = AgentGymEnvironment(liar(answer), tasks=3, horizon=5, timeout=1.0, limit=10_000)
    with pytest.raises(ServerError, match=said):
        env.reset(seed=0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"observation": 5, "reward": 0, "done": False}, "no observation"),
        ({"observation": "", "reward": "1", "done": False}, "no number"),
        ({"observation": "", "reward": True, "done": False}, "no number"),
        ({"observation": "", "reward": 10**400, "done": False}, "too large"),
        ({"observation": "", "reward": 0}, "neither true nor false"),
    ],
)
def test_steps_of_another_form_are_refused(
    liar: Callable[[bytes], str], answer: dict[str, Any], said: str
) -> None:
    env = AgentGymEnvironment(
        liar(ok(b'{"id": 1, "observation": "\\ud800 hi"}')), tasks=3, horizon=5, id_key="id"
    )
    assert env.reset(seed=0)[0] == "? hi"
    liar(ok(json.dumps(answer).encode()))
    with pytest.raises(ServerError, match=said):
        env.step("go")


def test_a_server_that_is_not_there_is_said() -> None:
    env = AgentGymEnvironment("http://127.0.0.1:9", tasks=1, horizon=5)
    with pytest.raises(ServerError, match="ConnectionRefusedError"):
        env.reset(seed=0)
    with pytest.raises(ValueError, match="a server's address looks like"):
        AgentGymEnvironment("file:///etc/passwd", tasks=1, horizon=5)
    with pytest.raises(ValueError, match="tasks"):
        AgentGymEnvironment("http://127.0.0.1:9", tasks=0, horizon=5)
