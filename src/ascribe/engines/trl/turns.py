"""Turns of TRL's sessions: what they were shown and did, from TRL's messages; their credit.

Tokens say where credit lands, and nothing else: a chat template may write a call with other spaces
than the model did, and a turn whose tokens were masked is still a turn.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from accelerate import PartialState
from accelerate.utils import gather_object

from ascribe.engines.crediting import CreditedSteps, History, credit_steps, say_once
from ascribe.estimators import Recipe
from ascribe.sessions import Conversation, State, from_messages
from ascribe.sessions.messages import calls_of
from ascribe.steps.arrays import Floats
from ascribe.steps.files import table_from_arrow, table_to_arrow
from ascribe.steps.select import OnProblem
from ascribe.steps.table import StepTable, read_columns


def conversation(prompt: Sequence[Any], completion: Sequence[Any], **facts: Any) -> Conversation:
    """A session that TRL played; one in which the model wrote nothing has a turn without text."""
    said = [*map(_readable, completion)]
    if not any(message.get("role") == "assistant" for message in said):
        said.append({"role": "assistant", "content": ""})
    facts = {"group": "", "trajectory": "", **facts}
    return Conversation(messages=[*prompt, *said], context=len(prompt), **facts)


def _readable(message: Any) -> Any:
    """The message; its calls as text if they are none, as a call without a name is."""
    try:
        calls_of(message)
    except ValueError:
        return {"role": message.get("role"), "content": str(message.get("tool_calls"))}
    return message


def from_chats(
    chats: Sequence[Conversation], turns: Sequence[int], state: State
) -> StepTable | None:
    """The steps of sessions by their messages; None if these are not the turns that were played.

    Args:
        chats: the sessions.
        turns: how many turns each has by its tokens; 0 for one whose tokens are lost.
        state: what counts as the state of a turn.
    """
    pairs = zip(chats, turns, strict=True)
    with suppress(TypeError, ValueError):  # those of a harness, or with pictures, have other forms
        if all(count in {0, len(chat.steps)} for chat, count in pairs):
            return from_messages(chats, state=state)
    if any(turns):
        say_once(
            "the messages of TRL's sessions are not the turns that were played, so states and "
            "actions are read from tokens, where a call that is written in two ways is two "
            "actions; ascribe/from_tokens_share counts them"
        )
    return None


def credit_rewarded(
    table: StepTable, recipe: Recipe, check: OnProblem, **inputs: Any
) -> tuple[CreditedSteps, Floats]:
    """The credit of the steps whose episode has a reward, and the advantage of every step.

    As in TRL, an episode without a reward takes no part, and its group goes on without it.
    """
    totals = np.bincount(table.trajectory.codes, table.reward)
    rewarded = ~np.isnan(totals)[table.trajectory.codes]
    credited = credit_steps(table.take(rewarded), recipe, check, **inputs)
    advantage = np.zeros(len(table))
    advantage[rewarded] = credited.advantage
    return credited, advantage


def credit_gathered(
    local: StepTable,
    recipe: Recipe,
    check: OnProblem,
    *,
    failed: Mapping[str, str],
    history: History = None,
) -> tuple[CreditedSteps, Floats]:
    """The credit of the turns of all processes, and the advantages of this one's.

    Args:
        local: the turns of this process.
        recipe: the estimator.
        check: what to do about turns that cannot be credited.
        failed: groups of this process to drop whatever their turns are, with the reason.
        history: the state that the recipe carried over.
    """
    parts = gather_object([(local, failed)])
    if len(parts) == 1:
        table = read_columns(local.columns())
    else:
        table = table_from_arrow(pa.concat_tables([table_to_arrow(each) for each, _ in parts]))
    every = {group: why for _, found in parts for group, why in found.items()}
    credited, advantage = credit_rewarded(table, recipe, check, failed=every, history=history)
    shares = np.split(advantage, np.cumsum([len(each) for each, _ in parts]))
    return credited, shares[PartialState().process_index]
