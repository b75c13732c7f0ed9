"""The results of the audit of real policies; run as a script, it draws their figure."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ascribe.steps.atomic import replacing
from benchmarks.common import ROOT, read_lines

RESULTS = Path(__file__).parent / "results"
PICTURE = ROOT / "docs" / "figures" / "audit_policy.svg"
OBJECTIVES = ("discounted", "success")
NAMED = (
    *("grpo", "returns", "gigpo, text", "gigpo, canonical", "hgpo, canonical"),
    *("bigpo_mean, hidden", "bipace_q, hidden", "sbc-centre, canonical", "sbc, canonical"),
)
"""Recipes that the figure names."""
LOWEST = 0.05
"""The lowest precision that cosines are corrected for."""


class PolicyResults:
    """Committed results: values by seed, stage, objective, recipe and metric."""

    def __init__(self, name: str) -> None:
        _, *lines = read_lines(RESULTS / f"{name}.jsonl")
        self.values: dict[tuple[str, ...], float] = {}
        for line in lines:
            self.values[(*line["case"].split("/", 3), line["metric"])] = line["value"]
        for key in self.values:  # a noisy reference makes every cosine with it smaller
            if key[-1].startswith(("batch_cosine", "mean_cosine")):
                precision = self.values[(*key[:3], "precision")]
                self.values[key] /= max(precision, LOWEST) ** 0.5
        places = [key[:2] for key in self.values if key[2:] == ("batches",)]
        self.seeds = sorted({seed for seed, _ in places})
        self.stages = sorted({stage for _, stage in places}, key=int)
        self.columns = [(stage, objective) for stage in self.stages for objective in OBJECTIVES]
        self.recipes = list(
            dict.fromkeys(
                key[3]
                for key in self.values
                if key[-1] == "mean_cosine" and " minus " not in key[3]
            )
        )

    def of_seeds(self, stage: str, *rest: str) -> list[float]:
        """The values of all seeds that have got so far."""
        keys = ((seed, stage, *rest) for seed in self.seeds)
        return [self.values[key] for key in keys if key in self.values]

    def draw(self) -> None:
        """Batch cosine over mean cosine, a panel for each stage and objective."""
        from matplotlib import rc_context  # noqa: PLC0415 (no other part needs it)
        from matplotlib.figure import Figure  # noqa: PLC0415

        drawing = Figure((3.4 * len(self.stages), 6.4), layout="constrained")
        panels = drawing.subplots(2, len(self.stages), squeeze=False)
        for (stage, objective), axis in zip(self.columns, _by_column(panels), strict=True):
            for recipe in self.recipes:
                x, y = (
                    mean(self.of_seeds(stage, objective, recipe, metric))
                    for metric in ("mean_cosine", "batch_cosine")
                )
                if recipe in NAMED:
                    colour = "black" if recipe == "sbc, canonical" else f"C{NAMED.index(recipe)}"
                    look = {"color": colour, "label": recipe, "zorder": 3}
                else:
                    look = {"color": "0.8", "zorder": 2}
                axis.plot(x, y, "o", **look)
            axis.set_title(f"stage {stage}, {objective}", fontsize=9)
        handles, labels = panels[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=8)
        drawing.supxlabel("mean cosine (bias)", fontsize=9)
        drawing.supylabel("batch cosine (bias and noise)", fontsize=9)
        with rc_context({"svg.hashsalt": "ascribe"}), replacing(PICTURE) as file:
            drawing.savefig(file, format="svg", metadata={"Date": None})


def _by_column(panels: Any) -> Sequence[Any]:
    """The axes stage by stage, each with both objectives."""
    return [axis for stage in panels.T for axis in stage]


if __name__ == "__main__":
    PolicyResults("audit_policy").draw()
