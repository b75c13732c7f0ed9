"""Training engines: plug-ins that turn rollouts into updates, each in a folder of its own."""

from typing import Any

from ascribe.estimators import DEFAULT, Recipe, recipe


def training_recipe(
    method: str | Recipe = DEFAULT, preset: str | None = None, **parameters: Any
) -> Recipe:
    """The recipe that a trainer credits by; one that is no name stays as it is.

    By its name, the default recipe has ``scale="equal"``: its advantages have the size of those of
    ``grpo``, so that a learning rate, a KL term and clipping mean what they meant.
    """
    if not isinstance(method, str):
        return method
    scale = {"scale": "equal"} if method == DEFAULT else {}
    return recipe(method, preset=preset, **scale | parameters)
