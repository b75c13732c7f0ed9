"""Who acts in the rows of a session, and in which order: main agents, sub-agents, branches.

An agent loop that returns several rows for a session may say in ``extra_fields`` of each:

- ``agent``: the name of who acts;
- ``parent``: ``[ROW, TURN]``, the turn that spawned this sub-agent: which row of the session, and
  which turn in it, both from 0.

A sub-agent's turns come right after the turn that spawned it. Without ``parent``, those of a row
come after those of the row before it, as in a history that was compacted.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ascribe.sessions import Spans
from ascribe.steps.problems import one_line
from ascribe.steps.table import MISSING_STEP, StepTable

Parent = tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class Lineages:
    """The agents, parents and order of a batch's rows.

    Attributes:
        agents: the name of who acts in each row; None if no row has one.
        parents: for each row the row of the batch and the turn in it that spawned it.
        order: for each row, numbers that put the turns of its session in order; None if rows do.
        faults: groups with a malformed ``parent``, and why they are dropped.
    """

    agents: list[str | None] | None
    parents: list[Parent]
    order: list[list[int]] | None
    faults: dict[str, str]

    @classmethod
    def of(
        cls,
        sessions: Sequence[tuple[str, int]],
        turns: Sequence[int],
        extra: Sequence[Mapping[str, Any]],
    ) -> "Lineages":
        """From what the agent loop says of each row; rows of a session follow each other."""
        agents = [None if fields.get("agent") is None else str(fields["agent"]) for fields in extra]
        if not any("parent" in fields for fields in extra):
            return cls(
                agents=agents if {*agents} - {None} else None, parents=[], order=None, faults={}
            )
        rows_of: defaultdict[Any, list[int]] = defaultdict(list)
        for row, session in enumerate(sessions):
            rows_of[session].append(row)
        every = zip(sessions, extra, strict=True)
        parents = [_parent(fields.get("parent"), rows_of[of], turns) for of, fields in every]
        order = _order(turns, parents)
        faults = {}
        for row, (session, fields) in enumerate(zip(sessions, extra, strict=True)):
            given = fields.get("parent")
            if given is not None and (parents[row] is None or -1 in order[row]):
                faults[session[0]] = "bad_parent"
                logging.getLogger(__name__).warning(
                    "episode %s/%s: parent is %s, but must be [ROW, TURN] of another row of the "
                    "session, and no two rows may spawn each other; its group is dropped",
                    *(*session, one_line(given)),
                )
        named = any(agent is not None for agent in agents)
        return cls(agents=agents if named else None, parents=parents, order=order, faults=faults)

    def with_parents(self, table: StepTable, spans: Spans) -> StepTable:
        """The table with the step that spawned each sub-agent, if there are any."""
        if not any(self.parents):
            return table
        places = zip(spans.sequence.tolist(), spans.turn.tolist(), strict=True)
        steps: dict[Parent, int] = dict(zip(places, table.step.tolist(), strict=True))
        steps[None] = MISSING_STEP
        # A turn that an earlier row holds too is a step of that row alone.
        parents = [steps.get(self.parents[row], MISSING_STEP) for row in spans.sequence]
        return replace(table, parent=np.array(parents, dtype=np.int64))


def _parent(given: Any, rows: Sequence[int], turns: Sequence[int]) -> Parent:
    """The row of the batch and the turn; None if they are not those of a row of the session."""
    try:
        number, turn = map(int, given)
    except (TypeError, ValueError):
        return None
    found = 0 <= number < len(rows) and 0 <= turn < turns[rows[number]]
    return (rows[number], turn) if found else None


def _order(turns: Sequence[int], parents: Sequence[Parent]) -> list[list[int]]:
    """Numbers of the turns: those of a sub-agent right after the turn that spawned it.

    -1 for those of rows that spawn each other.
    """
    spawned: defaultdict[Parent, list[int]] = defaultdict(list)
    for row, parent in enumerate(parents):
        spawned[parent].append(row)
    order = [[-1] * count for count in turns]
    waiting = [(row, 0) for row in reversed(spawned[None])]
    number = 0
    while waiting:
        row, turn = waiting.pop()
        if turn < turns[row]:
            order[row][turn] = number
            number += 1
            waiting.append((row, turn + 1))
            waiting += [(child, 0) for child in reversed(spawned[row, turn])]
    return order
