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
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
CURVE = ROOT / "benchmarks" / "results" / "learning_pivots" / "curve.jsonl"
COLOURS = {
    "pivots": "#0072b2",
    "rounds": "#56b4e9",
    "progress": "#e69f00",
    "episodes": "#d55e00",
    "supervised": "#555555",
}
"""Told apart by readers who do not see all colours."""
GOALS = {"short": "goals of three commands", "long": "goals of four or five commands"}
SKILLS = {"trained_goals": "trained goals", "other_goals": "other goals", "sums": "sums"}

Runs = dict[str, dict[int, list[dict[str, Any]]]]


def main() -> None:
    """Read the curves and draw them."""
    runs: dict[str, Runs] = {kind: defaultdict(lambda: defaultdict(list)) for kind in GOALS}
    for text in CURVE.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        runs[line["goals"]][line["method"]][line["seed"]].append(line)
    mpl.rcParams |= {"svg.hashsalt": "ascribe", "font.size": 10}
    figure = Figure(figsize=(9.6, 7.0), layout="constrained")
    panels = figure.subplots(2, 2, sharey="row")
    for place, (kind, said) in enumerate(GOALS.items()):
        upper, lower = panels[:, place]
        upper.set_title(f"{said}, each line a seed")
        draw_success(upper, runs[kind])
        draw_change(lower, runs[kind])
    panels[0, 0].set_ylabel("share of trained goals that succeed")
    panels[1, 0].set_ylabel("change from the start, each dot a seed")
    panels[0, 1].legend(frameon=False, loc="upper left", bbox_to_anchor=(0.02, 0.95))
    for ending in ("png", "svg"):
        metadata = {"Date": None} if ending == "svg" else {}
        path = ROOT / "docs" / "figures" / f"pivots.{ending}"
        figure.savefig(path, dpi=150, metadata=metadata)


def draw_success(panel: Axes, runs: Runs) -> None:
    """Success by turns that the policy played."""
    for method, colour in COLOURS.items():
        by_seed = list(runs[method].values())
        if method == "supervised":
            end = np.mean([lines[-1]["trained_goals"] for lines in by_seed])
            panel.axhline(end, color=colour, ls="--", lw=1.4, label=f"{method}, no turns")
            continue
        for number, lines in enumerate(by_seed):
            turns = [line["turns"] for line in lines]
            won = [line["trained_goals"] for line in lines]
            name = method if number == 0 else None
            panel.plot(turns, won, "o-", color=colour, ms=4, lw=1.4, alpha=0.8, label=name)
    panel.set(xlabel="turns that the policy played, profile included", ylim=(0, 1.03))
    panel.grid(axis="y", alpha=0.3)


def draw_change(panel: Axes, runs: Runs) -> None:
    """What each way of learning did to each skill."""
    width = 0.8 / len(COLOURS)
    for number, (method, colour) in enumerate(COLOURS.items()):
        for place, skill in enumerate(SKILLS):
            change = [lines[-1][skill] - lines[0][skill] for lines in runs[method].values()]
            at = place + (number - (len(COLOURS) - 1) / 2) * width
            panel.bar(at, np.mean(change), 0.9 * width, color=colour, alpha=0.6)
            panel.plot([at] * len(change), change, ".", color="#222222", ms=4)
    panel.axhline(0, color="#222222", lw=0.8)
    panel.set_xticks(range(len(SKILLS)), SKILLS.values())
    panel.grid(axis="y", alpha=0.3)


if __name__ == "__main__":
    main()
