"""Batches of rollouts for tests."""

import numpy as np

from ascribe_lab.audit import AuditBatch, Conditions, Exact, TabularTasks, rollouts


def batch_of(
    tasks: TabularTasks, exact: Exact, random: np.random.Generator, **conditions: float
) -> AuditBatch:
    return rollouts(tasks, exact, random, Conditions(**conditions))  # type: ignore[arg-type]
