"""Three voters learn sums with TRL: paid by what the team earns, or by what each one adds.

Each voter has an adapter of its own on one tiny policy (``tiny.py``), and they learn in
turns. ``shared`` is ``grpo`` on the team's reward, which every voter gets; ``counterfactual`` is
``ccpo``. Both begin with the same policy and play the same questions with the same seeds. Figures
are those of the episodes just played: of the first six iterations and of the
last thirty (with ``--model``: three). ``team`` is the success of the team,
``alone`` the mean share of the voters' own answers that are right. ``low`` and ``high`` are the
smallest and the largest of the seeds, and ``difference`` is paired by seed.

    python -m experiments.ccpo.learning_team
    python -m experiments.ccpo.learning_team --model warm      # one run of each, by a real model

With ``--model`` the sums are asked in words, and answered as the environment asks; a small model
needs a warm-up (``ascribe warmup --env maths``). One run with one seed says that it runs and
whether it learns, and nothing about one reward against the other.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ascribe_lab.envs.maths import final_answer, last_number
from benchmarks import common, tiny

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "trl", "peft")
REWARDS = {"shared": "grpo", "counterfactual": "ccpo"}
VOTERS = ("1", "2", "3")
SEEDS = (0, 1, 2)
FIRST, LAST = 6, 30

Curve = list[dict[str, float]]


def main() -> None:
    """Run all seeds with both rewards."""
    own: dict[str, Any] = {"model": {"help": "a folder; one run with each reward"}}
    with common.Figures("learning_team", **own) as figures, tempfile.TemporaryDirectory() as name:
        folder, options = Path(name), figures.options
        seeds: Sequence[int] = SEEDS[:1] if figures.quick or options.model else SEEDS
        iterations = 3 if figures.quick else (15 if options.model else 180)
        curves = {
            (reward, seed): run(folder, options.model, reward, seed, iterations, figures.quick)
            for seed in seeds
            for reward in REWARDS
        }
        who = "tiny policy" if options.model is None else Path(options.model).name
        case = f"{who}, {iterations} iterations, {len(seeds)} seeds"
        tell(figures, case, curves, seeds)
        figures.write_curve(
            {"reward": reward, "seed": seed, "iteration": number, **one}
            for (reward, seed), curve in curves.items()
            for number, one in enumerate(curve, start=1)
        )


def run(
    folder: Path, model: str | None, reward: str, seed: int, iterations: int, quick: bool
) -> Curve:
    """One run; the success of each iteration."""
    if model is None:
        questions = tiny.write_questions(folder / "sums.jsonl")
        path = folder / f"policy_{seed}"
        steps = 50 if quick else 500
        start = str(path if path.is_dir() else tiny.write_sums(path, seed, steps=steps))
        team, sizes = {"form": "", "ties": "share"}, {"groups": 16, "size": 8, "max_tokens": 2}
        rate, rows, updates = 3e-3, 32, 4
    else:
        words = "What is {} plus {}?"
        questions = tiny.write_questions(folder / "words.jsonl", words=words)
        start, team, sizes = model, {"ties": "share"}, {"groups": 4, "size": 6, "max_tokens": 10}
        rate, rows, updates = 2e-4, 8, 1
    out = folder / f"{reward}_{seed}"
    common.train(
        {
            "model": {"path": start, "lora": {"rank": 8, "alpha": 16, "agents": list(VOTERS)}},
            "environment": {
                "name": "team",
                "options": {**team, "options": {"file": str(questions), "judge": "number"}},
                "style": "plain",
                "pool": "serial",
            },
            "recipe": {"name": REWARDS[reward]},
            "rollout": {**sizes, "max_turns": len(VOTERS)},
            "update": {
                "iterations": iterations,
                "learning_rate": rate,
                "loss": "token",
                "kl": 0,
                "rows_per_pass": rows,
                "minibatches": updates,
                "seed": seed,
            },
            "output": {"folder": str(out), "save_every": 0, "rollouts": True},
            "engine": {"trl": {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}},
        }
    )
    right = answers(questions)
    return [counted(file, right) for file in sorted((out / "rollouts").glob("*.parquet"))]


def answers(questions: Path) -> dict[str, str]:
    """The answer to each question."""
    return {row["question"]: row["answer"] for row in common.read_lines(questions)}


def counted(file: Path, right: dict[str, str]) -> dict[str, float]:
    """How often the team is right in an iteration, and how often each voter is."""
    rows = pq.read_table(file, columns=["step", "agent", "observation", "action", "won"])
    told = rows.to_pylist()
    found = {"team": np.mean([row["won"] for row in told if row["step"] == len(VOTERS) - 1])}
    for voter in VOTERS:
        mine = [row for row in told if row["agent"] == voter]
        found[voter] = np.mean([is_right(row, right) for row in mine])
    found["alone"] = np.mean([found[voter] for voter in VOTERS])
    return {name: float(value) for name, value in found.items()}


def is_right(row: dict[str, Any], right: dict[str, str]) -> bool:
    """Whether a voter's own answer is right."""
    question = row["observation"].partition("\n")[0]
    said = last_number(final_answer(row["action"]) or row["action"])
    return said == last_number(right[question])


def tell(
    figures: Any, case: str, curves: dict[tuple[str, int], Curve], seeds: Sequence[int]
) -> None:
    """Print the means, and the differences seed by seed."""
    ends: dict[tuple[str, str], list[float]] = {}
    for metric in ("team", "alone"):
        for reward in REWARDS:
            runs = [curves[reward, seed] for seed in seeds]
            last = min(LAST, max(1, len(runs[0]) // 5))
            for when, part in (("first", slice(FIRST)), ("last", slice(-last, None))):
                rates = [float(np.mean([one[metric] for one in each[part]])) for each in runs]
                ends[reward, f"{metric} {when}"] = rates
                named = f"{case}: {reward}, {when}"
                values = common.mean_range(rates)
                figures.emit_interval(named, metric, values, "share", "higher")
        pairs = zip(
            ends["counterfactual", f"{metric} last"], ends["shared", f"{metric} last"], strict=True
        )
        apart = [ours - theirs for ours, theirs in pairs]
        named = f"{case}: counterfactual less shared, last"
        values = common.mean_range(apart)
        figures.emit_interval(named, f"{metric}_difference", values, "share", "higher")


if __name__ == "__main__":
    main()
