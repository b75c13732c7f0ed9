"""Credit a large iteration where its fingerprints are: in the workers that computed them.

Two million fingerprints of 3,584 half-precision numbers are 14 GB, and no process needs all of
them: groups are credited separately. The driver splits the table, each worker credits the groups
whose fingerprints it holds, and the driver joins the advantages, a few numbers for each row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ascribe.estimators import Recipe
from ascribe.estimators.credit import Credit, join_metrics
from ascribe.steps.arrays import Ints
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable


def split_shards(table: StepTable, shard: Ints, recipe: Recipe) -> list[tuple[Ints, StepTable]]:
    """The rows and the table of each shard, without fingerprints, in the order of the shards.

    Args:
        table: the steps of one iteration.
        shard: for each row, the number of the worker that has its fingerprint.
        recipe: the estimator that credits them.

    Raises:
        ValueError: if a group is in several shards, or the recipe compares rows over a batch.
    """
    if not recipe.by_group:
        raise InputError(f"{recipe!r} compares rows of several groups, so shards would differ")
    owner = np.zeros(table.group.values.size, dtype=np.int64)
    owner[table.group.codes] = shard
    torn = np.unique(table.group.codes[owner[table.group.codes] != shard])
    if torn.size:
        name = table.group.values[torn[0]]
        raise InputError(
            f"group {name!r} is in several shards, and {torn.size - 1:,} more are",
            hint="send all trajectories of a group to one worker",
        )
    bare = replace(table, fingerprint=None)
    order = np.argsort(shard, kind="stable")
    numbers, starts = np.unique(shard[order], return_index=True)
    split = np.split(order, starts[1:]) if numbers.size else []
    return [(rows, bare.part(rows)) for rows in split]


def credit_shard(part: StepTable, recipe: Recipe, fingerprints: Any) -> Credit:
    """The credit of a shard, where its fingerprints are; without explanations, so it is small.

    Args:
        part: the table of the shard.
        recipe: the estimator.
        fingerprints: of its rows, in their order.
    """
    credit = recipe(part, fingerprints=fingerprints)
    terms = {name: replace(term, explain=None) for name, term in credit.terms.items()}
    return replace(credit, terms=terms)


def join_shards(rows: Sequence[Ints], shards: Sequence[Credit]) -> Credit:
    """The credit of the whole table from those of its shards.

    Args:
        rows: the rows of each shard, from ``split_shards``.
        shards: the credit of each.
    """
    joined = Credit.join(shards).rows(np.argsort(np.concatenate(rows)))
    return replace(joined, metrics=join_metrics([shard.metrics for shard in shards]))
