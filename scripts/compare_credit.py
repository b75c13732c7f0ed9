"""Compare the credits that two source trees compute, bit for bit.

    python scripts/compare_credit.py OLD_TREE NEW_TREE [--tables 1000] [--seed 0]

Each tree is run in a process of its own, with its ``src`` on the path. Both credit the golden
tables of ``tests/estimators/golden.py`` and random tables, with every recipe, every preset and
several parameters. Advantages, reasons, the values, reasons, labels and weight of each term,
metrics and history must agree in every bit. The exit code is 1 if something differs.
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

Columns = dict[str, Any]

TOGETHER: tuple[dict[str, Any], ...] = (
    {"invalid_penalty": 0.25},
    {"invalid_penalty": 0.1, "penalty_timing": "after"},
    {"truncation": "exclude"},
    {"std": "population", "std_epsilon": 0.0},
    {"std_floor": 0.5, "truncation": "exclude"},
    {"gamma": 0.5, "weight": 3.7},
    {"gamma": 1.0, "normalise": "mean"},
    {"scale": "equal"},
    {"scale": "equal", "truncation": "exclude", "invalid_penalty": 0.1, "penalty_timing": "after"},
    {"baseline": "group"},
    {"baseline": "prompt"},
    {"baseline_unit": "step", "group_of_one": "raw"},
    {"revisits": "first"},
    {"revisits": "average", "group_of_one": "raw"},
    {"grouping": "similar", "similarity": 0.5},
    {"scope": "batch", "revisits": "average"},
    {"history_length": 0},
    {"history_length": 3, "alpha": -0.5, "episode": True},
    {"drop_zeros": True, "episode": True},
    {"fingerprint": "identity", "radius": 0.0},
    {"fingerprint": "ngram", "radius": 0.3, "action_key": "whole"},
    {"fingerprint": "ngram", "radius_rule": "search", "on_collapse": "keep"},
    {"step_normalise": "std"},
    {"states": "exact", "action_key": "first_tokens"},
    {"form": "allocated"},
    {"form": "think_solve", "minimum": 0, "eta": 2.0},
    {"minimum": 0, "alpha": 2.0, "decay": 0.5},
    {"statistics": "before", "flat": "one", "minimum": 2},
    {"compare": "consistency", "weight": 1.0},
    {"right": 0.5, "beta": 1.0, "weight": 0.0},
)
"""Parameters to try; each recipe is called with those that it has all of."""


def random_table(random: np.random.Generator) -> Columns:
    """Columns of a small table with every input that some recipe reads."""
    states = ["hall", "hall 1", "shelf 1: a mug", "shelf 2: a mug", None]
    actions = ["go", "<action>go</action>", "take the mug", "<action>broken", None]
    paid = [0.0, 0.0, 1.0, 0.5, -1.0, float(random.normal())]
    agents = int(random.integers(1, 4))
    rows: list[dict[str, Any]] = []
    trajectories: list[str] = []
    for group in range(int(random.integers(1, 4))):
        first = len(trajectories)
        for _ in range(int(random.integers(1, 6))):
            name = f"t{len(trajectories)}"
            target = None
            if len(trajectories) > first and random.random() < 0.3:
                target = trajectories[first]
            trajectories.append(name)
            length = agents + int(random.integers(0, 5))
            without = random.choice([0.0, 0.5, 1.0], size=agents)
            cut = random.random() < 0.15
            for step in range(length):
                last = step == length - 1
                agent = step % agents
                only_measured = step >= agents and random.random() < 0.2
                rows.append(
                    {
                        "group": f"g{group}",
                        "trajectory": name,
                        "step": step,
                        "state": states[int(random.integers(len(states)))],
                        "action": actions[int(random.integers(len(actions)))],
                        "reward": paid[int(random.integers(len(paid)))] if last else 0.0,
                        "valid": bool(random.random() > 0.2),
                        "truncated": last and cut,
                        "padding": False,
                        "agent": f"a{agent}",
                        "without": float("nan") if only_measured else float(without[agent]),
                        "corrects": target,
                    }
                )
    rows += [rows[0] | {"padding": True}] * int(random.integers(0, 3))
    order = random.permutation(len(rows))
    columns: Columns = {name: [rows[place][name] for place in order] for name in rows[0]}
    vectors = random.normal(size=(len(rows), 6)).round(int(random.integers(0, 3)))
    columns["fingerprint"] = [[float(x) for x in vector] for vector in vectors]
    return columns


def golden_tables() -> list[Columns]:
    """The tables of the golden tests, as columns."""
    root = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(root / "src"), str(root)]
    from tests.estimators import golden  # noqa: PLC0415 (its own source tree)

    tables = [value for value in vars(golden).values() if isinstance(value, list)]
    dicts = [golden.table(groups).to_dicts() for groups in tables]
    return [{name: [row[name] for row in rows] for name in rows[0]} for rows in dicts]


def recipes() -> dict[str, Any]:
    """Every recipe of this tree with its presets and several parameters."""
    from ascribe import RECIPES, recipe  # noqa: PLC0415 (the tree under test)

    made: dict[str, Any] = {}
    for name, kind in RECIPES.items():
        known = {field.name for field in fields(kind)}
        made[name] = recipe(name)
        for preset in kind.presets:
            made[f"{name} {preset}"] = recipe(name, preset=preset)
        for parameters in TOGETHER:
            if set(parameters) <= known:
                try:
                    made[f"{name} {parameters}"] = recipe(name, **parameters)
                except ValueError as error:
                    made[f"{name} {parameters}"] = error
    return made


def credited(table: Any, by: Any, history: Any) -> dict[str, Any]:
    """All that a credit holds, as bytes and plain values; or the kind of error."""
    if isinstance(by, Exception):
        return {"error": "ValueError"}
    try:
        inputs = {"history": history} if history is not None else {}
        credit = by(table, **inputs)
    except (ValueError, TypeError) as error:
        return {"error": "ValueError" if isinstance(error, ValueError) else "TypeError"}
    metrics = credit.metrics if hasattr(credit, "metrics") else credit.numbers
    out = {
        "advantage": np.asarray(credit.advantage, np.float64).tobytes(),
        "reason": np.asarray(credit.reason, np.int8).tobytes(),
        "metrics": {name: float(value).hex() for name, value in metrics.items()},
        "history": repr(credit.history),
        "carried": credit.history,
    }
    for name, term in credit.terms.items():
        out[f"{name} values"] = np.asarray(term.values, np.float64).tobytes()
        out[f"{name} reason"] = np.asarray(term.reason, np.int8).tobytes()
        out[f"{name} labels"] = np.asarray(term.labels, np.int64).tobytes()
        out[f"{name} weight"] = float(term.weight).hex()
    return out


def work(source: str, target: str) -> None:
    """Credit the tables in ``source`` and write all credits to ``target``."""
    import ascribe  # noqa: PLC0415 (the tree under test)

    tables = pickle.loads(Path(source).read_bytes())
    made = recipes()
    carried: dict[str, Any] = {}
    out = []
    with np.errstate(all="ignore"):
        for columns in tables:
            table = ascribe.StepTable.from_columns(columns)
            cases = {}
            for name, by in made.items():
                first = credited(table, by, None)
                cases[name] = first
                before = carried.get(name)
                if before is not None:
                    cases[f"{name}, with history"] = credited(table, by, before)
                if first.get("carried") is not None:
                    carried[name] = first["carried"]
            out.append(cases)
    Path(target).write_bytes(pickle.dumps(out))


def main() -> None:
    """Run both trees and print what differs."""
    parser = argparse.ArgumentParser(description="Compare the credits of two source trees.")
    parser.add_argument("trees", nargs=2, type=Path)
    parser.add_argument("--tables", type=int, default=1000, help="random tables")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder in which the old tree's credits are kept")
    chosen = parser.parse_args()
    random = np.random.default_rng(chosen.seed)
    golden = golden_tables()
    tables = golden + [random_table(random) for _ in range(chosen.tables)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "tables.pickle")
        source.write_bytes(pickle.dumps(tables))
        targets = [Path(folder, "old.pickle"), Path(folder, "new.pickle")]
        if chosen.keep:
            chosen.keep.mkdir(parents=True, exist_ok=True)
            targets[0] = chosen.keep / f"old-{chosen.tables}-{chosen.seed}.pickle"
        for tree, target in zip(chosen.trees, targets, strict=True):
            if target.exists():
                continue
            path = str(tree.resolve() / "src")
            subprocess.run(
                [sys.executable, __file__, "--work", str(source), str(target)],
                env=os.environ | {"PYTHONPATH": path},
                check=True,
            )
        old, new = (pickle.loads(target.read_bytes()) for target in targets)

    compared = advantages = refused = 0
    names: set[str] = set()
    apart: set[str] = set()
    different: list[str] = []
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        apart |= before.keys() ^ after.keys()
        for name in before.keys() & after.keys():
            names.add(name)
            one, other = before[name], after[name]
            compared += 1
            if one != other:
                keys = sorted(one.keys() | other.keys())
                parts = [key for key in keys if one.get(key) != other.get(key)]
                different.append(f"table {number}, {name}: {', '.join(parts)}")
            elif "error" in one:
                refused += 1
            else:
                advantages += len(one["advantage"]) // 8
    print(
        f"{len(tables):,} tables ({len(golden)} golden), {len(names)} recipes with presets "
        f"and parameters: {compared:,} credits ({refused:,} refused by both trees), "
        f"{advantages:,} advantages with their reasons, terms, metrics and history"
    )
    if apart:
        print(f"in one tree alone: {', '.join(sorted({name.split(' ')[0] for name in apart}))}")
    print(f"{len(different):,} differ")
    for line in different[:20]:
        print(" ", line)
    sys.exit(bool(different))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
