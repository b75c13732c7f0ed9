"""Character n-grams as a fingerprint: states with similar texts are close together."""

import numpy as np
import numpy.typing as npt

from ascribe.groups.fingerprints import FloatMatrix, normalised
from ascribe.steps.arrays import Objects

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def ngram(texts: Objects, *, length: int = 3, width: int = 1024) -> FloatMatrix:
    """Hashed counts of the character n-grams of each text, at unit length.

    BiPACE's policy-agnostic control (HashNgram, Appendix K): it needs no model, and it does not
    move as the policy learns. Each n-gram of code points is hashed to a place and a sign; signs
    make collisions cancel on average. The paper leaves n and the width open: 3 characters are a
    usual choice for short texts, and 1,024 places keep collisions rare for a few hundred n-grams.

    Args:
        texts: distinct state texts; an empty one gets a row of zeros.
        length: characters of an n-gram. Shorter texts count as one n-gram.
        width: numbers of a fingerprint.
    """
    vectors = np.zeros((texts.size, width), dtype=np.float32)
    for row, text in enumerate(texts):
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        if points.size:
            hashed = _hash(points.astype(np.uint64), min(length, points.size))
            column = ((hashed >> np.uint64(33)) % np.uint64(width)).astype(np.int64)
            sign = np.where(hashed & np.uint64(1 << 32), 1.0, -1.0)
            vectors[row] = np.bincount(column, sign, width)
    return normalised(vectors)


def _hash(points: npt.NDArray[np.uint64], length: int) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of every window of ``length`` code points; unsigned overflow is meant."""
    windows = points.size - length + 1
    hashed = np.zeros(windows, dtype=np.uint64)
    for i in range(length):
        hashed = (hashed ^ points[i : i + windows]) * _MULTIPLIER
        hashed ^= hashed >> np.uint64(29)
    return hashed * _MULTIPLIER
