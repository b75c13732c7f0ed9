"""Decisions as a page shows them: where two sessions part, and what decided each trajectory."""

from typing import Any

import numpy as np

from ascribe.decisions import Decision, Decisions
from ascribe.decisions.decision import CONSEQUENCES
from ascribe.reports.compare import place_of
from ascribe.reports.crediting import Credited
from ascribe.reports.text import safe
from ascribe.steps import segments
from ascribe.steps.arrays import Ints
from ascribe.steps.returns import episode_outcome

MOST_DECISIONS = 100
"""Decisions on the page: the most certain ones."""
LONGEST = 1000
"""Characters of a text about a decision."""


def parting(decision: Decision, credited: Credited) -> list[int]:
    """The rows at which two sessions of one task decided differently, the most telling ones."""
    group = credited.table.group.codes
    better, worse = decision.better.rows, decision.worse.rows
    common = better[np.isin(group[better], group[worse])][:1]
    return [*common.tolist(), *worse[np.isin(group[worse], group[common])][:1].tolist()]


def contradicted(found: Decisions, credited: Credited) -> tuple[Decision, ...]:
    """Certain forks whose better actions have less credit, on average, than the others."""
    advantage = credited.credit.advantage
    return tuple(
        each
        for each in found.forks
        if each.certain and advantage[each.better.rows].mean() < advantage[each.worse.rows].mean()
    )


def for_page(found: Decisions, credited: Credited) -> dict[str, Any]:
    """What the page shows of the decisions, with every text made safe."""
    rows = []
    for each in found.decisions[:MOST_DECISIONS]:
        places = [place_of(credited.table, row) for row in parting(each, credited)]
        steps = [[place[name] for name in ("group", "trajectory", "step")] for place in places]
        rows.append(each.as_dict() | {"steps": steps})
    shown = {
        "sentence": found.sentence,
        "advice": found.advice,
        "notes": list(found.notes),
        "binary": found.binary,
        "rows": rows,
        "of": len(found.decisions),
    }
    return {name: safe(part, LONGEST) for name, part in shown.items()}


def decided_by(found: Decisions, credited: Credited) -> Ints:
    """What decided each trajectory: the place of the most certain decision that it took part in.

    Places on the better side are 0, 2, 4, ..., those on the worse side 1, 3, 5, ...; -1 for a
    trajectory that nothing on the page explains. A better side explains only why a trajectory
    earned more than the mean of its task, and a worse one why it earned less. Length and endings
    decide nothing: they may follow from how a session went.
    """
    steps = credited.steps
    trajectory = np.empty(len(credited.table), dtype=np.int64)
    trajectory[steps.rows] = steps.trajectory
    group, count = steps.group_of_trajectory, steps.trajectory_count
    returns = episode_outcome(steps.reward, steps.trajectory, count)
    mean = segments.mean(returns, group, steps.group_count)[group]
    differs = ~np.isclose(returns, mean, rtol=segments.ROUNDING, atol=0.0)
    above, below = differs & (returns > mean), differs & (returns < mean)
    by = np.full(count, -1, dtype=np.int64)
    for place, each in reversed(list(enumerate(found.decisions[:MOST_DECISIONS]))):
        if each.kind in CONSEQUENCES or each.ending:
            continue
        for side, earned, rows in ((0, above, each.better.rows), (1, below, each.worse.rows)):
            taken = trajectory[rows]
            by[taken[earned[taken]]] = 2 * place + side
    return by
