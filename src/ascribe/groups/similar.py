"""Groups of states whose texts are nearly the same (GiGPO's similarity grouping)."""

from itertools import pairwise

import numpy as np

from ascribe.groups import Groups
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Ints, Objects
from ascribe.steps.errors import MissingPackageError
from ascribe.steps.hints import install


def similar(task: Ints, state: Ints, texts: Objects, threshold: float) -> Groups:
    """Rows of one task whose states agree in a long common subsequence.

    A state joins the first group whose first member is similar enough, else it starts a group:
    ``ratio(a, b) = 2 LCS(a, b) / (|a| + |b|) >= threshold``. States come in canonical order
    (trajectory, then step), so row order does not matter. Equal states share a group, so only
    distinct states are compared.

    Args:
        task: label of each row's task group, rows in canonical order.
        state: code of each row's state; -1 (missing) takes no part.
        texts: the text of each state code.
        threshold: smallest ratio of two states in one group, from 0 to 1.

    Raises:
        ImportError: without rapidfuzz (the extra ``similar``).
    """
    distinct = exact(task, state, texts.size)
    first_row = segments.first_rows(distinct.labels, distinct.count)
    bounds = np.flatnonzero(np.diff(task[first_row], prepend=-1, append=-1))
    merged = np.empty(distinct.count, dtype=np.int64)
    used = 0
    for start, end in pairwise(bounds.tolist()):
        fitted = _first_fit(list(texts[state[first_row[start:end]]]), threshold)
        merged[start:end] = used + np.array(fitted)
        used += max(fitted) + 1
    labels = np.append(merged, -1)[distinct.labels]
    labels, count = segments.by_appearance(labels, used)
    return Groups(labels, count)


def _first_fit(texts: list[str], threshold: float) -> list[int]:
    """The group of each text: the first whose first text is similar enough, else a new one."""
    try:
        from rapidfuzz.distance import LCSseq
    except ImportError as error:
        raise MissingPackageError(
            "similarity grouping needs rapidfuzz", hint=f"install it with: {install('similar')}"
        ) from error

    founders: list[str] = []
    fitted = []
    for text in texts:
        for group, founder in enumerate(founders):
            total = len(text) + len(founder)
            needed = _needed(total, threshold)
            if min(len(text), len(founder)) < needed:
                continue
            if LCSseq.similarity(text, founder, score_cutoff=needed) >= needed:
                fitted.append(group)
                break
        else:
            fitted.append(len(founders))
            founders.append(text)
    return fitted


def _needed(total: int, threshold: float) -> int:
    """The shortest common subsequence with ``2 LCS / total >= threshold``, compared as floats."""
    needed = int(threshold * total / 2)
    while total and 2.0 * needed / total < threshold:
        needed += 1
    return needed
