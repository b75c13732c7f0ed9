"""What agent loops report of each turn in ``extra_fields``: rewards, states and scores.

A loop of one's own gives lists with an entry for each turn. verl's ``ToolAgentLoop`` gives its tool
calls, each with the number of the turn that made it (``tools``).
"""

from collections.abc import Mapping
from typing import Any

from ascribe.conversations.sequences import START
from ascribe.engines.inputs import finite

CALLS = "turn_calls"
"""The tool calls of an episode in their order: turn, reward and state of each."""

TRUNCATED = "truncated"
"""Whether a limit of the loop ended the episode."""

STATES = "turn_states"
"""The state of each turn."""

TOOL_REWARDS = "tool_rewards"
"""verl's rewards of tool calls; those of ``CALLS`` are used, which have a turn."""

SCORES = {"score": "turn_score", "step_score": "turn_step_score"}
"""Columns of the step table, and the lists with an entry for each turn."""


def gives(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a row has a list of this name; calls of which none reports a state give no states."""
    if name == STATES and name not in fields and (calls := fields.get(CALLS)) is not None:
        return not calls or any(state is not None for _, _, state in calls)
    return name in fields


def turn_list(name: str, fields: Mapping[str, Any], turns: int) -> Any:
    """The entries of a row's turns, if they are well formed; None if there are none.

    The state of a turn is that which the last call before it left behind.
    """
    calls, given = fields.get(CALLS), fields.get(name)
    if name == STATES and given is None and calls is not None:
        states = [START] * turns
        for turn, _, state in calls:
            if state is not None:
                states[turn + 1 :] = [state] * (turns - turn - 1)
        return states
    if name == TOOL_REWARDS and (calls is not None or not given):
        rewards = [0.0] * turns
        try:
            for turn, reward, _ in calls or ():
                rewards[turn] += 0.0 if reward is None else finite(reward)
        except (IndexError, TypeError, ValueError):
            return calls
        return rewards
    return given
