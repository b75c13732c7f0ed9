"""What all benchmarks share: figures as JSON lines, fair timing, and tables of invented steps."""

import argparse
import json
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ascribe import StepTable
from ascribe.steps.table import Coded

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PACKAGES = ("ascribe", "numpy", "pyarrow", "rapidfuzz", "torch", "transformers", "trl", "verl")

# Figures.


class Figures:
    """Prints each figure as one JSON line; at the end, writes all of them under a header."""

    def __init__(self, bench: str) -> None:
        parser = argparse.ArgumentParser(prog=f"benchmarks/{bench}.py")
        parser.add_argument("--quick", action="store_true", help="smaller cases, within 45 s")
        parser.add_argument("--out", type=Path, help="also write the figures to this file")
        options = parser.parse_args()
        _keep_to_one_thread()
        self.bench, self.out, self.quick = bench, options.out, bool(options.quick)
        self.lines = [json.dumps(_header(bench, quick=self.quick))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None and self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text("\n".join(self.lines) + "\n")

    def emit(
        self,
        case: str,
        metric: str,
        value: float,
        unit: str,
        better: Literal["lower", "higher"],
        goal: float | None = None,
    ) -> None:
        """Print one figure. ``goal`` is the worst value that is still good enough."""
        figure = {"bench": self.bench, "case": case, "metric": metric}
        figure |= {"value": float(f"{value:.4g}"), "unit": unit, "goal": goal, "better": better}
        self.lines.append(json.dumps(figure))
        print(self.lines[-1], flush=True)


def _keep_to_one_thread() -> None:
    """So that CPU time is the time of one core. Starts the script anew if need be.

    Numeric libraries read these variables when they are loaded, which has happened by now.
    """
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | ONE_THREAD)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _header(bench: str, *, quick: bool) -> dict[str, Any]:
    """When, where and with what the figures were made."""
    return {
        "bench": bench,
        "quick": quick,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
        },
        "python": platform.python_version(),
        "packages": _installed(),
    }


def _installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


# Time and memory.


@dataclass(frozen=True)
class Work:
    """Something to measure: ``run`` is measured, on a new input from ``prepare``, which is not."""

    prepare: Callable[[], Any]
    run: Callable[[Any], object]


@dataclass(frozen=True)
class Seconds:
    """Medians over the repetitions."""

    cpu: float
    wall: float


def interleaved(
    works: Mapping[str, Work], *, rounds: int, at_least: float = 0.1, warm_up: bool = True
) -> dict[str, Seconds]:
    """Time every work in every round, so that a busy machine is busy for all of them.

    Short works are repeated inside a round until they have taken ``at_least`` this many seconds.
    To warm up, each runs once before, which does not count.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    if warm_up:
        for work in works.values():
            _time(work)
    for _ in range(rounds):
        for name, work in works.items():
            spent = 0.0
            while spent < at_least:
                times[name].append(_time(work))
                spent += times[name][-1][0]
    return {
        name: Seconds(*(statistics.median(column) for column in zip(*pairs, strict=True)))
        for name, pairs in times.items()
    }


def _time(work: Work) -> tuple[float, float]:
    given = work.prepare()
    wall, cpu = time.perf_counter(), time.process_time()
    work.run(given)
    return time.process_time() - cpu, time.perf_counter() - wall


def peak_bytes(work: Work) -> int:
    """The most memory that ``run`` held at one time, beyond what there was before it.

    Counts Python objects and numpy arrays, not what Arrow allocates. Slows the work down, so it is
    never measured together with time.
    """
    given = work.prepare()
    tracemalloc.start()
    try:
        work.run(given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Steps.

TRAJECTORIES = 8
PLACES = 40
"""States of a task that its trajectories meet in."""
EVERYWHERE = 200
"""States that occur in many tasks ("Nothing happens.")."""
MEAN_LENGTH = 35
ROWS_OF_GROUP = TRAJECTORIES * MEAN_LENGTH

WORDS = (
    "apple bench chair clock couch crate diary drawl dress fence flask floor frame glass glove "
    "grass house knife ladle lever linen lodge medal metal mixer mouse nails north notes novel "
    "olive onion paint panel paper patio peach pedal phone piano plank plate porch purse radio "
    "razor ridge robot ruler salad scarf shelf sieve skirt spoon stair stool stove table tiles "
    "towel tower train trays"
)
WORDS_OF_STATE = 49
"""Six characters each, and six for the number of the state: 300 characters."""


def steps(
    groups: int,
    seed: int = 0,
    *,
    lengths: tuple[int, int] = (20, 50),
    order: Literal["engine", "shuffled"] = "engine",
    texts: bool = True,
) -> StepTable:
    """A table of invented steps: ``groups`` tasks of 8 trajectories, of 35 steps in the mean.

    A task starts in one state. Later steps are at one of its 40 places (some are visited much more
    than others), or in one of 200 states that all tasks know (5 %), or in a state that nobody sees
    again: the text of a place with two words changed (27 %). So about a third of the rows are
    alone in their state. Four in ten trajectories succeed and are paid at their last step; one
    action in twenty is invalid; a failure of the longest length counts as cut by a limit.

    Args:
        groups: number of tasks.
        seed: the same seed gives the same table.
        lengths: shortest and longest trajectory.
        order: ``engine`` has step 0 of all trajectories, then step 1 of all, as engines that act
            in lockstep give them; ``shuffled`` has no order.
        texts: states of 300 characters; without, all states have the same empty text, for sizes
            at which the texts would not fit into memory. Codes are distinct all the same.
    """
    rng = np.random.default_rng(seed)
    length = rng.integers(lengths[0], lengths[1] + 1, groups * TRAJECTORIES)
    trajectory = np.repeat(np.arange(length.size), length)
    step = np.arange(trajectory.size) - (np.cumsum(length) - length)[trajectory]
    group = trajectory // TRAJECTORIES

    place = group * PLACES + (PLACES * rng.random(step.size) ** 2).astype(np.int64)
    place[step == 0] = group[step == 0] * PLACES
    draw = np.where(step == 0, 0.5, rng.random(step.size))
    known = groups * PLACES + EVERYWHERE
    state = place.copy()
    state[draw > 0.95] = groups * PLACES + rng.integers(0, EVERYWHERE, int((draw > 0.95).sum()))
    once = draw < 0.27
    state[once] = known + np.arange(int(once.sum()))

    last = step == length[trajectory] - 1
    success = rng.random(length.size) < 0.4
    cut = last & (length[trajectory] == lengths[1]) & ~success[trajectory]
    values = _states(known, place[once], rng) if texts else np.full(known + once.sum(), "", object)
    table = StepTable(
        group=Coded(group, _names("task", groups)),
        trajectory=Coded(trajectory, _names("trajectory", length.size)),
        step=step,
        state=Coded(state, values),
        action=Coded(rng.integers(0, 100, step.size), _names("go to", 100)),
        reward=np.where(last & success[trajectory], 10.0, 0.0),
        valid=rng.random(step.size) < 0.95,
        terminated=last & ~cut,
        truncated=cut,
    )
    if order == "shuffled":
        return table.take(rng.permutation(step.size))
    return table.take(np.lexsort((trajectory, step)))


def _names(kind: str, count: int) -> npt.NDArray[Any]:
    names = np.empty(count, dtype=object)
    names[:] = [f"{kind} {number:07d}" for number in range(count)]
    return names


def _states(known: int, changed: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    """Texts of random words for ``known`` states, then for near copies of those in ``changed``."""
    vocabulary = np.array([f"{word} ".encode() for word in WORDS.split()])
    words = rng.integers(0, vocabulary.size, (known, WORDS_OF_STATE), dtype=np.uint8)
    copies = words[changed]
    for _ in range(2):
        where = rng.integers(0, WORDS_OF_STATE, changed.size)
        copies[np.arange(changed.size), where] = rng.integers(0, vocabulary.size, changed.size)
    said = vocabulary[np.concatenate([words, copies])]
    lines = said.view(f"S{6 * WORDS_OF_STATE}")[:, 0].tolist()
    texts = np.empty(len(lines), dtype=object)
    texts[:] = [f"{line.decode()}{number:06x}" for number, line in enumerate(lines)]
    return texts
