"""Does SmolLM2-135M learn goals that it never saw, with either engine, on a CPU?

One run per engine by ``examples/train/textcraft_smollm2.yaml``, whose head has the commands. The
run goes on from its last checkpoint, so it can be made in pieces. Before and after, the 60 goals of
depth 1 that are in neither the warm-up nor the training are played four times each, sampled at the
temperature of training. ``gain`` is the mean over goals of what each gained. All intervals are 95 %
bootstrap intervals over goals, because the episodes of one goal are alike. One run with one seed
says whether it learns; it says nothing about one recipe against another. The quick case trains a
tiny policy for one iteration.

    python -m experiments.learning_first.learning_smollm2 --engine trl --run runs/trl --minutes 25

``--minutes`` stops the training after so long; call it again to go on. Figures are written when the
run has ended.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ascribe.engines.metrics import read_metrics
from ascribe_lab.rollout import Sampling, Setup
from ascribe_lab.train.config import Layout
from benchmarks import common, tiny
from experiments.common import play_all

CONFIG = common.ROOT / "examples" / "train" / "textcraft_smollm2.yaml"
HELD_OUT, REPEATS, AT_ONCE = range(25, 85), 4, 15
PHASES = {
    "trl": ("ascribe/seconds/", ("rollout", "credit", "update")),
    "verl": ("timing_s/", ("gen", "adv", "update_actor", "update_weights", "save_checkpoint")),
}
"""Metrics that count the seconds of each phase."""
QUICK = {
    "rollout.groups": 1,
    "rollout.size": 2,
    "rollout.max_turns": 2,
    "rollout.max_tokens": 8,
    "rollout.tasks": [0],
    "update.iterations": 1,
    "update.rows_per_pass": 2,
}


def main() -> None:
    """Train or go on; at the end, evaluate the first and the last model."""
    own: dict[str, Any] = {
        "engine": {"choices": ("trl", "verl"), "default": "trl"},
        "warm": {"type": Path, "default": Path("warm_chat")},
        "run": {"type": Path},
        "minutes": {"type": float},
    }
    with common.Figures("learning_smollm2", **own) as figures, tempfile.TemporaryDirectory() as new:
        options, changes = figures.options, {}
        run, warm = options.run or Path(new) / "run", options.warm
        if figures.quick:
            warm, changes = tiny.write_textcraft(Path(new) / "warm"), QUICK.copy()
        changes |= {"model.path": str(warm.absolute()), "output.folder": str(run.absolute())}
        if not (run / "model").is_dir():
            train(options.engine, changes, options.minutes)
        lines = read_metrics(run)
        if not (run / "model").is_dir():
            raise SystemExit(f"{len(lines)} iterations are finished; call it again to go on")
        evaluate(figures, run, HELD_OUT[:2] if figures.quick else HELD_OUT)
        figures.emit(options.engine, "iterations", len(lines), "iterations", "higher")
        prefix, phases = PHASES[options.engine]
        for phase in phases:
            seconds = sum(line.get(prefix + phase, 0.0) for line in lines)
            figures.emit(options.engine, f"{phase}_seconds", seconds, "s", "lower")
        figures.write_curve(
            {"iteration": line["iteration"]}
            | {
                name: line[f"ascribe/{name}"]
                for name in ("success", "invalid_share", "signal_share")
            }
            for line in lines
        )


def train(engine: str, changes: dict[str, Any], minutes: float | None) -> None:
    """Train from the last checkpoint, and for so many minutes at most."""
    words = ("train", "--resume", "--engine", engine, str(CONFIG), *common.settings(changes))
    # All cores: Ray would give verl's trainer one thread.
    environment = os.environ | {"OMP_NUM_THREADS": str(os.cpu_count())}
    running = subprocess.Popen(
        [*common.COMMAND, *words], stdout=sys.stderr, env=environment, start_new_session=True
    )
    try:
        code = running.wait(None if minutes is None else 60 * minutes)
    except subprocess.TimeoutExpired:
        code = 0
    finally:  # verl is a process of its own
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    if code:
        raise SystemExit(f"ascribe train ended with code {code}")


def evaluate(figures: common.Figures, run: Path, tasks: range) -> None:
    """Success on the goals that were held out, with the first and the last model."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    environment, sampled = config["environment"], config["rollout"]
    setup = Setup("textcraft", environment["options"], environment["style"], "processes", 1)
    sampling = Sampling(sampled["temperature"], sampled["top_p"], sampled["max_tokens"])
    played = (setup, REPEATS, sampled["max_turns"], sampling, config["update"]["layout"], tasks)
    models = {"start": Path(config["model"]["path"]), "end": run / "model"}
    engine, won = figures.options.engine, {}
    for name, model in models.items():
        kept = model / "held_out.json"  # both engines begin with one model: it is played once
        how, *found = json.loads(kept.read_text()) if kept.exists() else [None]
        if how != repr(played):
            found = [*held_out(model, *played)]
            kept.write_text(json.dumps([repr(played), *found]))
        won[name], valid = found
        case = f"{engine}, {name}, {len(tasks)} goals held out"
        rate = common.bootstrap(np.array(list(won[name].values())))
        figures.emit_interval(case, "success", rate, "share", "higher")
        figures.emit(case, "valid_actions", valid, "share", "higher")
    goals = sorted(won["start"])
    gains = np.array([won["end"][goal] - won["start"][goal] for goal in goals])
    gain = common.bootstrap(gains)
    figures.emit_interval(f"{engine}, gain", "gain", gain, "share", "higher")
    table = ({"goal": goal} | {name: won[name][goal] for name in won} for goal in goals)
    figures.write_curve(table, "goals")


def held_out(
    model: Path,
    setup: Setup,
    repeats: int,
    turns: int,
    sampling: Sampling,
    layout: Layout,
    tasks: range,
) -> tuple[dict[str, float], float]:
    """Success at each task, and the share of valid actions; a few tasks at a time, for memory."""
    won, valid = {}, []
    for start in range(0, len(tasks), AT_ONCE):
        some = tasks[start : start + AT_ONCE]
        found = play_all(model, setup, repeats, turns, sampling, tasks=some, layout=layout)
        for trajectory in found.trajectories:
            task = str(some[int(trajectory.group.rpartition("/")[2])])
            won[task] = won.get(task, 0.0) + trajectory.won / repeats
            valid += [step.valid for step in trajectory.steps]
    return won, sum(valid) / len(valid)


if __name__ == "__main__":
    main()
