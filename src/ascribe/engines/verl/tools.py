"""What verl's ``ToolAgentLoop`` does not tell: the turn of a tool call, and how an episode ended.

The loop keeps the rewards of all calls in one list, which lacks those of calls that gave none. So
each call is recorded where the loop runs it, with the number of its turn.
"""

from collections.abc import Mapping
from functools import wraps
from typing import Any

import numpy as np
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from ascribe.sessions.spans import turn_starts

CALLS = "turn_calls"
"""The key in ``extra_fields``: the tool calls in their order, with turn, reward and state."""
TRUNCATED = "truncated"
"""The key in ``extra_fields``: whether a limit of the loop ended the episode."""


def record_calls(loop: Any) -> None:
    """Wrap the methods of a loop, for the loops that inherit from it too."""
    call, play = loop._call_tool, loop.run

    @wraps(call)
    async def call_tool(self: Any, tool_call: Any, tools_kwargs: Any, agent_data: Any) -> Any:
        entry = [agent_data.assistant_turns - 1, None, None]
        # Parallel calls begin in their order, and end in any.
        agent_data.extra_fields.setdefault(CALLS, []).append(entry)
        response, reward, facts = await call(self, tool_call, tools_kwargs, agent_data)
        entry[1:] = reward, facts.get("state") if isinstance(facts, Mapping) else None
        return response, reward, facts

    @wraps(play)
    async def run(self: Any, sampling_params: dict[str, Any], **options: Any) -> Any:
        output = await play(self, sampling_params, **options)
        output.extra_fields.setdefault(CALLS, [])
        output.extra_fields[TRUNCATED] = await _unanswered(self, output)
        return output

    loop._call_tool, loop.run = call_tool, run


async def _unanswered(loop: Any, output: Any) -> bool:
    """Whether the last turn of an episode called a tool, or was empty."""
    begins = turn_starts(output.response_mask)
    if begins.size < output.num_turns // 2:  # which counts a prompt or result for each response
        return True
    wrote = np.array(output.response_mask[begins[-1] :]) == 1
    ids = np.array(output.response_ids[begins[-1] :])[wrote].tolist()
    schemas = [tool.tool_schema for tool in loop.tools.values()]
    _, calls = await loop.tool_parser.extract_tool_calls(ids, schemas)
    return bool(calls)


if hasattr(ToolAgentLoop, "_call_tool"):
    record_calls(ToolAgentLoop)  # else the trainer refuses verl's release
