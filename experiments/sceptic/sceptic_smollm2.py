"""Does SmolLM2-135M learn more with another credit than GRPO's, once it writes commands?

The design, its pilots and the sentence for every outcome are in
``smollm2_protocol.md``. Two arms are trained with TRL by
``examples/train/textcraft_smollm2.yaml``, from one start and with the same seeds, so that their
runs are pairs. At the start and after every run the unseen goals of TextCraft are played four times
each, sampled at the temperature of training. ``success`` is the share of episodes won,
``well_formed`` that of actions that are commands, ``carried_out`` that of actions that could be
carried out, and ``success_if_formed`` the share won of the episodes of well-formed actions alone.
Intervals over seeds are by Student's t, those over goals are 95 % bootstrap intervals. Only pairs
that are finished count. The quick case trains a tiny policy for one iteration.

    python -m experiments.sceptic.sceptic_smollm2 --warm runs/warm --work runs/smollm2 --minutes 100

makes what is missing in the folder of ``--work``, two runs at a time on one core each. A run that
was stopped goes on from its last checkpoint. After ``--minutes`` nothing new is started. With
``--out NAME.jsonl``, what the figures follow from goes to the folder ``NAME``; ``--curves NAME``
takes the runs of such a folder as finished. All runs must have the same start.
"""

import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.engines.metrics import NAME as METRICS
from ascribe.engines.metrics import read_metrics
from ascribe.steps.atomic import write_file
from ascribe_lab.envs.protocol import Start
from ascribe_lab.envs.textcraft import Crafting, TextCraft, goals, recipe_book
from ascribe_lab.envs.textcraft.game import CRAFT, GET
from ascribe_lab.envs.textcraft.tasks import planner, show
from ascribe_lab.rollout import Sampling, Setup
from benchmarks import common, tiny
from experiments.common import play_all

CONFIG = common.ROOT / "examples" / "train" / "textcraft_smollm2.yaml"
ARMS: dict[str, dict[str, Any]] = {
    "grpo": {"recipe.name": "grpo"},
    "returns": {"recipe.name": "returns"},
    "gigpo": {"recipe.name": "gigpo"},
    "sbc": {"recipe.name": "sbc", "recipe.preset": "exact"},
    "sbc_memory": {
        "recipe.name": "sbc",
        "recipe.preset": "exact",
        "recipe.parameters": {"memory": 0.5},
    },
}
"""Settings of each arm; the first is what the other is compared with."""
FIRST = "grpo"
DEPTHS, MOST_COMMANDS, MOST_RECIPES, OTHERS = (1, 2), 4, 4, 2
UNSEEN, TRAINED = 120, 40
ENVIRONMENT = "sceptic_smollm2:ShortCraft"
FOLDER = str(Path(__file__).parent)
sys.path.append(FOLDER)  # where the environment is found by this name
AT_ONCE = 16
"""Goals that are played at once in an evaluation, which bounds memory."""
CURVE = ("success", "invalid_share", "signal_share", "advantage_rms")

Episode = tuple[bool, int, int, int]
"""Whether it was won, its actions, how many of them were well-formed, and carried out."""
Played = dict[str, list[Episode]]
"""The episodes of each goal."""


@cache
def parts() -> dict[str, tuple[str, ...]]:
    """The goals of the evaluation, of the training and of the warm-up.

    They are all goals of depth 1 and 2 that take at most four commands and have at most four
    recipes in their tree. The SHA-256 of their names decides which part they are in.
    """
    book = recipe_book()
    short = [
        goal
        for goal in goals("all", DEPTHS)
        if planner().from_nothing(goal).commands <= MOST_COMMANDS
        and len(book.tree(goal)) <= MOST_RECIPES
    ]
    short.sort(key=lambda goal: sha256(f"sceptic {goal}".encode()).digest())
    rest = UNSEEN + TRAINED
    return {
        "unseen": tuple(short[:UNSEEN]),
        "train": tuple(short[UNSEEN:rest]),
        "warm": tuple(short[rest:]),
    }


class ShortCraft(TextCraft):
    """TextCraft with one part of the goals, and prompts that are short enough for a CPU.

    At most two recipes do not help, in place of ten. Admissible actions are not shown.
    """

    def __init__(self, *, part: str, horizon: int = 40, expert: bool = False) -> None:
        super().__init__(depth=DEPTHS, inventory=True, horizon=horizon, expert=expert)
        self.goals = parts()[part]
        self.tasks = len(self.goals)

    def begin(self, task: int, generator: np.random.Generator) -> Start[Crafting]:
        goal, tree = self.goals[task], self.book.tree(self.goals[task])
        others = [number for number in show(goal, generator) if number not in tree][:OTHERS]
        shown = tuple(generator.permutation([*tree, *others]).tolist())
        commands = "\n".join(self.book.recipes[number].command for number in shown)
        text = f"{commands}\nOther commands: get [count] [item]"
        family = f"depth {self.book.depths[goal]}"
        return Start(Crafting(goal, shown), text, f"craft {goal.replace('_', ' ')}", family)

    def admissible(self, episode: Crafting) -> None:  # type: ignore[override]  # noqa: ARG002
        return None

    def more_info(self, episode: Crafting) -> dict[str, Any]:
        return {"example_actions": super().admissible(episode)}  # of the noise in the warm-up


@dataclass(frozen=True)
class Design:
    """What is run: pairs of runs, and the settings that all of them share."""

    seeds: Sequence[int] = (301, 302, 303)
    repeats: int = 4
    unseen: int = UNSEEN
    changes: dict[str, Any] = field(
        default_factory=lambda: {
            "update.iterations": 12,
            "update.learning_rate": 4e-5,
            "rollout.groups": 3,
            "rollout.size": 8,
            "rollout.max_turns": 4,
            "rollout.max_tokens": 28,
            "update.rows_per_pass": 4,
            "output.save_every": 4,
        }
    )

    def settings(self, warm: Path, folder: Path, arm: str, seed: int) -> dict[str, Any]:
        """What a run changes in ``CONFIG``."""
        return {
            "model.path": str(warm.absolute()),
            "environment.name": ENVIRONMENT,
            "environment.options": {"part": "train"},
            "environment.pool": "serial",
            "rollout.tasks": list(range(TRAINED)),
            "rollout.states": "environment",
            "update.seed": seed,
            "output.folder": str(folder.absolute()),
            "output.keep": 1,
            "output.rollouts": False,
            **self.changes,
            **ARMS[arm],
        }


QUICK = Design(
    (1, 2),
    2,
    2,
    {
        "rollout.groups": 1,
        "rollout.size": 2,
        "rollout.max_turns": 2,
        "rollout.max_tokens": 8,
        "update.iterations": 1,
        "update.rows_per_pass": 2,
    },
)


# Runs.


def finish(design: Design, warm: Path, folder: Path, arm: str, seed: int) -> None:
    """Train to the end and evaluate, unless that is done."""
    done = folder / "trained.json"
    if not done.exists():
        start = digest(warm)
        others = folder.parent.glob("*/trained.json")
        if {json.loads(other.read_text())["start"] for other in others} - {start}:
            raise SystemExit(f"{warm} is not the start of the finished runs: use another --work")
        resumed = bool(read_metrics(folder))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        changes = common.settings(design.settings(warm, folder, arm, seed))
        path = [FOLDER, str(common.ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}  # to find ShortCraft
        common.ascribe("train", "--resume", str(CONFIG), *changes, env=environment)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
        # What a killed process had spent is not known.
        cost = {"cpu_seconds": None if resumed else spent}
        write_file(done, json.dumps(cost | {"start": start}))
    evaluate(design, folder / "model", folder / "unseen.json")


def digest(model: Path) -> str:
    """The SHA-256 of a model's weights."""
    with (model / "model.safetensors").open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def evaluate(design: Design, model: Path, out: Path) -> None:
    """Play the unseen goals as the training plays its own, unless that is done.

    All evaluations have the same seeds, so that they differ by the model alone.
    """
    if out.exists():
        return
    setup = Setup(ENVIRONMENT, {"part": "unseen"}, "plain", "serial")
    sampling = Sampling(max_tokens=design.changes["rollout.max_tokens"])
    turns, played = design.changes["rollout.max_turns"], Played()
    for start in range(0, design.unseen, AT_ONCE):
        some = range(start, min(start + AT_ONCE, design.unseen))
        found = play_all(
            model, setup, design.repeats, turns, sampling, tasks=some, layout="trajectory"
        )
        for trajectory in found.trajectories:
            goal = parts()["unseen"][some[int(trajectory.group.rpartition("/")[2])]]
            steps = trajectory.steps
            formed = sum(s.problem is None and is_command(s.action) for s in steps)
            episode = trajectory.won, len(steps), formed, sum(s.valid for s in steps)
            played.setdefault(goal, []).append(episode)
    write_file(out, json.dumps(played))


def make_missing(
    design: Design, warm: Path, work: Path, arms: Sequence[str], minutes: float | None
) -> None:
    """Make every run and evaluation that is missing, two at a time, until the time is up."""
    deadline = time.monotonic() + 60 * (float("inf") if minutes is None else minutes)
    pieces: list[tuple[Any, ...]] = [(evaluate, design, warm, work / "start.json")]
    pieces += [
        (finish, design, warm, work / f"{arm}-{seed}", arm, seed)
        for seed in design.seeds
        for arm in arms
    ]
    # A worker makes one piece at a time, so that its children's CPU time is that of the piece.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn) as pool:
        # At most two are with the pool, which begins what it has whatever the time.
        running: set[Any] = set()
        for call, *given in pieces:
            if len(running) == 2:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
            if time.monotonic() < deadline:
                running.add(pool.submit(call, *given))
        for each in running:
            each.result()


# Figures.


def is_command(action: str) -> bool:
    """Whether an action has the form of a command, whether or not it can be carried out."""
    command = action.strip()
    return bool(command == "inventory" or GET.fullmatch(command) or CRAFT.fullmatch(command))


def success(played: Played) -> float:
    """Share of the episodes that were won."""
    return float(np.mean([won for episodes in played.values() for won, *_ in episodes]))


def well_formed(played: Played) -> float:
    """Share of the actions that have the form of a command."""
    _, actions, formed, _ = np.sum([e for each in played.values() for e in each], axis=0)
    return float(formed / actions)


def carried_out(played: Played) -> float:
    """Share of the actions that could be carried out."""
    _, actions, _, valid = np.sum([e for each in played.values() for e in each], axis=0)
    return float(valid / actions)


def success_if_formed(played: Played) -> float:
    """Share won of the episodes whose actions were all well-formed; 0 if there are none."""
    every = [episode for episodes in played.values() for episode in episodes]
    return float(np.mean([won for won, actions, formed, _ in every if actions == formed] or [0.0]))


MEASURES: tuple[Callable[[Played], float], ...] = (
    *(success, well_formed, carried_out),
    success_if_formed,
)

Figure = tuple[str, str, Sequence[float], str]
"""A case, a metric, a value alone or with its interval, and a unit."""


def summary(played: dict[str, Played], runs: list[dict[str, Any]]) -> Iterator[Figure]:
    """All figures, from the episodes of ``start`` and of the runs, and what is known of each run.

    A run is called ARM-SEED. Seeds whose runs are both finished are pairs.
    """
    arms = list(dict.fromkeys(run["arm"] for run in runs))
    seeds = [
        seed
        for seed in dict.fromkeys(run["seed"] for run in runs)
        if all(f"{arm}-{seed}" in played for arm in arms)
    ]
    for measure in MEASURES:
        yield "start", measure.__name__, [measure(played["start"])], "share"
    for run in runs:
        name, case = f"{run['arm']}-{run['seed']}", f"{run['arm']}, seed {run['seed']}"
        if run["seed"] not in seeds:
            said = "its pair is not finished" if name in played else "not finished"
            yield f"{case}: {said}", "iterations", [run["iterations"]], "iterations"
            continue
        for measure in MEASURES:
            yield case, measure.__name__, [measure(played[name])], "share"
        yield case, "success_in_training", [run["success"]], "share"
        yield case, "advantage_rms", [run["advantage_rms"]], "value"
        yield case, "wall_seconds", [run["wall_seconds"]], "s"
        if run["cpu_seconds"] is not None:
            yield case, "cpu_seconds", [run["cpu_seconds"]], "s"
    if not seeds:
        return
    versus = f"{arms[1]} minus {arms[0]}"
    for measure in MEASURES:
        start = measure(played["start"])
        ends = [[measure(played[f"{arm}-{seed}"]) for seed in seeds] for arm in arms]
        for arm, end in zip(arms, ends, strict=True):
            yield f"{arm}, gain", measure.__name__, over_seeds([e - start for e in end]), "share"
        pairs = [other - first for first, other in zip(*ends, strict=True)]
        yield versus, measure.__name__, over_seeds(pairs), "share"
    rate = {(run["arm"], run["seed"]): run["success"] for run in runs}
    pairs = [rate[arms[1], seed] - rate[arms[0], seed] for seed in seeds]
    yield versus, "success_in_training", over_seeds(pairs), "share"
    start, first, other = (
        np.mean(
            [
                [np.mean([won for won, *_ in played[n][goal]]) for goal in played["start"]]
                for n in of
            ],
            axis=0,
        )
        for of in (["start"], *([f"{arm}-{seed}" for seed in seeds] for arm in arms))
    )
    for case, values in (
        (f"{arms[0]}, gain", first - start),
        (f"{arms[1]}, gain", other - start),
        (versus, other - first),
    ):
        yield f"{case}, over goals", "success", common.bootstrap(values), "share"


def over_seeds(values: Sequence[float]) -> Sequence[float]:
    """The mean over pairs, and its interval if there are two or more."""
    return common.mean_interval(values, -1.0) if len(values) > 1 else values


def main() -> None:
    """Make what is missing, then print the figures of what is there."""
    own: dict[str, Any] = {
        "warm": {"type": Path, "default": Path("warm_chat"), "help": "model folder of the start"},
        "work": {"type": Path, "help": "folder of the runs"},
        "arm": {"choices": [*ARMS][1:], "default": "sbc", "help": "what is compared with grpo"},
        "minutes": {"type": float, "help": "start nothing new after so long"},
        "curves": {"type": Path, "help": "a folder of results, whose runs are finished"},
    }
    with common.Figures("sceptic_smollm2", **own) as figures, tempfile.TemporaryDirectory() as new:
        options, design = figures.options, QUICK if figures.quick else Design()
        work, warm = options.work or Path(new) / "work", options.warm
        if figures.quick:
            warm = tiny.write_textcraft(Path(new) / "warm")
        work.mkdir(parents=True, exist_ok=True)
        arms = (FIRST, options.arm)
        if options.curves:
            restore(options.curves, work)
        make_missing(design, warm, work, arms, options.minutes)
        if not (work / "start.json").exists():
            raise SystemExit("the start is not evaluated yet: call it again with more minutes")
        played, runs, curve = collect(design, work, arms)
        for case, metric, values, unit in summary(played, runs):
            better: common.Better = "lower" if unit == "s" else "higher"
            if len(values) == 1:
                figures.emit(case, metric, values[0], unit, better)
            else:
                figures.emit_interval(case, metric, values, unit, better)
        figures.write_curve(curve)
        figures.write_curve(runs, "runs")
        by_goal = (
            {"goal": goal} | {run: played[run][goal] for run in played} for goal in played["start"]
        )
        figures.write_curve(by_goal, "goals")


def restore(results: Path, work: Path) -> None:
    """Put finished runs into the folder of runs, as ``collect`` reads them."""
    goals, curve, runs = (
        common.read_lines(results / f"{name}.jsonl") for name in ("goals", "curve", "runs")
    )
    played = {name: {line["goal"]: line[name] for line in goals} for name in {*goals[0]} - {"goal"}}
    work.mkdir(parents=True, exist_ok=True)
    write_file(work / "start.json", json.dumps(played["start"]))
    for run in runs:
        name = f"{run['arm']}-{run['seed']}"
        if name in played:
            folder = work / name
            folder.mkdir(exist_ok=True)
            own = [line for line in curve if all(line[key] == run[key] for key in ("arm", "seed"))]
            lines = [
                {"iteration": line["iteration"], "seconds": run["wall_seconds"]}
                | {f"ascribe/{key}": line[key] for key in CURVE}
                for line in own
            ]
            write_file(folder / METRICS, "".join(f"{json.dumps(line)}\n" for line in lines))
            cost = {key: run[key] for key in ("cpu_seconds", "start")}
            write_file(folder / "trained.json", json.dumps(cost))
            write_file(folder / "unseen.json", json.dumps(played[name]))


def collect(
    design: Design, work: Path, arms: Sequence[str]
) -> tuple[dict[str, Played], list[dict[str, Any]], list[dict[str, Any]]]:
    """What is there: the episodes of finished evaluations, each run, and the curve of each run."""
    played = {"start": json.loads((work / "start.json").read_text())}
    runs, curve = [], []
    for seed in design.seeds:
        for arm in arms:
            name, folder = {"arm": arm, "seed": seed}, work / f"{arm}-{seed}"
            lines = read_metrics(folder)
            curve += [
                name | {"iteration": line["iteration"]} | {k: line[f"ascribe/{k}"] for k in CURVE}
                for line in lines
            ]
            run: dict[str, Any] = name | {"iterations": len(lines)}
            if (folder / "unseen.json").exists():
                played[f"{arm}-{seed}"] = json.loads((folder / "unseen.json").read_text())
                run |= json.loads((folder / "trained.json").read_text())
                run["wall_seconds"] = lines[-1]["seconds"]
                for metric in ("success", "advantage_rms"):
                    run[metric] = float(np.mean([line[f"ascribe/{metric}"] for line in lines]))
            runs.append(run)
    return played, runs, curve


if __name__ == "__main__":
    main()
