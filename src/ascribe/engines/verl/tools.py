"""What verl's ``ToolAgentLoop`` does not tell: turns, the turn of a call, how an episode ended.

The loop keeps the rewards of all calls in one list, which lacks those of calls that gave none. So
each call is recorded where the loop runs it, with the number of its turn. So is where the tokens of
each response are: a loop that masks some of them later does not change the turns.
"""

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any
from zlib import crc32

import numpy as np
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from ascribe.sessions.spans import turn_starts

CALLS = "turn_calls"
"""The key in ``extra_fields``: the tool calls in their order, with turn, reward and state."""
RECORDED = "recorded_turns"
"""The key in ``extra_fields``: a checksum of the response, and where its turns begin and end."""
TRUNCATED = "truncated"
"""The key in ``extra_fields``: whether a limit of the loop ended the episode."""


def record_calls(loop: Any) -> None:
    """Wrap the methods of a loop, for the loops that inherit from it too."""
    call, play, respond = loop._call_tool, loop.run, loop._handle_generating_state

    @wraps(respond)
    async def generate(self: Any, agent_data: Any, *given: Any, **options: Any) -> Any:
        state = await respond(self, agent_data, *given, **options)
        end = len(agent_data.response_mask)
        turns = agent_data.extra_fields.setdefault(RECORDED, [])
        turns.append([end - len(agent_data.response_ids), end])
        return state

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
        turns = _written(output.extra_fields.get(RECORDED, []), output.response_mask)
        output.extra_fields[RECORDED] = [checksum(output.response_ids), turns]
        output.extra_fields[TRUNCATED] = await _unanswered(self, output)
        return output

    loop._call_tool, loop.run, loop._handle_generating_state = call_tool, run, generate


def checksum(ids: Any) -> int:
    """A number by which to tell whether a row holds the response that was recorded."""
    return crc32(np.asarray(ids, dtype=np.int64).tobytes())


def _written(turns: list[list[int]], mask: Sequence[int]) -> list[list[int]]:
    """The turns without what verl cut off at the end, or put in place of their last tokens."""
    places = [np.flatnonzero(mask[begin:end]) + begin for begin, end in turns]
    return [[int(own[0]), int(own[-1]) + 1] for own in places if own.size]


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


if all(hasattr(ToolAgentLoop, name) for name in ("_call_tool", "_handle_generating_state")):
    record_calls(ToolAgentLoop)  # else the trainer refuses verl's release
