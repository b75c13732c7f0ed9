"""What credit costs inside an update with TRL.

An iteration without its generation: log-probabilities of the policy that sampled, credit, and two
updates with forward, backward and optimiser. It is measured with ``bipace_q``, which takes
fingerprints from the log-prob pass and clusters them, and with TRL's own advantages (``grpo`` with
TRL's epsilon), by the same trainer on the same rollouts, in turns.

``paired_ratio`` is the CPU time of the one over that of the other in the same round, as a median
over rounds; ``paired_low`` and ``paired_high`` bound its 95 % bootstrap interval. ``null_ratio`` is
what comes out where both are ``grpo``: where it is far from 1, others kept the machine busy, and
the paired ratio says as little. ``step_ratio`` is not troubled by that: it compares ``bipace_q``'s
iteration with itself, less what it spends in code that the other does not run (the capture, the
bookkeeping around it, and its credit less the credit of ``grpo``). ``trl_ratio`` compares with
TRL's GRPOTrainer on the same rows, in pairs too; on a processor that one scores the tokens of
prompts as well. Weights are random: they cost the same.
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
from ascribe.estimators import Recipe, recipe
from ascribe.rollout import Clock, Rollout, Sample, Setup, Trajectory
from ascribe.rollout.episode import Step

common.PACKAGES = ("ascribe", "numpy", "torch", "transformers", "trl", "accelerate")

SMALL = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
}
GROUPS, SIZE, ROWS_OF_PASS, PROMPT, RESPONSE = 2, 8, 8, 100, 16
STATES = 8
"""Prompts of a group; each is met several times."""


def main() -> None:
    """Measure and print."""
    with common.Figures("engine_trl") as figures:
        torch.set_num_threads(1)
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        cases = [("width 128, 4 layers", SMALL, 2, 1)]
        if not figures.quick:
            cases = [("width 128, 4 layers", SMALL, 4, 20)]
            cases += [("SmolLM2-135M", common.SMOLLM2_SHAPE, 1, 4)]
        for name, shape, turns, rounds in cases:
            measure(figures, name, shape, turns, rounds)


def measure(
    figures: common.Figures, name: str, shape: dict[str, Any], turns: int, rounds: int
) -> None:
    """All figures of one model."""
    played = rollout(turns, shape["vocab_size"])
    works = {
        "plain": ours(shape, played, recipe("grpo", std_epsilon=1e-4)),
        "again": ours(shape, played, recipe("grpo", std_epsilon=1e-4)),
        "bipace": ours(shape, played, recipe("bipace_q")),
        "trl": theirs(shape, played),
    }
    times = common.balanced(works, rounds)
    case = f"{name}, {GROUPS * SIZE * turns} x ({PROMPT} + {RESPONSE})"
    extra = np.median(works["bipace"].own) - np.median(works["plain"].own)
    whole = float(np.median(times["bipace"]))
    figures.emit(case, "step_ratio", whole / (whole - extra), "ratio", "lower", goal=1.03)
    figures.emit(case, "extra_milliseconds", extra * 1e3, "ms", "lower")
    figures.emit(case, "iteration_seconds", whole, "s", "lower")
    ratios = common.median_interval(times["bipace"] / times["plain"])
    figures.emit_interval(case, "paired_ratio", ratios, "ratio", "lower", ends="paired_")
    null = float(np.median(times["again"] / times["plain"]))
    figures.emit(case, "null_ratio", null, "ratio", "lower")
    against = float(np.median(times["bipace"] / times["trl"]))
    figures.emit(case, "trl_ratio", against, "ratio", "lower")


class Iterations:
    """Repeats one iteration of a trainer, and notes the time that is spent for credit in each.

    That is the time in ``_credited`` and in ``_read``, less what ``_read`` spends in the model, and
    more what the hooks of the capture spend there.
    """

    def __init__(self, trainer: Any, inputs: list[dict[str, Any]], updates: int = 2) -> None:
        self.trainer, self.inputs, self.updates = trainer, inputs, updates
        self.own: list[float] = []
        self._seconds = 0.0
        trainer.create_optimizer()
        trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
        if isinstance(trainer, AscribeTrainer):
            trainer._credited = self._timed(trainer._credited, 1.0)
            trainer._read = self._reading(trainer._read)

    def __call__(self) -> None:
        """One iteration: everything but the generation."""
        trainer = self.trainer
        trainer._step, trainer._buffered_inputs, self._seconds = 0, None, 0.0
        for _ in range(self.updates):
            for _ in range(trainer.args.gradient_accumulation_steps):
                trainer.training_step(trainer.model, self.inputs, None)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
        self.own.append(self._seconds)

    def _timed(self, work: Callable[..., Any], sign: float) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            started = time.process_time()
            try:
                return work(*arguments)
            finally:
                self._seconds += sign * (time.process_time() - started)

        return run

    def _reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            forward = self.trainer._get_per_token_logps_and_entropies
            capture.HOOK_SECONDS.clear()
            self.trainer._get_per_token_logps_and_entropies = self._timed(forward, -1.0)
            try:
                return self._timed(read, 1.0)(*arguments)
            finally:
                self.trainer._get_per_token_logps_and_entropies = forward
                self._seconds += sum(capture.HOOK_SECONDS)

        return run


def ours(shape: dict[str, Any], played: Rollout, estimator: Recipe) -> Iterations:
    """Our trainer on recorded rollouts."""
    parts = GROUPS * SIZE // ROWS_OF_PASS
    trainer = AscribeTrainer(
        model(shape),
        config(parts),
        setup=Setup("ezpoints", pool="serial"),
        recipe=estimator,
        max_turns=1,
        layer=-1,
        processing_class=tokenizer(shape["vocab_size"]),
    )
    trainer.player.play = lambda *_: played
    return Iterations(trainer, [row for row in trainer.train_dataset for _ in range(SIZE)])


def theirs(shape: dict[str, Any], played: Rollout) -> Iterations:
    """TRL's trainer on the same rows, as if each were an answer of its own."""
    steps = [step for trajectory in played.trajectories for step in trajectory.steps]

    def replay(_prompts: list[Any], _trainer: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [list(step.sample.prompt_ids) for step in steps],
            "completion_ids": [list(step.sample.response_ids) for step in steps],
            "logprobs": None,
        }

    def reward(prompts: list[Any], **_: Any) -> list[float]:
        return [float(number % 3) for number in range(len(prompts))]

    rows = [{"prompt": "x"}] * (len(steps) // SIZE)
    trainer = GRPOTrainer(
        model(shape),
        reward_funcs=reward,
        args=config(len(steps) // ROWS_OF_PASS),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(shape["vocab_size"]),
        rollout_func=replay,
    )
    return Iterations(trainer, [row for row in rows for _ in range(SIZE)])


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
    """A tokenizer that nobody asks for words."""
    words = {f"w{number}": number for number in range(vocabulary)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="w2", pad_token="w2", chat_template="{{ messages }}"
    )


def rollout(turns: int, vocabulary: int) -> Rollout:
    """Groups that meet again and again in the same states, with returns that all differ."""
    rng = np.random.default_rng(0)
    trajectories = []
    for group in range(GROUPS):
        prompts = rng.integers(3, vocabulary, (STATES, PROMPT))
        for member in range(SIZE):
            steps = []
            for number in range(turns):
                state = 0 if number == 0 else int(rng.integers(STATES))
                sample = Sample(
                    "go",
                    tuple(prompts[state].tolist()),
                    tuple(rng.integers(3, vocabulary, RESPONSE).tolist()),
                )
                steps.append(step(f"{group} {state}", sample, member, last=number == turns - 1))
            name = f"train/{group}"
            trajectories.append(Trajectory(name, f"{name}/{member}", "", "", tuple(steps)))
    return Rollout(tuple(trajectories), (), (), Clock(0.0, 0.0, 0.0, 0), 0)


def step(state: str, sample: Sample, member: int, *, last: bool) -> Step:
    """One decision of the member of a group."""
    return Step(
        state=state,
        observation=state,
        messages=(),
        sample=sample,
        action=f"<action>go {member % 4}</action>",
        valid=True,
        problem=None,
        reward=(member + 1) / 8 if last else 0.01 * member,
        terminated=last,
        truncated=False,
        won=last,
    )


if __name__ == "__main__":
    main()
