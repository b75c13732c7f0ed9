"""Does SmolLM2-135M learn goals that it never saw, with either engine, on a CPU?

One run per engine by ``examples/train/textcraft_smollm2_long.yaml``, whose head has the commands.
The run goes on from its last checkpoint, so it can be made in pieces. Before and after, the 60
goals of depth 1 that are in neither the warm-up nor the training are played four times each,
sampled at the temperature of training. ``success_low`` and ``success_high`` are Wilson's interval
for as many trials as there are goals. One run with one seed says whether it learns; it says nothing
about one recipe against another. The quick case trains a tiny policy for one iteration.

    python benchmarks/learning_smollm2.py --engine trl --warm warm --run runs/long_trl --minutes 25

``--minutes`` stops the training after so long; call it again to go on.
"""

import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import common
import tiny
import yaml
from learning import QUICK, play_all

from ascribe.rollout import Sampling, Setup

CONFIG = common.ROOT / "examples" / "train" / "textcraft_smollm2_long.yaml"
HELD_OUT, REPEATS = range(25, 85), 4


def main() -> None:
    """Train or go on; at the end, evaluate the first and the last model."""
    own: dict[str, Any] = {
        "engine": {"choices": ("trl", "verl"), "default": "trl"},
        "warm": {"type": Path, "default": Path("warm")},
        "run": {"type": Path},
        "minutes": {"type": float},
    }
    with common.Figures("learning_smollm2", **own) as figures, tempfile.TemporaryDirectory() as new:
        options, changes = figures.options, {}
        run, warm = options.run or Path(new) / "run", options.warm
        if figures.quick:
            warm, changes = tiny.write_textcraft(Path(new) / "warm"), QUICK | {"rollout.tasks": [0]}
        changes |= {"model.path": str(warm.absolute()), "output.folder": str(run.absolute())}
        if not (run / "model").is_dir():
            train(options.engine, changes, options.minutes)
        config = yaml.safe_load((run / "config.yaml").read_text())
        models = {"start": Path(config["model"]["path"]), "end": run / "model"}
        for name, model in models.items() if models["end"].is_dir() else ():
            tasks = HELD_OUT[:2] if figures.quick else HELD_OUT
            evaluate(figures, f"{options.engine}, {name}", config, model, tasks)
        lines = common.read_lines(run / "metrics.jsonl")
        figures.emit(options.engine, "iterations", len(lines), "iterations", "higher")
        figures.write_curve(
            {"iteration": line["iteration"], "success": line["ascribe/success"]} for line in lines
        )


def train(engine: str, changes: dict[str, Any], minutes: float | None) -> None:
    """Train from the last checkpoint, and for so many minutes at most."""
    words = ("train", "--resume", "--engine", engine, str(CONFIG), *common.settings(changes))
    with suppress(subprocess.TimeoutExpired):
        common.ascribe(*words, timeout=None if minutes is None else 60 * minutes)


def evaluate(
    figures: common.Figures, case: str, config: dict[str, Any], model: Path, tasks: range
) -> None:
    """Success on the goals that were held out."""
    environment, sampled = config["environment"], config["rollout"]
    setup = Setup("textcraft", environment["options"], environment["style"], "processes", 1)
    sampling = Sampling(sampled["temperature"], sampled["top_p"], sampled["max_tokens"])
    for one in play_all(model, setup, REPEATS, sampled["max_turns"], sampling, tasks=tasks):
        if one.family == "all":
            name = f"{case}, {one.tasks} goals held out"
            figures.emit_interval(name, "success", (one.rate, one.low, one.high), "share", "higher")
            figures.emit(name, "valid_actions", one.valid, "share", "higher")


if __name__ == "__main__":
    main()
