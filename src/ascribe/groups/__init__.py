"""Which decisions may be compared: partitions of rows, as labels."""

from typing import NamedTuple

from ascribe.steps.arrays import Ints


class Groups(NamedTuple):
    """A partition of rows.

    ``labels`` runs from 0 to ``count - 1`` without gaps, in the order in which the groups first
    appear in canonical row order; -1 marks a row that takes no part.
    """

    labels: Ints
    count: int  # type: ignore[assignment]  # in place of the method of tuples
