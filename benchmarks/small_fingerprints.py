"""Smaller fingerprints, for the way from the workers to where credit is computed."""

import numpy as np

from ascribe.fingerprints import FloatMatrix, normalised


def half(vectors: FloatMatrix) -> FloatMatrix:
    """Unit fingerprints in half precision: half the bytes, the same clusters but for near ties."""
    return normalised(vectors).astype(np.float16)


def gram(vectors: FloatMatrix) -> FloatMatrix:
    """The Gram matrix of one group's fingerprints: all that clustering needs.

    Smaller than the fingerprints where a group has fewer records than a fingerprint has numbers.
    Compute it where the fingerprints are, and send it to ``groups.cluster.cluster_grams``.
    """
    unit = normalised(vectors)
    return unit @ unit.T


def projected(vectors: FloatMatrix, width: int, random: np.random.Generator) -> FloatMatrix:
    """Fingerprints projected on ``width`` random directions, at unit length.

    Keeps distances only in part: the labels of records near the radius change. Measure the
    agreement on your own data before you rely on it. All workers must use the same seed.

    Args:
        vectors: one row per state.
        width: numbers that are left.
        random: where the directions come from.
    """
    directions = random.standard_normal((vectors.shape[1], width), dtype=np.float32)
    return normalised(normalised(vectors).astype(np.float32) @ directions)
