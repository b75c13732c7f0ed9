"""Draw the learning experiment: curves by recipe with bands, and paired differences.

Reads learning_experiment.jsonl and learning_experiment/curve.jsonl in
experiments/learning_first/results, which learning_experiment.py writes there, and writes
docs/figures/learning_experiment.svg. Needs the extra figures.
"""

import sys
from collections import defaultdict
from typing import Any

import numpy as np
from figures import ROOT, Line, new_figure, read, save

sys.path.insert(0, str(ROOT))

from benchmarks.common import mean_interval
from experiments.learning_first.learning_experiment import BASE, FULL, PRIMARY, of_complete_seeds

COLOURS = {"grpo": "#999999", BASE: "#0072b2", PRIMARY: "#d55e00"}
"""Of the recipes whose curves are drawn: more could not be told apart."""


def main() -> None:
    """Read the results and draw them."""
    draw(
        of_complete_seeds(FULL, read("learning_first", "learning_experiment/curve.jsonl")),
        read("learning_first", "learning_experiment.jsonl")[1:],
    )


def draw(curves: list[Line], figures: list[Line]) -> None:
    """A panel of curves for each environment and start; on the right, differences."""
    figure = new_figure(11.0, 5.2)
    left, right = figure.subfigures(1, 2, width_ratios=(4, 3))
    panels = left.subplots(2, 2, sharex=True, sharey="col")
    for panel, cell in zip(panels.T.flat, FULL.cells, strict=True):
        for arm, colour in COLOURS.items():
            draw_curve(panel, colour, arm, curves, cell)
        panel.set_title(f"{cell[0]}, {cell[1]} start", fontsize=10)
        panel.grid(alpha=0.3)
    left.supxlabel("iteration", fontsize=10)
    left.supylabel("share of episodes won", fontsize=10)
    panels[0, 0].legend(frameon=False, loc="lower right")
    cases = contrasts(figures)
    heights = [len(cases["all"]), len(cases["weak"])]
    upper, lower = right.subplots(2, 1, sharex=True, height_ratios=heights)
    draw_forest(upper, cases["all"], f"recipes minus {BASE}, all panels")
    draw_forest(lower, cases["weak"], "controls minus recipe, weak starts")
    lower.set_xlabel("difference in mean success")
    save(figure, "learning_experiment")


def draw_curve(
    panel: Any, colour: str, arm: str, curves: list[Line], cell: tuple[str, str]
) -> None:
    """The mean over seeds, with its 95 % band by Student's t."""
    chosen = [
        line["held_out"]
        for line in curves
        if (line["environment"], line["start"]) == cell
        and line["arm"] == arm
        and line["seed"] in FULL.seeds
    ]
    if not chosen:
        return
    means, low, high = np.array([mean_interval(values) for values in zip(*chosen, strict=True)]).T
    at = np.arange(len(means)) * FULL.every
    panel.plot(at, means, color=colour, label=arm)
    panel.fill_between(at, low, high, color=colour, alpha=0.2, lw=0)


def contrasts(figures: list[Line]) -> dict[str, dict[str, dict[str, float]]]:
    """Differences by place (all cells, or weak starts) and name of the recipe or control."""
    found: dict[str, Any] = {"all": defaultdict(dict), "weak": defaultdict(dict)}
    for line in figures:
        place, _, names = line["case"].partition("/")
        arm, minus, _ = names.partition(" minus ")
        if place in found and minus:
            found[place][arm][line["metric"]] = line["value"]
    return found


def draw_forest(panel: Any, cases: dict[str, dict[str, float]], title: str) -> None:
    """Differences with 95 % intervals, the largest on top."""
    names = sorted(cases, key=lambda name: cases[name]["difference"])
    for height, name in enumerate(names):
        case, colour = cases[name], COLOURS[PRIMARY] if name == PRIMARY else "#333333"
        panel.plot([case["difference_low"], case["difference_high"]], [height] * 2, color=colour)
        panel.plot(case["difference"], height, "o", color=colour, ms=4)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(-0.7, len(names) - 0.3)
    panel.axvline(0, color="#999999", lw=1)
    panel.set_title(title, fontsize=10)
    panel.grid(alpha=0.3, axis="x")


if __name__ == "__main__":
    main()
