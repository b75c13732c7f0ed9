"""The private names of verl 0.9.1 that the plug-in overrides, wraps or calls."""

from collections.abc import Mapping
from importlib import import_module

PRIVATE = {
    "verl.trainer.ppo.v1:PPOTrainer": "_compute_advantage _compute_old_log_prob "
    "_get_required_batch_multiple _update_actor _update_critic",
    "verl.workers.engine:FSDPEngineWithLMHead": "_get_packed_pad_size",
    "verl.experimental.agent_loop.tool_agent_loop:ToolAgentLoop": "_call_tool "
    "_handle_generating_state",
}
"""By module and class."""


def check_verl(private: Mapping[str, str] = PRIVATE) -> None:
    """Refuse a release of verl that lacks one of the names: nothing would call an override of it.

    Raises:
        ImportError: with the names that are missing.
    """
    missing = []
    for place, names in private.items():
        module, _, owner = place.partition(":")
        found = getattr(import_module(module), owner, None)
        missing += [f"{owner}.{name}" for name in names.split() if not hasattr(found, name)]
    if missing:
        raise ImportError(
            f"this release of verl has no {', '.join(missing)}, which trainer_mode=ascribe needs: "
            "install verl==0.9.1"
        )
