"""The fingerprints of a batch's steps, which verl's workers leave in TransferQueue.

The trainer reads those of a small iteration. Those of a large one stay there: Ray tasks read the
vectors of some groups each, and return the credit, a few numbers for each step. The advantages are
the same.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import ray
import transfer_queue

from ascribe.engines.crediting import Compute
from ascribe.estimators import Recipe
from ascribe.estimators.credit import Credit
from ascribe.estimators.shards import credit_shard, join_shards, split_shards
from ascribe.groups.fingerprints import FloatMatrix
from ascribe.sessions import Spans
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.table import StepTable

FINGERPRINT = "fingerprint"
"""verl's field: the vectors of a row's turns end to end; of a row without turns, its prompt's."""
TRAINER_BYTES = 1 << 30
"""Fingerprints that the trainer reads; if there are more, Ray tasks do."""
TASK_BYTES = 1 << 28
"""Fingerprints that a task reads, or those of one group, if they are more."""


def fingerprints(
    batch: Any, spans: Spans, recipe: Recipe, *, whole: bool
) -> tuple[FloatMatrix | None, Compute | None]:
    """The fingerprint of each step; or, if they are large, what credits the steps without them.

    Args:
        batch: of verl.
        spans: of the steps, in the batch.
        recipe: the estimator; one that compares rows over a batch needs all of them.
        whole: whether the caller needs all of them, to write them to a file.
    """
    first = _read(batch.keys[:1], batch.partition_id)[0]
    size = first.nbytes // max(1, int(spans.turns[0]))
    if whole or recipe.has_history or not recipe.by_group or size * len(spans) <= TRAINER_BYTES:
        vectors = _read(batch.keys, batch.partition_id)
        return at_turns(vectors, spans.turns, spans.sequence, spans.turn), None
    return None, partial(_credit_on_ray, batch, spans, recipe, size=size)


def at_turns(vectors: Sequence[Any], turns: Ints, row: Ints, turn: Ints) -> FloatMatrix:
    """The fingerprint of each step.

    Args:
        vectors: of each row, those of its turns end to end.
        turns: how many turns each row has.
        row: of each step.
        turn: which turn of the row a step is; -1 for one without tokens.
    """
    each = [one.reshape(max(1, count), -1) for one, count in zip(vectors, turns, strict=True)]
    return np.stack([each[at][max(number, 0)] for at, number in zip(row, turn, strict=True)])


def _read(keys: list[str], partition: str) -> list[Any]:
    """The vectors of rows, in the order of their keys."""
    found = transfer_queue.kv_batch_get(
        keys=keys, partition_id=partition, select_fields=[FINGERPRINT]
    )
    return [one.numpy() for one in found[FINGERPRINT].unbind()]


def _credit_on_ray(
    batch: Any, spans: Spans, recipe: Recipe, table: StepTable, keep: Bools, *, size: int
) -> Credit:
    """Credit a table, the steps of a batch that are kept, by tasks for a few groups each.

    ``size`` is that of a fingerprint, in bytes.
    """
    steps = np.bincount(table.group.codes)
    shard = (np.cumsum(steps) - steps) * size // TASK_BYTES
    parts = split_shards(table, shard[table.group.codes], recipe)
    sequence, turn = spans.sequence[keep], spans.turn[keep]
    # verl may have reserved every CPU, for workers that are idle now: so a task asks for none.
    task = ray.remote(num_cpus=0, scheduling_strategy="SPREAD")(_credit_part)
    most = max(int(ray.cluster_resources().get("CPU", 1)), 1)
    running: list[Any] = []
    for number, (rows, part) in enumerate(parts):
        if number >= most:
            ray.wait(running, num_returns=number - most + 1, fetch_local=False)
        batch_rows, row = np.unique(sequence[rows], return_inverse=True)
        keys = [batch.keys[at] for at in batch_rows]
        places = (spans.turns[batch_rows], row, turn[rows])
        running.append(task.remote(keys, batch.partition_id, places, part, recipe))
    return join_shards([rows for rows, _ in parts], ray.get(running))


def _credit_part(
    keys: list[str],
    partition: str,
    places: tuple[Ints, Ints, Ints],
    part: StepTable,
    recipe: Recipe,
) -> Credit:
    transfer_queue.init()
    return credit_shard(part, recipe, at_turns(_read(keys, partition), *places))
