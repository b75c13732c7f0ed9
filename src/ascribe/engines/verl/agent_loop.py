"""``EpisodeLoop``: verl's agent loop, which plays one episode and returns a row for each step.

``ascribe.rollout`` plays the episode in a thread of its own: prompts, memory, parsers and retries
are those of every other rollout. An episode that fails for good becomes one row without a token to
learn from, which carries the reason; the step continues without it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import Any
from uuid import uuid4

import numpy as np
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from ascribe.conversations import merge
from ascribe.engines.corrections import (
    JudgedResponse,
    correction_specs,
    judged_responses,
    mark_corrections,
)
from ascribe.engines.episodes import EpisodeSpec, Player
from ascribe.engines.resolve import Run
from ascribe.engines.verl.rows import FIELD, pack, pack_failed
from ascribe.engines.verl.tasks import run_of, spec_of
from ascribe.models import Chat, load_chat
from ascribe.models.policy import Completion, ModelPolicy, TokenPrompt
from ascribe.rollout import Rollout, Sampling

MOST_EPISODES = 1024
"""Episodes that one process plays at once, at most; each has a thread."""


class EpisodeLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays an episode of the run that ``data.train_files`` names."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """The rows of one episode, in the order of its steps; before them those of its corrections.

        verl takes the last row for the result of the episode.

        Args:
            sampling_params: how verl samples.
            row: of ``TaskDataset``, with the number of the group's member as ``session_id``.
        """
        run = run_of(self.config)
        spec = spec_of(row["episode"], int(row["session_id"]))
        corrections = run.config.rollout.correcting()
        if corrections is None:
            return (await self._play(run, spec, sampling_params))[1]
        size = run.config.rollout.size
        responses: list[JudgedResponse] = []
        try:
            played, own_rows = await self._play(run, spec, sampling_params)
            responses = judged_responses(played, [spec], run.recipe)
        finally:  # the others wait for this member, also if it failed
            complete = _BARRIER.arrive(row["uid"], size, responses)
        needed = run.config.rollout.failures.policy().needs(size)
        due = correction_specs(
            await asyncio.shield(complete), corrections, size=size, needed=needed
        )
        corrected = await asyncio.gather(
            *(
                self._play(run, one, sampling_params, corrects=spec.name)
                for one in due.get(spec.name, ())
            )
        )
        return [output for _, outputs in corrected for output in outputs] + own_rows

    async def _play(
        self,
        run: Run,
        spec: EpisodeSpec,
        sampling_params: dict[str, Any],
        corrects: str | None = None,
    ) -> tuple[Rollout, list[AgentLoopOutput]]:
        """An episode and its rows."""
        path = str(self.config.actor_rollout_ref.model.path)
        chat = _chat(path, int(self.rollout_config.max_model_len))
        loop = asyncio.get_running_loop()
        policy = ServedPolicy(chat, self.server_manager, loop, sampling_params)

        def play() -> Rollout:
            with _PLAYERS.borrow(run, sampling_params) as player:
                return player.play([spec], run.config.rollout.size, policy)

        played = await loop.run_in_executor(_THREADS, play)
        if corrects is not None:
            played = mark_corrections(played, {spec.group: corrects})
        return played, rows(played, policy.versions, chat, whole=run.config.output.rollouts)


def rows(
    played: Rollout, versions: list[int], chat: Chat, *, whole: bool, together: bool = False
) -> list[AgentLoopOutput]:
    """Verl's rows of one episode.

    Args:
        played: the episode.
        versions: of the weights that sampled in it.
        chat: its end-of-turn token fills the row of a failed episode.
        whole: whether texts travel with the steps.
        together: whether steps whose prompts continue each other are one row.
    """
    common = {
        "min_global_steps": min(versions, default=0),
        "max_global_steps": max(versions, default=0),
        "turn_scores": [],
        "tool_rewards": [],
    }
    if not played.trajectories:
        end = min(chat.ends)
        packed = pack_failed(played.failed[0], played.retries)
        extra = {**common, FIELD: packed, "reward_extra_info": {"won": 0.0}}
        return [_row([end], [end], [0], [0.0], reward=0.0, extra=extra)]
    trajectory = played.trajectories[0]
    samples = [step.sample for step in trajectory.steps]
    merged = merge(
        [sample.prompt_ids for sample in samples],
        [sample.response_ids for sample in samples],
        [0] * len(samples) if together else range(len(samples)),
    )
    texts = pack(trajectory, merged, whole=whole, retries=played.retries)
    extra = {**common, "reward_extra_info": {"won": float(trajectory.won)}}
    outputs = []
    for ids, mask, steps, text in zip(merged.tokens, merged.mask, merged.rows, texts, strict=True):
        first = len(samples[steps[0]].prompt_ids)
        logprobs = np.zeros(ids.size)
        logprobs[mask] = [value for step in steps for value in samples[step].logprobs]
        # verl takes the last row's reward as the episode's, and copies it to the others.
        outputs.append(
            _row(
                ids[:first].tolist(),
                ids[first:].tolist(),
                mask[first:].astype(int).tolist(),
                logprobs[first:].tolist(),
                reward=trajectory.reward,
                extra={**extra, FIELD: text},
            )
        )
    return outputs


def _row(
    prompt: list[int],
    response: list[int],
    mask: list[int],
    logprobs: list[float],
    *,
    reward: float,
    extra: dict[str, Any],
) -> AgentLoopOutput:
    """A row of tokens; ``mask`` is 1 where they are to be learned from."""
    return AgentLoopOutput(
        prompt_ids=prompt,
        response_ids=response,
        response_mask=mask,
        response_logprobs=logprobs,
        reward_score=reward,
        num_turns=2,
        metrics=AgentLoopMetrics(),
        extra_fields=extra,
    )


class GroupBarrier:
    """Lets the members of a group exchange their responses.

    verl runs the members of a prompt as tasks of one event loop, each by itself. A correction shows
    responses of other members, so it must wait until all have responded or failed.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, tuple[list[Sequence[JudgedResponse]], asyncio.Future[Any]]] = {}

    def arrive(
        self, group: str, size: int, responses: Sequence[JudgedResponse]
    ) -> "asyncio.Future[list[JudgedResponse]]":
        """Add a member's responses; the future holds those of all ``size`` members."""
        future = asyncio.get_running_loop().create_future()
        arrived, complete = self.waiting.setdefault(group, ([], future))
        arrived.append(responses)
        if len(arrived) == size:
            del self.waiting[group]
            complete.set_result([response for few in arrived for response in few])
        return complete


class ServedPolicy(ModelPolicy):
    """A policy that asks verl's rollout servers from the thread of an episode.

    Its turns go to one server, which caches their common prefix.

    Args:
        chat: from messages to ids.
        client: verl's client of the servers.
        loop: the client's event loop; it must not be that of the calling thread.
        parameters: how verl samples; the limit of tokens and the stop texts are the episode's.
    """

    def __init__(
        self,
        chat: Chat,
        client: Any,
        loop: asyncio.AbstractEventLoop,
        parameters: Mapping[str, Any],
    ) -> None:
        super().__init__(chat)
        self._client, self._loop, self._parameters = client, loop, parameters
        self._name = uuid4().hex
        self.versions: list[int] = []
        """Of the weights that sampled, one for each response."""

    def _complete(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        asked = asyncio.run_coroutine_threadsafe(self._all(prompts, sampling), self._loop)
        return asked.result()

    async def _all(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        return await asyncio.gather(*(self._one(prompt, sampling) for prompt in prompts))

    async def _one(self, prompt: TokenPrompt, sampling: Sampling) -> Completion:
        parameters = {
            **self._parameters,
            "max_tokens": prompt.limit,
            "seed": prompt.seed,
            "stop": list(sampling.stop),
            "stop_token_ids": sorted(self.chat.ends),
        }
        response = await self._client.generate(
            request_id=self._name, prompt_ids=list(prompt.ids), sampling_params=parameters
        )
        self.versions.append(response.extra_fields.get("global_steps") or 0)
        ids = tuple(response.token_ids)
        logprobs = tuple(response.log_probs or ())
        return Completion(ids, logprobs, ended=len(ids) < prompt.limit or ids[-1] in self.chat.ends)


@dataclass
class _Players:
    """Idle players, with their environments open."""

    idle: list[Player] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def borrow(self, run: Run, parameters: Mapping[str, Any]) -> Iterator[Player]:
        with self.lock:
            player = self.idle.pop() if self.idle else _player(run, parameters)
        try:
            yield player
        except BaseException:  # its pool may be in any state
            player.close()
            raise
        with self.lock:
            self.idle.append(player)


_PLAYERS = _Players()
_BARRIER = GroupBarrier()
_THREADS = ThreadPoolExecutor(MOST_EPISODES, thread_name_prefix="episode")


def _player(run: Run, parameters: Mapping[str, Any]) -> Player:
    config = run.config
    setup = config.environment.setup()
    rollout = config.rollout
    corrections = rollout.correcting()
    return Player(
        setup,
        setup.agent if corrections is None else corrections.agent(setup.agent),
        Sampling(
            float(parameters["temperature"]),
            float(parameters["top_p"]),
            rollout.max_tokens,
            rollout.stop,
        ),
        setup.turns(rollout.max_turns),
        # The trainer decides whether to stop: verl continues when an episode raises.
        replace(rollout.failures.policy(), stop=False),
        slots=1,
    )


@lru_cache(maxsize=4)
def _chat(path: str, context: int) -> Chat:
    return load_chat(path, context)
