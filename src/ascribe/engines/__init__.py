"""Training engines: plug-ins that turn rollouts into updates, each in a folder of its own."""

from typing import Any

from ascribe.estimators import DEFAULT, Recipe, recipe
from ascribe.steps.errors import InputError
from ascribe.steps.hints import page


def training_recipe(
    method: str | Recipe = DEFAULT, preset: str | None = None, **parameters: Any
) -> Recipe:
    """The recipe that a trainer credits by; one that is no name stays as it is.

    By its name, the default recipe has ``scale="equal"``: its advantages have the size of those of
    ``grpo``, so that a learning rate, a KL term and clipping mean what they meant.
    """
    if not isinstance(method, str):
        return method
    if method.lower() == "pivotrl":
        raise InputError(
            "PivotRL is no recipe: it trains on single turns of traces, which the command "
            f"ascribe pivots selects: see {page('pivots')}"
        )
    scale = {"scale": "equal"} if method == DEFAULT else {}
    return recipe(method, preset=preset, **scale | parameters)
