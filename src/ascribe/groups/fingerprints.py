"""Fingerprints: states as unit vectors; equivalent states lie close together."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ascribe.steps.arrays import Bools
from ascribe.steps.errors import InputError

FloatMatrix = npt.NDArray[Any]
"""Fingerprints: one row of numbers per state or step, in any floating-point type."""


def refuse_masked(vectors: object) -> None:
    """Raise a ``ValueError`` for a masked array, whose values also hold what is masked."""
    if isinstance(vectors, np.ma.MaskedArray):
        raise InputError("fingerprints are a masked array", hint="fill it, with rows of 0 for none")


def normalised(vectors: FloatMatrix) -> FloatMatrix:
    """The rows at unit length, in at least single precision; rows of zeros stay zeros.

    Args:
        vectors: one row per state.

    Raises:
        ValueError: if a number is not finite, or masked.
    """
    refuse_masked(vectors)
    wide = vectors.astype(np.float32) if vectors.dtype.itemsize < 4 else vectors
    length = np.sqrt(np.einsum("ij,ij->i", wide, wide, dtype=np.float64))[:, None]
    if not np.isfinite(length).all():
        rows = np.flatnonzero(~np.isfinite(length[:, 0]))[:5].tolist()
        raise InputError(f"fingerprints of rows {rows} hold numbers that are not finite")
    if np.abs(length - 1.0).max(initial=0.0) < 1e-6:
        return wide
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    scaled: FloatMatrix = (wide * scale).astype(wide.dtype)
    return scaled


def present(vectors: FloatMatrix) -> Bools:
    """Rows that have a fingerprint; a row of zeros means none."""
    found = np.asarray(vectors[:, :1].any(axis=1))  # mostly the first number says it
    found[~found] = vectors[~found].any(axis=1)
    return found
