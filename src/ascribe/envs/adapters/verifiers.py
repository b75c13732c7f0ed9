"""Classic ``verifiers`` environments: ``MultiTurnEnv`` of version 0.1, one message at a time.

``verifiers`` runs whole rollouts and asks a model itself. Here its parts are called in the order of
its own loop, with Ascribe's action in the place of the model's message: ``setup_state``, then
``is_completed`` and ``get_prompt_messages`` (which calls ``env_response``), at the end its cleanup
and the rubric. The reward of the rubric comes with the last step.
"""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Unpack

import numpy as np

from ascribe.envs.adapters.wrapped import AdapterOptions, WrappedEnvironment, clean
from ascribe.envs.protocol import MissingExtraError, Outcome, one_of, pick_task

LIMITS = frozenset({"max_turns_reached", "timeout_reached", "prompt_too_long"})
"""Stops that cut an episode; every other stop is an end of the task itself."""


class VerifiersEnvironment(WrappedEnvironment):
    """A ``MultiTurnEnv`` as Ascribe's environment; tasks are the rows of its dataset.

    An action is the whole message of the model: parse nothing before. Environments that offer tools
    read tool calls, which plain text cannot carry; they are refused. So are rubrics that score a
    group of rollouts at once. One seed is one episode if ``env_response`` and the rubric are
    deterministic; a judge that is a model is not.

    Args:
        environment: the environment, or a function that makes it.
        split: ``train`` for ``get_dataset``, ``eval`` for ``get_eval_dataset``.
        timeout: seconds for one step on their side.
        options: see ``WrappedEnvironment``; the family is by default the ``env_id``.
    """

    def __init__(
        self,
        environment: Any,
        *,
        split: str = "train",
        timeout: float = 60.0,
        **options: Unpack[AdapterOptions],
    ) -> None:
        try:
            import verifiers
        except ImportError as error:
            raise MissingExtraError("verifiers", "verifiers") from error
        ready = isinstance(environment, verifiers.Environment)
        self.env = environment if ready else environment()
        if not isinstance(self.env, verifiers.MultiTurnEnv):
            raise TypeError(f"not a MultiTurnEnv: {type(self.env).__name__}")
        if self.env.tool_defs:
            raise ValueError("the environment offers tools, which text actions cannot call")
        if self.env.requires_group_rollouts:
            raise ValueError("the rubric scores whole groups, which one episode cannot have")
        one_of("split", split, ("train", "eval"))
        super().__init__(self.env.env_id or type(self.env).__name__, task="", **options)
        self.rows = self.env.get_dataset() if split == "train" else self.env.get_eval_dataset()
        self.tasks = len(self.rows)
        self.timeout = timeout
        self._loop: _Loop | None = None
        self._rollout: Any = None
        self._messages: list[Any] = []

    def _wait(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        if self._loop is None:
            self._loop = _Loop()
        return self._loop.run(work(), self.timeout)

    def begin(self, seed: int, options: dict[str, Any]) -> str:
        row = self.rows[pick_task(options, self.tasks, np.random.default_rng(seed))]
        self._wait(lambda: self._start(dict(row)))
        self.task = _text(self._messages)
        return self.task

    async def _start(self, row: dict[str, Any]) -> None:
        await self._abandon()
        self._rollout = await self.env.init_state(row, _no_client(), "ascribe")
        await self.env.setup_state(self._rollout)
        if await self.env.is_completed(self._rollout):
            raise RuntimeError("the environment is completed before the first message")
        self._messages = await self.env.get_prompt_messages(self._rollout)

    def act(self, action: str) -> Outcome:
        outcome: Outcome = self._wait(lambda: self._turn(action))
        return outcome

    async def _turn(self, action: str) -> Outcome:
        rollout, seen = self._rollout, len(self._messages) + 1
        await self.env.add_model_response(rollout, self._messages, _response(action))
        self._messages = [*self._messages, *rollout["trajectory"][-1]["completion"]]
        if not await self.env.is_completed(rollout):
            self._messages = list(await self.env.get_prompt_messages(rollout))
            # An environment may end the episode in its response.
            if not await self.env.is_completed(rollout):
                return Outcome(_text(self._messages[seen:]))
        final = rollout.get("final_env_response")
        observation = _text(final if isinstance(final, list) else self._messages[seen:])
        reward = await self._score()
        # An environment of one turn ends there by itself.
        cut = self.env.max_turns != 1 and rollout.get("stop_condition") in LIMITS
        return Outcome(observation, reward, terminated=not cut, truncated=cut)

    async def _score(self) -> float:
        rollout, self._rollout = self._rollout, None
        await self.env.cleanup(rollout)
        await self.env.rubric.score_rollout(rollout)
        await self.env.rubric.cleanup(rollout)
        return float(rollout["reward"])

    async def _abandon(self) -> None:
        """Clean up an episode that did not reach its end."""
        rollout, self._rollout = self._rollout, None
        if rollout is not None:
            await self.env.cleanup(rollout)

    def state_key(self, observation: str) -> str:  # noqa: ARG002 (the whole chat is the situation)
        chat = "\n\n".join(f"{message['role']}: {_text([message])}" for message in self._messages)
        return hashlib.sha256(chat.encode()).hexdigest()

    def close(self) -> None:
        """Clean up the episode and stop the event loop."""
        self._over = True
        if self._loop is not None:
            try:
                self._wait(self._abandon)
            finally:
                self._loop.stop()
                self._loop = None


class _Loop:
    """An event loop in a thread of its own, so that it works inside and outside of another loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, Any], timeout: float) -> Any:
        bounded = asyncio.wait_for(work, timeout)
        return asyncio.run_coroutine_threadsafe(bounded, self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def _text(messages: Sequence[Any]) -> str:
    """The text of messages, without images and audio."""
    texts = []
    for message in messages:
        content = message["content"]
        if isinstance(content, list):
            parts = [dict(part) for part in content]
            content = "\n".join(str(part["text"]) for part in parts if part.get("type") == "text")
        texts.append(clean(content or ""))
    return "\n\n".join(texts)


def _response(action: str) -> Any:
    """An action as the response of a model."""
    from verifiers.types import Response, ResponseMessage

    message = ResponseMessage(content=action, finish_reason="stop", is_truncated=False)
    return Response(id="", created=0, model="ascribe", usage=None, message=message)


def _no_client() -> Any:
    """A client without a connection: a request to it raises."""
    from verifiers.clients import OpenAIChatCompletionsClient

    return OpenAIChatCompletionsClient(None)
