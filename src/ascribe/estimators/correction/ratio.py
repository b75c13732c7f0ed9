"""The importance ratio of a sequence, as GSPO takes it (IBPO, Eq. 17), to test engines by."""

import numpy as np

from ascribe.steps import segments
from ascribe.steps.arrays import Floats, Ints


def sequence_ratio(new: Floats, old: Floats, sequence: Ints, count: int) -> Floats:
    r"""``s_i = (π_new(y_i | x) / π_old(y_i | x))^(1 / |y_i|)``.

    That is exp of the mean difference of log-probabilities over the tokens of the sequence: long
    and short sequences have ratios of like size. A sequence without tokens has ratio 1.

    Args:
        new: log-probability of each token under the policy that is trained.
        old: the same under the policy that sampled.
        sequence: sequence of each token; -1 for a token that the policy did not write.
        count: number of sequences.
    """
    with np.errstate(over="ignore"):  # beyond the range of numbers the ratio is infinite
        return np.exp(segments.mean(new - old, sequence, count))
