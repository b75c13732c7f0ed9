"""What ``learning_trl`` and ``learning_verl`` share: train by a config, and try the model.

Not a benchmark by itself. Both scripts take ``--warm FOLDER``, the model at the start, as
``ascribe warmup`` writes it, and ``--run FOLDER``, where the run goes; a run that has ended is not
made again, so that figures can be taken from it later.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from common import Figures

from ascribe.models import TransformersPolicy
from ascribe.rollout import Plan, Sampling, Setup, Success, rollout, success

ROOT = Path(__file__).parents[1]
KEPT = ("success", "success/depth 1", "success/depth 2", "invalid_share", "signal_share", "rows")


@dataclass(frozen=True)
class Learning:
    """A run and how it is tried.

    Attributes:
        bench: name of the script.
        engine: who trains.
        config: the example that is run.
        depths: of the goals that the model is tried on; none of them is trained on.
        phases: names of metrics that count seconds, by what they are of.
        repeats: episodes of each goal.
    """

    bench: str
    engine: str
    config: Path
    depths: tuple[int, ...]
    phases: dict[str, str]
    repeats: int


def measure(learning: Learning) -> None:
    """Train, try the model at the start and at the end, and write the figures and the curve."""
    options = _options()
    with Figures(learning.bench) as figures:
        run = options.run.absolute()
        if not (run / "model").is_dir():
            _train(learning, options.warm.absolute(), run)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        config = yaml.safe_load((run / "config.yaml").read_text())
        for name, folder in (("start", Path(config["model"]["path"])), ("end", run / "model")):
            for one in _tried(learning, config, folder):
                case = f"{name}, {one.family}, {one.tasks} goals held out"
                figures.emit(case, "success", one.rate, "share", "higher")
                figures.emit(case, "success_low", one.low, "share", "higher")
                figures.emit(case, "success_high", one.high, "share", "higher")
                figures.emit(case, "valid_actions", one.valid, "share", "higher")
        for phase, metric in learning.phases.items():
            seconds = sum(line.get(metric, 0.0) for line in lines)
            figures.emit(f"{len(lines)} iterations", f"{phase}_seconds", seconds, "s", "lower")
        if figures.out is not None:
            _write_curve(figures.out.with_suffix("") / "curve.jsonl", lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--warm", type=Path, default=Path("warm"))
    parser.add_argument("--run", type=Path, required=True)
    options, sys.argv[1:] = parser.parse_known_args()
    return options


def _train(learning: Learning, warm: Path, run: Path) -> None:
    ascribe = Path(sys.executable).parent / "ascribe"
    changes = [f"model.path={warm}", f"output.folder={run}"]
    words = [str(ascribe), "train", "--engine", learning.engine, str(learning.config)]
    words += [word for change in changes for word in ("--set", change)]
    subprocess.run(words, check=True, stdout=sys.stderr)


def _tried(learning: Learning, config: dict[str, Any], folder: Path) -> Any:
    """Every goal of the split ``eval``, sampled as in training, in half precision."""
    environment = config["environment"]
    options = {**environment["options"], "split": "eval", "depth": list(learning.depths)}
    setup = Setup("textcraft", options, environment["style"], "processes", 1)
    asked = config["rollout"]
    sampling = Sampling(asked["temperature"], asked["top_p"], asked["max_tokens"])
    return play_all(folder, setup, learning.repeats, asked["max_turns"], sampling)


def play_all(
    folder: Path, setup: Setup, repeats: int, turns: int, sampling: Sampling
) -> list[Success]:
    """Success of a model at all tasks of an environment, in half precision."""
    count = setup.facts[0] or 0
    plan = Plan(count, repeats, turns, seed=1, tasks=range(count), sampling=sampling)
    policy = TransformersPolicy.load(folder, dtype="bfloat16")
    with setup.open_pool(count * repeats) as pool:
        return success(rollout(plan, pool, setup.agent, policy))


def _write_curve(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [
        {"iteration": line["iteration"]}
        | {name: line[f"ascribe/{name}"] for name in KEPT if f"ascribe/{name}" in line}
        for line in lines
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in kept))
