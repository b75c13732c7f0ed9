"""Whether a recipe takes the policy's hidden states, and of which layer."""

from ascribe.estimators import Recipe


def fingerprint_layer(recipe: Recipe, layer: int | None) -> int | None:
    """The layer to take fingerprints from; None if the recipe needs none.

    Raises:
        ValueError: if the recipe needs fingerprints and no layer is given.
    """
    given = getattr(recipe, "fingerprint", None) == "given"
    if not given or getattr(recipe, "states", "cluster") == "exact":
        return None
    if layer is None:
        raise ValueError(
            f"{recipe.name} takes the policy's hidden states as fingerprints: pass layer= "
            "(ascribe calibrate finds one), or choose fingerprint='ngram' in the recipe"
        )
    return layer
