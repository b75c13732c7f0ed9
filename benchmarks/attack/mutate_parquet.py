"""Damaged Parquet files: refused with a message, or the right answer; never anything else.

    python benchmarks/attack/mutate_parquet.py [--quick] [--seed 0] [--files 2993]

Bytes of three files are flipped, overwritten, lost, doubled, moved or added at random: of a file
that Ascribe wrote (with a seal), of one from another writer with checksums of its pages, and of one
without any. ``ascribe check`` and ``ascribe credit`` read each damaged file. ``wrong`` counts
tracebacks, crashes of the process, runs of more than a minute and, of the sealed file, output that
differs from that of the sound file in any value. A file without a seal may be damaged where nothing
tells: ``changed`` counts those.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import common
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from ascribe import StepTable, write_table
from ascribe.cli import app
from ascribe.steps.files import table_to_arrow
from tests.conftest import good_rows
from tests.fuzz.mutations import bytes_of

KINDS = ("sealed", "page checksums", "no checksums")
SECONDS, MEMORY = 60, 8 * 2**30
"""The most that one process may take; it reads up to 100 files."""


def sound(kind: str) -> bytes:
    """The bytes of a sound file of this kind."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sound.parquet"
        table = StepTable.from_dicts(good_rows())
        if kind == "sealed":
            write_table(table, path)
        else:
            has_checksums = kind == "page checksums"
            arrow = table_to_arrow(table)
            pq.write_table(arrow, path, row_group_size=20, write_page_checksum=has_checksums)
        return path.read_bytes()


def credited(data: bytes, folder: Path) -> pa.Table | str:
    """What ``ascribe credit`` writes for a file with these bytes; ``refused`` if it does not."""
    path, out = folder / "case.parquet", folder / "out.parquet"
    path.write_bytes(data)
    out.unlink(missing_ok=True)
    codes = []
    for call in (["check", str(path), "--json"], ["credit", str(path), "--out", str(out)]):
        done = CliRunner().invoke(app, call)
        if not isinstance(done.exception, SystemExit | None):
            raise done.exception
        if done.exit_code not in (0, 1) or (done.exit_code == 1 and not done.output.strip()):
            raise RuntimeError(f"{call[0]} ended with {done.exit_code}: {done.output[:200]}")
        codes.append(done.exit_code)
    if codes[1]:
        return "refused"
    if codes[0]:
        raise RuntimeError("check refused what credit took")
    return pq.read_table(out)


def work(kind: str, seed: int, first: int, last: int) -> None:
    """Try these cases, and print how each ended."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    data = sound(kind)
    with tempfile.TemporaryDirectory() as folder:
        expected = credited(data, Path(folder))
        for case in range(first, last):
            damaged = bytes_of(data, Random(f"{seed} {kind} {case}"))
            outcome = credited(damaged, Path(folder))
            if not isinstance(outcome, str):
                outcome = "right" if outcome.equals(expected) else "changed"
            print(json.dumps({"case": case, "end": outcome}), flush=True)


def outcomes(kind: str, seed: int, count: int) -> Counter[str]:
    """How many of the damaged files ended in each way."""
    ends: Counter[str] = Counter()
    first = 0
    while first < count:
        last = min(first + 100, count)
        call = [sys.executable, __file__, "--work", kind, str(seed), str(first), str(last)]
        try:
            done = subprocess.run(call, capture_output=True, timeout=SECONDS, check=False)
            output, end = done.stdout, "traceback" if done.returncode > 0 else "crash"
            detail = done.stderr.decode(errors="replace")[-500:]
        except subprocess.TimeoutExpired as error:
            output, end, detail = error.stdout or b"", "hang", ""
        lines = [json.loads(line) for line in output.splitlines()]
        ends.update(line["end"] for line in lines)
        first += len(lines)
        if first < last:
            print(f"{kind}, case {first}: {end} {detail}", file=sys.stderr)
            ends[end] += 1
            first += 1
    return ends


def main() -> None:
    """Measure all kinds of files."""
    options = {
        "seed": {"type": int, "default": 0, "help": "of the damage"},
        "files": {"type": int, "default": 2993, "help": "damaged files"},
    }
    with common.Figures("attack/mutate_parquet", **options) as figures:
        files = 150 if figures.quick else figures.options.files
        for index, kind in enumerate(KINDS):
            count = (files + index) // len(KINDS)
            ends = outcomes(kind, figures.options.seed, count)
            wrong = ends["traceback"] + ends["crash"] + ends["hang"]
            if kind == "sealed":
                wrong += ends["changed"]
            figures.emit(kind, "files", count, "files", "higher")
            figures.emit(kind, "refused", ends["refused"], "files", "higher")
            figures.emit(kind, "right", ends["right"], "files", "higher")
            figures.emit(kind, "changed", ends["changed"], "files", "lower")
            figures.emit(kind, "wrong", wrong, "files", "lower", 0.0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
