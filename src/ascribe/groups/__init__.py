"""Which decisions may be compared: partitions of rows, as labels."""

from dataclasses import dataclass

from ascribe.steps.arrays import Brief, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Groups(Brief):
    """A partition of rows.

    ``labels`` runs from 0 to ``count - 1`` without gaps, in the order in which the groups first
    appear in canonical row order; -1 marks a row that takes no part.
    """

    labels: Ints
    count: int
