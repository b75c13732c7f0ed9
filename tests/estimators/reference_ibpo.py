"""Slow, obvious versions of IBPO's parts and of the divergence point, loop by loop."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def pool(i: int, right: Sequence[bool], group: Sequence[int]) -> list[int]:
    """Whom a wrong trajectory may be compared with."""
    mates = [j for j in range(len(right)) if group[j] == group[i]]
    good = [j for j in mates if right[j]]
    return good or [j for j in mates if j != i]


def targets(right: Sequence[bool], group: Sequence[int]) -> list[int]:
    return [i for i in range(len(right)) if not right[i] and group[i] >= 0]


def consistency(
    target: int, references: Sequence[int], rows: Sequence[tuple[int, int]]
) -> tuple[float, str]:
    """Rows are pairs of trajectory and state."""
    if references[0] < 0:
        return 0.0, "no reference"
    own = {state for t, state in rows if t == target and state >= 0}
    others = [{state for t, state in rows if t == j and state >= 0} for j in references]
    shares = [len(own & other) / len(own) for other in others if own and other]
    return (sum(shares) / len(shares), "compared") if shares else (0.0, "unjudged")


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


def recipe(
    rows: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any]
) -> tuple[list[float], list[str], list[object]]:
    """The recipe ``ibpo``: advantage, reason and what was compared with what, row by row."""
    real = [row for row in rows if not row.get("padding")]
    names = sorted({row["trajectory"] for row in real})
    mine = {name: [row for row in real if row["trajectory"] == name] for name in names}
    cut = {name for name in names if any(row.get("truncated") for row in mine[name])}
    out = cut if parameters["truncation"] == "exclude" else set()
    group = {name: mine[name][0]["group"] for name in names}
    corrects = {name: mine[name][0].get("corrects") for name in names}
    paid = {name: math.fsum(row["reward"] for row in mine[name]) for name in names}
    right = {
        name: paid[name] >= parameters["right"] - 1e-12 * abs(parameters["right"]) for name in names
    }
    fine = parameters["invalid_penalty"]
    earned = {
        name: math.fsum(
            row["reward"] - (0.0 if row.get("valid", True) else fine) for row in mine[name]
        )
        for name in names
    }
    answers = [name for name in names if corrects[name] is None and name not in out]
    corrections = [name for name in names if corrects[name] in answers and name not in out]

    worth = dict(earned)
    for name in answers:
        if right[name]:
            continue
        if parameters["compare"] == "correction":
            judged = [right[other] for other in corrections if corrects[other] == name]
            share = sum(judged) / len(judged) if judged else 0.0
        else:
            share = _shared(name, [n for n in answers if group[n] == group[name]], right, mine)
        worth[name] += parameters["weight"] * parameters["beta"] * share

    peers: dict[str, object] = {name: ("answers", group[name]) for name in answers}
    for name in corrections:
        told = corrects[name]
        peers[name] = told if parameters["baseline"] == "prompt" else ("mended", group[told])
    taking_part = list(peers)
    kinds = sorted({str(key) for key in peers.values()})
    labels = [kinds.index(str(peers[name])) for name in taking_part]
    values = dict(
        zip(taking_part, standardised([worth[n] for n in taking_part], labels), strict=True)
    )

    for name in corrections:
        told = corrects[name]
        if not parameters["joint"]:
            del values[name]
        elif parameters["mean"] == "prompt" and values[name] is not None:
            copies = [other for other in corrections if corrects[other] == told]
            values[name] *= len([n for n in answers if group[n] == group[told]]) / len(copies)

    def told_of(row: Mapping[str, Any]) -> tuple[float, str, object]:
        name = row["trajectory"]
        if row.get("padding"):
            return 0.0, "padding", None
        if name in out:
            return 0.0, "truncated", None
        if name in corrections and not parameters["joint"]:
            return 0.0, "counterfactual", peers[name]
        if name not in values:
            return 0.0, "no_target", None
        value = values[name]
        if value is None:
            alone = list(peers.values()).count(peers[name]) == 1
            return 0.0, "group_of_one" if alone else "zero_variance", peers[name]
        return value, "credited", peers[name]

    found = [told_of(row) for row in rows]
    return [f[0] for f in found], [f[1] for f in found], [f[2] for f in found]


def _shared(
    name: str,
    mates: Sequence[str],
    right: Mapping[str, bool],
    mine: Mapping[str, Sequence[Mapping[str, Any]]],
) -> float:
    """Share of the states of a wrong answer in which the right ones were, or else the others."""
    others = [n for n in mates if right[n]] or [n for n in mates if n != name]
    seen = {n: {row["state"] for row in mine[n]} - {None} for n in (name, *others)}
    shares = [len(seen[name] & seen[n]) / len(seen[name]) for n in others if seen[name] and seen[n]]
    return sum(shares) / len(shares) if shares else 0.0
