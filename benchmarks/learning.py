"""Shared by ``learning_trl`` and ``learning_verl``: train with a config, and evaluate the model.

Not a benchmark by itself. Both scripts take ``--warm FOLDER``, the model at the start, as
``ascribe warmup`` writes it, and ``--run FOLDER``, where the run goes; a run that has ended is not
repeated, so figures can be taken from it later. The quick case trains a tiny policy for one
iteration in a temporary folder.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import tiny
import yaml

from ascribe.models import TransformersPolicy
from ascribe.rollout import Plan, Sampling, Setup, Success, rollout, success

KEPT = ("success", "success/depth 1", "success/depth 2", "invalid_share", "signal_share", "rows")
QUICK = {
    "rollout.groups": 1,
    "rollout.size": 2,
    "rollout.max_turns": 2,
    "rollout.max_tokens": 8,
    "update.iterations": 1,
    "update.rows_per_pass": 2,
}


@dataclass(frozen=True)
class Learning:
    """A run and its evaluation.

    Attributes:
        bench: name of the script.
        engine: the engine that trains.
        config: the example that is run.
        depths: of the goals of the evaluation, none of which is trained on.
        phases: names of the metrics that count the seconds of each phase.
        repeats: episodes of each goal.
    """

    bench: str
    engine: str
    config: Path
    depths: tuple[int, ...]
    phases: dict[str, str]
    repeats: int


def measure(learning: Learning) -> None:
    """Train, evaluate the model at the start and at the end, and write figures and curve."""
    own: dict[str, Any] = {"warm": {"type": Path, "default": Path("warm")}, "run": {"type": Path}}
    with common.Figures(learning.bench, **own) as figures, tempfile.TemporaryDirectory() as folder:
        run, warm = figures.options.run or Path(folder) / "run", figures.options.warm
        changes: dict[str, Any] = {}
        if figures.quick:
            warm, changes = tiny.write_textcraft(Path(folder) / "warm"), QUICK
        if not (run / "model").is_dir():
            changes = {
                "model.path": str(warm.absolute()),
                "output.folder": str(run.absolute()),
                **changes,
            }
            words = ("train", "--engine", learning.engine, str(learning.config))
            common.ascribe(*words, *common.settings(changes))
        lines = common.read_lines(run / "metrics.jsonl")
        config = yaml.safe_load((run / "config.yaml").read_text())
        for name, model in (("start", Path(config["model"]["path"])), ("end", run / "model")):
            for one in _evaluate(learning, config, model, 4 if figures.quick else None):
                case = f"{name}, {one.family}, {one.tasks} goals held out"
                values = (one.rate, one.low, one.high)
                figures.emit_interval(case, "success", values, "share", "higher")
                figures.emit(case, "valid_actions", one.valid, "share", "higher")
        for phase, metric in learning.phases.items():
            seconds = sum(line.get(metric, 0.0) for line in lines)
            figures.emit(f"{len(lines)} iterations", f"{phase}_seconds", seconds, "s", "lower")
        figures.write_curve(
            {"iteration": line["iteration"]}
            | {name: line[f"ascribe/{name}"] for name in KEPT if f"ascribe/{name}" in line}
            for line in lines
        )


def _evaluate(
    learning: Learning, config: dict[str, Any], model: Path, most: int | None
) -> list[Success]:
    """Every goal of the split ``eval``, sampled as in training."""
    environment, sampled = config["environment"], config["rollout"]
    options = {**environment["options"], "split": "eval", "depth": list(learning.depths)}
    setup = Setup("textcraft", options, environment["style"], "processes", 1)
    sampling = Sampling(sampled["temperature"], sampled["top_p"], sampled["max_tokens"])
    return play_all(model, setup, learning.repeats, sampled["max_turns"], sampling, most)


def play_all(
    model: Path,
    setup: Setup,
    repeats: int,
    turns: int,
    sampling: Sampling,
    most: int | None = None,
    tasks: range | None = None,
) -> list[Success]:
    """Success of a model at all tasks of an environment, or at these."""
    tasks = tasks or range(min(setup.facts[0] or 0, most or 10**9))
    count = len(tasks)
    plan = Plan(count, repeats, turns, seed=1, tasks=tasks, sampling=sampling)
    policy = TransformersPolicy.load(model)
    with setup.open_pool(count * repeats) as pool:
        return success(rollout(plan, pool, setup.agent, policy))
