"""Write ``docs/benchmarks.md`` from the committed results: python benchmarks/page.py."""

import ast
from typing import Any

from common import RESULTS, ROOT, read_lines

PAGE = ROOT / "docs" / "benchmarks.md"

INTRODUCTION = """# Benchmarks

This page is written by `benchmarks/page.py` from the results in `benchmarks/results`; nothing on it
is typed by hand. From the root of the repository, with Ascribe installed:

```sh
python benchmarks/NAME.py --quick                                   # smaller cases, within 45 s
python benchmarks/NAME.py --out benchmarks/results/NAME.jsonl       # all cases
python benchmarks/page.py                                           # this page
```

A script prints one JSON object per line, with the keys `bench`, `case`, `metric`, `value`, `unit`,
`goal` and `better`. A goal is the worst value that is still good enough. Comparisons are ratios
measured in one run. `load` is the load average of the machine when the run began: above the number
of cores, others were at work on it.
"""

Figure = dict[str, Any]


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for file in sorted(RESULTS.glob("*.jsonl")):
        if file.stem.startswith("audit"):  # they have a page of their own
            continue
        header, *figures = read_lines(file)
        parts.append(section(file.stem, header, figures))
    return "\n".join(parts)


def section(name: str, header: dict[str, Any], figures: list[Figure]) -> str:
    """One file of results: what was measured, where it ran, its figures."""
    machine = header["machine"]
    script = ROOT / "benchmarks" / f"{header['bench']}.py"
    packages = ", ".join(f"{package} {number}" for package, number in header["packages"].items())
    with_goal = [figure for figure in figures if figure["goal"] is not None]
    reached = sum(map(is_reached, with_goal))
    lines = [
        f"## {name}",
        "",
        (ast.get_docstring(ast.parse(script.read_text())) or "").replace("``", "`"),
        "",
        f"Run on {header['date']}{', quick cases only' if header['quick'] else ''}: "
        f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']}; "
        f"Python {header['python']}, {packages}. "
        f"Goals reached: {reached} of {len(with_goal)}.",
        "",
    ]
    for table in tables(figures):
        lines += [*table, ""]
    return "\n".join(lines)


def tables(figures: list[Figure]) -> list[list[str]]:
    """Markdown tables: a line per case, a column per metric; cases of like metrics together."""
    cases: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        cases.setdefault(figure["case"], {})[figure["metric"]] = figure
    alike: dict[tuple[str, ...], list[str]] = {}
    for case, metrics in cases.items():
        heads = tuple(f"{name} ({figure['unit']})" for name, figure in metrics.items())
        cells = [cell(figure) for figure in metrics.values()]
        alike.setdefault(heads, []).append(f"| {case} | {' | '.join(cells)} |")
    return [
        [f"| case | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads), *lines]
        for heads, lines in alike.items()
    ]


def cell(figure: Figure) -> str:
    """A value, and its goal where it has one."""
    if figure["goal"] is None:
        return number(figure["value"])
    bound = "at most" if figure["better"] == "lower" else "at least"
    said = f"{number(figure['value'])} (goal: {bound} {number(figure['goal'])})"
    return said if is_reached(figure) else f"**missed:** {said}"


def is_reached(figure: Figure) -> bool:
    """Whether a figure is as good as its goal."""
    if figure["better"] == "lower":
        return bool(figure["value"] <= figure["goal"])
    return bool(figure["value"] >= figure["goal"])


def number(value: float) -> str:
    """Four digits, and all those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


if __name__ == "__main__":
    PAGE.write_text(page())
