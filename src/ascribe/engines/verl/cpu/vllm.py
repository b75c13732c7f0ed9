"""Rollout servers of vLLM on the CPU, whose weights can be replaced.

After loading, vLLM's layers for the CPU turn their weights into another form and drop the original,
so verl's way of copying new weights in place fails. Here they go through vLLM's own reload. That
leaves one trap: an output layer that shares its weights with the embedding keeps the old ones in
the other form, and samples come from a model that exists nowhere. It is given them anew.
"""

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry

WORKER = "ascribe.engines.verl.cpu.vllm_worker.ReloadingWorker"


def load_replica() -> Any:
    """The class of replicas whose servers run ``ReloadingWorker``."""
    import ray
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

    class Server(vLLMHttpServer):  # type: ignore[misc]
        def _get_worker_extension_cls(self) -> str:
            return WORKER

        async def run_server(self, args: Any) -> None:
            """As verl's; a server can be interrupted for new weights.

            verl passes an argument to vLLM that vLLM has renamed since.
            """
            await super().run_server(args)
            pause = self.engine.pause_generation

            async def abort(*, clear_cache: bool, **_: Any) -> None:
                await pause(mode="abort", clear_cache=clear_cache)

            self.engine.pause_generation = abort

    class Replica(vLLMReplica):  # type: ignore[misc]
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self.server_class = ray.remote(Server)

    return Replica


RolloutReplicaRegistry.register("vllm", load_replica)
