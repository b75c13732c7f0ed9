"""Slow, obvious versions of IBPO's parts and of the divergence point, loop by loop."""

import math
from collections.abc import Sequence

OUT, RIGHT, COMPARED, NO_REFERENCE, UNJUDGED = -1, 0, 1, 2, 3


def pool(i: int, right: Sequence[bool], group: Sequence[int], itself: bool) -> list[int]:
    """Whom a wrong trajectory may be compared with."""
    mates = [j for j in range(len(right)) if group[j] == group[i]]
    good = [j for j in mates if right[j]]
    return good or [j for j in mates if itself or j != i]


def targets(right: Sequence[bool], group: Sequence[int]) -> list[int]:
    return [i for i in range(len(right)) if not right[i] and group[i] >= 0]


def correction(references: Sequence[int], outcomes: Sequence[float]) -> tuple[float, int]:
    if references[0] < 0:
        return 0.0, NO_REFERENCE
    judged = [outcome for outcome in outcomes if not math.isnan(outcome)]
    return (sum(judged) / len(judged), COMPARED) if judged else (0.0, UNJUDGED)


def consistency(
    target: int, references: Sequence[int], rows: Sequence[tuple[int, int]]
) -> tuple[float, int]:
    """Rows are pairs of trajectory and state."""
    if references[0] < 0:
        return 0.0, NO_REFERENCE
    own = {state for t, state in rows if t == target and state >= 0}
    others = [{state for t, state in rows if t == j and state >= 0} for j in references]
    shares = [len(own & other) / len(own) for other in others if own and other]
    return (sum(shares) / len(shares), COMPARED) if shares else (0.0, UNJUDGED)


def ranking(target: int, references: Sequence[int], scores: Sequence[float]) -> tuple[float, int]:
    if references[0] < 0:
        return 0.0, NO_REFERENCE
    own = scores[target]
    wins = []
    for j in references:
        if math.isnan(own) or math.isnan(scores[j]):
            continue
        wins.append(1.0 if scores[j] < own else 0.5 if scores[j] == own else 0.0)
    return (sum(wins) / len(wins), COMPARED) if wins else (0.0, UNJUDGED)


def algorithm_1(
    reward: Sequence[float],
    group: Sequence[int],
    recovered: dict[int, float],
    weight: float,
    scale: float,
) -> list[float | None]:
    """Lines 11 to 32: advantages from shaped rewards; None where there is nothing to compare."""
    shaped = [
        r + weight * scale * recovered[i] if i in recovered else r for i, r in enumerate(reward)
    ]
    return standardised(shaped, group)


def standardised(values: Sequence[float], group: Sequence[int]) -> list[float | None]:
    out: list[float | None] = []
    for i, own in enumerate(values):
        mates = [values[j] for j in range(len(values)) if group[j] == group[i] and group[i] >= 0]
        if len(mates) < 2 or max(mates) - min(mates) <= 1e-12 * max(map(abs, mates)):
            out.append(None)
            continue
        mean = math.fsum(mates) / len(mates)
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in mates) / len(mates))
        out.append((own - mean) / (std + 1e-8))
    return out


def overtakes(
    shaped: Sequence[float],
    reward: Sequence[float],
    right: Sequence[bool],
    group: Sequence[int],
) -> list[bool]:
    return [
        group[i] >= 0
        and shaped[i] > reward[i]
        and any(
            right[j] and group[j] == group[i] and shaped[i] >= reward[j] for j in range(len(right))
        )
        for i in range(len(right))
    ]


def sequence_ratio(new: Sequence[float], old: Sequence[float]) -> float:
    """Eq. 17 as it is written: the ratio of products, to the power of one over the length."""
    if not new:
        return 1.0
    return (math.prod(map(math.exp, new)) / math.prod(map(math.exp, old))) ** (1 / len(new))


def departure(
    own: Sequence[int], right_ones: Sequence[Sequence[int]], which: str
) -> tuple[str, int | None]:
    """Kind and step of the departure of a wrong trajectory with these states from these others."""
    if not right_ones:
        return "no_right", None
    home = {state for states in right_ones for state in states if state >= 0}
    where = ["?" if state < 0 else "in" if state in home else "out" for state in own]
    begin = 0
    if which == "final" and "in" in where:
        begin = len(where) - where[::-1].index("in")
    later = [t for t in range(begin, len(where)) if where[t] == "out"]
    if not later:
        return ("stayed" if "in" in where else "unseen"), None
    t = later[0]
    if t == 0:
        return "at_start", None
    return ("left", t - 1) if where[t - 1] == "in" else ("unseen", None)
