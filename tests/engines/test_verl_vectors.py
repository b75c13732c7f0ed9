"""Fingerprints in TransferQueue: the trainer reads them, or Ray tasks do, with the same bits."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ascribe import StepTable, recipe
from ascribe.engines.crediting import credit_steps
from ascribe.sessions import Spans
from tests.archives.test_archives import steps
from tests.engines.needs import NEEDS_VERL

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, NEEDS_VERL]
UNITS = {"num_data_storage_units": 1}


def test_tasks_credit_large_iterations(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import transfer_queue
    from omegaconf import OmegaConf
    from tensordict import TensorDict

    from ascribe.engines.verl import vectors

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
    batch = SimpleNamespace(keys=keys, partition_id="train")
    nested = torch.nested.as_nested_tensor(list(map(torch.tensor, rows)), layout=torch.jagged)
    # It reserves one CPU, and its storage one: none is left, as in a run of verl.
    transfer_queue.init(OmegaConf.create({"backend": {"SimpleStorage": UNITS}}))
    try:
        fields = TensorDict({vectors.FINGERPRINT: nested}, batch_size=len(keys))
        transfer_queue.kv_batch_put(keys=keys, partition_id="train", fields=fields)
        sbc = recipe("sbc")
        found, compute = vectors.fingerprints(batch, spans, sbc, whole=False)
        assert compute is None
        np.testing.assert_array_equal(found, numbers)
        failed = {str(table.group.values[3]): "failed"}
        whole = credit_steps(replace(table, fingerprint=found), sbc, failed=failed)

        read = vectors._read
        sizes: list[int] = []
        monkeypatch.setattr(vectors, "_read", lambda k, p: sizes.append(len(k)) or read(k, p))
        monkeypatch.setattr(vectors, "TRAINER_BYTES", 1024)
        monkeypatch.setattr(vectors, "TASK_BYTES", 4096)
        found, compute = vectors.fingerprints(batch, spans, sbc, whole=False)
        assert found is None
        credited = credit_steps(table, sbc, failed=failed, compute=compute)
        assert sizes == [1]  # here
        assert credited.credit is not None
        assert whole.credit is not None
        assert (credited.counts == whole.counts).all()
        assert (~credited.counts).any()
        assert (credited.credit.advantage == whole.credit.advantage).all()
        assert (credited.credit.reason == whole.credit.reason).all()
        # All are read here if they are written to a file, or compared over the whole batch.
        for estimator, is_whole in ((sbc, True), (recipe("sbc", radius_rule="search"), False)):
            found, compute = vectors.fingerprints(batch, spans, estimator, whole=is_whole)
            assert found is not None
            assert compute is None
    finally:
        transfer_queue.close()
