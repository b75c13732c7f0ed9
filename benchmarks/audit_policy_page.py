"""Write the tables and the figure of the audit of real policies from the committed results."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import Any

from common import RESULTS, ROOT, fill_page, read_lines

from ascribe.steps.atomic import replacing
from ascribe_lab.audit.report import markdown

PAGE = ROOT / "docs" / "audit_policy_results.md"
PICTURE = ROOT / "docs" / "figures" / "audit_policy.svg"
OBJECTIVES = ("discounted", "success")
NAMED = (
    *("grpo", "returns", "gigpo, text", "gigpo, canonical", "hgpo, canonical"),
    *("bigpo_mean, hidden", "bipace_q, hidden", "sbc-centre, canonical", "sbc, canonical"),
)
"""Recipes that the figure names."""
DEVELOPED_ON = "100"
"""The seed whose batches were looked at when ``sbc`` got its form."""
CLOSE = 0.02
"""A recipe is as good as the best if it is behind by no more."""

LOWEST = 0.05
"""The lowest precision that cosines are corrected for."""

Column = tuple[str, str]
"""Stage and objective."""


class PolicyResults:
    """Committed results: values by seed, stage, objective, recipe and metric."""

    def __init__(self, name: str, without: Sequence[str] = ()) -> None:
        self.header, *lines = read_lines(RESULTS / f"{name}.jsonl")
        self.values: dict[tuple[str, ...], float] = {}
        for line in lines:
            self.values[(*line["case"].split("/", 3), line["metric"])] = line["value"]
        for key in self.values:  # a noisy reference makes every cosine with it smaller
            if key[-1].startswith(("batch_cosine", "mean_cosine")):
                precision = self.values[(*key[:3], "precision")]
                self.values[key] /= max(precision, LOWEST) ** 0.5
        places = [key[:2] for key in self.values if key[2:] == ("batches",)]
        self.seeds = sorted({seed for seed, _ in places} - {*without})
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

    def average(self, column: Column, recipe: str, metric: str) -> tuple[float, float]:
        """Mean over seeds, and half of its 95 % interval for these policies."""
        values = self.of_seeds(*column, recipe, metric)
        lows, highs = (self.of_seeds(*column, recipe, f"{metric}_{e}") for e in ("low", "high"))
        halves = [(high - low) / 2 for low, high in zip(lows, highs, strict=True)]
        return mean(values), math.hypot(*halves) / len(values)

    def gaps(self, recipe: str) -> tuple[float, float]:
        """How far it is at most behind the best in batch cosine, and behind grpo in the mean's."""
        behind, below = [], []
        for column in self.columns:
            of_all = [mean(self.of_seeds(*column, r, "batch_cosine")) for r in self.recipes]
            behind.append(max(of_all) - mean(self.of_seeds(*column, recipe, "batch_cosine")))
            of_grpo = mean(self.of_seeds(*column, "grpo", "mean_cosine"))
            below.append(of_grpo - mean(self.of_seeds(*column, recipe, "mean_cosine")))
        return max(behind), max(below)

    # Tables.

    def _head(self, *more: str) -> list[str]:
        return ["recipe", *(f"{stage}, {objective}" for stage, objective in self.columns), *more]

    def played(self) -> str:
        """What was played, and the noise of the truth."""
        rows = []
        for stage in self.stages:
            for seed in self.seeds:
                key = (seed, stage)
                if (*key, "batches") in self.values:
                    counts = [int(self.values.get((*key, n), 0)) for n in ("batches", "decisions")]
                    noise = [
                        f"{self.values.get((*key, objective, metric), math.nan):.2f}"
                        for metric in ("precision", "noise_share")
                        for objective in OBJECTIVES
                    ]
                    success = f"{self.values[(*key, 'success')]:.2f}"
                    rows.append([stage, seed, success, *map(str, counts), *noise])
        noises = [f"{name}, {o}" for name in ("precision", "noise of Q") for o in OBJECTIVES]
        head = ["stage", "seed", "success", "batches", "decisions", *noises]
        return markdown(head, rows) + "\n"

    def frontier(self, only: Sequence[str] = ()) -> str:
        """Batch and mean cosine of every recipe, or of some, best ones in bold."""
        best = {
            column: max(mean(self.of_seeds(*column, r, "batch_cosine")) for r in self.recipes)
            for column in self.columns
        }
        rows = []
        for recipe in sorted(self.recipes, key=lambda name: self.gaps(name)[0]):
            cells = []
            for column in self.columns:
                value, half = self.average(column, recipe, "batch_cosine")
                bias = mean(self.of_seeds(*column, recipe, "mean_cosine"))
                cell = f"{value:.2f} ±{half:.2f}"
                cell = f"**{cell}**" if value >= best[column] - CLOSE else cell
                cells.append(f"{cell} / {bias:.2f}")
            if only and recipe not in only:
                continue
            behind, below = self.gaps(recipe)
            rows.append([recipe, *cells, f"{behind:.2f}", f"{below:+.2f}"])
        return markdown(self._head("behind the best", "behind grpo's mean"), rows) + "\n"

    def decisions(self) -> str:
        """Agreement of credit with the value of decisions."""
        return self._table(self.recipes, "decision_cosine", lambda v, h: f"{v:.2f} ±{h:.2f}")

    def differences(self, hidden: bool) -> str:
        """Paired differences in batch cosine: of clusters of hidden states, or all others."""
        pairs = dict.fromkeys(key[3] for key in self.values if len(key) > 4 and " minus " in key[3])
        chosen = [pair for pair in pairs if (", hidden minus" in pair) == hidden]
        return self._table(chosen, "batch_cosine", _signed)

    def policies(self, pair: str) -> str:
        """A paired difference in batch cosine, policy by policy."""
        rows = []
        for seed in self.seeds:
            cells = [seed]
            for column in self.columns:
                value, low, high = (
                    self.values[(seed, *column, pair, f"batch_cosine{end}")]
                    for end in ("", "_low", "_high")
                )
                cells.append(_signed(value, (high - low) / 2))
            rows.append(cells)
        return markdown(["seed", *self._head()[1:]], rows) + "\n"

    def _table(
        self, recipes: Iterable[str], metric: str, cell: Callable[[float, float], str]
    ) -> str:
        rows = [
            [name, *(cell(*self.average(column, name, metric)) for column in self.columns)]
            for name in recipes
        ]
        return markdown(self._head(), rows) + "\n"

    def draw(self) -> None:
        """Batch cosine over mean cosine, a panel for each stage and objective."""
        from matplotlib import rc_context  # noqa: PLC0415 (the tables need none)
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


def _signed(value: float, half: float) -> str:
    return f"{value:+.3f} ±{half:.3f}" + ("*" if abs(value) > half else "")


def _by_column(panels: Any) -> Sequence[Any]:
    """The axes stage by stage, each with both objectives."""
    return [axis for stage in panels.T for axis in stage]


def filled(text: str) -> str:
    """The page with the tables of the committed results."""
    tiny = PolicyResults("audit_policy")
    tables = {
        "played": tiny.played(),
        "frontier": tiny.frontier(),
        "unseen": PolicyResults("audit_policy", [DEVELOPED_ON]).frontier(NAMED),
        "differences": tiny.differences(hidden=False),
        "policies": tiny.policies("gigpo, canonical minus gigpo, random"),
        "clusters": tiny.differences(hidden=True),
        "decisions": tiny.decisions(),
    }
    if (RESULTS / "audit_policy_smollm2.jsonl").exists():
        large = PolicyResults("audit_policy_smollm2")
        tables |= {"smollm2 played": large.played(), "smollm2": large.frontier()}
        tables |= {"smollm2 decisions": large.decisions()}
    marks = {name: table for name, table in tables.items() if f"<!-- begin: {name} -->" in text}
    return fill_page(text, marks)


def main() -> None:
    """Write the page and draw the figure."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PolicyResults("audit_policy").draw()


if __name__ == "__main__":
    main()
