"""``EpisodeLoop``: verl's agent loop, which plays one episode and returns its rows.

There is a row for each step, or, with ``update.layout: trajectory``, one for steps whose prompts
continue each other.

``rollout`` plays the episode in a thread of its own: prompts, memory, parsers and retries
are those of every other rollout. An episode that fails for good, or raises, becomes one row without
a token to learn from, which carries the reason; the step continues without it.
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any
from uuid import uuid4

import numpy as np
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from ascribe.sessions import merge
from ascribe_lab.models import Chat, load_chat
from ascribe_lab.models.policy import Completion, ModelPolicy, TokenPrompt
from ascribe_lab.rollout import Rollout, Sampling
from ascribe_lab.rollout.episode import EpisodeFailure, FailedEpisode
from ascribe_lab.rollout.run import Clock
from ascribe_lab.train.chat import ChatPolicy
from ascribe_lab.train.corrections import (
    JudgedResponse,
    correction_specs,
    judged_responses,
    mark_corrections,
)
from ascribe_lab.train.episodes import EpisodeSpec
from ascribe_lab.train.resolve import Run
from ascribe_lab.train.verl.packing import FIELD, pack, pack_failed
from ascribe_lab.train.verl.players import Players
from ascribe_lab.train.verl.tasks import HELD_OUT, read_run, spec_of

LONGEST_DETAIL = 500
"""Letters of an exception that are kept."""

logger = logging.getLogger(__name__)

INTERRUPTED = frozenset({"abort", "aborted"})
"""Why a response ended that the trainer does not wait for."""

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
        held_out = bool(row.get(HELD_OUT))
        run = read_run(self.config.data.train_files, held_out=held_out)
        spec = spec_of(row["episode"], int(row["session_id"]))
        corrections = run.config.rollout.correcting()
        if corrections is None or held_out:
            return (await self._play(run, spec, sampling_params, row))[1]
        size = run.config.rollout.size
        responses: list[JudgedResponse] = []
        try:
            played, own_rows = await self._play(run, spec, sampling_params, row)
            responses = judged_responses(played, [spec], run.recipe)
        finally:  # the others wait for this member, also if it failed
            complete = _BARRIER.arrive(row["uid"], size, responses)
        needed = run.config.rollout.failures.policy().needs(size)
        due = correction_specs(
            await asyncio.shield(complete), corrections, size=size, needed=needed
        )
        corrected = await asyncio.gather(
            *(
                self._play(run, one, sampling_params, row, corrects=spec.name)
                for one in due.get(spec.name, ())
            )
        )
        return [output for _, outputs in corrected for output in outputs] + own_rows

    async def _play(
        self,
        run: Run,
        spec: EpisodeSpec,
        sampling_params: dict[str, Any],
        row: Mapping[str, Any],
        corrects: str | None = None,
    ) -> tuple[Rollout, list[AgentLoopOutput]]:
        """An episode and its rows; ``row`` is that of the dataset."""
        path = str(self.config.actor_rollout_ref.model.path)
        template = json.dumps(dict(self.apply_chat_template_kwargs or {}))
        chat = _chat(path, int(self.rollout_config.max_model_len), template)
        loop = asyncio.get_running_loop()
        config = run.config.rollout
        policy = ServedPolicy(
            chat,
            self.server_manager,
            loop,
            sampling_params,
            seeded=config.seeded,
            limit=config.episode_limit,
        )
        key = (run.config.output.folder, bool(row.get(HELD_OUT)))
        if key not in _PLAYERS:
            _PLAYERS[key] = Players(run)
        players = _PLAYERS[key]

        together = run.config.update.layout == "trajectory"
        sampler = ChatPolicy(policy) if together else policy

        def play() -> Rollout:
            with players.borrow(row["uid"]) as player:
                return player.play([spec], config.size, sampler)

        try:
            played = await loop.run_in_executor(_THREADS, play)
        except Exception as error:
            logger.exception("episode %s", spec.name)
            played = failed_rollout(spec, error)
        if corrects is not None:
            played = mark_corrections(played, {spec.group: corrects})
        # One that failed before its first response belongs to the version that was current.
        versions = policy.versions or [int(row.get("global_steps", 1)) - 1]
        whole = run.config.output.rollouts
        return played, rows(played, versions, chat, whole=whole, together=together)


def failed_rollout(spec: EpisodeSpec, error: Exception) -> Rollout:
    """The rollout of an episode that raised: a server is gone, or time is up."""
    kind = EpisodeFailure.TOO_LONG if isinstance(error, TimeoutError) else EpisodeFailure.RAISED
    detail = f"{type(error).__name__}: {error}"[:LONGEST_DETAIL]
    failed = FailedEpisode(spec.group, spec.name, kind, detail, 0)
    return Rollout((), (), (failed,), Clock(0.0, 0.0, 0.0, 0), 0)


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
        seeded: whether each request has a seed of its own.
        limit: seconds from now, after which nothing more is sampled.
    """

    def __init__(
        self,
        chat: Chat,
        client: Any,
        loop: asyncio.AbstractEventLoop,
        parameters: Mapping[str, Any],
        *,
        seeded: bool = False,
        limit: float | None = None,
    ) -> None:
        super().__init__(chat)
        self._client, self._loop, self._parameters = client, loop, parameters
        self._seeded, self._limit = seeded, limit
        self._deadline = None if limit is None else time.monotonic() + limit
        self._name = uuid4().hex
        self.versions: list[int] = []
        """Of the weights that sampled, the first and the last for each response."""

    def _complete(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        asked = [
            asyncio.run_coroutine_threadsafe(self._one(prompt, sampling), self._loop)
            for prompt in prompts
        ]
        return [each.result() for each in asked]

    async def _one(self, prompt: TokenPrompt, sampling: Sampling) -> Completion:
        parameters = {
            **self._parameters,
            "max_tokens": prompt.limit,
            "stop": list(sampling.stop),
            "stop_token_ids": sorted(self.chat.ends),
        }
        if self._seeded:
            parameters["seed"] = prompt.seed
        asked = self._client.generate(
            request_id=self._name, prompt_ids=list(prompt.ids), sampling_params=parameters
        )
        left = None if self._deadline is None else self._deadline - time.monotonic()
        try:
            response = await asyncio.wait_for(asked, left)
        except TimeoutError as error:
            raise TimeoutError(f"{self._limit:g} s are over (rollout.episode_limit)") from error
        if response.stop_reason in INTERRUPTED:
            raise InterruptedError("the trainer took enough groups before this one ended")
        # A response that was interrupted for new weights is continued with them.
        found = response.extra_fields
        newest = found.get("global_steps") or 0
        self.versions += [found.get("min_global_steps") or newest, newest]
        ids = tuple(response.token_ids)
        logprobs = tuple(response.log_probs or ())
        return Completion(ids, logprobs, ended=len(ids) < prompt.limit or ids[-1] in self.chat.ends)


_BARRIER = GroupBarrier()
_THREADS = ThreadPoolExecutor(MOST_EPISODES, thread_name_prefix="episode")


_PLAYERS: dict[tuple[str, bool], Players] = {}
"""By the output folder of the run, and whether they play held-out tasks; a process has one run."""


@lru_cache(maxsize=4)
def _chat(path: str, context: int, template: str) -> Chat:
    return load_chat(path, context, template_options=json.loads(template))
