"""What credit costs inside an update with TRL.

An iteration without its generation: log-probabilities of the policy that sampled, credit, and two
updates with forward, backward and optimiser. ``AscribeTrainer`` with ``bipace_q``, which takes
fingerprints from the log-prob pass and clusters them, is measured against TRL's ``GRPOTrainer``, on
the same episodes of several turns, in turns.

``paired_ratio`` is the CPU time of the one over that of the other in the same round, as a median
over rounds; ``paired_low`` and ``paired_high`` bound its 95 % bootstrap interval. ``null_ratio`` is
what comes out where both are TRL's: where it is far from 1, others kept the machine busy, and the
paired ratio says as little. ``step_ratio`` is not troubled by that: it compares an iteration of
``bipace_q`` with itself, less what it spends in code that TRL does not run (the capture of
fingerprints, turns and their credit). Weights are random: they cost the same.
"""

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import capture
import common
import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from ascribe.engines.trl import AscribeTrainer

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "trl", "accelerate")

SMALL = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
}
GROUPS, SIZE, ROWS_OF_PASS, PROMPT, OBSERVATION, RESPONSE = 2, 8, 8, 100, 24, 16
STATES = 8
"""Observations of a group; each is met several times."""


def main() -> None:
    """Measure and print."""
    with common.Figures("engine_trl") as figures:
        torch.set_num_threads(1)
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        cases = [("width 128, 4 layers", SMALL, 2, 1)]
        if not figures.quick:
            cases = [("width 128, 4 layers", SMALL, 4, 20)]
            cases += [("SmolLM2-135M", common.SMOLLM2_SHAPE, 2, 2)]
        for name, shape, turns, rounds in cases:
            measure(figures, name, shape, turns, rounds)


def measure(
    figures: common.Figures, name: str, shape: dict[str, Any], turns: int, rounds: int
) -> None:
    """All figures of one model."""
    played = episodes(turns, shape["vocab_size"])
    credited = {"recipe": "bipace_q", "fingerprints": -1}
    works = {
        "trl": Iterations(GRPOTrainer, shape, played),
        "again": Iterations(GRPOTrainer, shape, played),
        "bipace": Iterations(AscribeTrainer, shape, played, **credited),
    }
    times = common.balanced(works, rounds)
    case = f"{name}, {GROUPS * SIZE} episodes of {turns} turns"
    extra = float(np.median(works["bipace"].own))
    whole = float(np.median(times["bipace"]))
    figures.emit(case, "step_ratio", whole / (whole - extra), "ratio", "lower", goal=1.03)
    figures.emit(case, "extra_milliseconds", extra * 1e3, "ms", "lower")
    figures.emit(case, "iteration_seconds", whole, "s", "lower")
    ratios = common.median_interval(times["bipace"] / times["trl"])
    figures.emit_interval(case, "paired_ratio", ratios, "ratio", "lower", ends="paired_")
    null = float(np.median(times["again"] / times["trl"]))
    figures.emit(case, "null_ratio", null, "ratio", "lower")


class Iterations:
    """Repeats one iteration of a trainer, and notes the time that is spent for credit in each."""

    def __init__(
        self, kind: Any, shape: dict[str, Any], played: dict[str, Any], **options: Any
    ) -> None:
        rows = [{"prompt": "x"}] * GROUPS
        self.trainer = kind(
            model(shape),
            reward_funcs=reward,
            args=config(GROUPS * SIZE // ROWS_OF_PASS),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer(shape["vocab_size"]),
            rollout_func=lambda _prompts, _trainer: played,
            **options,
        )
        self.inputs = [dict(row) for row in rows for _ in range(SIZE)]
        self.own: list[float] = []
        self._seconds = 0.0
        self.trainer.create_optimizer()
        accumulation = self.trainer.args.gradient_accumulation_steps
        self.trainer.current_gradient_accumulation_steps = accumulation
        for name in ("_turns", "_credited", "_on_tokens"):
            if hasattr(self.trainer, name):
                setattr(self.trainer, name, self._timed(getattr(self.trainer, name)))

    def __call__(self) -> None:
        """One iteration: everything but the generation."""
        trainer = self.trainer
        trainer._step, trainer._buffered_inputs, self._seconds = 0, None, 0.0
        capture.HOOK_SECONDS.clear()
        for _ in range(2):
            for _ in range(trainer.args.gradient_accumulation_steps):
                trainer.training_step(trainer.model, self.inputs, None)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
        self.own.append(self._seconds + sum(capture.HOOK_SECONDS))

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            started = time.process_time()
            try:
                return work(*arguments)
            finally:
                self._seconds += time.process_time() - started

        return run


def reward(prompts: list[Any], **_: Any) -> list[float]:
    """Returns that differ inside a group."""
    return [float(number % 3) for number in range(len(prompts))]


def episodes(turns: int, vocabulary: int) -> dict[str, Any]:
    """Groups that meet the same observations again and again, in one sequence for each episode."""
    rng = np.random.default_rng(0)
    played: dict[str, Any] = {name: [] for name in ("prompt_ids", "completion_ids", "env_mask")}
    for _ in range(GROUPS):
        prompt = rng.integers(3, vocabulary, PROMPT).tolist()
        shown = rng.integers(3, vocabulary, (STATES, OBSERVATION)).tolist()
        for _ in range(SIZE):
            completion, mask = [], []
            for turn in range(turns):
                completion += rng.integers(3, vocabulary, RESPONSE).tolist()
                mask += [1] * RESPONSE
                if turn < turns - 1:
                    completion += shown[rng.integers(STATES)]
                    mask += [0] * OBSERVATION
            played["prompt_ids"].append(prompt)
            played["completion_ids"].append(completion)
            played["env_mask"].append(mask)
    return played | {"logprobs": None}


def config(parts: int) -> GRPOConfig:
    """Two updates on each iteration's rows, which are read in so many parts."""
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        max_steps=2,
        per_device_train_batch_size=ROWS_OF_PASS,
        steps_per_generation=parts,
        gradient_accumulation_steps=parts // 2,
        num_generations=SIZE,
        max_completion_length=RESPONSE,
        learning_rate=1e-6,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
    )


def model(shape: dict[str, Any]) -> Any:
    """Random weights, the same for every trainer."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(
        LlamaConfig(**shape), dtype=torch.float32, attn_implementation="eager"
    )


def tokenizer(vocabulary: int) -> Any:
    """A tokenizer whose words are numbers."""
    words = {f"w{number}": number for number in range(vocabulary)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="w2", pad_token="w2", chat_template="{{ messages }}"
    )


if __name__ == "__main__":
    main()
