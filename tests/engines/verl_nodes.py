"""Fingerprints in TransferQueue, on nodes of a Ray cluster, credited by tasks on any of them.

    python -m tests.engines.verl_nodes ADDRESS FOLDER

Each task leaves a file in FOLDER, named after its node, before it does its work.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ascribe import StepTable, recipe
from ascribe.engines.crediting import credit_steps
from ascribe.sessions import Spans
from tests.archives.test_archives import steps

STORAGE = "storage"
"""The resource of nodes that hold vectors."""


@contextmanager
def queue(**units: Any) -> Iterator[tuple[Any, StepTable, Spans, Any]]:
    """A batch of verl's in TransferQueue, its steps, where these are, and their vectors."""
    import torch
    import transfer_queue
    from omegaconf import OmegaConf
    from tensordict import TensorDict

    from ascribe.engines.verl.vectors import FINGERPRINT

    columns = steps(20, width=8)
    numbers = np.array(columns.pop("fingerprint"), dtype=np.float16)
    del columns["note"]
    table = StepTable.from_columns(columns)
    # A row of verl's for each trajectory, and one of padding, which has a vector too.
    sequence, turn = 1 + table.trajectory.codes, np.asarray(table.step)
    turns = np.append(0, np.bincount(table.trajectory.codes))
    none = np.zeros(len(table), dtype=np.int64)
    spans = Spans(sequence, none, none, none, turn, turns, turns)
    rows = [np.zeros(8, np.float16)]
    for row in range(1, turns.size):
        own = np.flatnonzero(sequence == row)
        rows.append(numbers[own[np.argsort(turn[own])]].ravel())
    keys = [f"row {number}" for number in range(turns.size)]
    nested = torch.nested.as_nested_tensor(list(map(torch.tensor, rows)), layout=torch.jagged)
    transfer_queue.init(OmegaConf.create({"backend": {"SimpleStorage": units}}))
    try:
        fields = TensorDict({FINGERPRINT: nested}, batch_size=len(keys))
        transfer_queue.kv_batch_put(keys=keys, partition_id="train", fields=fields)
        yield SimpleNamespace(keys=keys, partition_id="train"), table, spans, numbers
    finally:
        transfer_queue.close()


def main(address: str, folder: Path) -> None:
    """Credit on all nodes what one process credits, and compare."""
    import ray

    from ascribe.engines.verl import vectors

    ray.init(address)
    with queue(num_data_storage_units=2, required_node_resource=STORAGE) as made:
        batch, table, spans, numbers = made
        sbc = recipe("sbc")
        whole = credit_steps(replace(table, fingerprint=numbers), sbc).credit
        vectors.TRAINER_BYTES, vectors.TASK_BYTES = 0, 256
        credit_part = vectors._credit_part

        def slow_part(*arguments: Any) -> Any:
            (folder / ray.get_runtime_context().get_node_id()).touch()
            time.sleep(1)
            return credit_part(*arguments)

        vectors._credit_part = slow_part
        none, compute = vectors.fingerprints(batch, spans, sbc, whole=False)
        assert none is None
        shared = credit_steps(table, sbc, compute=compute).credit
        assert whole is not None
        assert shared is not None
        assert shared.advantage.tobytes() == whole.advantage.tobytes()
        assert (shared.reason == whole.reason).all()
        assert np.ptp(shared.advantage) > 0


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
