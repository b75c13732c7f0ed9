"""What the tests of the TRL engine train: a tiny model, in a game where any text is a move."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from ascribe.envs import Outcome, Start, TextEnvironment
from ascribe.rollout import Setup

EPISODES = count()

HALL = f"{__name__}:Hall"

QUIET = pytest.mark.filterwarnings("default")
"""The packages under the trainer warn of their own plans; that is no fault of ours."""


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


@cache
def tokenizer() -> Any:
    """A tokenizer of 320 tokens, for the hall."""
    from tests.tiny_model import train_tokenizer

    return train_tokenizer(
        ["You are in room 0. leave hall task step action think now possible"] * 4, 320
    )


def tiny() -> Any:
    """A tiny random model, always the same."""
    from tests.models.conftest import random_llama

    return random_llama(len(tokenizer()))


def lora() -> Any:
    """Small adapters that do something from the first step on, each something else."""
    from peft import LoraConfig

    return LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights="gaussian")


def config(folder: Path, **changes: Any) -> Any:
    """Two groups of four, one update for each iteration; small, quick and quiet."""
    from trl import GRPOConfig

    given: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 5,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "report_to": "none",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 3,
    }
    return GRPOConfig(**(given | changes))


def trainer(folder: Path, *, model: Any = None, setup: Setup | None = None, **options: Any) -> Any:
    """A trainer in the hall, or of a guessing ``team``; ``args`` changes its configuration."""
    from ascribe.engines.trl.episodes import EpisodeTrainer

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


# TRL's own generation.


def prompts(count: int = 4) -> Any:
    """Tasks for TRL's own loop."""
    from datasets import Dataset

    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": f"room {n}"}], "door": n % 3}
            for n in range(count)
        ]
    )


def play(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
    """Two to four turns of the model's tokens, with an observation after each but the last."""
    tokenizer = trainer._tokenizer
    first = trainer.accelerator.process_index * len(prompts)
    rows: dict[str, list[Any]] = {
        name: []
        for name in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "won", "turn_rewards")
    }
    for number, prompt in enumerate(prompts, start=first):
        random = np.random.default_rng([trainer.state.global_step, number])
        ids = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        turns = int(random.integers(2, 5))
        completion: list[int] = []
        mask: list[int] = []
        for turn in range(turns):
            action = tokenizer(str(random.choice(["room", "hall", "now"])))["input_ids"]
            completion, mask = completion + action, mask + [1] * len(action)
            if turn < turns - 1:
                seen = tokenizer(f" You are in room {random.integers(2)}.")["input_ids"]
                completion, mask = completion + seen, mask + [0] * len(seen)
        rows["prompt_ids"].append(list(ids))
        rows["completion_ids"].append(completion)
        rows["logprobs"].append([0.0] * len(completion))
        rows["env_mask"].append(mask)
        rows["won"].append(float(random.integers(2)))
        rows["turn_rewards"].append([0.25] * turns)
    return rows


def won(completions: Any, won: list[float], **_: Any) -> list[float]:
    """The reward function: what the rollout function returned."""
    return won


def own_trainer(folder: Path, kind: Any = None, args: Any = None, **options: Any) -> Any:
    """A trainer on TRL's own generation; ``kind`` may be TRL's GRPOTrainer."""
    from ascribe.engines.trl import AscribeTrainer

    options = {"reward_funcs": won, "rollout_func": play} | options
    return (kind or AscribeTrainer)(
        model=tiny(),
        args=config(folder, **(args or {})),
        train_dataset=prompts(),
        processing_class=tokenizer(),
        **options,
    )


def logged(made: Any, name: str) -> list[float]:
    """What was logged under a name, in order."""
    return [entry[name] for entry in made.state.log_history if name in entry]
