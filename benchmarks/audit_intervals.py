"""Do intervals of credits hold the true advantage? In the worlds of the audit, where it is known.

Case `WORLD/RECIPE/SIZE` is a recipe on SIZE episodes of each task: policies that succeed in 3 to
35 % of episodes, as in the audit, or with ` trained` in 10 to 90 %; 16 tasks in one table, or with
` alone` each in a table of its own. `coverage` is the share of credited rows whose 90 % interval
holds the exact advantage, and `width` the mean width. For scale, `oracle_width` is the one width
that, around the same centres, holds 90 % of the exact advantages, and `no_data_width` the one that
does so around 0.

`bootstrap_coverage` is of another interval, the recipe's own number over episodes drawn again with
replacement (40 times), for recipes in units of the return. `cpu_ratio` compares the time for the
intervals with that for the credit.

The method was chosen, and its constants were set, in the worlds `graph`, `craft`, `stop` and
`dense`, with other seeds. `--docs` writes the committed results into docs/decisions.md.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from common import RESULTS, ROOT, Figures, Work, fill_page, interleaved, read_lines, steps

from ascribe import recipe
from ascribe.steps import segments
from ascribe.steps.arrays import Floats
from ascribe.steps.table import Coded
from ascribe_lab.audit import WORLDS, rollouts
from ascribe_lab.audit.run import Settings, scored_recipe
from ascribe_lab.audit.tasks import AuditBatch, Exact, TabularTasks

PAGE = ROOT / "docs" / "decisions.md"
LEVEL, GOAL = 0.9, 0.87
SIZES = (4, 8, 16)
FORMS = ("grpo", "returns", "gigpo", "bipace_diff", "bipace_q", "sbc")
IN_UNITS = ("dr_grpo", "returns", "gigpo_mean", "bipace_q_mean", "sbc")
"""Recipes in units of the return, whose own number is resampled."""
POLICIES = {"": (0.03, 0.35), " trained": (0.1, 0.9)}
TASKS = 16
RESAMPLES = 40
SEED = 4000


def main() -> None:
    """Measure and print, or write the page."""
    if "--docs" in sys.argv:
        PAGE.write_text(filled(PAGE.read_text()))
        return
    with Figures("audit_intervals") as figures:
        seeds, sizes = (1, (8,)) if figures.quick else (8, SIZES)
        for policy, success in list(POLICIES.items())[: 1 if figures.quick else None]:
            for world in WORLDS:
                tasks = [draw_tasks(world, success, SEED + i) for i in range(seeds)]
                for size in sizes:
                    batches = [
                        rollouts(each, exact, by.random(world, size), by.conditions(world, size))
                        for each, exact, by in tasks
                    ]
                    for name in FORMS:
                        measure(figures, f"{world}/{name}/{size}{policy}", batches, name)
                    if not policy:
                        alone = [
                            one_task(batch, task) for batch in batches for task in range(TASKS)
                        ]
                        measure(figures, f"{world}/sbc/{size} alone", alone, "sbc")
                    if size == 8 and not policy:
                        for name in IN_UNITS[:2] if figures.quick else IN_UNITS:
                            held = [bootstrapped(each, scored_recipe(name)) for each in batches[:3]]
                            share = float(np.concatenate(held).mean())
                            case = f"{world}/{name}/8"
                            figures.emit(case, "bootstrap_coverage", share, "share", "higher")
        table = steps(8 if figures.quick else 64)
        works = {
            "credit": Work(lambda: table, recipe("sbc")),
            "interval": Work(lambda: recipe("sbc")(table), lambda credit: credit.interval(table)),
        }
        times = interleaved(works, rounds=5)
        ratio = times["interval"].cpu / times["credit"].cpu
        figures.emit(f"{len(table):,} rows", "cpu_ratio", ratio, "ratio", "lower")


def draw_tasks(
    world: str, success: tuple[float, float], seed: int
) -> tuple[TabularTasks, Exact, Settings]:
    """Tasks of a world and their exact values."""
    settings = Settings(seed=seed)
    tasks = WORLDS[world].tasks(TASKS, settings.random(world), success=success)
    return tasks, tasks.solve(settings.gamma), settings


def one_task(batch: AuditBatch, task: int) -> AuditBatch:
    """The episodes of one task alone; without the arrays that are not needed here."""
    rows = np.flatnonzero(batch.task == task)
    return replace(batch, table=batch.table.take(rows), advantage=batch.advantage[rows])


def measure(figures: Figures, case: str, batches: list[AuditBatch], name: str) -> None:
    """How often the intervals of a recipe hold the truth, and how wide they are."""
    columns = []
    for batch in batches:
        credit = recipe(name)(batch.table)
        bounds = np.stack([*credit.interval(batch.table, LEVEL), batch.advantage])
        columns.append(bounds[:, credit.credited])
    low, high, truth = np.concatenate(columns, axis=1)
    held = (low <= truth) & (truth <= high)
    figures.emit(case, "coverage", float(held.mean()), "share", "higher", GOAL)
    figures.emit(case, "width", float((high - low).mean()), "return", "lower")
    for metric, centre in (("oracle_width", (low + high) / 2), ("no_data_width", 0.0)):
        width = 2 * float(np.quantile(np.abs(truth - centre), LEVEL))
        figures.emit(case, metric, width, "return", "lower")


def bootstrapped(batch: AuditBatch, scored: Callable[..., Any]) -> Floats:
    """Of each credited row, whether the recipe's number over resampled episodes holds the truth."""
    random = np.random.default_rng(SEED)
    episode, names = batch.table.trajectory.codes, batch.table.trajectory.values
    length = segments.size(episode, names.size)
    start = np.cumsum(length) - length
    drawn = np.full((RESAMPLES, episode.size), np.nan)
    for sample in drawn:
        first = np.arange(names.size) // batch.group_size * batch.group_size
        chosen = first + random.integers(0, batch.group_size, names.size)
        copy = np.repeat(np.arange(names.size), length[chosen])
        offset = np.arange(copy.size) - np.repeat(np.cumsum(length[chosen]), length[chosen])
        rows = (start + length)[chosen][copy] + offset
        again = replace(batch.table.take(rows), trajectory=Coded(copy, names))
        sample[rows] = scored(again).advantage
    rows = scored(batch.table).credited & ~np.isnan(drawn).all(axis=0)
    low, high = np.nanquantile(drawn[:, rows], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    truth = batch.advantage[rows]
    return np.asarray((low <= truth) & (truth <= high))


def filled(text: str) -> str:
    """The page with what the committed results say."""
    values: dict[tuple[str, str], float] = {}
    for line in read_lines(RESULTS / "audit_intervals.jsonl")[1:]:
        values[line["case"], line["metric"]] = line["value"]

    def of(metric: str, policy: str, size: int, world: str) -> float:
        return values[f"{world}/sbc/{size}{policy}", metric]

    def held(policy: str) -> str:
        found = [of("coverage", policy, size, world) for size in SIZES for world in WORLDS]
        return f"{round(100 * min(found))} to {round(100 * max(found))} %"

    narrower = [
        sum(of("width", *case, world) < of("no_data_width", *case, world) for world in WORLDS)
        for case in (("", 8), (" trained", 16))
    ]
    again = [
        round(100 * max(values[f"{world}/{name}/8", "bootstrap_coverage"] for name in IN_UNITS))
        for world in WORLDS
    ]
    said = (
        f"- The 90 % bounds of `sbc` hold the truth in {held('')} of the rows with 16 tasks, and "
        f"in {held(' alone')} with one.\n- They are narrower than bounds that use no data in "
        f"{narrower[0]} of {len(WORLDS)} worlds with 8 episodes per task, and in {narrower[1]} "
        "with 16 of a trained policy.\n- Resampled episodes (bootstrap) hold the truth in "
        f"{min(again)} to {max(again)} % at best.\n"
    )
    return fill_page(text, {"intervals": said})


if __name__ == "__main__":
    main()
