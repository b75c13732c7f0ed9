"""Fingerprints in TransferQueue: the trainer reads them, or Ray tasks do, with the same bits."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.engines.crediting import credit_steps
from tests.engines.needs import NEEDS_VERL
from tests.engines.verl_nodes import STORAGE, queue
from tests.raylets import raylets, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, NEEDS_VERL]


def test_tasks_credit_large_iterations(ray_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ascribe.engines.verl import vectors

    # It reserves one CPU, and its storage one: none is left, as in a run of verl.
    with queue(num_data_storage_units=1) as (batch, table, spans, numbers):
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


@pytest.mark.parametrize("killed", [False, True])
def test_vectors_on_other_nodes_give_the_same_bits(tmp_path: Path, killed: bool) -> None:
    """Two nodes hold vectors; the third computes alone, and may be killed amid its tasks."""
    with raylets(2, num_cpus=2, resources={STORAGE: 1}) as nodes:
        third = nodes.start(num_cpus=0, resources={})
        command = [sys.executable, "-m", "tests.engines.verl_nodes", nodes.address, str(tmp_path)]
        running = subprocess.Popen(command)
        if killed:
            wait_for((tmp_path / third.node_id).exists, running)
            nodes.kill(third)
        assert running.wait(600) == 0
    used = {node.node_id for node in (nodes.head, *nodes.others, third)}
    assert {path.name for path in tmp_path.iterdir()} == used
