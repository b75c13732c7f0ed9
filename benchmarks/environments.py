"""Environments: what a pool costs, and how many steps a second each environment makes.

``pool_overhead`` is a ratio of wall times: 16 environments with 2 workers of a pool, over the same
steps of the same environments in 2 plain processes without a pool, each stepping its 8 in turn. A
pool returns all 16 results before the next call, as a policy would; plain processes do not wait. A
step takes 1 ms of work of the CPU (``busy``) or 1 ms of waiting (``sleep``). With 2
environments, one for each worker, every step is a call of its own: the worst case. The value is the
median over rounds, the sides taking turns.

Wall times need an idle machine. ``plain_slowdown`` is what the plain processes took for their work
over what it takes undisturbed. Where it is far from 1, other programs used the machine, and no
``pool_overhead`` of the run means anything, not even one below 1. (Processes that sleep are hardly
slowed down themselves, but a pool that must be woken for every answer is.) ``extra_cpu`` suffers
less: the CPU time of a step in caller and worker, less that
of a step in a plain process.

``steps_per_second`` counts the time inside ``step`` alone, in one process, with actions drawn from
those that info offers. ``reset_seconds`` is the mean time of a reset. The first episode does not
count. AlfWorld plays 6 generated games, Maths and Team ask sums, Pivots asks turns of Sokoban's
expert; the others have their defaults.
"""

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import common
import numpy as np

from ascribe.envs import ENVIRONMENTS, Environment, MissingExtraError, make
from ascribe.pivots import write_turns
from ascribe.rollout.pools import (
    EnvironmentSpec,
    Failure,
    ProcessPool,
    Reset,
    StepResult,
)

WORKERS = 2
MILLISECOND = 1e-3
AMPLE = 600.0

Info = dict[str, Any]


class Work:
    """An environment whose steps take a known effort."""

    tasks = None

    def __init__(self, *, kind: str, effort: float) -> None:
        self.do: Callable[[float], None] = {"busy": count, "sleep": time.sleep}[kind]
        self.effort = effort

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[str, Info]:
        """Begin; there is nothing to it."""
        del seed, options
        return "You see work.", self.info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Work."""
        del action
        self.do(self.effort)
        return "You see more work." * 10, 0.0, False, False, self.info()

    def close(self) -> None:
        """Nothing to give back."""

    def info(self) -> Info:
        """What info must carry."""
        words = {"task": "work", "task_family": "work", "state": "work"}
        flags = {"won": False, "valid": True}
        used = {"cpu": time.process_time()}
        return words | flags | used | {"admissible_actions": ["work"] * 20}


def count(numbers: float) -> None:
    """Keep a core busy."""
    for _ in range(int(numbers)):
        pass


def numbers_in(seconds: float) -> float:
    """How far ``count`` counts in this time, when nothing disturbs it."""
    return max(_numbers_in(seconds) for _ in range(50))


def _numbers_in(seconds: float) -> float:
    began = time.perf_counter()
    count(100_000)
    return 100_000 / (time.perf_counter() - began) * seconds


# What a pool costs.

Run = Callable[[int], float]
"""Steps all environments so often; returns the CPU time that the workers have used by then."""


def bare(connection: Connection, options: Info, environments: int) -> None:
    """Step environments in turn: the other end says how often, and hears when it is done."""
    # Linux shares the CPU out by session. Workers of a pool have one each, so these have, too: on
    # a busy machine they would else get less of it.
    os.setsid()
    made = [Work(**options) for _ in range(environments)]
    for environment in made:
        environment.reset()
    connection.send("ready")
    while rounds := connection.recv():
        for _ in range(rounds):
            for environment in made:
                environment.step("work")
        connection.send(time.process_time())


@contextmanager
def plain_processes(options: Info, slots: int) -> Iterator[Run]:
    """So many environments in plain processes."""
    context = multiprocessing.get_context("spawn")
    connections, processes = [], []
    for _ in range(WORKERS):
        ours, theirs = context.Pipe()
        process = context.Process(target=bare, args=(theirs, options, slots // WORKERS))
        process.start()
        connections.append(ours)
        processes.append(process)
    for connection in connections:
        connection.recv()

    def run(rounds: int) -> float:
        for connection in connections:
            connection.send(rounds)
        return sum(connection.recv() for connection in connections)

    try:
        yield run
    finally:
        for connection in connections:
            connection.send(0)
        for process in processes:
            process.join()


@contextmanager
def pooled(options: Info, slots: int) -> Iterator[Run]:
    """The same in a pool."""
    spec = EnvironmentSpec("environments:Work", options)
    with ProcessPool(spec, WORKERS, slots, AMPLE, AMPLE) as pool:
        all_told(pool.reset({slot: Reset(slot) for slot in range(slots)}))

        def run(rounds: int) -> float:
            for _ in range(rounds):
                told = all_told(pool.step(dict.fromkeys(range(slots), "work")))
            # The last slot of each worker was asked last.
            return sum(answer.info["cpu"] for answer in told[-WORKERS:])

        yield run


def all_told(answers: dict[int, StepResult | Failure]) -> list[StepResult]:
    """The answers. A failure would look like speed."""
    told = [answer for answer in answers.values() if isinstance(answer, StepResult)]
    if len(told) < len(answers):
        raise RuntimeError(f"a step failed: {answers}")
    return told


def overheads(figures: common.Figures) -> None:
    """Pools against plain processes."""
    efforts = {"busy": numbers_in(MILLISECOND), "sleep": MILLISECOND}
    turns, seconds = (5, 0.2) if figures.quick else (15, 1.0)
    for effort, slots in [("busy", 16), ("sleep", 16), ("busy", 2), ("sleep", 2)]:
        options = {"kind": effort, "effort": efforts[effort]}
        rounds = round(seconds / MILLISECOND * WORKERS / slots)
        with ExitStack() as stack:
            sides = {
                "plain": stack.enter_context(plain_processes(options, slots)),
                "processes": stack.enter_context(pooled(options, slots)),
            }
            times = taking_turns(sides, rounds, turns)
        plain = times.pop("plain")
        slowdown = statistics.median(spent.wall for spent in plain) / seconds
        for name, pool in times.items():
            pairs = list(zip(pool, plain, strict=True))
            ratio = statistics.median(ours.wall / theirs.wall for ours, theirs in pairs)
            extra = statistics.median(ours.cpu - theirs.cpu for ours, theirs in pairs)
            case = f"{name}, {slots} environments, {effort}"
            goal = 1.3 if slots == 16 else None
            figures.emit(case, "pool_overhead", ratio, "ratio", "lower", goal)
            if effort == "busy":
                figures.emit(case, "plain_slowdown", slowdown, "ratio", "lower")
            figures.emit(case, "extra_cpu", extra / (rounds * slots) * 1e6, "µs", "lower")


def taking_turns(sides: dict[str, Run], rounds: int, turns: int) -> dict[str, list[common.Seconds]]:
    """Times of each side, which run one after the other in every turn."""
    times: dict[str, list[common.Seconds]] = {name: [] for name in sides}
    used = {name: run(max(1, rounds // 10)) for name, run in sides.items()}
    for _ in range(turns):
        for name, run in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            by_now = run(rounds)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            times[name].append(common.Seconds(cpu + by_now - used[name], wall))
            used[name] = by_now
    return times


# Steps a second.


def speeds(figures: common.Figures, folder: Path) -> None:
    """Every environment that is installed."""
    budget = 1.0 if figures.quick else 10.0
    sums = folder / "sums.jsonl"
    lines = [{"question": f"{n} + {n}?", "answer": f"#### {2 * n}"} for n in range(100)]
    sums.write_text("".join(json.dumps(line) + "\n" for line in lines))
    turns = folder / "turns.jsonl"
    write_turns(turns, common.expert_turns(folder / "sokoban.parquet", 4))
    options: dict[str, Info] = {
        "alfworld": {"count": 6, "cache": str(folder)},
        "maths": {"file": str(sums)},
        "pivots": {"file": str(turns), "verifier": "exact"},
        "team": {"options": {"file": str(sums)}},
    }
    for name in ENVIRONMENTS:
        try:
            environment = make(name, **options.get(name, {}))
        except MissingExtraError as missing:
            say(f"{name} is not measured: {missing}")
            continue
        with closing(environment):
            stepped(environment, 0.0)
            steps, resets = stepped(environment, budget)
        figures.emit(name, "steps_per_second", 1 / statistics.mean(steps), "1/s", "higher")
        figures.emit(name, "reset_seconds", statistics.mean(resets), "s", "lower")


def stepped(environment: Environment, budget: float) -> tuple[list[float], list[float]]:
    """Seconds of each step and of each reset: episodes until the budget is spent, at least one."""
    random = np.random.default_rng(0)
    steps: list[float] = []
    resets: list[float] = []
    until = time.perf_counter() + budget
    while not steps or time.perf_counter() < until:
        began = time.perf_counter()
        _, info = environment.reset(seed=len(resets))
        resets.append(time.perf_counter() - began)
        over = False
        while not over:
            offered = info["admissible_actions"] or info["example_actions"]
            action = offered[int(random.integers(len(offered)))]
            began = time.perf_counter()
            _, _, terminated, truncated, info = environment.step(action)
            steps.append(time.perf_counter() - began)
            over = terminated or truncated
    return steps, resets


def say(note: str) -> None:
    """To standard error; figures alone go to standard output."""
    print(note, file=sys.stderr)


def main() -> None:
    """Measure and print."""
    with common.Figures("environments") as figures, tempfile.TemporaryDirectory() as folder:
        overheads(figures)
        speeds(figures, Path(folder))


if __name__ == "__main__":
    main()
