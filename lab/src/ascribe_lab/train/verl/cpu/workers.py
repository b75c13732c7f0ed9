"""What verl's processes load for a processor, by ``actor_rollout_ref.model.external_lib``."""

from ascribe_lab.train.verl.cpu import engine, fsdp, vllm  # noqa: F401
