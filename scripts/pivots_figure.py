"""Draw what pivots cost and what they forget, beside whole episodes and supervised learning.

Reads experiments/pivotrl/results/learning_pivots/curve.jsonl, which learning_pivots.py writes
there, and writes docs/figures/pivots.svg. Needs the extra figures.
"""

from collections import defaultdict

import numpy as np
from figures import BLUE, RED, Line, new_figure, read, save
from matplotlib.axes import Axes

COLOURS = {
    "pivots": BLUE,
    "rounds": "#56b4e9",
    "progress": "#e69f00",
    "episodes": RED,
    "supervised": "#555555",
}
GOALS = {"short": "goals of three commands", "long": "goals of four or five commands"}
SKILLS = {"trained_goals": "trained goals", "other_goals": "other goals", "sums": "sums"}

Runs = dict[str, dict[int, list[Line]]]


def main() -> None:
    """Read the curves and draw them."""
    runs: dict[str, Runs] = {kind: defaultdict(lambda: defaultdict(list)) for kind in GOALS}
    for line in read("pivotrl", "learning_pivots/curve.jsonl"):
        runs[line["goals"]][line["method"]][line["seed"]].append(line)
    figure = new_figure(9.6, 7.0)
    panels = figure.subplots(2, 2, sharey="row")
    for place, (kind, title) in enumerate(GOALS.items()):
        upper, lower = panels[:, place]
        upper.set_title(f"{title}, each line a seed")
        draw_success(upper, runs[kind])
        draw_change(lower, runs[kind])
    panels[0, 0].set_ylabel("share of trained goals that succeed")
    panels[1, 0].set_ylabel("change from the start, each dot a seed")
    panels[0, 1].legend(frameon=False, loc="upper left", bbox_to_anchor=(0.02, 0.95))
    save(figure, "pivots")


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
