"""Does a tiny policy learn with ``ascribe train --engine verl``, on a CPU?

The model of two layers that the tests teach two goals of TextCraft, ``bipace_q``, one rank and one
server, 4 groups of 8 in each of 30 iterations, 3 seeds. ``success`` is that of the episodes just
played: of the first five iterations and of the last five, 160 episodes each, on the two goals with
other distractors every time. ``low`` and ``high`` are the smallest and the largest of the seeds.
It shows that what verl does with the credit makes the policy better, and no more than that.
"""

import tempfile
from pathlib import Path
from typing import Any

import common
import tiny

SEEDS = (0, 1, 2)
ITERATIONS, ENDS = 30, 5


def main() -> None:
    """Run the seeds one after another."""
    with (
        common.Figures("learning_tiny_verl") as figures,
        tempfile.TemporaryDirectory() as folder,
    ):
        model = tiny.write_textcraft(Path(folder) / "model")
        seeds, iterations, ends = (SEEDS[:1], 2, 1) if figures.quick else (SEEDS, ITERATIONS, ENDS)
        curves = {seed: run(model, Path(folder) / str(seed), seed, iterations) for seed in seeds}
        for case, part in (("first", slice(ends)), ("last", slice(-ends, None))):
            rates = [mean(curve[part], "ascribe/success") for curve in curves.values()]
            name = f"{case} {ends} of {iterations} iterations, {len(seeds)} seeds"
            figures.emit_interval(name, "success", common.mean_range(rates), "share", "higher")
        seconds = [mean(curve[1:], "timing_s/step") for curve in curves.values()]
        figures.emit("an iteration", "seconds", sum(seconds) / len(seconds), "s", "lower")
        figures.write_curve(
            {"seed": seed, "iteration": line["iteration"], "success": line["ascribe/success"]}
            for seed, lines in curves.items()
            for line in lines
        )


def run(model: Path, folder: Path, seed: int, iterations: int) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``."""
    changes = {
        "model.path": str(model),
        "output.folder": str(folder),
        "output.save_every": 0,
        "output.rollouts": False,
        "rollout.groups": 4,
        "rollout.size": 8,
        "update.iterations": iterations,
        "update.learning_rate": 2e-3,
        "update.minibatches": 1,
        "update.loss": "token",
        "update.rows_per_pass": 32,
        "update.seed": seed,
        "engine.verl.trainer.n_gpus_per_node": 1,
    }
    config = common.ROOT / "examples" / "train" / "textcraft_tiny_verl.yaml"
    common.ascribe("train", "--engine", "verl", str(config), *common.settings(changes))
    return common.read_lines(folder / "metrics.jsonl")


def mean(lines: list[dict[str, Any]], name: str) -> float:
    """Of one number, over iterations."""
    return sum(line[name] for line in lines) / len(lines)


if __name__ == "__main__":
    main()
