"""More worlds of ``ascribe audit``: discounts, one rollout per task, and recurrence.

Case ``WORLD/RECIPE``, for every recipe in the worlds that ``audit.py`` leaves out: learning with
momentum (``momentum_auc``) and without (``learning_auc``), and the cosine of the gradients of 32
batches and that of success, for a policy that has learned already (``update_cosine``).
``RECIPE@GAMMA`` is the recipe with another discount. ``RECIPE@tuned`` has the one of ``GAMMAS``,
and its default, with which it learned best on other tasks (``TUNED_ON``); ``gamma`` is that one.

``single: WORLD/RECIPE`` compares recipes at equal episodes: tasks of a block take turns in groups
of eight, or every task has one rollout in every update (``RECIPE, one rollout``). Recipes have the
discount that is tuned in groups. ``recurrence: RECIPE/SHARE`` is learning in ``graph`` with this
share of paraphrased texts, and ``alone`` the share of steps alone in their text; recipes have their
tuned discount. ``METRIC_low`` and ``METRIC_high`` bound the 95 % interval over blocks of tasks.

What is measured is kept in ``--work`` as it comes, so a run that was stopped goes on there.
``--docs`` draws the figure of docs/audit.md from the committed results.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe_lab.audit import FULL, WORLDS, Settings, rollouts, scored_recipe
from ascribe_lab.audit.rare import RARE_WORLDS
from ascribe_lab.audit.report import BETTER
from ascribe_lab.audit.run import SCORING, interval, score_batches, score_learning
from benchmarks.common import ROOT, Figures, read_lines, save_figure

RECIPES = (
    *("grpo", "returns", "gigpo", "hgpo", "g2po", "graphgpo_mean", "bigpo_mean"),
    *("bipace_diff_mean", "bipace_q", "gae", "progress", "judged_mean", "entropy_returns"),
    *("sbc_exact", "sbc", "returns_memory", "sbc_memory"),
)
"""One form of each family. ``rloo`` and ``entropy`` are as ``grpo``, and ``audit.py`` compares the
other forms in eight worlds."""
sys.path.append(str(Path(__file__).parent))  # where they are found by these names
CANDIDATES = tuple(
    f"candidates:{name}" for name in ("HiddenCritic", "PooledClusters", "ByTool", "CheapProgress")
)
"""What ``candidates.py`` has for states that never recur, as it is by default."""
EVERY = (*RECIPES, *CANDIDATES)
GAMMAS = (0.8, 0.9, 0.95, 0.99, 1.0)
GRIDS = ("returns", "sbc_exact")
"""Recipes that are reported with each of ``GAMMAS``, and with the one that is tuned."""
SINGLE = {"reinforce_pp": "grpo", "returns_memory": "returns", "sbc_memory": "sbc_exact"}
"""Recipes for one rollout per task, and those whose discount they have."""
GROUPED = ("grpo", "returns", "sbc_exact")
"""Recipes in groups of eight beside them."""
LINES = (
    *("grpo", "returns", "gigpo", "hgpo", "g2po", "bipace_q_text", "bipace_q"),
    *("sbc_exact", "sbc"),
)
"""Recipes of the figure by recurrence."""
PARAPHRASED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of steps whose text is one of 500 wordings, in the figure."""
RECURRING = "graph"
"""The world of the figure by recurrence."""
SHOWN = ("momentum_auc", "learning_auc", "update_cosine")
SETTINGS = replace(FULL, blocks=4, batches=3, gamma=1.0, seed=41)
TUNED_ON = replace(SETTINGS, blocks=3, seed=1041)
AT_EQUAL_EPISODES = replace(SETTINGS, blocks=4, tasks=32, updates=40, seed=2041)
PICTURE = ROOT / "docs" / "figures" / "audit_recurrence"
COMMITTED = Path(__file__).parent / "results" / "audit_recurrence.jsonl"

Values = dict[str, list[float]]
"""By metric, one number for each block."""


class Kept:
    """What was measured, in a file that grows as it comes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "audit_recurrence.jsonl"
        lines = read_lines(self.path) if self.path.exists() else []
        self.values: dict[str, Values] = {line["key"]: line["values"] for line in lines}

    def get(self, key: str, measure: Callable[[], dict[str, Any]]) -> Values:
        """The values under this key, measured if they are not there."""
        if key not in self.values:
            values = {name: np.asarray(each).tolist() for name, each in measure().items()}
            self.values[key] = values
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "values": values}) + "\n")
        return self.values[key]

    def learned(self, part: str, world: str, name: str, settings: Settings) -> Values:
        """The learning of a recipe in a world."""

        def measure() -> dict[str, Any]:
            found = score_learning({name: scored_recipe(name)}, sized(settings, world), world)
            return found[world, name, settings.learning_size]

        return self.get(f"{part}: {world}/{name}", measure)


def main() -> None:
    """Measure and print, or draw the figure."""
    if "--docs" in sys.argv:
        figure(committed(), PICTURE)
        return
    work = {"type": Path, "help": "folder for what was measured"}
    with Figures("audit_recurrence", work=work) as figures, tempfile.TemporaryDirectory() as spare:
        kept = Kept(figures.options.work or Path(spare))
        worlds = ("reworded",) if figures.quick else (*RARE_WORLDS, *WORLDS)
        for case, values in measured(kept, worlds, quick=figures.quick):
            for metric, of_blocks in values.items():
                if len(of_blocks) == 1:
                    figures.emit(case, metric, of_blocks[0], "1", "higher")
                    continue
                found = interval(np.array(of_blocks))
                bounds = (found.value, found.low, found.high)
                figures.emit_interval(case, metric, bounds, "1", BETTER[metric])


def measured(kept: Kept, worlds: tuple[str, ...], *, quick: bool) -> Iterator[tuple[str, Values]]:
    """Every case and its values."""
    for world in worlds:
        for name in RECIPES[:2] if quick else () if world in WORLDS else EVERY:
            yield f"{world}/{name}", kept.get(f"{world}/{name}", partial(scored, world, name))
        for name in (f"{name}@{gamma:g}" for name in GRIDS for gamma in GAMMAS):
            if not quick:
                yield f"{world}/{name}", kept.learned("grid", world, name, SETTINGS)
    for world in worlds:
        yield from at_equal_episodes(kept, world)
    if not quick:
        yield from by_recurrence(kept)
    for world in worlds:
        for name in GRIDS:
            gamma = tuned_gamma(kept, world, name)
            values = kept.learned("grid", world, f"{name}@{gamma:g}", SETTINGS)
            yield f"{world}/{name}@tuned", values | {"gamma": [gamma]}


def scored(world: str, name: str) -> dict[str, Any]:
    """Learning with and without momentum, and the direction of the gradient."""
    recipes, settings = {name: scored_recipe(name)}, sized(replace(SETTINGS, plain=True), world)
    case = (world, name, settings.learning_size)
    found = score_learning(recipes, settings, world)[case]
    found |= score_batches(recipes, settings, *case[::2])[case]
    return {metric: found[metric] for metric in SHOWN}


def sized(settings: Settings, world: str) -> Settings:
    """The settings, with fewer tasks in the worlds with the longest episodes."""
    return replace(settings, tasks=settings.tasks // {"quest60": 2, "quest200": 4}.get(world, 1))


def tuned_gamma(kept: Kept, world: str, name: str) -> float:
    """The discount with which a recipe learns best on tasks of their own."""
    recipe: Any = scored_recipe(name)

    def learning(gamma: float) -> float:
        found = kept.learned("tuning", world, f"{name}@{gamma:g}", TUNED_ON)
        return float(np.mean(found["momentum_auc"]))

    return max(sorted({*GAMMAS, recipe.gamma}), key=learning)


def with_tuned(kept: Kept, world: str, name: str) -> str:
    """The name of a recipe with its tuned discount, if it has one."""
    like = SINGLE.get(name, name)
    return name if like == "grpo" else f"{name}@{tuned_gamma(kept, world, like):g}"


def at_equal_episodes(kept: Kept, world: str) -> Iterator[tuple[str, Values]]:
    """Groups of eight, of an eighth of the tasks at a time, and one rollout of every task."""
    grouped = replace(AT_EQUAL_EPISODES, parts=8)
    for name in GROUPED:
        values = kept.learned("groups", world, with_tuned(kept, world, name), grouped)
        yield f"single: {world}/{name}", values
    single = replace(AT_EQUAL_EPISODES, learning_size=1)
    for name in SINGLE:
        values = kept.learned("single", world, with_tuned(kept, world, name), single)
        yield f"single: {world}/{name}, one rollout", values
        reference = kept.learned("groups", world, "grpo", grouped)["momentum_auc"]
        apart = np.array(values["momentum_auc"]) - reference
        yield f"single: {world}/{name}, one rollout, minus grpo", {"momentum_auc": apart.tolist()}


def by_recurrence(kept: Kept) -> Iterator[tuple[str, Values]]:
    """Learning of the recipes of the figure, by the share of paraphrased texts."""
    for share in PARAPHRASED:
        settings = replace(SETTINGS, blocks=8, paraphrase=share, wordings=500)
        yield f"recurrence: {share:g}", {"alone": [alone(settings, RECURRING)]}
        for name in LINES:
            chosen = with_tuned(kept, RECURRING, name)
            values = kept.learned(f"recurrence, {share:g}", RECURRING, chosen, settings)
            yield f"recurrence: {name}/{share:g}", values


def alone(settings: Settings, world: str) -> float:
    """The share of the steps of a batch that are alone in their text."""
    size = settings.learning_size
    random, conditions = settings.random(world, size, SCORING), settings.conditions(world, size)
    table = rollouts(settings.draw_tasks(world), None, random, conditions).table
    groups = exact(table.group.codes, table.state.codes, table.state.values.size)
    return float((segments.size(groups.labels, groups.count) == 1).sum() / len(table))


# The figure.

Lines = dict[tuple[str, str], dict[str, float]]
"""By case and metric: value, and the bounds of its interval if it has one."""


def committed() -> Lines:
    """The committed figures."""
    found: Lines = {}
    for line in read_lines(COMMITTED)[1:]:
        metric, _, end = line["metric"].rpartition("_")
        if end in ("low", "high"):
            found[line["case"], metric][end] = line["value"]
        else:
            found[line["case"], line["metric"]] = {"value": line["value"]}
    return found


def figure(lines: Lines, path: Path) -> None:
    """Draw learning by the share of steps alone in their text, as PNG and SVG."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (no other part needs it)

    drawing = Figure((7.0, 4.2), layout="constrained")
    axis = drawing.subplots()
    shares = [100 * lines[f"recurrence: {share:g}", "alone"]["value"] for share in PARAPHRASED]
    for place, name in enumerate(LINES):
        cases = [f"recurrence: {name}/{share:g}" for share in PARAPHRASED]
        found = [lines[case, "momentum_auc"] for case in cases]
        middle, low, high = ([line[end] for line in found] for end in ("value", "low", "high"))
        style = {"color": f"C{place}", "linestyle": "--" if place < 2 else "-"}
        axis.plot(shares, middle, marker="o", markersize=3, label=name, **style)
        axis.fill_between(shares, low, high, alpha=0.08, color=f"C{place}")
    axis.set_xlabel("steps alone in their text, %")
    axis.set_ylabel(f"learning in {RECURRING}, discounts tuned")
    axis.grid(color="0.9")
    axis.set_axisbelow(True)
    drawing.legend(loc="outside right center", fontsize=9)
    save_figure(drawing, path)


if __name__ == "__main__":
    main()
