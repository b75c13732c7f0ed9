"""Credit of a batch whose turns are spread over processes: each credits its share of the groups.

A group that lies with several processes is credited by one of them: the others send their turns and
get advantages back. All other turns stay where they are. What a metric or ``scale="equal"`` needs
of the whole batch are a few numbers for each turn, in the order of groups, so that results have the
bits of one process that credits everything. A recipe that compares turns over a batch in another
way, or carries state on, gets all turns in every process.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from accelerate.utils import gather_object

from ascribe.engines.crediting import CreditedSteps, History, credit_steps
from ascribe.engines.metrics import credit_facts, joined_metrics
from ascribe.estimators import Recipe
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.files import table_from_arrow, table_to_arrow
from ascribe.steps.select import OnProblem
from ascribe.steps.table import StepTable

ALL = -1
"""In place of a process: all of them."""


def needs_batch(recipe: Recipe) -> bool:
    """Whether every process needs all turns."""
    return recipe.has_history or not recipe.by_group_with_pool


def credit_shares(
    local: StepTable,
    owner: Ints,
    recipe: Recipe,
    check: OnProblem,
    *,
    rank: int,
    failed: Mapping[str, str],
    history: History = None,
) -> tuple[CreditedSteps, Floats, dict[str, float]]:
    """What this process credits, the advantage of its own turns, and the metrics of the batch.

    Args:
        local: the turns of this process.
        owner: for each, the process that credits its group; it rises with the groups' order.
        recipe: the estimator.
        check: what to do about turns that cannot be credited.
        rank: the number of this process.
        failed: groups to drop whatever their turns are, with the reason.
        history: the state that the recipe carried over.
    """
    whole = needs_batch(recipe)
    if whole:
        owner = np.full(len(local), ALL)
    others = [int(to) for to in np.unique(owner) if to != rank]
    sent = {to: _packed(local.take(owner == to)) for to in others}
    tables, sources, reasons = [table_to_arrow(local.take(owner == rank))], [rank], dict(failed)
    for source, (parts, theirs) in enumerate(gather_object([(sent, dict(failed))])):
        if part := parts.get(rank) or parts.get(ALL):
            tables.append(pa.ipc.open_stream(part).read_all())
            sources.append(source)
            reasons |= theirs
    table = table_from_arrow(pa.concat_tables(tables))
    names = set(table.group.values)
    reasons = {name: why for name, why in reasons.items() if name in names}
    scored = have_rewards(table)
    pools = not whole and not recipe.by_group
    credited = credit_steps(
        table.take(scored),
        recipe,
        check,
        failed=reasons,
        history=history,
        compute=(lambda kept, _: recipe(kept, pool=_pool)) if pools else None,
    )
    if pools and credited.credit is None:
        _pool(np.zeros(0), np.zeros(0))  # the others wait for it
    counts = scored.copy()
    counts[scored] = credited.counts
    credited = replace(credited, counts=counts)
    # The advantages go back to where the turns came from.
    ends = np.cumsum([len(each) for each in tables])
    own, *others_own = np.split(credited.advantage, ends[:-1])
    answers, facts = dict(zip(sources[1:], others_own, strict=True)), credit_facts(credited)
    if whole:
        return credited, answers[rank], joined_metrics([facts])
    advantage = np.zeros(len(local))
    advantage[owner == rank] = own
    told = gather_object([(facts, answers)])
    for place, (_, answered) in enumerate(told):
        if rank in answered:
            advantage[owner == place] = answered[rank]
    return credited, advantage, joined_metrics([each for each, _ in told])


def have_rewards(table: StepTable) -> Bools:
    """For each turn whether its episode has a reward.

    As in TRL, an episode without one takes no part, and its group goes on without it.
    """
    totals = np.zeros(len(table.trajectory.values))
    np.add.at(totals, table.trajectory.codes, table.reward)
    return ~np.isnan(totals)[table.trajectory.codes]


def _pool(*arrays: Floats) -> tuple[Floats, Floats]:
    """These arrays of all processes, one after another."""
    first, second = (np.concatenate(each) for each in zip(*gather_object([arrays]), strict=True))
    return first, second


def _packed(table: StepTable) -> bytes:
    arrow, stream = table_to_arrow(table), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(stream, arrow.schema, options=options) as writer:
        writer.write_table(arrow)
    packed: bytes = stream.getvalue().to_pybytes()
    return packed
