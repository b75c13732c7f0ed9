"""Draw what pivots cost and what they forget, beside whole episodes and supervised learning.

Reads benchmarks/results/learning_pivots/curve.jsonl, which benchmarks/learning_pivots.py writes,
and writes docs/figures/pivots.png and .svg. Needs the extra figures.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
CURVE = ROOT / "benchmarks" / "results" / "learning_pivots" / "curve.jsonl"
COLOURS = {
    "pivots": "#0072b2",
    "rounds": "#56b4e9",
    "episodes": "#d55e00",
    "supervised": "#555555",
}
"""Told apart by readers who do not see all colours."""
SKILLS = {"trained_goals": "trained goals", "other_goals": "other goals", "sums": "sums"}

Runs = dict[str, dict[int, list[dict[str, Any]]]]


def main() -> None:
    """Read the curves and draw them."""
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for text in CURVE.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        runs[line["method"]][line["seed"]].append(line)
    draw(runs)


def draw(runs: Runs) -> None:
    """Success by turns on the left; on the right, what changed from the start to the end."""
    mpl.rcParams |= {"svg.hashsalt": "ascribe", "font.size": 10}
    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    for method, colour in COLOURS.items():
        by_seed = list(runs[method].values())
        if method == "supervised":
            end = np.mean([lines[-1]["trained_goals"] for lines in by_seed])
            left.axhline(end, color=colour, ls="--", lw=1.4, label=f"{method}, no turns")
            continue
        for number, lines in enumerate(by_seed):
            turns = [line["turns"] for line in lines]
            won = [line["trained_goals"] for line in lines]
            name = method if number == 0 else None
            left.plot(turns, won, "o-", color=colour, ms=4, lw=1.4, alpha=0.8, label=name)
    left.set(xlabel="turns that the policy played, profile included", ylim=(0, 1.03))
    left.set_ylabel("share of episodes that succeed")
    left.set_title("trained goals, each line a seed")
    left.legend(frameon=False, loc="lower right")
    width = 0.8 / len(COLOURS)
    for number, (method, colour) in enumerate(COLOURS.items()):
        for place, skill in enumerate(SKILLS):
            change = [lines[-1][skill] - lines[0][skill] for lines in runs[method].values()]
            at = place + (number - (len(COLOURS) - 1) / 2) * width
            name = method if place == 0 else None
            right.bar(at, np.mean(change), 0.9 * width, color=colour, alpha=0.6, label=name)
            right.plot([at] * len(change), change, ".", color="#222222", ms=4)
    right.axhline(0, color="#222222", lw=0.8)
    right.set_xticks(range(len(SKILLS)), SKILLS.values())
    right.set_title("change from the start, each dot a seed")
    for panel in (left, right):
        panel.grid(axis="y", alpha=0.3)
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else {}
        path = ROOT / "docs" / "figures" / f"pivots.{ending}"
        figure.savefig(path, dpi=150, metadata=metadata)


if __name__ == "__main__":
    main()
