"""One seed from several numbers."""

import numpy as np


def mixed(*numbers: int) -> int:
    """A seed of 32 bits, the same on every machine; close numbers give seeds far apart."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])
