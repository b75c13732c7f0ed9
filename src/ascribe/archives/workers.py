"""Run tasks in this process, or on a Ray cluster, although its workers may die.

Tasks write their results to files. One that a killed worker had begun is run again, so tasks must
be safe to repeat.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ascribe.steps.errors import AscribeError, MissingPackageError
from ascribe.steps.hints import install, option

MOST_DEATHS = 5
"""How often a task is run again because its worker died."""

Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""``each(function, tasks)``: the results, in the order in which the tasks are done."""


class WorkerError(AscribeError, RuntimeError):
    """Workers died too often."""


@contextmanager
def running(address: str | None) -> Iterator[tuple[Each, int]]:
    """How to run tasks, and the most that run at a time on one machine.

    Args:
        address: of a Ray cluster; ``local`` starts one on this machine; None is this process.

    Raises:
        MissingPackageError: if Ray is wanted and not installed.
    """
    if address is None:
        yield map, 1
        return
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingPackageError("more than one process needs Ray", hint=install("ray")) from error
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    run = ray.remote(num_cpus=1, max_retries=MOST_DEATHS)(lambda function, task: function(task))

    def each(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        waiting = [run.remote(function, task) for task in tasks]
        while waiting:
            done, waiting = ray.wait(waiting)
            try:
                yield from ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.WorkerCrashedError as error:
                raise WorkerError(
                    f"workers of {address} died again and again, perhaps for want of memory",
                    hint=f"lower {option('memory')}, so that parts are smaller",
                ) from error

    try:
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        yield each, int(max(nodes, default=1))
    finally:
        if started:
            ray.shutdown()
