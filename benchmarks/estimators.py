"""How fast the recipes are, how their time grows with the rows, and what memory they hold.

Invented steps with states of 300 characters: 8 trajectories in a group, 20 to 50 steps each, about
a third of the rows alone in their state, some states shared by all tasks. Rows come step by step
over all trajectories, as engines that act in lockstep give them. Times are CPU seconds on one core,
medians of interleaved repetitions; arranging the rows is part of them. The exponent is the slope of
log time against log rows: 1 is linear. CPU time holds the work of the kernel too, which hands out
fresh memory page by page for arrays of a large table and not for those of a small one. At 10
million rows the table is built from codes alone, without texts, which the exact recipes never look
at.

The stages lead from an Arrow table of plain strings to advantages: ingest codes the texts, check
looks for problems, credit runs the recipe.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
from common import Figures, Work, interleaved, peak_bytes

from ascribe import Recipe, StepTable, check, recipe
from ascribe.estimators import GiGPO
from ascribe.steps.files import read_table, table_from_arrow, table_to_arrow, write_table

RECIPES: dict[str, Recipe] = {
    name: recipe(name) for name in ("grpo", "rloo", "dr_grpo", "reinforce_pp", "gigpo", "hgpo")
}
SIMILAR = GiGPO(grouping="similar")
MILLION = 10**6
LARGEST_WITH_TEXTS = MILLION


def main() -> None:
    """Measure and print."""
    with Figures("estimators") as figures:
        sizes = [10**3, 10**4, 10**5] if figures.quick else [10**4, 10**5, MILLION, 10**7]
        tables = {
            size: common.steps(groups(size), texts=size <= LARGEST_WITH_TEXTS) for size in sizes
        }
        scaling(figures, tables)
        similar(figures, sizes[:1] if figures.quick else [10**3, 10**4])
        middle = sizes[-1] if figures.quick else MILLION
        shuffled(figures, tables[middle], middle)
        way_in(figures, tables[middle], middle)


def groups(rows: int) -> int:
    """How many groups have about this many rows."""
    return round(rows / common.ROWS_OF_GROUP)


def credit(table: StepTable, estimator: Recipe) -> Work:
    """Crediting a table whose rows have not been arranged yet."""
    return Work(lambda: replace(table), estimator)


def scaling(figures: Figures, tables: dict[int, StepTable]) -> None:
    """Every recipe at every size."""
    works = {
        f"{name}, {size:,} rows": credit(table, estimator)
        for size, table in tables.items()
        for name, estimator in RECIPES.items()
    }
    seconds = interleaved(works, rounds=3)
    for size, table in tables.items():
        for name in RECIPES:
            case = f"{name}, {size:,} rows"
            cpu = seconds[case].cpu
            goal = (1.5 if name == "gigpo" else 5.0) if size == MILLION else None
            figures.emit(case, "rows_per_second", len(table) / cpu, "rows/s", "higher")
            figures.emit(case, "cpu_seconds", cpu, "s", "lower", goal)
            figures.emit(case, "peak_bytes", peak_bytes(works[case]), "bytes", "lower")
    rows = [len(table) for table in tables.values()]
    for name in RECIPES:
        times = [seconds[f"{name}, {size:,} rows"].cpu for size in tables]
        slope = float(np.polyfit(np.log(rows), np.log(times), 1)[0])
        figures.emit(name, "exponent", slope, "power of rows", "lower", 1.05)


def similar(figures: Figures, sizes: list[int]) -> None:
    """Grouping by similarity compares texts pair by pair, so it is measured at small sizes."""
    tables = {size: common.steps(groups(size)) for size in sizes}
    works = {size: credit(table, SIMILAR) for size, table in tables.items()}
    seconds = interleaved({str(size): work for size, work in works.items()}, rounds=3)
    for size, table in tables.items():
        case, cpu = f"gigpo with similar states, {size:,} rows", seconds[str(size)].cpu
        figures.emit(case, "rows_per_second", len(table) / cpu, "rows/s", "higher")
        figures.emit(case, "cpu_seconds", cpu, "s", "lower")
        figures.emit(case, "peak_bytes", peak_bytes(works[size]), "bytes", "lower")


def shuffled(figures: Figures, table: StepTable, size: int) -> None:
    """The same rows in no order, beside the order that an engine gives."""
    rows = np.random.default_rng(1).permutation(len(table))
    works = {
        "engine": credit(table, RECIPES["gigpo"]),
        "shuffled": credit(table.take(rows), RECIPES["gigpo"]),
    }
    seconds = interleaved(works, rounds=5)
    case, cpu = f"gigpo, {size:,} rows shuffled", seconds["shuffled"].cpu
    goal = 1.5 if size == MILLION else None
    figures.emit(case, "cpu_seconds", cpu, "s", "lower", goal)
    figures.emit(case, "times_engine_order", cpu / seconds["engine"].cpu, "ratio", "lower")


def way_in(figures: Figures, table: StepTable, size: int) -> None:
    """From plain strings to GiGPO's advantages, stage by stage and as a whole; and Parquet."""
    estimator, arrow = RECIPES["gigpo"], plain_strings(table)

    def whole(given: pa.Table) -> Any:
        read = table_from_arrow(given)
        check(read)
        return estimator(read)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.parquet"
        write_table(table, file)
        works = {
            "ingest": Work(lambda: arrow, table_from_arrow),
            "check": Work(lambda: replace(table), check),
            "credit": credit(table, estimator),
            "total": Work(lambda: arrow, whole),
            "write Parquet": Work(lambda: table, lambda given: write_table(given, file)),
            "read Parquet": Work(lambda: file, read_table),
        }
        seconds = interleaved(works, rounds=3)
    goals = {"check": 3.0, "credit": 1.5} if size == MILLION else {}
    for stage, measured in seconds.items():
        case = f"{stage}, {size:,} rows"
        figures.emit(case, "cpu_seconds", measured.cpu, "s", "lower", goals.get(stage))
        figures.emit(case, "wall_seconds", measured.wall, "s", "lower")


def plain_strings(table: StepTable) -> pa.Table:
    """The table as Arrow, its texts written out row by row."""
    arrow = table_to_arrow(table)
    for index, field in enumerate(arrow.schema):
        if pa.types.is_dictionary(field.type):
            plain = arrow.column(index).cast(pa.string())
            arrow = arrow.set_column(index, field.name, plain)
    return arrow


if __name__ == "__main__":
    main()
