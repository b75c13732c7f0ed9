"""Run tasks on the cores of this machine, or on a Ray cluster, although workers may die.

Tasks write their results to files and return small values. One that a killed worker had begun is
run again, so tasks must be safe to repeat.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ascribe.steps.errors import AscribeError
from ascribe.steps.hints import option

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

MOST_DEATHS = 5
"""How many workers may die before a run is given up."""

Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[tuple[Any, Any]]]
"""``each(function, tasks)``: every task with its result, in the order in which they are done."""


class WorkerError(AscribeError, RuntimeError):
    """Workers died too often."""


@contextmanager
def local(workers: int) -> Iterator[Each]:
    """Run tasks in processes of this machine; in this process, if there is one worker."""
    if workers <= 1:
        yield lambda function, tasks: ((task, function(task)) for task in tasks)
        return
    from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    def new_pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(workers, get_context("spawn"), initializer=_use_one_thread)

    pool, deaths = new_pool(), 0

    def each(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        nonlocal pool, deaths
        waiting, running = list(reversed(tasks)), dict[Future[Any], Any]()
        while waiting or running:
            try:
                while waiting and len(running) < workers:
                    # Fails if a worker died while there was nothing to do.
                    future = pool.submit(function, waiting[-1])
                    running[future] = waiting.pop()
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    yield running.pop(future), result
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > MOST_DEATHS:
                    raise WorkerError(
                        "worker processes were killed again and again, perhaps for want of memory",
                        hint=f"lower {option('memory')}, so that parts are smaller",
                    ) from error
                waiting += running.values()
                running.clear()
                _stop(pool)
                pool = new_pool()

    try:
        yield each
    finally:
        _stop(pool)


def _stop(pool: "ProcessPoolExecutor") -> None:
    """End the workers of a pool at once.

    One that was killed may have held the lock of their queue, so that the others wait forever.
    """
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(cancel_futures=True)


def _use_one_thread() -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextmanager
def on_ray(address: str) -> Iterator[tuple[Each, int]]:
    """Run tasks on a Ray cluster; also gives the largest number of CPUs of a node."""
    import ray

    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    run = ray.remote(num_cpus=1, max_retries=MOST_DEATHS)(lambda function, task: function(task))

    def each(function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        running = {run.remote(function, task): task for task in tasks}
        while running:
            done, _ = ray.wait(list(running))
            for reference in done:
                try:
                    yield running.pop(reference), ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from error
                except ray.exceptions.WorkerCrashedError as error:
                    raise WorkerError(f"workers of {address} died again and again") from error

    try:
        nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        yield each, int(max(nodes, default=1))
    finally:
        if started:
            ray.shutdown()
