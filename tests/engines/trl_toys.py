"""What the tests of the TRL engine train: a tiny model on TRL's own generation."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

QUIET = pytest.mark.filterwarnings("default")
"""The packages under the trainer warn of their own plans; that is no fault of ours."""

ON_CPU: dict[str, Any] = {
    "bf16": False,
    "use_cpu": True,
    "gradient_checkpointing": False,
    "report_to": "none",
    "logging_steps": 1,
    "save_strategy": "no",
    "disable_tqdm": True,
}
"""Arguments of TRL's configurations for small runs that write nothing but their log."""


@cache
def tokenizer() -> Any:
    """A tokenizer of 320 tokens, for the hall."""
    from tests.tiny_model import train_tokenizer

    return train_tokenizer(
        ["You are in room 0. leave hall task step action think now possible"] * 4, 320
    )


def tiny() -> Any:
    """A tiny random model, always the same."""
    from tests.tiny_model import random_llama

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
        "seed": 3,
        **ON_CPU,
    }
    given |= changes
    size = given["num_generations"]
    made = GRPOConfig(**(given | {"num_generations": max(2, size)}))
    made.num_generations = size  # TRL refuses 1 before
    return made


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


def private_names(*files: Path) -> set[str]:
    """The private names that code takes from objects, or gives to methods."""
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    names = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    names += [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    return {name for name in names if name.startswith("_") and not name.startswith("__")}
