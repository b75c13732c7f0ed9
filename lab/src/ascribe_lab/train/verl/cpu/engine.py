"""Engines of models on the CPU, where verl has none."""

from dataclasses import dataclass
from typing import Any

from verl.utils import model as model_utils
from verl.workers.config import HFModelConfig
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

from ascribe.engines.verl.engine import FingerprintEngine


class CpuValueEngine(FSDPEngineWithValueHead):  # type: ignore[misc]
    """verl's engine of a critic, whose model verl loads with an attention of GPUs alone."""

    def _build_module(self) -> Any:
        load = model_utils.load_valuehead_model
        model_utils.load_valuehead_model = _load_critic
        try:
            return super()._build_module()
        finally:
            model_utils.load_valuehead_model = load


@dataclass
class CpuModelConfig(HFModelConfig):  # type: ignore[misc]
    """The model of a critic, whose worker verl makes before it loads ``external_lib``.

    The worker is sent this, and so imports this module.
    """


def _load_critic(
    local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool
) -> Any:
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        dtype=torch_dtype,
        config=model_config,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
    )


BACKENDS = ["fsdp", "fsdp2"]
EngineRegistry.register("language_model", BACKENDS, device="cpu")(FingerprintEngine)
EngineRegistry.register("value_model", BACKENDS, device="cpu")(CpuValueEngine)
