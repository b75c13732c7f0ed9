"""``StepTable``: one row per decision; the only shape data has inside the house.

Row order carries no meaning: estimators work on ``ascribe.steps.check.arrange(table)``, the rows in
one canonical order, so that the same rows in another order give the same bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ascribe.steps.arrays import Bools, Floats, Ints, Objects

if TYPE_CHECKING:
    import pyarrow as pa

MISSING_STEP = int(np.iinfo(np.int64).min)
"""Stands in ``StepTable.step`` for a step number that was not given."""


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of text, coded once: ``values[codes[i]]`` is row i's text; code -1 is missing."""

    codes: Ints
    values: Objects

    @staticmethod
    def encode(texts: Sequence[str | None]) -> "Coded":
        """Code each distinct text by its first appearance."""
        number: dict[str | None, int] = {None: -1}
        for text in dict.fromkeys(texts):
            number.setdefault(text, len(number) - 1)
        codes = np.fromiter(map(number.__getitem__, texts), dtype=np.int64, count=len(texts))
        values = np.empty(len(number) - 1, dtype=object)
        values[:] = list(number)[1:]
        return Coded(codes, values)

    def ordered(self) -> "Coded":
        """The same column with its distinct values in rising order, whatever the row order."""
        values = self.values
        if all(values[i] < values[i + 1] for i in range(len(values) - 1)):
            return self
        order = sorted(range(len(values)), key=values.__getitem__)
        rename = np.empty(len(values) + 1, dtype=np.int64)
        rename[order] = np.arange(len(values))
        rename[-1] = -1
        return Coded(rename[self.codes], values[order])

    def used(self) -> "Coded":
        """The same column without the values that no row has."""
        present = np.zeros(self.values.size + 1, dtype=np.bool_)
        present[self.codes] = True
        present[-1] = False
        if present.sum() == self.values.size:
            return self
        rename = np.cumsum(present) - 1
        rename[-1] = -1
        return Coded(rename[self.codes], self.values[present[:-1]])

    def take(self, rows: Ints) -> "Coded":
        """The column at these rows; the values stay."""
        return Coded(self.codes[rows], self.values)

    def texts(self) -> list[str | None]:
        """The text of every row, ``None`` where missing."""
        return list(np.append(self.values, np.array([None], dtype=object))[self.codes])

    def __len__(self) -> int:
        return int(self.codes.size)


@dataclass(frozen=True, eq=False)
class StepTable:
    """One row per decision an agent took, column by column.

    Attributes:
        group: the task instance; trajectories of one group started alike and may be compared.
        trajectory: the episode; its name is unique over the table.
        step: 0, 1, 2, ... inside a trajectory, one number for each decision, whoever took it.
        state: what the agent saw before it acted, as text or as a key.
        action: what the agent did, as text or as a key.
        reward: what the environment paid for the action.
        agent: who acted, in a team.
        family: the kind of task, for reports; no recipe reads it.
        valid: whether the environment understood the action (absent: all were).
        terminated: whether the episode ended by itself with this step (absent: unknown).
        truncated: whether a limit cut the episode after this step (absent: none was cut).
        padding: a row that fills up a batch and counts for nothing (absent: none does).
        fingerprint: the state as a vector, one row of numbers each; zeros where there is none.
        without: what the team would have earned in the trajectory without the one who took the
            decision; NaN for a decision that was only taken to find that out.
        corrects: the trajectory that this one was written to correct; missing for the others.
    """

    group: Coded
    trajectory: Coded
    step: Ints
    state: Coded
    action: Coded
    reward: Floats
    agent: Coded | None = None
    family: Coded | None = None
    valid: Bools | None = None
    terminated: Bools | None = None
    truncated: Bools | None = None
    padding: Bools | None = None
    fingerprint: npt.NDArray[Any] | None = None
    without: Floats | None = None
    corrects: Coded | None = None

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns().items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns differ in length: {lengths}")
        object.__setattr__(self, "group", self.group.ordered())
        object.__setattr__(self, "trajectory", self.trajectory.ordered())

    def __len__(self) -> int:
        return len(self.group)

    def __repr__(self) -> str:
        columns = {"groups": self.group, "trajectories": self.trajectory, "states": self.state}
        counted = (f"{column.used().values.size:,} {name}" for name, column in columns.items())
        return f"StepTable({len(self):,} rows, {', '.join(counted)})"

    def columns(self) -> dict[str, Any]:
        """The columns that are present, by name."""
        present = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: column for name, column in present if column is not None}

    def take(self, rows: Ints | Bools) -> "StepTable":
        """The table of these rows, by number or by mask, in the order given."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        taken: dict[str, Any] = {
            name: column.take(index) if isinstance(column, Coded) else column[index]
            for name, column in self.columns().items()
        }
        return StepTable(**taken)

    def flag(self, name: str, *, default: bool) -> Bools:
        """A yes/no column, filled with its documented default where it is absent."""
        column: Bools | None = getattr(self, name)
        return np.full(len(self), default) if column is None else column

    # Ways in.

    @staticmethod
    def from_columns(columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> "StepTable":
        """A table from one sequence per column. Raises ``TableError`` for what cannot be read."""
        from ascribe.steps.columns import table_from_columns

        return table_from_columns(columns)

    @staticmethod
    def from_dicts(rows: Iterable[Mapping[str, Any]]) -> "StepTable":
        """A table from one mapping per row. Raises ``TableError`` for what cannot be read."""
        from ascribe.steps.columns import columns_from_rows, table_from_columns

        return table_from_columns(columns_from_rows(rows))

    @staticmethod
    def from_arrow(table: "pa.Table") -> "StepTable":
        """A table from an Arrow table in the format of ``docs/format.md``."""
        from ascribe.steps.files import table_from_arrow

        return table_from_arrow(table)

    @staticmethod
    def read(path: str | Path) -> "StepTable":
        """A table from a ``.parquet``, ``.jsonl`` or ``.jsonl.gz`` file."""
        from ascribe.steps.files import read

        return read(path).table

    # Ways out.

    def to_dicts(self) -> list[dict[str, Any]]:
        """One plain dictionary per row."""
        columns = {
            name: column.texts() if isinstance(column, Coded) else column.tolist()
            for name, column in self.columns().items()
        }
        columns["step"] = [None if s == MISSING_STEP else s for s in columns["step"]]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_arrow(self) -> "pa.Table":
        """An Arrow table in the format of ``docs/format.md``, text still coded."""
        from ascribe.steps.files import table_to_arrow

        return table_to_arrow(self)

    def write(self, path: str | Path) -> None:
        """Write a ``.parquet``, ``.jsonl`` or ``.jsonl.gz`` file."""
        from ascribe.steps.files import write

        write(self.to_arrow(), path)
