"""Files of other tools with bytes or values changed: refused, or imported, and nothing else.

    python benchmarks/attack/mutated_imports.py [--quick] [--seed 0]

300 damaged files for each of those in ``tests/data/formats`` and ``tests/data/sessions``, with a
few bytes changed, lost, doubled or moved, or with a few JSON values replaced by others. Each is
imported in a fork, in every choice of the state, and where its format has a place for credit,
credit is written back. ``crashed`` are imports that died, hung or raised something else than a
refusal. ``changed`` are those that gave other steps: damage may make another conversation.
"""

import json
import shutil
import sys
import tempfile
from collections import Counter
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

import common
from mutated_files import BATCH, outcomes

from ascribe.sessions.formats import import_files, write_credit
from ascribe.sessions.reading.format import formats
from tests.fuzz.mutations import VALUES, bytes_of
from tests.sessions import make_traces, test_formats
from tests.sessions.test_formats import JUNK, places

DATA = common.ROOT / "tests" / "data" / "formats"
TRIAL = {f"atif/port__0/{name}": "atif" for name in ("agent/trajectory.json", "result.json")}
CALLS = {f"../sessions/{name}": form for name, (form, _) in make_traces.FILES.items()}
FILES = {name: form for name, form in test_formats.FILES.items() if form != "atif"} | TRIAL | CALLS
"""The file that is damaged, and the format of what is imported."""


def damaged(clean: bytes, random: Random) -> bytes:
    """The file with a few bytes or values changed."""
    try:
        rows = [json.loads(line) for line in clean.splitlines()]
    except ValueError:  # packed
        rows = []
    if not rows or random.random() < 0.5:
        return bytes_of(clean, random)
    for _ in range(random.choice((1, 1, 3))):
        inside, key = random.choice(places(random.choice(rows)) or [(rows, 0)])
        junk = random.choice((*JUNK, *VALUES, 2**70, 1e308, ["a"], {"type": "tool_use"}))
        inside[key] = deepcopy(junk)  # which may be damaged next
    return "\n".join(map(json.dumps, rows)).encode()


def reader(form: str, trial: Path) -> Any:
    """The function that imports the damaged file; of Harbor, the trajectory beside it."""

    def values(path: Path) -> list[Any]:
        source = trial / "agent" / "trajectory.json" if form == "atif" else path
        imported = import_files([source], form=form)
        if formats()[form].put:
            advantages = np.zeros(len(imported.table))
            write_credit(source, imported, advantages, path.parent / "credited.jsonl")
        return [json.dumps(imported.table.to_dicts(), default=repr), *imported.alone.items()]

    return values


def main() -> None:
    """Damage and import all files."""
    options = {"seed": {"type": int, "default": 0, "help": "of the damage"}}
    with common.Figures("attack/mutated_imports", **options) as figures:
        count = 30 if figures.quick else 300
        for name, form in FILES.items():
            counts: Counter[str] = Counter()
            with tempfile.TemporaryDirectory() as folder:
                trial = Path(folder) / "port__0"
                shutil.copytree(DATA / "atif" / "port__0", trial)
                data = (DATA / name).read_bytes()
                path = Path(folder) / name.removeprefix("atif/").removeprefix("../sessions/")
                path.write_bytes(data)
                values = reader(form, trial)
                due, case = values(path), 0
                while case < count:
                    cases = range(case, min(case + BATCH, count))
                    draws = [Random(f"{figures.options.seed} {name} {n}") for n in cases]
                    ends = outcomes(data, due, path, draws, values, damaged)
                    counts.update(ends)
                    case += len(ends)  # after a crash, the rest of the batch is read by another
            unit = f"of {count} files"
            figures.emit(name, "crashed", counts["crashed"], unit, "lower", 0.0)
            for end in ("changed", "refused", "right"):
                figures.emit(name, end, counts[end], unit, "higher")


if __name__ == "__main__":
    main()
