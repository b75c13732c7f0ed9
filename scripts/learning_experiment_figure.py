"""Draw the learning experiment: curves by recipe with bands, and paired differences.

Reads benchmarks/results/learning_experiment.jsonl and learning_experiment/curve.jsonl, which
benchmarks/learning_experiment.py writes, and writes docs/figures/learning_experiment.svg.
Needs the extra figures.
"""

import sys
from collections import defaultdict
from typing import Any

import numpy as np
from figures import ROOT, Line, new_figure, read, save

sys.path.insert(0, str(ROOT / "benchmarks"))

from learning_experiment import BASE, FULL, PRIMARY

COLOURS = {"grpo": "#999999", BASE: "#0072b2", PRIMARY: "#d55e00"}
"""Of the recipes whose curves are drawn: more could not be told apart."""


def main() -> None:
    """Read the results and draw them."""
    draw(read("learning_experiment/curve.jsonl"), read("learning_experiment.jsonl")[1:])


def draw(curves: list[Line], figures: list[Line]) -> None:
    """A panel of curves for each environment and start, and a forest plot on the right."""
    figure = new_figure(11.0, 5.2)
    parts = figure.subfigures(1, 2, width_ratios=(5, 4))
    panels = parts[0].subplots(2, 2, sharex=True, sharey=True)
    for panel, cell in zip(panels.T.flat, FULL.cells, strict=True):
        for arm, colour in COLOURS.items():
            draw_curve(panel, colour, arm, curves, cell)
        panel.set(title=f"{cell[0]}, {cell[1]} start", ylim=(0, 1))
        panel.grid(alpha=0.3)
    for panel in panels[1]:
        panel.set_xlabel("iteration")
    for panel in panels[:, 0]:
        panel.set_ylabel("episodes won")
    panels[0, 0].legend(frameon=False, loc="lower right")
    draw_forest(parts[1].subplots(), figures)
    save(figure, "learning_experiment")


def draw_curve(
    panel: Any, colour: str, arm: str, curves: list[Line], cell: tuple[str, str]
) -> None:
    """The mean over seeds, with its 95 % bootstrap band."""
    chosen = [
        line["held_out"]
        for line in curves
        if (line["environment"], line["start"]) == cell
        and line["arm"] == arm
        and line["seed"] in FULL.seeds
    ]
    if not chosen:
        return
    values = np.array(chosen)
    at = np.arange(values.shape[1]) * FULL.every
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, len(values), (2000, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    panel.plot(at, values.mean(axis=0), color=colour, label=arm)
    panel.fill_between(at, low, high, color=colour, alpha=0.2, lw=0)


def draw_forest(panel: Any, figures: list[Line]) -> None:
    """Differences to the base, or of controls to their recipe, with 95 % intervals."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for line in figures:
        if " minus " in line["case"] and line["case"].startswith(("all/", "weak/")):
            found[line["case"]][line["metric"]] = line["value"]
    names = sorted(found, key=lambda case: (case.startswith("all/"), found[case]["difference"]))
    for height, name in enumerate(names):
        one = found[name]
        colour = COLOURS[PRIMARY] if f"/{PRIMARY} minus" in name else "#333333"
        ends = [one["difference_low"], one["difference_high"]]
        panel.plot(ends, [height, height], color=colour)
        panel.plot(one["difference"], height, "o", color=colour, ms=4)
    labels = [name.partition("/")[2] for name in names]
    panel.set_yticks(range(len(names)), labels)
    panel.axvline(0, color="#999999", lw=1)
    panel.set(xlabel="difference in mean success")
    panel.grid(alpha=0.3, axis="x")


if __name__ == "__main__":
    main()
