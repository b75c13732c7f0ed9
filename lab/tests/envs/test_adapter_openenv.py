"""OpenEnv: a real server in this process, played over its WebSocket."""

import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha1
from random import Random
from typing import Any

import pytest

from ascribe_lab.envs.adapters.openenv import OpenEnvEnvironment
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.models.http_client import ServerError
from lab.tests.envs.pages import assert_example_prints_what_the_page_shows

pytest.importorskip("openenv", reason="needs the extra openenv")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra openenv")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,  # to import the server takes long
    # Of the packages that OpenEnv brings, not of ours.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def application() -> Any:
    """A game of OpenEnv: find a number from 1 to 9."""
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Guess(Action):
        number: int

    class Hint(Observation):
        hint: str

    class Number(Environment[Guess, Hint, State]):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._state = State()
            self.secret = 0

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Hint:
            self.secret = Random(seed).randint(1, 9)
            return Hint(hint="odd" if self.secret % 2 else "even")

        def step(self, action: Guess, timeout_s: float | None = None, **_: Any) -> Hint:
            if action.number == 99:
                return Hint(hint="x" * 300_000)
            if action.number == self.secret:
                return Hint(hint="found", reward=1, done=True)
            return Hint(hint="more" if action.number < self.secret else "less", reward=0.0)

        @property
        def state(self) -> State:
            return self._state

    return create_fastapi_app(Number, Guess, Hint, max_concurrent_envs=8)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(application(), log_level="error", ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.02)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)
    listener.close()


def hint(fields: Any) -> str:
    return f"Hint: {fields['hint']}"


def guess(action: str) -> dict[str, Any] | None:
    word = action.strip()
    return {"number": int(word)} if word.isascii() and word.isdigit() and len(word) < 4 else None


def make(address: str, **options: Any) -> OpenEnvEnvironment:
    return OpenEnvEnvironment(
        address,
        render=hint,
        act=guess,
        task="find the number",
        **{"horizon": 10, "example_actions": [str(n) for n in range(1, 10)], **options},
    )


def test_an_environment_on_a_server_keeps_the_contract(address: str) -> None:
    report = check_environment(partial(make, address), seeds=4)
    assert not report.findings
    assert report.kept


def test_a_game_is_won(address: str) -> None:
    env = make(address)
    secret = Random(5).randint(1, 9)
    observation, info = env.reset(seed=5)
    assert observation == ("Hint: odd" if secret % 2 else "Hint: even")
    assert info["admissible_actions"] is None
    assert info["task_family"] == "openenv"
    if secret > 1:
        assert env.step("1")[:4] == ("Hint: more", 0.0, False, False)
    observation, reward, terminated, truncated, info = env.step(str(secret))
    assert (observation, reward, terminated, truncated) == ("Hint: found", 1.0, True, False)
    assert info["won"] is True
    assert info["state"] == '{"hint": "found"}'
    env.close()


def test_text_that_is_no_action_never_reaches_the_server(address: str) -> None:
    env = make(address)
    before, _ = env.reset(seed=0)
    observation, reward, terminated, _, info = env.step("seven")
    assert (observation, reward, terminated, info["valid"]) == (before, 0.0, False, False)
    env.close()


def test_listed_actions_and_a_key_of_ones_own(address: str) -> None:
    env = make(
        address, actions=lambda _: ["1", "2"], state=lambda fields: str(fields["hint"]).upper()
    )
    _, info = env.reset(seed=0)
    assert info["admissible_actions"] == ["1", "2"]
    assert info["state"] in ("ODD", "EVEN")
    assert env.step("8")[4]["valid"] is False
    env.close()


def test_an_action_that_the_server_refuses_is_an_error_of_the_server(address: str) -> None:
    env = OpenEnvEnvironment(
        address, render=hint, act=lambda _: {"letter": "a"}, task="", horizon=3
    )
    env.reset(seed=0)
    with pytest.raises(ServerError, match="VALIDATION_ERROR"):
        env.step("a")
    env.reset(seed=0)
    env.close()


def test_an_answer_that_is_too_large_is_refused(address: str) -> None:
    env = make(address, limit=100_000)
    env.reset(seed=0)
    with pytest.raises(ServerError):
        env.step("99")
    env.close()


def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(ServerError, match="connect"):
        make("http://127.0.0.1:9", timeout=2.0).reset(seed=0)


def test_the_example_of_the_page(address: str) -> None:
    assert_example_prints_what_the_page_shows("OpenEnv", **{"http://127.0.0.1:8000": address})


def handshake(connection: socket.socket) -> None:
    """Begin a WebSocket."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(4096)
    names = (line.partition(b":") for line in data.split(b"\r\n"))
    key = next(text.strip() for name, _, text in names if name.lower() == b"sec-websocket-key")
    accepted = b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    connection.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accepted + b"\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("start", "again"),
    [(b"", b""), (b"\x81\x7e\xff\xff", b"x"), (b"", b"\x89\x00"), (b"\x88\x7d\x03", b"x")],
    ids=["silence", "a dripped message", "pings", "a dripped end"],
)
def test_the_time_limit_covers_the_whole_exchange(start: bytes, again: bytes) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            handshake(connection)
            connection.sendall(start)
            for _ in range(200):
                connection.sendall(again)
                time.sleep(0.02)

    import openenv.core  # noqa: F401 (takes long)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        env = OpenEnvEnvironment(
            url, render=str, act=lambda text: {"text": text}, task="", horizon=1, timeout=0.5
        )
        began = time.monotonic()
        with pytest.raises(ServerError, match=r"no response within 0\.5 s|Error"):
            env.reset(seed=0)
        assert time.monotonic() - began < 1.5
