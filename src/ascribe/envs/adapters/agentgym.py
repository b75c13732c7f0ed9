"""The AgentGym HTTP form, both ways: play on such a server, and serve any environment as one.

Every request is a POST with a JSON object, every answer one with status 200; a fault of the
environment is ``{"error": "..."}``.

=========== ============================== =====================================================
path        request                        answer
=========== ============================== =====================================================
``/create`` ``{}``                         ``{"id": 0, ...}``, or the bare number
``/reset``  ``{"id": 0, "data_idx": 7}``   ``{"observation": "...", ...}``
``/step``   ``{"id": 0, "action": "..."}`` ``{"observation": "...", "reward": 0, "done": false}``
``/close``  ``{"id": 0}``                  anything
=========== ============================== =====================================================

``available_actions`` may come with an observation. There is no seed: the number of the task decides
everything.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import numpy as np

from ascribe.envs.adapters.remote import RemoteError, decode, post
from ascribe.envs.adapters.wrapped import WrappedEnvironment, clean
from ascribe.envs.protocol import Environment, Info, Outcome, pick_task


class AgentGymEnvironment(WrappedEnvironment):
    """An environment on a server of the AgentGym form.

    The seed draws the number of the task. One seed is one episode if the server gives the same
    episode for the same number, which Ascribe cannot enforce: check it.

    Args:
        server: its address, such as ``http://127.0.0.1:36001``.
        tasks: how many tasks it has; its own documentation says.
        task: the task in words; by default the first observation, which in this form carries it.
        family: the kind of task.
        horizon: an episode is truncated after so many actions.
        won_at: an episode is won if its last reward is at least this.
        example_actions: a few well-formed actions, where the server lists none.
        create: what the server wants to know in ``/create``.
        id_key: what the server calls the number of the session: some say ``env_idx``.
        timeout: seconds to wait for an answer.
        limit: the largest answer in bytes.
    """

    def __init__(
        self,
        server: str,
        *,
        tasks: int,
        task: str | None = None,
        family: str = "agentgym",
        horizon: int,
        won_at: float = 1.0,
        example_actions: Sequence[str] | None = None,
        create: Mapping[str, Any] | None = None,
        id_key: str = "id",
        timeout: float = 60.0,
        limit: int = 4_000_000,
    ) -> None:
        if tasks < 1:
            raise ValueError(f"tasks must be at least 1, not {tasks}")
        super().__init__(
            task=task or "",
            family=family,
            horizon=horizon,
            won_at=won_at,
            example_actions=example_actions,
        )
        self.server = server.rstrip("/")
        self.tasks = tasks
        self.create = dict(create or {})
        self.id_key = id_key
        self.timeout = timeout
        self.limit = limit
        self._own_task = task is None
        self._session: int | None = None
        self._listed: list[str] | None = None

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = post(f"{self.server}/{path}", body, timeout=self.timeout, limit=self.limit)
        if isinstance(answer, dict) and "error" in answer:
            raise RemoteError(f"/{path}: {clean(str(answer['error']))[:300]}")
        return answer

    def _begin(self, seed: int, options: dict[str, Any]) -> str:
        number = pick_task(options, self.tasks, np.random.default_rng(seed))
        if self._session is None:
            made = self._post("create", self.create)
            self._session = _whole(made.get(self.id_key) if isinstance(made, dict) else made)
        answer = self._post("reset", {self.id_key: self._session, "data_idx": number})
        observation = self._read(answer)
        if self._own_task:
            self.task = observation
        return observation

    def _act(self, action: str) -> Outcome:
        valid = self._listed is None or action in self._listed
        answer = self._post("step", {self.id_key: self._session, "action": action})
        observation = self._read(answer)
        reward, done = answer.get("reward"), answer.get("done")
        if isinstance(reward, bool) or not isinstance(reward, (int, float)):
            raise RemoteError(f"/step: the reward is no number: {str(reward)[:50]}")
        if not isinstance(done, bool):
            raise RemoteError(f"/step: done is neither true nor false: {str(done)[:50]}")
        return Outcome(observation, float(reward), terminated=done, valid=valid)

    def _read(self, answer: Any) -> str:
        """The observation of an answer; what is admissible is remembered."""
        observation = answer.get("observation") if isinstance(answer, dict) else None
        if not isinstance(observation, str):
            raise RemoteError("the answer holds no observation")
        listed = answer.get("available_actions")
        texts = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
        self._listed = [clean(one) for one in listed] if texts else None
        return clean(observation)

    def _admissible(self) -> list[str] | None:
        return self._listed

    def _state(self, observation: str) -> str:
        return observation

    def close(self) -> None:
        """Close the session. A server that has gone or knows no ``/close`` is no error."""
        session, self._session, self._over = self._session, None, True
        if session is not None:
            try:
                self._post("close", {self.id_key: session})
            except RemoteError:
                return


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RemoteError(f"/create: no number of a session: {str(value)[:50]}")
    return value


# The serving half.


@dataclass
class _Session:
    env: Environment
    lock: threading.Lock = field(default_factory=threading.Lock)


class AgentGymServer:
    """Serves environments in the AgentGym form.

    Nobody is asked for a password, so it listens on this machine alone unless told otherwise. Use
    it as a context manager, or call ``serve_forever``.

    Args:
        factory: makes an environment; called once for each session.
        host: where to listen.
        port: 0 takes a free one; ``address`` says which.
        sessions: at most so many at once.
        limit: the largest request in bytes.
        seed: given to every reset together with the number of the task; an environment without
            numbered tasks takes the number as its seed.
    """

    def __init__(
        self,
        factory: Callable[[], Environment],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        sessions: int = 256,
        limit: int = 4_000_000,
        seed: int = 0,
    ) -> None:
        self.factory = factory
        self.most = sessions
        self.limit = limit
        self.seed = seed
        self._sessions: dict[int, _Session] = {}
        self._next = 0
        self._making = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer((host, port), _handler(self))
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Where it can be reached."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> "AgentGymServer":
        # Looks 20 times a second whether it is to stop.
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        if self._thread is not None:
            self._thread.join()
        self.close()

    def serve_forever(self) -> None:
        """Serve until interrupted."""
        try:
            self._http.serve_forever()
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening and close every environment."""
        self._http.server_close()
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            with session.lock:
                session.env.close()

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What is said to a request; a fault of the environment is an answer too."""
        try:
            if path == "/create":
                return self._create()
            session = self._find(body)
            with session.lock:
                if path == "/reset":
                    return self._reset(session.env, body.get("data_idx", 0))
                if path == "/step":
                    return self._step(session.env, body.get("action"))
            return self._close(body["id"])
        except Exception as error:
            return {"error": clean(f"{type(error).__name__}: {error}")[:300]}

    def _create(self) -> dict[str, Any]:
        with self._lock:
            if len(self._sessions) + self._making >= self.most:
                raise ValueError(f"there are {self.most} sessions already; close one")
            # The place is kept, not the lock: to make an environment may take long.
            self._making += 1
        try:
            env = self.factory()
            started = self._reset(env, 0)
            with self._lock:
                number, self._next = self._next, self._next + 1
                self._sessions[number] = _Session(env)
        finally:
            with self._lock:
                self._making -= 1
        return {"id": number, **started}

    def _find(self, body: dict[str, Any]) -> _Session:
        number = body.get("id")
        with self._lock:
            session = self._sessions.get(number) if type(number) is int else None
        if session is None:
            raise ValueError(f"there is no session {str(number)[:50]}")
        return session

    def _reset(self, env: Environment, number: Any) -> dict[str, Any]:
        if type(number) is not int:
            raise TypeError("data_idx must be a whole number")
        if env.tasks is None:
            observation, info = env.reset(seed=number)
        else:
            observation, info = env.reset(seed=self.seed, options={"task": number})
        if info["task"] not in observation:  # this form has no other place for it
            observation = f"{observation}\n\nYour task: {info['task']}"
        return {"observation": observation, "reward": 0.0, "done": False, **_listed(info)}

    def _step(self, env: Environment, action: Any) -> dict[str, Any]:
        if not isinstance(action, str):
            raise TypeError("action must be text")
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated or truncated
        return {"observation": observation, "reward": reward, "done": done, **_listed(info)}

    def _close(self, number: int) -> dict[str, Any]:
        with self._lock:
            session = self._sessions.pop(number, None)
        if session is not None:
            with session.lock:
                session.env.close()
        return {"closed": session is not None}


def _listed(info: Info) -> dict[str, Any]:
    listed = info.get("admissible_actions")
    return {} if listed is None else {"available_actions": listed}


def _handler(server: AgentGymServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if self.path not in ("/create", "/reset", "/step", "/close"):
                self.send_error(HTTPStatus.NOT_FOUND)
            elif self.headers.get_content_type() != "application/json":
                # A page in a browser cannot send this type elsewhere without asking first.
                self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            elif not length.isascii() or not length.isdigit() or len(length) > 12:
                self.send_error(HTTPStatus.LENGTH_REQUIRED)
            elif int(length) > server.limit:
                self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            else:
                self._reply(self.rfile.read(int(length)))

        def _reply(self, raw: bytes) -> None:
            try:
                body = decode(raw, "the client")
                if not isinstance(body, dict):
                    raise RemoteError("the request is no object")
            except RemoteError:
                self.send_error(HTTPStatus.BAD_REQUEST)
                return
            said = json.dumps(server.answer(self.path, body)).encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Requests hold what models say: nothing is printed."""

    return Handler
