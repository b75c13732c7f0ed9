"""The AgentGym HTTP form, both ways: play on such a server, and serve any environment as one.

Every request is a POST with a JSON object, every response one with status 200; a fault of the
environment is ``{"error": "..."}``.

=========== ============================== =====================================================
path        request                        response
=========== ============================== =====================================================
``/create`` ``{}``                         ``{"id": 0, ...}``, or the bare number
``/reset``  ``{"id": 0, "data_idx": 7}``   ``{"observation": "...", ...}``
``/step``   ``{"id": 0, "action": "..."}`` ``{"observation": "...", "reward": 0, "done": false}``
``/close``  ``{"id": 0}``                  anything
=========== ============================== =====================================================

``available_actions`` may come with an observation. There is no seed: the number of the task decides
everything.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, Unpack

import numpy as np

from ascribe.envs.adapters.wrapped import AdapterOptions, WrappedEnvironment, clean
from ascribe.envs.json_server import Json, JsonServer
from ascribe.envs.protocol import Environment, Info, Outcome, pick_task
from ascribe.models.http_client import HttpClient, HttpLimits, ServerError
from ascribe.steps.check import LARGEST_REWARD


class AgentGymEnvironment(WrappedEnvironment):
    """An environment on a server of the AgentGym form.

    The seed draws the number of the task. One seed is one episode if the server gives the same
    episode for the same number, which Ascribe cannot enforce: check it.

    Args:
        server: its address, such as ``http://127.0.0.1:36001``.
        tasks: how many tasks it has; its own documentation says.
        task: the task in words; by default the first observation, which in this form carries it.
        create: what the server wants to know in ``/create``.
        id_key: what the server calls the number of the session: some say ``env_idx``.
        timeout: seconds to wait for a response.
        limit: the largest response in bytes.
        options: see ``WrappedEnvironment``.
    """

    def __init__(
        self,
        server: str,
        *,
        tasks: int,
        task: str | None = None,
        create: Mapping[str, Any] | None = None,
        id_key: str = "id",
        timeout: float = 60.0,
        limit: int = 4_000_000,
        **options: Unpack[AdapterOptions],
    ) -> None:
        if tasks < 1:
            raise ValueError(f"tasks must be at least 1, not {tasks}")
        super().__init__("agentgym", task=task or "", **options)
        self.tasks = tasks
        self.create = dict(create or {})
        self.id_key = id_key
        # A step must not be carried out twice, so nothing is retried.
        self._client = HttpClient(server, HttpLimits(timeout, retries=0, max_bytes=limit))
        self._own_task = task is None
        self._session: int | None = None
        self._listed: list[str] | None = None

    def _post(self, path: str, body: Json) -> Any:
        response = self._client.post(path, body)
        if isinstance(response, dict) and "error" in response:
            raise ServerError(f"{path}: {clean(str(response['error']))[:300]}")
        return response

    def begin(self, seed: int, options: dict[str, Any]) -> str:
        number = pick_task(options, self.tasks, np.random.default_rng(seed))
        if self._session is None:
            response = self._post("/create", self.create)
            session = response.get(self.id_key) if isinstance(response, dict) else response
            if type(session) is not int:
                raise ServerError(f"/create: no number of a session: {str(session)[:50]}")
            self._session = session
        response = self._post("/reset", {self.id_key: self._session, "data_idx": number})
        observation = self._observation(response)
        if self._own_task:
            self.task = observation
        return observation

    def act(self, action: str) -> Outcome:
        valid = self._listed is None or action in self._listed
        response = self._post("/step", {self.id_key: self._session, "action": action})
        observation = self._observation(response)
        reward, done = response.get("reward"), response.get("done")
        number = isinstance(reward, int | float) and not isinstance(reward, bool)
        if not number or not abs(reward) <= LARGEST_REWARD:
            raise ServerError(f"/step: the reward is no number, or too large: {str(reward)[:50]}")
        if not isinstance(done, bool):
            raise ServerError(f"/step: done is neither true nor false: {str(done)[:50]}")
        return Outcome(observation, float(reward), terminated=done, valid=valid)

    def _observation(self, response: Any) -> str:
        """The observation of a response; the admissible actions are kept."""
        observation = response.get("observation") if isinstance(response, dict) else None
        if not isinstance(observation, str):
            raise ServerError("the response holds no observation")
        listed = response.get("available_actions")
        texts = isinstance(listed, list) and all(isinstance(one, str) for one in listed)
        self._listed = [clean(one) for one in listed] if texts else None
        return clean(observation)

    def admissible(self) -> list[str] | None:
        return self._listed

    def close(self) -> None:
        """Close the session. A server that has gone or knows no ``/close`` is no error."""
        session, self._session, self._over = self._session, None, True
        if session is not None:
            with suppress(ServerError):
                self._post("/close", {self.id_key: session})


class AgentGymServer(JsonServer):
    """Serves environments in the AgentGym form. Use it as a context manager, or ``serve_forever``.

    Args:
        factory: makes an environment; called once for each session.
        host: where to listen; there are no passwords, so by default this machine alone.
        port: 0 takes a free one; ``address`` tells which.
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
        self.seed = seed
        self._sessions: dict[int, tuple[Environment, threading.Lock]] = {}
        self._numbers = count()
        self._places = threading.Semaphore(sessions)
        self._lock = threading.Lock()
        calls = (self._create, self._reset, self._step, self._close)
        paths = ("/create", "/reset", "/step", "/close")
        routes = {path: partial(_respond, call) for path, call in zip(paths, calls, strict=True)}
        super().__init__(routes, host, port, limit)

    def server_close(self) -> None:
        """Stop listening and close every environment."""
        super().server_close()
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for env, lock in sessions:
            with lock:
                env.close()

    def _create(self, body: Json) -> Json:  # noqa: ARG002 (every path takes a request)
        if not self._places.acquire(blocking=False):
            raise ValueError(f"there are {self.most} sessions already; close one")
        try:
            env = self.factory()
            started = self._begin(env, 0)
        except BaseException:
            self._places.release()
            raise
        with self._lock:
            number = next(self._numbers)
            self._sessions[number] = (env, threading.Lock())
        return {"id": number, **started}

    @contextmanager
    def _session(self, body: Json, *, remove: bool = False) -> Iterator[Environment]:
        number = body.get("id")
        with self._lock:
            if type(number) is not int or number not in self._sessions:
                raise ValueError(f"there is no session {str(number)[:50]}")
            env, lock = self._sessions[number]
            if remove:
                del self._sessions[number]
                self._places.release()
        with lock:
            yield env

    def _begin(self, env: Environment, number: Any) -> Json:
        if type(number) is not int:
            raise TypeError("data_idx must be a whole number")
        if env.tasks is None:
            observation, info = env.reset(seed=number)
        else:
            observation, info = env.reset(seed=self.seed, options={"task": number})
        if info["task"] not in observation:  # this form has no other place for it
            observation = f"{observation}\n\nYour task: {info['task']}"
        return {"observation": observation, "reward": 0.0, "done": False, **_listed(info)}

    def _reset(self, body: Json) -> Json:
        with self._session(body) as env:
            return self._begin(env, body.get("data_idx", 0))

    def _step(self, body: Json) -> Json:
        with self._session(body) as env:
            action = body.get("action")
            if not isinstance(action, str):
                raise TypeError("action must be text")
            observation, reward, terminated, truncated, info = env.step(action)
            done = terminated or truncated
            return {"observation": observation, "reward": reward, "done": done, **_listed(info)}

    def _close(self, body: Json) -> Json:
        with self._session(body, remove=True) as env:
            env.close()
        return {"closed": True}


def _respond(call: Callable[[Json], Json], body: Json) -> Json:
    """The response to a request; a fault of the environment is a response too."""
    try:
        return call(body)
    except Exception as error:
        return {"error": clean(f"{type(error).__name__}: {error}")[:300]}


def _listed(info: Info) -> Json:
    listed = info.get("admissible_actions")
    return {} if listed is None else {"available_actions": listed}
