"""What verl's ``ToolAgentLoop`` does not tell: the turn of a tool call, and how an episode ended.

The loop keeps the rewards of all calls in one list, which lacks those of calls that gave none. So
each call is recorded where the loop runs it, with the number of its turn.
"""

from collections.abc import Mapping
from functools import wraps
from typing import Any

from verl.experimental.agent_loop.tool_agent_loop import AgentState, ToolAgentLoop

CALLS = "turn_calls"
"""The key in ``extra_fields``: the tool calls in their order, with turn, reward and state."""
TRUNCATED = "truncated"
"""The key in ``extra_fields``: whether a limit of the loop ended the episode."""


def record_calls(loop: Any) -> None:
    """Wrap the methods of a loop; in runs without Ascribe they do what they did."""
    call, generate = loop._call_tool, loop._handle_generating_state

    @wraps(call)
    async def call_tool(self: Any, tool_call: Any, tools_kwargs: Any, agent_data: Any) -> Any:
        entry = [agent_data.assistant_turns - 1, None, None]
        # Parallel calls begin in their order, and end in any.
        agent_data.extra_fields.get(CALLS, []).append(entry)
        response, reward, facts = await call(self, tool_call, tools_kwargs, agent_data)
        entry[1:] = reward, facts.get("state") if isinstance(facts, Mapping) else None
        return response, reward, facts

    @wraps(generate)
    async def generate_turn(self: Any, agent_data: Any, *given: Any, **options: Any) -> Any:
        state = await generate(self, agent_data, *given, **options)
        if self.config.algorithm.adv_estimator == "ascribe":
            unanswered = True  # until the next turn
            if state is AgentState.TERMINATED:
                ids, tools = agent_data.response_ids, self.tools.values()
                schemas = [tool.tool_schema for tool in tools]
                _, calls = await self.tool_parser.extract_tool_calls(ids, schemas)
                unanswered = bool(calls) or not ids
            agent_data.extra_fields[TRUNCATED] = unanswered
            agent_data.extra_fields.setdefault(CALLS, [])
        return state

    loop._call_tool, loop._handle_generating_state = call_tool, generate_turn


if hasattr(ToolAgentLoop, "_call_tool") and hasattr(ToolAgentLoop, "_handle_generating_state"):
    record_calls(ToolAgentLoop)  # else the trainer refuses verl's release
