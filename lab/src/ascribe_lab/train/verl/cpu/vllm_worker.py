"""``ReloadingWorker``: what verl adds to a vLLM worker, with weights that arrive by reload."""

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from ascribe.steps.errors import InputError
from ascribe_lab.models.vllm_policy import reload_on_cpu


class ReloadingWorker(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """Receives all weights, then lets vLLM load them."""

    device: Any

    def update_weights_from_ipc(
        self,
        peft_config: Any = None,
        base_sync_done: bool = False,  # noqa: ARG002 (verl passes it)
        use_shm: bool = False,
    ) -> None:
        """Take the trainer's weights.

        Raises:
            ValueError: for adapters, which vLLM cannot replace on the CPU.
        """
        if peft_config:
            raise InputError("adapters cannot be replaced on the CPU: set model.lora.merge=True")
        if self.device is None:
            self.device = torch.device("cpu")
        arrived: list[tuple[str, Any]] = []

        def keep(weights: list[tuple[str, Any]], is_last: bool) -> None:  # noqa: ARG001
            # The buffer that they lie in is used again.
            arrived.extend((name, tensor.clone()) for name, tensor in weights)

        receiver = BucketedWeightReceiver(self._get_zmq_handle(), self.device, use_shm)
        receiver.receive_weights(on_bucket_received=keep)
        reload_on_cpu(self.model_runner, arrived)
