"""The private names of verl that the plug-in overrides, and the releases that it is tested with."""

import logging
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any

from ascribe.steps.errors import MissingPackageError

PRIVATE = {
    "verl.trainer.ppo.v1:PPOTrainer": (
        "_compute_advantage _get_required_batch_multiple _save_checkpoint"
    ),
    "verl.experimental.separation.ray_trainer:SeparateRayPPOTrainer": (
        "_fit_compute_advantage _get_dp_size"
    ),
    "verl.experimental.agent_loop.tool_agent_loop:ToolAgentLoop": (
        "_call_tool _handle_generating_state"
    ),
}
"""By module and class."""

RELEASES = ("0.9.0", "0.9.1")
"""Those that the tests run with."""


def class_of(actor: Any) -> Any:
    """The class that ``ray.remote`` made an actor of, by a name of Ray's own."""
    return actor.__ray_metadata__.modified_class


def check_verl(private: Mapping[str, str] = PRIVATE) -> None:
    """Refuse a release of verl that lacks one of the names: nothing would call an override of it.

    A release that has them all, and was not tested, is named in a warning.

    Raises:
        ImportError: with the names that are missing.
    """
    missing = []
    for place, names in private.items():
        module, _, owner = place.partition(":")
        found = getattr(import_module(module), owner, None)
        missing += [f"{owner}.{name}" for name in names.split() if not hasattr(found, name)]
    installed, tested = version("verl"), " and ".join(RELEASES)
    if missing:
        raise MissingPackageError(
            f"verl {installed} has no {', '.join(missing)}, which credit for steps needs: install "
            f"a tested release ({tested})"
        )
    if installed not in RELEASES:
        logging.getLogger(__name__).warning(
            "verl %s was not tested with Ascribe (%s were); it has every private name that is used",
            *(installed, tested),
        )
