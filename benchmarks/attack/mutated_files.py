"""Files with bytes changed, lost, doubled, moved or added: refused, or read as they were.

    python benchmarks/attack/mutated_files.py [--quick] [--seed 0]

3,000 damaged Parquet files of three kinds: as Ascribe writes them, with a seal (``sealed``); of
another writer with page checksums (``checked``), and without (``plain``). They have columns that
are carried along too: texts, lists and objects. JSON lines, plain and packed, are as Ascribe writes
them. Every file is read whole, in a fork, so that a crash of the reader is seen.

``crashed`` are readers that died, hung or raised something else than a refusal. ``changed`` are
files that were read with other values: none where Ascribe wrote the file, unless the damage makes
another file that is whole, as the change of a letter in JSON lines does.
"""

import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import common

from ascribe.steps.files import read, write
from ascribe.steps.problems import TableError
from tests.fuzz.mutations import bytes_of

BATCH = 50
"""Files that one fork reads."""
SECONDS = 120
"""That it may take."""


def table() -> pa.Table:
    """Steps with columns that are carried along."""
    rows = [
        {
            "group": f"g{n // 16}",
            "trajectory": f"t{n // 4}",
            "step": n % 4,
            "state": f"room {n % 7}",
            "action": f"go {n % 3}",
            "reward": n / 8,
            "fingerprint": [1.0, n / 4, 0.5],
            "valid": n % 5 > 0,
            "prompt": f"prompt {n % 9}",
            "response_ids": list(range(n % 6)),
            "won": n % 2 == 0,
            "info": {"seed": n, "names": ["a", f"b{n}"]},
            "raw": bytes([n]),
            "none": None,
        }
        for n in range(64)
    ]
    return pa.Table.from_pylist(rows)


def write_clean(kind: str, path: Path) -> None:
    """The file before it is damaged."""
    if kind in ("checked", "plain"):
        checksum = kind == "checked"
        pq.write_table(table(), path, write_page_checksum=checksum, row_group_size=25)
    else:
        write(table() if kind == "sealed" else table().drop_columns("raw"), path)


KINDS = {
    **dict.fromkeys(("sealed", "checked", "plain"), ".parquet"),
    "lines": ".jsonl",
    "packed": ".jsonl.gz",
}


def values(path: Path) -> list[Any]:
    """Everything that is read of a file."""
    rollouts = read(path)
    parts = (rollouts.table.to_dicts(), rollouts.carried.to_pydict(), rollouts.credit.to_pydict())
    return [json.dumps(part, default=repr, sort_keys=True) for part in parts]


def outcomes(
    clean: bytes,
    due: list[Any],
    path: Path,
    draws: list[Random],
    values: Callable[[Path], list[Any]] = values,
    damaged: Callable[[bytes, Random], bytes] = bytes_of,
) -> list[str]:
    """How reading each damaged file ends, in a fork; the rest of a batch that died is crashed."""
    results, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        for draw in draws:
            try:
                path.write_bytes(damaged(clean, draw))
                end = b"r" if values(path) == due else b"c"
            except TableError:
                end = b"d"
            except BaseException:  # what it is does not matter: it is no refusal
                end = b"x"
            os.write(writer, end)
        os._exit(0)
    os.close(writer)
    with os.fdopen(results, "rb") as file:
        ends = file.read().decode()
    os.waitpid(child, 0)
    names = {"r": "right", "c": "changed", "d": "refused", "x": "crashed"}
    return [names[end] for end in ends] + ["crashed"] * (len(ends) < len(draws))


def main() -> None:
    """Damage and read all files."""
    options = {"seed": {"type": int, "default": 0, "help": "of the damage"}}
    with common.Figures("attack/mutated_files", **options) as figures:
        count = 100 if figures.quick else 1000
        for kind, suffix in KINDS.items():
            counts: Counter[str] = Counter()
            with tempfile.TemporaryDirectory() as folder:
                clean, damaged = Path(folder) / f"clean{suffix}", Path(folder) / f"case{suffix}"
                write_clean(kind, clean)
                due, data, case = values(clean), clean.read_bytes(), 0
                while case < count:
                    cases = range(case, min(case + BATCH, count))
                    draws = [Random(f"{figures.options.seed} {kind} {n}") for n in cases]
                    ends = outcomes(data, due, damaged, draws)
                    counts.update(ends)
                    case += len(ends)  # after a crash, the rest of the batch is read by another
            unit = f"of {count} files"
            figures.emit(kind, "crashed", counts["crashed"], unit, "lower", 0.0)
            goal = 0.0 if kind == "sealed" else None
            figures.emit(kind, "changed", counts["changed"], unit, "lower", goal)
            figures.emit(kind, "refused", counts["refused"], unit, "higher")
            figures.emit(kind, "right", counts["right"], unit, "higher")


if __name__ == "__main__":
    main()
