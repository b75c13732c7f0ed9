"""Pools: many environments in parallel."""

from typing import Literal

from ascribe.steps.hints import unknown
from ascribe_lab.rollout.pools.pool import (
    EnvironmentQuery,
    EnvironmentSpec,
    Failure,
    FailureKind,
    Pool,
    PoolBrokenError,
    Reset,
    StepResult,
)
from ascribe_lab.rollout.pools.processes import ProcessPool, SerialPool


def make_pool(  # noqa: PLR0917 (the arguments of the pools, in their order)
    kind: Literal["serial", "processes"],
    spec: EnvironmentSpec,
    workers: int,
    slots: int,
    step_limit: float,
    reset_limit: float,
    start_limit: float = 120.0,
) -> Pool:
    """A pool by name; ``serial`` has neither workers nor limits.

    Raises:
        ValueError: if there is no such pool.

    Example:
        >>> from ascribe_lab.rollout.pools import EnvironmentSpec, make_pool
        >>> with make_pool("serial", EnvironmentSpec("ezpoints"), 1, 4, 60.0, 300.0) as pool:
        ...     type(pool).__name__
        'SerialPool'
    """
    if kind == "serial":
        return SerialPool(spec, slots)
    if kind == "processes":
        return ProcessPool(spec, workers, slots, step_limit, reset_limit, start_limit=start_limit)
    raise unknown("pool", kind, ("serial", "processes"))


__all__ = [
    "EnvironmentQuery",
    "EnvironmentSpec",
    "Failure",
    "FailureKind",
    "Pool",
    "PoolBrokenError",
    "ProcessPool",
    "Reset",
    "SerialPool",
    "StepResult",
    "make_pool",
]
