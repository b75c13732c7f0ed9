"""What credit costs inside an update with TRL.

An iteration without its generation: log-probabilities of the policy that sampled, credit, and two
updates with forward, backward and optimiser. ``AscribeTrainer`` with ``bipace_q``, which takes
fingerprints from the log-prob pass and clusters them, is measured against TRL's ``GRPOTrainer``, on
the same episodes of several turns, in turns.

``own_share`` is the CPU time inside Ascribe's functions over that of the iteration, measured in the
same iteration: the methods that it overrides, less TRL's own inside them, and the hooks that take
fingerprints. ``own_milliseconds`` is that time.

``paired_ratio`` is the CPU time of the one trainer over that of the other in the same round, as a
median over rounds; ``paired_low`` and ``paired_high`` bound its 95 % bootstrap interval.
``null_ratio``, with its interval, is what comes out where both are TRL's: where it is far from 1,
others kept the machine busy, and the paired ratio says as little. A round has two iterations of
each. ``--tiny`` takes a small model, in which our share is largest. Weights are random: they cost
the same.
"""

import itertools
import os
import tempfile
import time
from typing import Any

import common
import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from ascribe.engines.capture import Capture
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
SHARE, MILLISECONDS = 0.005, 5.0
"""The most of our own: of an iteration of SmolLM2, and in one of the small model."""


def main() -> None:
    """Measure and print."""
    tiny = {"action": "store_true", "help": "a small model in place of SmolLM2's shape"}
    with common.Figures("engine_trl", tiny=tiny) as figures:
        torch.set_num_threads(1)
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        if figures.quick:
            measure(figures, "width 128, 4 layers", SMALL, 2, 1)
        elif figures.options.tiny:
            measure(figures, "width 128, 4 layers", SMALL, 4, 15)
        else:
            measure(figures, "SmolLM2-135M", common.SMOLLM2_SHAPE, 2, 15)


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
    small = shape is SMALL
    own, whole = (np.array(each[1:]) for each in (works["bipace"].own, works["bipace"].whole))
    share = common.median_interval(own / whole)
    figures.emit_interval(
        case, "own_share", share, "ratio", "lower", goal=None if small else SHARE, ends="share_"
    )
    spent = common.median_interval(own * 1e3)
    figures.emit_interval(
        case, "own_milliseconds", spent, "ms", "lower", goal=MILLISECONDS if small else None
    )
    figures.emit(case, "iteration_seconds", float(np.median(whole)), "s", "lower")
    figures.emit(case, "iterations", len(own), "iterations", "higher")
    for metric, way in (("paired", "bipace"), ("null", "again")):
        ratios = common.median_interval(times[way] / times["trl"])
        figures.emit_interval(case, f"{metric}_ratio", ratios, "ratio", "lower", ends=f"{metric}_")


class Iterations:
    """Repeats one iteration of a trainer; notes the seconds of each, and those of our own in it."""

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
        self.whole: list[float] = []
        self.trainer.create_optimizer()
        accumulation = self.trainer.args.gradient_accumulation_steps
        self.trainer.current_gradient_accumulation_steps = accumulation

    def __call__(self) -> None:
        """One iteration: everything but the generation."""
        trainer = self.trainer
        trainer._step, trainer._buffered_inputs = 0, None
        OWN.lap()
        started = time.process_time()
        for _ in range(2):
            for _ in range(trainer.args.gradient_accumulation_steps):
                trainer.training_step(trainer.model, self.inputs, None)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
        self.whole.append(time.process_time() - started)
        self.own.append(OWN.lap())


OWN = common.OwnTime(time.process_time)
OWN.watch_overrides(AscribeTrainer, GRPOTrainer)
OWN.watch(Capture, ("_begin", "_run", "_end"), ours=True)


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
    """A tokenizer of pieces of bytes, as those of most models are."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*letters, *map("".join, itertools.product(letters, letters))]
    words = {piece: number for number, piece in enumerate(pieces[: vocabulary - 1])}
    made = Tokenizer(models.BPE(words, []))
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<end>", pad_token="<end>", chat_template="{{ messages }}"
    )


if __name__ == "__main__":
    main()
