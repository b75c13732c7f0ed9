"""TRL: ``AscribeTrainer``, and what it is made of."""

from typing import TYPE_CHECKING, Any

from ascribe.engines.trl.checkpoints import last_checkpoint

if TYPE_CHECKING:
    from ascribe.engines.trl.trainer import AscribeTrainer

__all__ = ["AscribeTrainer", "last_checkpoint"]


def __getattr__(name: str) -> Any:
    # TRL and torch are loaded for the trainer alone: the other parts do without them.
    if name == "AscribeTrainer":
        from ascribe.engines.trl.trainer import AscribeTrainer

        return AscribeTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
