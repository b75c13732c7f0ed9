"""Draw the curves of the runs on sums: teams by iteration, corrections by sampled tokens.

Reads the curves that experiments/ccpo/learning_team.py and experiments/ibpo/learning_ibpo.py wrote
beside their results, of the tiny policy and of SmolLM2-135M, and writes
docs/figures/learning_team.svg and learning_ibpo.svg. Needs the extra figures.
"""

from collections.abc import Callable

import numpy as np
from figures import BLUE, RED, Line, new_figure, read, save

COLOURS = {"shared": RED, "counterfactual": BLUE, "gspo": RED, "ibpo": BLUE}


def main() -> None:
    """Draw both."""
    draw("ccpo", "learning_team", "reward", "iteration", team)
    draw("ibpo", "learning_ibpo", "arm", "sampled tokens", corrections)


def draw(
    study: str,
    name: str,
    arm: str,
    across: str,
    values: Callable[[Line], tuple[float, float]],
) -> None:
    """The tiny policy on the left, the real model on the right: thin seeds, thick means."""
    figure = new_figure(8.0, 3.4)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, file, title in zip(
        panels, (name, f"{name}_smollm2"), ("tiny policy", "SmolLM2-135M"), strict=True
    ):
        lines = read(study, f"{file}/curve.jsonl")
        for kind in dict.fromkeys(line[arm] for line in lines):
            seeds = dict.fromkeys(line["seed"] for line in lines)
            runs = [
                [values(one) for one in lines if one[arm] == kind and one["seed"] == seed]
                for seed in seeds
            ]
            smooth = [averaged(run) for run in runs]
            for run in smooth if len(smooth) > 1 else ():
                panel.plot(*zip(*run, strict=True), color=COLOURS[kind], lw=0.8, alpha=0.5)
            shortest = min(map(len, smooth))
            mean = np.mean([run[:shortest] for run in smooth], axis=0)
            panel.plot(mean[:, 0], mean[:, 1], color=COLOURS[kind], lw=2, label=kind)
        panel.set(title=title, xlabel=across, ylim=(0, 1))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share of episodes won")
    panels[0].legend(frameon=False)
    save(figure, name)


def team(line: Line) -> tuple[float, float]:
    """Iteration, and success of the team."""
    return line["iteration"], line["team"]


def corrections(line: Line) -> tuple[float, float]:
    """Tokens sampled so far, and success of the answers."""
    return line["tokens"], line["success"]


def averaged(run: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Means over fifteen equal parts of a run, or as they are if there are no more."""
    parts = np.array_split(np.array(run), min(15, len(run)))
    return [(float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts]


if __name__ == "__main__":
    main()
