"""``EpisodeLoop``: verl's agent loop, which plays one episode and returns a row for each step.

The episode is played by ``ascribe.rollout``, in a thread of its own: prompts, memory, parsers,
retries and replays are those of every other rollout. An episode that fails for good becomes one row
without a token to learn from, which carries the reason; the step goes on without it.
"""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from typing import Any

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from ascribe.engines.corrections import answers, corrected, correction_seats
from ascribe.engines.plan import Seat
from ascribe.engines.player import Player
from ascribe.engines.train import Run
from ascribe.engines.verl.meetings import Meetings
from ascribe.engines.verl.policy import ServedPolicy
from ascribe.engines.verl.run_file import run_of
from ascribe.engines.verl.tasks import seat_of
from ascribe.engines.verl.travel import FIELD, pack, pack_lost
from ascribe.models import Chat, load_chat
from ascribe.models.policy import Sample
from ascribe.rollout import Rollout, Sampling

MOST_EPISODES = 1024
"""Episodes that one process plays at once, at most; each waits in a thread."""


class EpisodeLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays an episode of the run that ``data.train_files`` names."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """The rows of one episode, in the order of its steps; before them those of its corrections.

        verl takes the last row for the result of the episode.

        Args:
            sampling_params: how verl samples.
            row: of ``Tasks``, with the number of the group's member as ``session_id``.
        """
        run = run_of(self.config)
        seat = seat_of(row["seat"], int(row["session_id"]))
        given = run.config.rollout.correcting()
        if given is None:
            return (await self._play(run, seat, sampling_params))[1]
        name, size = row["uid"], run.config.rollout.size
        try:
            played, own = await self._play(run, seat, sampling_params)
            found = answers(played, [seat], run.recipe)
        except BaseException:
            _MEETINGS.come(name, size)  # the others wait
            raise
        everyone = await _MEETINGS.meet(name, size, found)
        needed = run.config.rollout.failures.policy().needs(size)
        due = correction_seats(everyone, given, size=size, needed=needed)
        target = f"{seat.group}/{seat.member}"
        mended = await asyncio.gather(
            *(
                self._play(run, one, sampling_params, corrects=target)
                for one in due.get((seat.group, seat.member), ())
            )
        )
        return [made for _, few in mended for made in few] + own

    async def _play(
        self, run: Run, seat: Seat, sampling_params: dict[str, Any], corrects: str | None = None
    ) -> tuple[Rollout, list[AgentLoopOutput]]:
        """An episode and its rows."""
        path = str(self.config.actor_rollout_ref.model.path)
        chat = _chat(path, int(self.rollout_config.max_model_len))
        loop = asyncio.get_running_loop()
        policy = ServedPolicy(chat, self.server_manager, loop, sampling_params)

        def play() -> Rollout:
            with _PLAYERS.borrow(run, sampling_params) as player:
                return player.play([seat], run.config.rollout.size, policy)

        played = await loop.run_in_executor(_THREADS, play)
        if corrects is not None:
            played = corrected(played, {seat.group: corrects})
        return played, rows(played, policy.versions, chat, whole=run.config.output.rollouts)


def rows(played: Rollout, versions: list[int], chat: Chat, *, whole: bool) -> list[AgentLoopOutput]:
    """Verl's rows of one episode.

    Args:
        played: the episode.
        versions: of the weights that answered in it.
        chat: whose end-of-turn token stands in the row of an episode that was given up.
        whole: whether texts travel with the steps.
    """
    common = {
        "min_global_steps": min(versions, default=0),
        "max_global_steps": max(versions, default=0),
        "turn_scores": [],
        "tool_rewards": [],
    }
    if not played.trajectories:
        end = min(chat.ends)
        told = pack_lost(played.given_up[0], played.retries)
        extra = {**common, FIELD: told, "reward_extra_info": {"won": 0.0}}
        return [_row(Sample("", (end,), (end,), (0.0,)), 0, 0.0, extra)]
    trajectory = played.trajectories[0]
    texts = pack(trajectory, whole=whole, retries=played.retries)
    found = []
    for step, told in zip(trajectory.steps, texts, strict=True):
        extra = {**common, FIELD: told, "reward_extra_info": {"won": float(trajectory.won)}}
        # verl takes the last row's reward as the episode's, and copies it to the others.
        found.append(_row(step.sample, 1, trajectory.reward, extra))
    return found


def _row(sample: Sample, mask: int, reward: float, extra: Mapping[str, Any]) -> AgentLoopOutput:
    """A row of tokens; ``mask`` is 1 if they are to be learned from."""
    return AgentLoopOutput(
        prompt_ids=list(sample.prompt_ids),
        response_ids=list(sample.response_ids),
        response_mask=[mask] * len(sample.response_ids),
        response_logprobs=list(sample.logprobs) or None,
        reward_score=reward,
        num_turns=2,
        metrics=AgentLoopMetrics(),
        extra_fields=dict(extra),
    )


@dataclass
class _Players:
    """Players that rest between episodes, with their environments open."""

    resting: list[Player] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    @contextmanager
    def borrow(self, run: Run, parameters: Mapping[str, Any]) -> Iterator[Player]:
        with self.lock:
            player = self.resting.pop() if self.resting else _player(run, parameters)
        try:
            yield player
        except BaseException:  # who knows what state its pool is in
            player.close()
            raise
        with self.lock:
            self.resting.append(player)


_PLAYERS = _Players()
_MEETINGS = Meetings()
_THREADS = ThreadPoolExecutor(MOST_EPISODES, thread_name_prefix="episode")


def _player(run: Run, parameters: Mapping[str, Any]) -> Player:
    config = run.config
    setup = config.environment.setup()
    rollout = config.rollout
    given = rollout.correcting()
    return Player(
        setup,
        setup.agent if given is None else given.agent(setup.agent),
        Sampling(
            float(parameters["temperature"]),
            float(parameters["top_p"]),
            rollout.max_tokens,
            rollout.stop,
        ),
        setup.turns(rollout.max_turns),
        # Whether to stop is for the trainer to say: verl goes on when an episode raises.
        replace(rollout.failures.policy(), stop=False),
        slots=1,
    )


@lru_cache(maxsize=4)
def _chat(path: str, context: int) -> Chat:
    return load_chat(path, context)
