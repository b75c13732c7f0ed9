"""A tiny model in a game where any text is a move, for the tests of training on TRL."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from ascribe_lab.envs import Outcome, Start, TextEnvironment
from ascribe_lab.rollout import Setup
from tests.engines.trl_toys import (
    QUIET,
    config,
    logged,
    lora,
    own_trainer,
    play,
    private_names,
    prompts,
    tiny,
    tokenizer,
    won,
)

__all__ = [
    "QUIET",
    "config",
    "logged",
    "lora",
    "own_trainer",
    "play",
    "private_names",
    "prompts",
    "tiny",
    "tokenizer",
    "won",
]

EPISODES = count()

HALL = f"{__name__}:Hall"


@dataclass
class Visit:
    """Where the visitor is."""

    task: int
    number: int
    """Of the episodes in this process."""
    room: int = 0


class Hall(TextEnvironment[Visit]):
    """Three rooms. Every text leads to one of them, and one text in four leads out and wins.

    Args:
        horizon: an episode is cut after so many moves.
        fault: what moves do in the task ``faulty``: ``raise``; ``nan`` as reward; or ``unlucky``,
            where three of four episodes raise.
        faulty: the task with the fault, or -1 for all tasks.
        wish: if it is given, a move is paid 1 if its text holds this letter, and nothing else is.
        long: tasks whose first observation is longer than a small model's context.
        pause: seconds that a move takes.
    """

    tasks = 64

    def __init__(
        self,
        *,
        horizon: int = 3,
        fault: str = "",
        faulty: int | None = None,
        wish: str = "",
        long: Sequence[int] = (),
        pause: float = 0.0,
    ) -> None:
        super().__init__(horizon=horizon)
        self.fault, self.faulty, self.wish, self.long = fault, faulty, wish, long
        self.pause = pause

    def begin(self, task: int, generator: np.random.Generator) -> Start[Visit]:
        family = "even" if task % 2 == 0 else "odd"
        observation = "You are in room 0." * (500 if task in self.long else 1)
        return Start(Visit(task, next(EPISODES)), observation, f"leave hall {task}", family)

    def act(self, episode: Visit, action: str) -> Outcome:
        time.sleep(self.pause)
        number = crc32(action.encode())
        reward = (number % 5) / 8
        if self.faulty in (episode.task, -1):
            if self.fault == "raise" or (self.fault == "unlucky" and episode.number % 4):
                raise RuntimeError("the roof came down")
            reward = float("nan") if self.fault == "nan" else reward
        episode.room = number % 3
        if self.wish:
            return Outcome(f"You are in room {episode.room}.", float(self.wish in action))
        won = number % 4 == 0
        return Outcome(f"You are in room {episode.room}.", reward + won, terminated=won, won=won)

    def admissible(self, episode: Visit) -> None:
        return None

    def state_key(self, episode: Visit, observation: str) -> str:
        return f"hall {episode.task}, room {episode.room}"


class Guess(TextEnvironment[list[str]]):
    """One question, and one text in three is the right answer to it."""

    tasks = 64

    def __init__(self) -> None:
        super().__init__(horizon=1)

    def begin(self, task: int, generator: np.random.Generator) -> Start[list[str]]:
        return Start([], f"You are in room {task}.", "guess", "guess")

    def act(self, episode: list[str], action: str) -> Outcome:
        won = crc32(action.encode()) % 3 == 0
        return Outcome("Done.", float(won), terminated=True, won=won)

    def admissible(self, episode: list[str]) -> None:
        return None

    def state_key(self, episode: list[str], observation: str) -> str:
        return observation


def guessing_team(**options: Any) -> Setup:
    """Agents that guess together, in this process."""
    given = {"environment": f"{__name__}:Guess", "form": "", **options}
    return Setup("team", given, style="plain", pool="serial")


def hall(**options: Any) -> Setup:
    """The hall, in this process."""
    return Setup(HALL, options, style="plain", pool="serial")


def trainer(folder: Path, *, model: Any = None, setup: Setup | None = None, **options: Any) -> Any:
    """A trainer in the hall, or of a guessing ``team``; ``args`` changes its configuration."""
    from ascribe_lab.train.trl.episodes import EpisodeTrainer

    args = config(folder, **options.pop("args", {}))
    team = options.pop("team", None)
    if options.get("agents"):
        options.setdefault("peft_config", lora())
    return EpisodeTrainer(
        tiny() if model is None else model,
        args,
        setup=setup or (guessing_team(**team) if team is not None else hall()),
        processing_class=tokenizer(),
        # So that responses differ in length.
        **({"stop": tuple("aeiou")} | options),
    )
