"""Draw the learning experiment: what each arm learned beyond grpo, by environment.

Reads experiments/sceptic/results/sceptic/curve.jsonl, which sceptic.py writes there, and writes
docs/figures/sceptic.svg. Needs the extra figures.
"""

import sys
from typing import Any

from figures import ROOT, Line, new_figure, read, save

sys.path.insert(0, str(ROOT))

from benchmarks.common import mean_interval
from experiments.sceptic.sceptic import ARMS, FULL, GROUPED, ORACLE, PRIMARY, Values, aucs, of_tests
from experiments.sceptic.sceptic_page import NAMES

COLOURS = {ORACLE: "#999999", PRIMARY[0]: "#d55e00", PRIMARY[1]: "#0072b2"}


def main() -> None:
    """Read the curves and draw them."""
    draw(read("sceptic", "sceptic/curve.jsonl"))


def draw(curves: list[Line]) -> None:
    """A panel for each environment, a row for each arm."""
    figure, values = new_figure(11.0, 3.4), of_tests(FULL, curves)
    panels = figure.subplots(1, len(FULL.worlds), sharey=True)
    arms = [arm for arm in ARMS if arm != GROUPED]
    for panel, world in zip(panels, FULL.worlds, strict=True):
        draw_panel(panel, values, world, arms)
        panel.set_title(NAMES[world].replace(" with", "\nwith"), fontsize=10)
    panels[0].set_yticks(range(len(arms)), arms)
    panels[0].invert_yaxis()
    figure.supxlabel(f"mean success over training, minus {GROUPED}", fontsize=10)
    save(figure, "sceptic")


def draw_panel(panel: Any, values: Values, world: str, arms: list[str]) -> None:
    """Differences to the base, with 95 % intervals by Student's t over seeds."""
    base = aucs(values, world, GROUPED)
    for row, arm in enumerate(arms):
        if arm in FULL.arms_in(world):
            mean, low, high = mean_interval(aucs(values, world, arm) - base, -1)
            colour = COLOURS.get(arm, "#333333")
            panel.plot([low, high], [row, row], color=colour, lw=2)
            panel.plot(mean, row, "o", color=colour, ms=5)
    panel.axvline(0, color="#333333", lw=0.8)
    panel.grid(axis="x", alpha=0.3)


if __name__ == "__main__":
    main()
