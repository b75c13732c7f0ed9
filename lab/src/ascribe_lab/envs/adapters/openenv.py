"""Environments on an OpenEnv server, over its WebSocket.

OpenEnv leaves the fields of observations and actions to each environment, so the caller says how
they read: ``render`` puts an observation into words, ``act`` makes an action of text. Both see
plain JSON values; no code of the server's author runs here.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Unpack

from ascribe.steps.check import LARGEST_REWARD
from ascribe_lab.envs.adapters.wrapped import AdapterOptions, WrappedEnvironment
from ascribe_lab.envs.protocol import MissingExtraError, Outcome
from ascribe_lab.models.http_client import ServerError, call_within

Fields = Mapping[str, Any]

CLOSING = 0.5
"""Seconds for closing a connection."""


class OpenEnvEnvironment(WrappedEnvironment):
    """An OpenEnv environment as text.

    The seed goes to the server's ``reset``. One seed is one episode if the environment there reads
    it, which is up to its author: check it.

    Args:
        server: its address, such as ``http://127.0.0.1:8000``.
        render: from the fields of an observation to text.
        act: from text to the fields of an action; None if the text is no action.
        actions: from the fields of an observation to the actions that can be taken now; None where
            they are not known.
        state: a key of the situation, from the fields of an observation; by default all fields.
        task: the task in words.
        timeout: seconds for one exchange.
        limit: the largest response in bytes.
        options: see ``WrappedEnvironment``.
    """

    def __init__(
        self,
        server: str,
        *,
        render: Callable[[Fields], str],
        act: Callable[[str], dict[str, Any] | None],
        actions: Callable[[Fields], list[str]] | None = None,
        state: Callable[[Fields], str] | None = None,
        task: str,
        timeout: float = 60.0,
        limit: int = 4_000_000,
        **options: Unpack[AdapterOptions],
    ) -> None:
        super().__init__("openenv", task=task, **options)
        self.server = server
        self.render = render
        self._fields_of = act
        self.actions = actions
        self.state = state
        self.timeout = timeout
        self.limit = limit
        self._client: Any = None
        self._fields: Fields = {}

    def begin(self, seed: int, options: dict[str, Any]) -> str:
        if self._client is None:
            try:
                from openenv.core import GenericEnvClient
            except ImportError as error:
                raise MissingExtraError("OpenEnv", "openenv") from error
            self._client = GenericEnvClient(
                base_url=self.server,
                connect_timeout_s=self.timeout,
                message_timeout_s=self.timeout,
                max_message_size_mb=self.limit / 2**20,
            ).sync()
        self._ask(lambda: self._client.reset(seed=seed, **options))
        return self.render(self._fields)

    def act(self, action: str) -> Outcome:
        fields = self._fields_of(action)
        if fields is None:
            return Outcome(self.render(self._fields), valid=False)
        valid = self.actions is None or action in self.actions(self._fields)
        result = self._ask(lambda: self._client.step(fields))
        reward = result.reward if result.reward is not None else 0.0
        if not isinstance(reward, int | float) or not abs(reward) <= LARGEST_REWARD:
            raise ServerError(f"the reward is no number, or too large: {str(reward)[:50]}")
        return Outcome(self.render(self._fields), float(reward), result.done is True, valid=valid)

    def _ask(self, call: Callable[[], Any]) -> Any:
        """One exchange; if it fails, the connection is closed."""
        try:
            # The limits of OpenEnv's client do not cover sending, and add up.
            result = call_within(self.timeout, call)
        except Exception as error:
            self.close()
            reason = str(error)[:300] or f"no response within {self.timeout:g} s"
            raise ServerError(f"{self.server}: {type(error).__name__}: {reason}") from error
        if not isinstance(result.observation, dict):
            raise ServerError("the server's observation is no object")
        self._fields = result.observation
        return result

    def admissible(self) -> list[str] | None:
        return None if self.actions is None else self.actions(self._fields)

    def state_key(self, observation: str) -> str:  # noqa: ARG002 (the fields say more)
        if self.state is not None:
            return self.state(self._fields)
        return json.dumps(self._fields, sort_keys=True)

    def close(self) -> None:
        """Close the connection; a server that does not take part is not waited for."""
        client, self._client, self._over = self._client, None, True
        if client is not None:
            with suppress(TimeoutError):
                call_within(CLOSING, client.close)
