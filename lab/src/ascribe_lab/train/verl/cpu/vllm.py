"""Rollout servers of vLLM on the CPU, whose weights can be replaced.

verl copies new weights in place, which vLLM on the CPU does not allow (``reload_on_cpu``).
"""

from typing import Any

from verl.workers.rollout.replica import RolloutReplicaRegistry

from ascribe.engines.verl.names import check_verl

PRIVATE = {
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithValueHead": "_build_module",
    "verl.workers.rollout.vllm_rollout.vllm_async_server:vLLMHttpServer": (
        "_get_worker_extension_cls"
    ),
    "verl.workers.rollout.vllm_rollout.utils:vLLMColocateWorkerExtension": "_get_zmq_handle",
}
"""Private names of verl that runs on the CPU need besides ``names.PRIVATE``."""

WORKER = "ascribe_lab.train.verl.cpu.vllm_worker.ReloadingWorker"


def load_replica() -> Any:
    """The class of replicas whose servers run ``ReloadingWorker``."""
    import ray
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

    check_verl(PRIVATE)

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
