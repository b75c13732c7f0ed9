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

from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.atomic import replacing
from ascribe.steps.table import Coded, StepTable
from ascribe_lab.audit.run import Scored

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
        hidden, residual = (np.asarray(each, np.float16) for each in (self.hidden, self.residual))
        owner = np.asarray(self.owner, np.int32)
        arrays = {"hidden": hidden, "residual": residual, "owner": owner, "success": self.success}
        _save(path, self.table, arrays)

    @staticmethod
    def load(path: Path) -> "PlayedBatch":
        """Read a batch."""
        table, arrays = _load(path)
        tokens = (arrays["hidden"], arrays["residual"], arrays["owner"].astype(np.int64))
        return PlayedBatch(table, *tokens, float(arrays["success"]))

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
        _save(path, self.table, {**self.returns, "rows": self.rows, "state": self.state})

    @staticmethod
    def load(path: Path) -> "PlayedDecisions":
        """Read decisions."""
        table, arrays = _load(path)
        rows, state = (arrays.pop(name) for name in ("rows", "state"))
        return PlayedDecisions(table, rows, state, arrays)


def _save(path: Path, table: StepTable, arrays: dict[str, Any]) -> None:
    columns = {
        name: column.texts() if isinstance(column, Coded) else column.tolist()
        for name, column in table.columns().items()
        if name != "fingerprint"
    }
    if table.fingerprint is not None:
        arrays["fingerprint"] = table.fingerprint
    with replacing(path) as file:
        np.savez(file, **arrays, columns=np.array(json.dumps(columns)))


def _load(path: Path) -> tuple[StepTable, dict[str, Any]]:
    """The step table of a file, and its other arrays."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    table = StepTable.from_columns(json.loads(str(arrays.pop("columns"))))
    return replace(table, fingerprint=arrays.pop("fingerprint", None)), arrays
