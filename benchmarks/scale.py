"""Archives of 1 to 100 million rows: rows per second and core, and memory, Parquet to Parquet.

    python benchmarks/scale.py [--quick] [--rows 1000000 10000000 100000000] [--folder FOLDER]

An archive is a folder of Parquet files of a million rows each. ``ascribe credit`` writes it again
with its credit, in one process, in 2 GiB of memory (the default). ``sorted`` archives have the rows
of a task side by side; in ``scattered`` ones, its 8 trajectories are in up to 8 files.
``rate`` is rows per second of CPU time, of all processes; ``peak`` is the memory of all processes
together. The exponent is that of CPU seconds by rows, between two sizes. ``check`` and ``report``
read the same archives.

With ``--folder``, archives and figures are kept there, and a case that was measured is not measured
again: the sizes can be run one after another, and a run that was killed goes on. ``--kept`` prints
what is there.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import common
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ascribe import recipe
from ascribe.archives import run as archives

Order = Literal["sorted", "scattered"]
Random = npt.NDArray[np.uint64]

TRAJECTORIES, ROWS_OF_FILE, PLACES, MEAN_LENGTH = 8, 1_000_000, 40, 35
ROOMS = ("kitchen", "bedroom", "bathroom", "living room", "hallway", "garage", "study", "cellar")
THINGS = (
    *("an apple", "a bar of soap", "a book", "a bowl", "a bread knife", "a candle", "a cloth"),
    *("a credit card", "a desk lamp", "an egg", "a key chain", "a laptop", "a lettuce", "a mug"),
    *("a newspaper", "a pan", "a pencil", "a pepper shaker", "a plate", "a potato", "a spoon"),
)
CREDIT = """
import sys
from ascribe.archives import credit_archive
from ascribe.estimators import recipe
if __name__ == "__main__":
    source, out, kind = sys.argv[1:]
    credit_archive(source, out, recipe("gigpo"), ray="local" if kind == "Ray" else None)
"""
KINDS = ("1 process", "Ray")
CROSSING = (100_000, 1_000_000, 4_000_000)
RECIPES = {"gigpo": (), "sbc": ("--preset", "exact"), "bipace_q": ()}
READING = ("check", "report")
WIDTH = {"bipace_q": 64}
MOST = dict.fromkeys(("bipace_q", *READING), 10_000_000)


def main() -> None:
    """Measure every recipe, order and size."""
    sizes = {"type": int, "nargs": "+", "default": [1_000_000, 10_000_000]}
    place = {"type": Path, "help": "where to keep archives and figures"}
    only = {"action": "store_true", "help": "print figures that are there, measure none"}
    with common.Figures("scale", rows=sizes, folder=place, kept=only) as figures:
        rows, orders, recipes = figures.options.rows, ("sorted", "scattered"), list(RECIPES)
        if figures.quick:
            rows, orders, recipes = [100_000, 1_000_000], ("scattered",), ["gigpo"]
        with tempfile.TemporaryDirectory(dir=figures.options.folder) as folder:
            kept = figures.options.folder or Path(folder)
            for order in orders:
                for name in [
                    *recipes,
                    *(READING if order == "scattered" and not figures.quick else ()),
                ]:
                    fit = [size for size in rows if size <= MOST.get(name, size)]
                    measure(figures, Path(kept), order, name, fit)
                if not figures.quick:
                    stages(figures, Path(kept), order)
            if not figures.quick:
                crossing(figures, Path(kept))


def measure(figures: Any, folder: Path, order: Order, name: str, rows: list[int]) -> None:
    """Credit archives of several sizes."""
    seconds = []
    for size in rows:
        case = f"{name} {order} {size:,}"
        kept = folder / f"{name}-{order}-{size}.json"
        if not kept.exists() and figures.options.kept:
            continue
        if not kept.exists():
            kept.write_text(json.dumps(credit(folder, order, name, size)))
        count, cpu, wall, peak = json.loads(kept.read_text())
        seconds.append((count, cpu))
        goal = None if name in READING else 500_000.0
        figures.emit(case, "rate", count / cpu, "rows/s/core", goal=goal, better="higher")
        figures.emit(case, "wall", wall, "s", better="lower")
        figures.emit(case, "peak", peak / 2**30, "GiB", goal=2.0, better="lower")
    sizes = [(count / 1e6, cpu) for count, cpu in seconds]
    figures.emit_exponents(sizes, f"{name} {order} {{first:.1f}} to {{last:.0f}} million")


def stages(figures: Any, folder: Path, order: Order) -> None:
    """Microseconds of CPU and bytes that the stages take for each row of a million.

    ``copy`` is what pyarrow takes to read the table and write it, without any credit.
    """
    kept = folder / f"stages-{order}.json"
    if not kept.exists() and figures.options.kept:
        return
    if not kept.exists():
        spent: dict[str, float] = {}
        size: dict[str, float] = {}
        shutil.rmtree(folder / "stages", ignore_errors=True)
        archive(folder / "stages", ROWS_OF_FILE, order)
        stage = archives._stage

        def timed(job: Any, each: Any, function: Any, *arguments: Any, **options: Any) -> None:
            started = time.process_time()
            stage(job, each, function, *arguments, **options)
            spent[function.__name__] = 1e6 * (time.process_time() - started) / job.archive.rows
            size["intermediate"] = size_of(Path(job.work.path).glob("rows-*")) / job.archive.rows
            size["input"] = size_of((folder / "stages").iterdir()) / job.archive.rows

        archives._stage = timed
        arguments = (folder / "stages", folder / "out", recipe("gigpo"))
        archives.credit_archive(*arguments)
        archives._stage = stage
        rows = sum(pq.ParquetFile(file).metadata.num_rows for file in (folder / "out").iterdir())
        size["output"] = size_of((folder / "out").iterdir()) / rows
        started = time.process_time()
        for number, file in enumerate((folder / "stages").iterdir()):
            columns = pq.read_table(file, read_dictionary=["state", "action"])
            pq.write_table(columns, folder / "out" / f"copy-{number}", compression="zstd")
        spent["copy_alone"] = 1e6 * (time.process_time() - started) / rows
        shutil.rmtree(folder / "stages")
        shutil.rmtree(folder / "out")
        kept.write_text(json.dumps([spent, size]))
    case = f"gigpo {order}, stages"
    for values, unit in zip(json.loads(kept.read_text()), ("µs/row", "bytes/row"), strict=True):
        for name, value in values.items():
            figures.emit(case, name.split("_")[0], value, unit, better="lower")


def crossing(figures: Any, folder: Path) -> None:
    """Wall time of sorted archives in one process, and as Ray tasks on all cores.

    From the start of Python to its end; Ray is started on this machine, and stopped.
    """
    kept = folder / "crossing.json"
    if not kept.exists() and figures.options.kept:
        return
    if not kept.exists():
        walls: dict[str, float] = {}
        for size in CROSSING:
            archive(source := folder / "crossing", size, "sorted")
            for kind in KINDS:
                command = [sys.executable, "-c", CREDIT, str(source), str(folder / "out"), kind]
                _, walls[f"gigpo sorted {size:,}, {kind}"], _ = run(command)
                shutil.rmtree(folder / "out")
            shutil.rmtree(source)
        kept.write_text(json.dumps(walls))
    for case, wall in json.loads(kept.read_text()).items():
        figures.emit(case, "wall", wall, "s", better="lower")


def size_of(files: Iterable[Path]) -> int:
    """Bytes of files."""
    return sum(file.stat().st_size for file in files)


def credit(folder: Path, order: Order, name: str, size: int) -> tuple[int, float, float, int]:
    """Credit, check or report: rows, seconds of CPU and wall time, and bytes of memory."""
    width = WIDTH.get(name, 0)
    source, out = folder / f"{order}-{width}-{size}", folder / "out"
    if not source.exists():
        for old in folder.glob("*-*-*/"):  # one archive is on the disk at a time
            shutil.rmtree(old)
        shutil.rmtree(draft := folder / "draft", ignore_errors=True)
        archive(draft, size, order, width)
        draft.rename(source)
    shutil.rmtree(out, ignore_errors=True)
    count = sum(pq.ParquetFile(file).metadata.num_rows for file in source.iterdir())
    out.mkdir()
    work = ["credit", str(source), "--out", str(out / "credited"), "--recipe", name, "--json"]
    if name in READING:
        work = [name, str(source), *(["--out", str(out / "report.html")] * (name == "report"))]
    work += RECIPES.get(name, ())
    measured = run([*common.COMMAND, *work])
    shutil.rmtree(out)
    return count, *measured


def run(command: list[str]) -> tuple[float, float, int]:
    """Seconds of CPU and wall time of a command, and the most memory of all its processes."""
    before, started = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    peak = [0]
    watch = threading.Thread(target=watch_memory, args=(process, peak))
    watch.start()
    code = process.wait()
    watch.join()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    after = os.times()
    cpu = after.children_user - before.children_user
    cpu += after.children_system - before.children_system
    return cpu, time.perf_counter() - started, peak[0]


def watch_memory(process: subprocess.Popen[bytes], peak: list[int]) -> None:
    """The most resident memory of the processes of a session, pages they share counted once."""
    while process.poll() is None:
        total = 0
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == process.pid:
                    lines = (entry / "smaps_rollup").read_text().splitlines()
                    total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            except OSError:
                continue  # it has ended
        peak[0] = max(peak[0], 1024 * total)
        time.sleep(0.1)


def archive(folder: Path, rows: int, order: Order, width: int = 0) -> None:
    """Write an archive as files of a million rows each.

    Tasks have 8 trajectories of 20 to 50 steps. A quarter of the rows are alone in their state,
    the others in one of 40 states of their task.

    Args:
        folder: where to write.
        rows: about how many rows.
        order: ``sorted`` has a task's rows side by side; ``scattered`` has its trajectories in 8
            files, or fewer if there are fewer, in random order.
        width: numbers of a fingerprint; 0 for none.
    """
    folder.mkdir(parents=True)
    files, task = max(rows // ROWS_OF_FILE, 1), 0
    trajectories = min(rows, ROWS_OF_FILE) // MEAN_LENGTH
    made: dict[tuple[int, int], Any] = {}
    file = 0
    while file < files:
        block = 1
        while order == "scattered" and 2 * block <= min(TRAJECTORIES, files - file):
            block *= 2
        groups = trajectories * block // TRAJECTORIES
        for number in range(block):
            if (block, number) not in made:
                variants = np.arange(number, TRAJECTORIES, block)
                made[block, number] = part(groups, variants, order, width)
            table, group, variant = made[block, number]
            names = [coded(task + group, "task"), coded((task + group) * 8 + variant, "run")]
            for place, column in enumerate(names):
                table = table.set_column(place, ("group", "trajectory")[place], column)
            pq.write_table(table, folder / f"{file:05d}.parquet", compression="zstd")
            file += 1
        task += groups


def part(groups: int, variants: Any, order: Order, width: int) -> tuple[pa.Table, Any, Any]:
    """The rows of some trajectories of each group; the group and the trajectory of each row."""
    group, variant = np.repeat(np.arange(groups), variants.size), np.tile(variants, groups)
    if order == "scattered":
        place = np.argsort(random(group, variant, 9))
        group, variant = group[place], variant[place]
    length = (20 + random(group, variant, 1) % 31).astype(np.int64)
    success = np.repeat(random(group, variant, 4) % 10 < 4, length)
    group, variant = np.repeat(group, length), np.repeat(variant, length)
    step = np.arange(group.size) - np.repeat(np.cumsum(length) - length, length)
    alone = (random(group, variant, step, 2) % 4 == 0) & (step > 0)
    place = np.where(step == 0, 0, random(group, variant, step, 3) % PLACES).astype(np.int64)
    last = step == np.repeat(length, length) - 1
    state = group * PLACES + place
    own = (1 << 40) + (group * TRAJECTORIES + variant) * 64 + step
    texts, codes = np.unique(np.where(alone, own, state), return_inverse=True)
    values = pa.array(map(text, random(texts, 5).tolist()))
    action = (random(group, variant, step, 6) % 100).astype(np.int32)
    columns = {
        "group": pa.nulls(step.size),
        "trajectory": pa.nulls(step.size),
        "step": pa.array(step),
        "state": pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values),
        "action": pa.DictionaryArray.from_arrays(
            pa.array(action), [f"<action>go to shelf {n}</action>" for n in range(100)]
        ),
        "reward": pa.array(np.where(last & success, 10.0, 0.0)),
        "terminated": pa.array(last),
    }
    if width:
        generator = np.random.default_rng(groups)
        centres = generator.normal(size=(groups * PLACES, width)).astype(np.float32)
        vectors = centres[state]
        vectors += np.where(alone, 2.0, 0.1)[:, None] * generator.normal(size=vectors.shape)
        flat = pa.array(vectors.astype(np.float16).ravel())
        columns["fingerprint"] = pa.FixedSizeListArray.from_arrays(flat, width)
    return pa.table(columns), group, variant


def random(*keys: Any) -> Random:
    """Random bits that depend on the keys alone, so that any part of an archive can be made."""
    bits = np.asarray(np.uint64(0x9E3779B97F4A7C15))
    for key in keys:
        bits = (bits ^ np.asarray(key).astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(32))
    return bits


def text(number: int) -> str:
    """What an agent sees in a state."""
    seen = [THINGS[(number >> shift) % len(THINGS)] for shift in (0, 5, 11, 17)]
    place = f"You are in the {ROOMS[number % 8]}, in front of shelf {number % 97}."
    return f"{place} On it, you see {', '.join(seen[:3])} and {seen[3]} {number >> 24:x}."


def coded(numbers: npt.NDArray[np.int64], kind: str) -> pa.DictionaryArray:
    """A column of names."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    names = [f"{kind}-{number:09d}" for number in distinct.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)


if __name__ == "__main__":
    main()
