"""A Ray cluster of several nodes on this machine, which can be killed."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WAIT = 300
"""Seconds that anything may take; the machine may be busy."""


class Raylets:
    """Nodes with a CPU each.

    Attributes:
        address: of the cluster.
        head: the node that cannot be killed.
        others: the other nodes.
    """

    def __init__(self, count: int, **options: Any) -> None:
        from ray._private import ray_constants
        from ray.cluster_utils import Cluster

        # Other tests may have bound Ray to the loopback address in this process, and programs would
        # look for a node on their own.
        ray_constants.ENABLE_RAY_CLUSTER = True
        command = [sys.executable, "-c", "import ray; print(ray.util.get_node_ip_address())"]
        own = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
        self.options = {"num_cpus": 1, "node_ip_address": own} | options
        self.cluster = Cluster(initialize_head=True, head_node_args=self.options)
        self.address = str(self.cluster.address)
        self.head = self.cluster.head_node
        self.others = [self.start() for _ in range(count - 1)]

    def start(self, **options: Any) -> Any:
        """Start another node."""
        node = self.cluster.add_node(**self.options | options)
        self.cluster.wait_for_nodes(WAIT)
        return node

    def kill(self, node: Any) -> None:
        """Kill a node's raylet, without which its workers end; their work is lost."""
        self.cluster.remove_node(node, allow_graceful=False)

    def is_busy(self, node: Any) -> bool:
        """Whether the node's CPU is in use."""
        free = self.cluster.global_state.available_resources_per_node().get(node.node_id, {})
        return not free.get("CPU")


@contextmanager
def raylets(count: int = 3, **options: Any) -> Iterator[Raylets]:
    """So many nodes, until the end of the block."""
    made = Raylets(count, **options)
    try:
        yield made
    finally:
        made.cluster.shutdown()


def wait_for(happened: Callable[[], Any], running: Any, seconds: float = WAIT) -> None:
    """Wait until something has happened, while a process runs."""
    end = time.monotonic() + seconds
    while not happened():
        assert running.poll() is None, "it ended before"
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
