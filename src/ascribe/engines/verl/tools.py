"""What verl's ``ToolAgentLoop`` does not tell: the turn of a tool call, and how an episode ended.

The loop keeps the rewards of all calls in one list, which lacks those of calls that gave none. So
each call is recorded where the loop runs it, with the number of its turn.
"""

from collections.abc import Mapping
from functools import wraps
from typing import Any

from verl.experimental.agent_loop.tool_agent_loop import AgentState, ToolAgentLoop

from ascribe.engines.verl.hooks import PRIVATE
from ascribe.engines.verl.turns import CALLS, TRUNCATED

HOOKS = PRIVATE["verl.experimental.agent_loop.tool_agent_loop:ToolAgentLoop"]


def record_calls(loop: type) -> None:
    """Wrap the methods of a loop; in runs without Ascribe they do what they did."""
    call, generate, process = (getattr(loop, name) for name in HOOKS)

    @wraps(call)
    async def call_tool(self: Any, tool_call: Any, tools_kwargs: Any, agent_data: Any) -> Any:
        entry = [agent_data.assistant_turns - 1, None, None]
        if _names_ascribe(self):  # parallel calls begin in their order, and end in any
            agent_data.extra_fields.setdefault(CALLS, []).append(entry)
        response, reward, facts = await call(self, tool_call, tools_kwargs, agent_data)
        entry[1:] = reward, facts.get("state") if isinstance(facts, Mapping) else None
        return response, reward, facts

    @wraps(generate)
    async def generate_turn(self: Any, agent_data: Any, *given: Any, **options: Any) -> Any:
        state = await generate(self, agent_data, *given, **options)
        if state is AgentState.TERMINATED and _names_ascribe(self):
            ids, tools = agent_data.response_ids, [one.tool_schema for one in self.tools.values()]
            _, calls = await self.tool_parser.extract_tool_calls(ids, tools)
            agent_data.extra_fields[TRUNCATED] = bool(calls) or not ids
            agent_data.extra_fields.setdefault(CALLS, [])
        return state

    @wraps(process)
    async def run_tools(self: Any, agent_data: Any) -> Any:
        state = await process(self, agent_data)
        if state is AgentState.TERMINATED and _names_ascribe(self):  # the result did not fit
            agent_data.extra_fields[TRUNCATED] = True
        return state

    for name, wrapped in zip(HOOKS, (call_tool, generate_turn, run_tools), strict=True):
        setattr(loop, name, wrapped)


def _names_ascribe(loop: Any) -> bool:
    return bool(loop.config.algorithm.adv_estimator == "ascribe")


if all(hasattr(ToolAgentLoop, name) for name in HOOKS):  # the trainer refuses another release
    record_calls(ToolAgentLoop)
