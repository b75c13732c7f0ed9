"""Archives of 1 to 100 million rows, credited from Parquet to Parquet in a memory budget."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Order = Literal["sorted", "scattered"]

TRAJECTORIES, ROWS_OF_FILE, PLACES = 8, 1_000_000, 40
ROOMS = ("kitchen", "bedroom", "bathroom", "living room", "hallway", "garage", "study", "cellar")
THINGS = (
    *("an apple", "a bar of soap", "a book", "a bowl", "a bread knife", "a candle", "a cloth"),
    *("a credit card", "a desk lamp", "an egg", "a key chain", "a laptop", "a lettuce", "a mug"),
    *("a newspaper", "a pan", "a pencil", "a pepper shaker", "a plate", "a potato", "a spoon"),
)


def random(*keys: Any) -> npt.NDArray[np.uint64]:
    """Random bits that depend on the keys alone, so that any part of an archive can be made."""
    bits = np.uint64(0x9E3779B97F4A7C15)
    for key in keys:
        bits = (bits ^ np.asarray(key).astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(32))
    return bits


def archive(folder: Path, rows: int, order: Order, width: int = 0) -> int:
    """Write an archive as files of a million rows each; returns the number of rows.

    Tasks have 8 trajectories of 20 to 50 steps. A quarter of the rows are alone in their state,
    the others in one of 40 states of their task.

    Args:
        folder: where to write.
        rows: about how many rows.
        order: ``sorted`` has a task's rows side by side; ``scattered`` has its trajectories in as
            many files as there are.
        width: numbers of a fingerprint; 0 for none.
    """
    folder.mkdir(parents=True)
    files = max(rows // ROWS_OF_FILE, 1)
    trajectories = max(rows // 35 // TRAJECTORIES, 2) * TRAJECTORIES
    written = 0
    for file in range(files):
        if order == "sorted":
            cuts = np.arange(files + 1) * (trajectories // TRAJECTORIES) // files * TRAJECTORIES
            chosen = np.arange(cuts[file], cuts[file + 1])
        else:
            chosen = np.arange(file, trajectories, files)
            if files == 1:
                chosen = chosen[np.argsort(random(chosen, 9))]
        table = part(chosen.astype(np.int64), width)
        pq.write_table(table, folder / f"{file:05d}.parquet", compression="zstd")
        written += table.num_rows
    return written


def part(trajectories: npt.NDArray[np.int64], width: int) -> pa.Table:
    """The rows of some trajectories."""
    length = (20 + random(trajectories, 1) % 31).astype(np.int64)
    trajectory = np.repeat(trajectories, length)
    step = np.arange(trajectory.size) - np.repeat(np.cumsum(length) - length, length)
    group = trajectory // TRAJECTORIES
    alone = (random(trajectory, step, 2) % 4 == 0) & (step > 0)
    place = np.where(step == 0, 0, random(trajectory, step, 3) % PLACES).astype(np.int64)
    success = random(trajectory, 4) % 10 < 4
    last = step == np.repeat(length, length) - 1
    state = group * PLACES + place
    texts, codes = np.unique(np.where(alone, -1 - np.arange(step.size), state), return_inverse=True)
    values = pa.array(map(text, np.where(texts < 0, random(texts, trajectories[0], 5), texts)))
    action = (random(trajectory, step, 6) % 100).astype(np.int32)
    columns = {
        "group": coded(group, "task"),
        "trajectory": coded(trajectory, "run"),
        "step": pa.array(step),
        "state": pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values),
        "action": pa.DictionaryArray.from_arrays(
            pa.array(action), [f"<action>go to shelf {n}</action>" for n in range(100)]
        ),
        "reward": pa.array(np.where(last & success, 10.0, 0.0)),
        "terminated": pa.array(last),
    }
    if width:
        fingerprint = random(state[:, None], np.arange(width), 7).astype(np.float32) / 2**63 - 1
        noise = random(trajectory[:, None], step[:, None], np.arange(width), 8)
        fingerprint += (noise.astype(np.float32) / 2**63 - 1) * np.where(alone, 2.0, 0.1)[:, None]
        flat = pa.array(fingerprint.astype(np.float16).ravel())
        columns["fingerprint"] = pa.FixedSizeListArray.from_arrays(flat, width)
    return pa.table(columns)


def text(number: int) -> str:
    """What an agent sees in a state."""
    number = int(number)
    seen = [THINGS[(number >> shift) % len(THINGS)] for shift in (0, 5, 11, 17)]
    place = f"You are in the {ROOMS[number % 8]}, in front of shelf {number % 97}."
    return f"{place} On it, you see {', '.join(seen[:3])} and {seen[3]} {number:x}."


def coded(numbers: npt.NDArray[np.int64], kind: str) -> pa.DictionaryArray:
    """A column of names."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    names = [f"{kind}-{number:09d}" for number in distinct.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)
