"""Does a tiny policy learn with ``ascribe train --engine verl``, on a CPU?

The model of two layers that the tests teach two goals of TextCraft, ``bipace_q``, one rank and one
server, 4 groups of 8 in each of 30 iterations, 3 seeds. ``success`` is that of the episodes just
played: of the first five iterations and of the last five, 160 episodes each, on the two goals with
other distractors every time. ``low`` and ``high`` are the smallest and the largest of the seeds.
It shows that what verl does with the credit makes the policy better, and no more than that.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Figures

ROOT = Path(__file__).parents[1]
SEEDS = (0, 1, 2)
ITERATIONS, ENDS = 30, 5


def main() -> None:
    """Run the seeds one after another."""
    sys.path.insert(0, str(ROOT))
    from tests.engines.verl_toys import write_tiny  # noqa: PLC0415 (found by the path above)

    with Figures("learning_tiny_verl") as figures, tempfile.TemporaryDirectory() as folder:
        model = write_tiny(Path(folder) / "model")
        seeds = SEEDS[:1] if figures.quick else SEEDS
        curves = {seed: run(model, Path(folder) / str(seed), seed) for seed in seeds}
        for case, part in (("first", slice(ENDS)), ("last", slice(-ENDS, None))):
            rates = [mean(curve[part], "ascribe/success") for curve in curves.values()]
            name = f"{case} {ENDS} of {ITERATIONS} iterations, {len(seeds)} seeds"
            figures.emit(name, "success", sum(rates) / len(rates), "share", "higher")
            figures.emit(name, "success_low", min(rates), "share", "higher")
            figures.emit(name, "success_high", max(rates), "share", "higher")
        seconds = [mean(curve[1:], "timing_s/step") for curve in curves.values()]
        figures.emit("an iteration", "seconds", sum(seconds) / len(seconds), "s", "lower")
        if figures.out is not None:
            write_curves(figures.out.with_suffix("") / "curve.jsonl", curves)


def run(model: Path, folder: Path, seed: int) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``."""
    changes = {
        "model.path": model,
        "output.folder": folder,
        "output.save_every": 0,
        "output.rollouts": "false",
        "rollout.groups": 4,
        "rollout.size": 8,
        "update.iterations": ITERATIONS,
        "update.learning_rate": 2e-3,
        "update.minibatches": 1,
        "update.rows_per_pass": 32,
        "update.seed": seed,
        "engine.verl.trainer.n_gpus_per_node": 1,
    }
    ascribe = Path(sys.executable).parent / "ascribe"
    config = ROOT / "examples" / "train" / "textcraft_tiny_verl.yaml"
    words = [str(ascribe), "train", "--engine", "verl", str(config)]
    words += [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    subprocess.run(words, check=True, stdout=sys.stderr)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def mean(lines: list[dict[str, Any]], name: str) -> float:
    """Of one number, over iterations."""
    return sum(line[name] for line in lines) / len(lines)


def write_curves(path: Path, curves: dict[int, list[dict[str, Any]]]) -> None:
    """Success by iteration and seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [
        {"seed": seed, "iteration": line["iteration"], "success": line["ascribe/success"]}
        for seed, lines in curves.items()
        for line in lines
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in kept))


if __name__ == "__main__":
    main()
