"""Shared by benchmarks and studies: figures as JSON lines, timing, commands, and synthetic data."""

import argparse
import functools
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ascribe.steps.atomic import replacing
from ascribe.steps.table import Coded

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PACKAGES = ("ascribe-rl", "numpy", "pyarrow", "rapidfuzz", "torch", "transformers", "trl", "verl")
"""Versions in the header of the results; a script may set its own."""

Better = Literal["lower", "higher"]

# Figures.


class Figures:
    """Prints each figure as one JSON line, and writes those so far to a file, under a header.

    Inside the context standard output belongs to figures alone: what other code and its processes
    print goes to standard error.

    Args:
        bench: name of the script.
        extra: further options of the script, each with the arguments of ``add_argument``.
    """

    def __init__(self, bench: str, **extra: dict[str, Any]) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--quick", action="store_true", help="smaller cases, within 45 s")
        parser.add_argument("--out", type=Path, help="also write the figures to this file")
        for name, arguments in extra.items():
            parser.add_argument(f"--{name}", **arguments)
        self.options = parser.parse_args()
        _keep_to_one_thread()
        self.bench, self.out, self.quick = bench, self.options.out, bool(self.options.quick)
        self.lines = [json.dumps(_header(bench, quick=self.quick))]

    def __enter__(self) -> Self:
        sys.stdout.flush()
        self.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        os.dup2(self.stdout.fileno(), 1)
        self.stdout.close()

    def emit(
        self,
        case: str,
        metric: str,
        value: float,
        unit: str,
        better: Better,
        goal: float | None = None,
    ) -> None:
        """Print one figure. ``goal`` is the worst value that is still good enough."""
        figure = {"bench": self.bench, "case": case, "metric": metric}
        bound = None if goal is None else float(goal)
        figure |= {"value": float(f"{value:.4g}"), "unit": unit, "goal": bound, "better": better}
        self.lines.append(json.dumps(figure, allow_nan=False))
        print(self.lines[-1], file=self.stdout, flush=True)
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text("\n".join(self.lines) + "\n")

    def emit_interval(
        self,
        case: str,
        metric: str,
        values: Sequence[float],
        unit: str,
        better: Better,
        goal: float | None = None,
        ends: str | None = None,
    ) -> None:
        """Print a value and the bounds of its interval, ``(value, low, high)``.

        The bounds are called ``METRIC_low`` and ``METRIC_high``, or ``ends`` with ``low`` and
        ``high``.
        """
        start = f"{metric}_" if ends is None else ends
        value, low, high = values
        self.emit(case, metric, value, unit, better, goal)
        self.emit(case, f"{start}low", low, unit, better)
        self.emit(case, f"{start}high", high, unit, better)

    def emit_exponents(self, spent: Sequence[tuple[float, float]], case: str) -> None:
        """Print how what is spent grows: pairs of a size and what it took, the smallest first.

        ``case`` is formatted with the ``first`` and the ``last`` size.
        """
        for (first, least), (last, most) in itertools.pairwise(spent):
            exponent = math.log(most / least) / math.log(last / first)
            named = case.format(first=first, last=last)
            self.emit(named, "exponent", exponent, "", goal=1.05, better="lower")

    def write_curve(self, lines: Iterable[dict[str, Any]], name: str = "curve") -> None:
        """With ``--out NAME.jsonl``, write these lines to ``NAME/curve.jsonl``, or another name."""
        if self.out is not None:
            path = self.out.with_suffix("") / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _keep_to_one_thread() -> None:
    """Start the script again with one thread if need be, so that CPU time is that of one core.

    Numeric libraries read these variables when they are loaded, which has happened by now.
    """
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | ONE_THREAD)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _header(bench: str, *, quick: bool) -> dict[str, Any]:
    """When, where and with which packages the figures were measured."""
    installed = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    load = round(os.getloadavg()[0], 1)
    return {
        "bench": bench,
        "quick": quick,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "load": load},
        "python": platform.python_version(),
        "packages": installed,
    }


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def fill_page(text: str, tables: Mapping[str, str]) -> str:
    """A Markdown page with these tables between its markers ``begin: NAME`` and ``end: NAME``."""
    for name, table in tables.items():
        start, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = f"{before}{start}\n{table}\n{end}{after}"
    return text


def save_figure(drawing: Any, path: Path) -> None:
    """Save a figure of matplotlib as PNG and SVG."""
    from matplotlib import rc_context  # noqa: PLC0415 (no other part needs it)

    with replacing(path.with_suffix(".png")) as file:
        drawing.savefig(file, format="png", dpi=100)
    with rc_context({"svg.hashsalt": "ascribe"}), replacing(path.with_suffix(".svg")) as file:
        drawing.savefig(file, format="svg", metadata={"Date": None})


# Commands.

COMMAND = (sys.executable, "-c", "from ascribe.cli import main; main()")
"""The command line of Ascribe, of the same installation as this script."""


def settings(changes: Mapping[str, Any]) -> list[str]:
    """``--set name=value`` for each of them."""
    pairs = ((name, v if isinstance(v, str) else json.dumps(v)) for name, v in changes.items())
    return [word for name, value in pairs for word in ("--set", f"{name}={value}")]


def ascribe(*words: str, capture: bool = False, **options: Any) -> str:
    """Run a command of Ascribe, with what it prints on standard error, or captured and returned."""
    stdout = subprocess.PIPE if capture else sys.stderr
    done = subprocess.run([*COMMAND, *words], check=True, stdout=stdout, text=True, **options)
    return done.stdout or ""


def train(document: dict[str, Any], engine: str = "trl", **options: Any) -> list[dict[str, Any]]:
    """``ascribe train`` with this config; the lines of its ``metrics.jsonl``."""
    folder = Path(document["output"]["folder"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_suffix(".yaml")
    path.write_text(json.dumps(document))  # JSON is YAML
    ascribe("train", "--engine", engine, str(path), **options)
    return read_lines(folder / "metrics.jsonl")


# Time and memory.


@dataclass(frozen=True)
class Work:
    """Something to measure: ``run``, on a new input from ``prepare``, which is not measured."""

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
    value = work.prepare()
    wall, cpu = time.perf_counter(), time.process_time()
    work.run(value)
    return time.process_time() - cpu, time.perf_counter() - wall


class OwnTime:
    """Seconds inside functions of Ascribe, less those in the engine's that they call.

    The innermost function that is watched has the time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._clock, self._inside, self._since = clock, [False], 0.0

    def watched(self, work: Callable[..., Any], *, ours: bool) -> Callable[..., Any]:
        """The function, with its time taken; ``ours`` says whose it is."""

        @functools.wraps(work)
        def run(*arguments: Any, **options: Any) -> Any:
            self._note()
            self._inside.append(ours)
            try:
                return work(*arguments, **options)
            finally:
                self._note()
                self._inside.pop()

        return run

    def watch(self, owner: Any, names: Iterable[str], *, ours: bool) -> None:
        """Watch these methods of a class, which are Ascribe's or the engine's."""
        for name in names:
            setattr(owner, name, self.watched(getattr(owner, name), ours=ours))

    def watch_overrides(self, kind: type, base: type) -> None:
        """Watch the methods of a class that a class of the engine has too, and the engine's."""
        names = [
            name
            for name, value in vars(kind).items()
            if not name.startswith("__") and callable(value) and hasattr(base, name)
        ]
        self.watch(kind, names, ours=True)
        self.watch(base, names, ours=False)

    def lap(self) -> float:
        """Seconds since the last lap."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def _note(self) -> None:
        now = self._clock()
        if self._inside[-1]:
            self.seconds += now - self._since
        self._since = now


def peak_bytes(work: Work) -> int:
    """The most memory that ``run`` held at one time, beyond what there was before it.

    Counts Python objects and numpy arrays, not what Arrow allocates. Slows the work down, so it is
    never measured together with time.
    """
    value = work.prepare()
    tracemalloc.start()
    try:
        work.run(value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def balanced(works: dict[str, Callable[[], None]], rounds: int) -> dict[str, npt.NDArray[Any]]:
    """CPU seconds of each work in each round.

    A round runs all works in a random order, and then in the reverse order, so that a machine that
    gets slower or faster does so for all of them.
    """
    random = np.random.default_rng(0)
    times = {name: np.zeros(rounds) for name in works}
    for work in works.values():
        work()
    for number in range(rounds):
        order = random.permutation(list(works)).tolist()
        for name in [*order, *reversed(order)]:
            started = time.process_time()
            works[name]()
            times[name][number] += (time.process_time() - started) / 2
    return times


def median_interval(values: npt.NDArray[Any]) -> tuple[float, float, float]:
    """The median, and its 95 % bootstrap interval."""
    return bootstrap(values, np.median)


def bootstrap(values: npt.NDArray[Any], statistic: Any = np.mean) -> tuple[float, float, float]:
    """A statistic of all values, and its 95 % interval if rows are drawn again."""
    rows = np.random.default_rng(0).integers(0, len(values), (10_000, len(values)))
    low, high = np.quantile(statistic(values[rows].reshape(10_000, -1), axis=1), [0.025, 0.975])
    return float(statistic(values.reshape(-1), axis=0)), float(low), float(high)


def smollm2_tokenizer() -> Any:
    """The tokenizer of SmolLM2."""
    from ascribe_lab.models import loading  # noqa: PLC0415

    package, name = loading.SMOLLM2
    folder = loading.package_folder(package, loading.SMOLLM2_INSTALL)
    return loading.load_tokenizer(folder, gguf_file=name)


SMOLLM2_SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}
"""Config of a Llama with the shape of SmolLM2-135M."""

_QUANTILES = (
    *(12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160),
    *(2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069),
)
STUDENT = dict(enumerate(_QUANTILES, start=2))
"""97.5 % quantile of Student's t, by number of values (one more than degrees of freedom)."""


def mean_interval(
    values: Sequence[float], least: float = 0.0, most: float = 1.0
) -> tuple[float, float, float]:
    """The mean, and its 95 % interval by Student's t, cut at the least and the most possible."""
    mean = statistics.mean(values)
    half = STUDENT[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return mean, max(mean - half, least), min(mean + half, most)


def mean_range(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, the smallest and the largest value."""
    return float(np.mean(values)), float(min(values)), float(max(values))


# Data.


def expert_turns(path: Path, groups: int) -> list[Any]:
    """Candidates from episodes of Sokoban's expert, which are written to a file."""
    from ascribe.steps.files import write  # noqa: PLC0415
    from ascribe_lab.pivots import extract  # noqa: PLC0415 (two benchmarks need it)
    from ascribe_lab.rollout import Model, Plan, Setup, arrow, play  # noqa: PLC0415

    setup = Setup("sokoban", {}, "plain", "serial")
    plan = Plan(groups, 1, setup.turns(None), name="sokoban")
    write(arrow(play(setup, Model("expert"), plan)), path)
    return list(extract([path]).candidates)


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
    """A table of synthetic steps: ``groups`` tasks of 8 trajectories, of 35 steps in the mean.

    A task starts in one state. Later steps are in one of its 40 states (some are visited much more
    than others), or in one of 200 states that all tasks share (5 %), or in a state that occurs
    once: the text of one of the 40 with two words changed (27 %). So about a third of the rows are
    alone in their state. Four in ten trajectories succeed and are rewarded at their last step; one
    action in twenty is invalid; a failure of maximum length counts as truncated.

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
    chosen = vocabulary[np.concatenate([words, copies])]
    lines = chosen.view(f"S{6 * WORDS_OF_STATE}")[:, 0].tolist()
    texts = np.empty(len(lines), dtype=object)
    texts[:] = [f"{line.decode()}{number:06x}" for number, line in enumerate(lines)]
    return texts
