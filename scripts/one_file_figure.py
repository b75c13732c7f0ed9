"""Draw the learning curves of the one-file example: success of held-out and of training episodes.

Reads benchmarks/results/one_file/curve.jsonl, which benchmarks/one_file.py writes, and writes
docs/figures/one_file.png and .svg. Needs the extra figures.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
CURVE = ROOT / "benchmarks" / "results" / "one_file" / "curve.jsonl"
COLOURS = ("#0072b2", "#d55e00")
"""Told apart by readers who do not see all colours."""

Runs = dict[str, dict[int, list[dict[str, Any]]]]


def main() -> None:
    """Read the curves and draw them."""
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for text in CURVE.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        runs[line["recipe"]][line["seed"]].append(line)
    draw(runs)


def points(lines: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Iterations and values of the lines that have this value."""
    has = [line for line in lines if name in line]
    return [line["iteration"] for line in has], [line[name] for line in has]


def draw(runs: Runs) -> None:
    """One panel for each recipe: thin for training, thick for held-out episodes, by seed."""
    mpl.rcParams |= {"svg.hashsalt": "ascribe", "font.size": 10}
    figure = Figure(figsize=(4.2 * len(runs), 3.4), layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    pairs = zip(panels, COLOURS, runs.items(), strict=True)
    for panel, colour, (recipe, by_seed) in pairs:
        for number, lines in enumerate(by_seed.values()):
            trained = "training, 64 episodes" if number == 0 else None
            tested = "held out, 128 episodes" if number == 0 else None
            panel.plot(*points(lines, "success"), color=colour, alpha=0.35, lw=1, label=trained)
            panel.plot(
                *points(lines, "held_out_success"), "o-", color=colour, ms=4, lw=1.6, label=tested
            )
        panel.set(title=f"{recipe}, {len(by_seed)} seeds", xlabel="iteration", ylim=(0, 1))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share of episodes that succeed")
    panels[-1].legend(loc="lower right", frameon=False)
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else {}
        path = ROOT / "docs" / "figures" / f"one_file.{ending}"
        figure.savefig(path, dpi=150, metadata=metadata)


if __name__ == "__main__":
    main()
