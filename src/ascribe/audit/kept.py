"""What a policy played for its audit, in files: enough to score another recipe later.

A file is a NumPy archive of plain arrays; the step table is in it as JSON text.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ascribe.audit.run import Scored
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.atomic import replacing
from ascribe.steps.table import Coded, StepTable

Gradients = npt.NDArray[np.float32]
"""The gradient of each recipe, [recipes, D]."""


@dataclass(frozen=True, eq=False)
class PlayedBatch:
    """The steps of a batch, and what the gradients of their responses are made of.

    Attributes:
        table: the steps, with fingerprints.
        hidden: what the output layer reads at each token, [T, H].
        residual: at each token, 1 for the sampled one minus the probability of each, [T, V].
        owner: row of each token, in ascending order, [T].
        success: share of the episodes that succeeded.
    """

    table: StepTable
    hidden: npt.NDArray[Any]
    residual: npt.NDArray[Any]
    owner: Ints
    success: float

    def save(self, path: Path) -> None:
        """Write the batch; half precision is enough for its tokens."""
        arrays = table_arrays(self.table)
        arrays["hidden"] = np.asarray(self.hidden, np.float16)
        arrays["residual"] = np.asarray(self.residual, np.float16)
        arrays["owner"] = np.asarray(self.owner, np.int32)
        with replacing(path) as file:
            np.savez(file, **arrays, success=self.success)

    @staticmethod
    def load(path: Path) -> "PlayedBatch":
        """Read a batch."""
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        tokens = (arrays["hidden"], arrays["residual"], arrays["owner"].astype(np.int64))
        return PlayedBatch(read_table(arrays), *tokens, float(arrays["success"]))

    def row_gradients(self) -> Gradients:
        """Gradient of each row's log-probability in the output layer's weights, [rows, V x H]."""
        hidden, residual = self.hidden.astype(np.float32), self.residual.astype(np.float32)
        rows = len(self.table)
        out = np.zeros((rows, residual.shape[1], hidden.shape[1]), np.float32)
        bounds = np.searchsorted(self.owner, np.arange(rows + 1)).tolist()
        for row, (start, end) in enumerate(pairwise(bounds)):
            np.matmul(residual[start:end].T, hidden[start:end], out=out[row])
        return out.reshape(rows, -1)

    def gradients(self, recipes: Iterable[Scored]) -> Gradients:
        """The gradient of every recipe: rows' gradients, each times its advantage."""
        advantage = np.array([recipe(self.table).advantage for recipe in recipes], np.float32)
        episodes = len(set(self.table.trajectory.codes.tolist()))
        return np.asarray(advantage @ self.row_gradients() / episodes)


@dataclass(frozen=True, eq=False)
class PlayedDecisions:
    """Decisions of a batch that were played on from.

    Attributes:
        table: the steps of the whole batch, with fingerprints.
        rows: the decisions among them.
        state: label of the state of each decision, from 0.
        returns: by objective, the returns of continuations, [decisions, most]; NaN where a decision
            was played on from less often.
    """

    table: StepTable
    rows: Ints
    state: Ints
    returns: Mapping[str, Floats]

    def save(self, path: Path) -> None:
        """Write the decisions."""
        arrays = table_arrays(self.table) | dict(self.returns)
        with replacing(path) as file:
            np.savez(file, **arrays, rows=self.rows, state=self.state)

    @staticmethod
    def load(path: Path) -> "PlayedDecisions":
        """Read decisions."""
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        table = read_table(arrays)
        rows, state = (arrays.pop(name) for name in ("rows", "state"))
        return PlayedDecisions(table, rows, state, arrays)


def table_arrays(table: StepTable) -> dict[str, Any]:
    """A step table as arrays for an archive."""
    columns = {
        name: column.texts() if isinstance(column, Coded) else column.tolist()
        for name, column in table.columns().items()
        if name != "fingerprint"
    }
    arrays = {"columns": np.array(json.dumps(columns))}
    if table.fingerprint is not None:
        arrays["fingerprint"] = table.fingerprint
    return arrays


def read_table(arrays: dict[str, Any]) -> StepTable:
    """The step table of an archive; its arrays are taken out."""
    table = StepTable.from_columns(json.loads(str(arrays.pop("columns"))))
    return replace(table, fingerprint=arrays.pop("fingerprint", None))
