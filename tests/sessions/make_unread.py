"""Write the files of ``tests/data/unread``: one attempt in formats that Ascribe refuses by name.

    python tests/sessions/make_unread.py tests/data/unread

Those of LangChain, of the gateway and of ATIF are written with langchain-core, rllm-model-gateway
0.1.0 and nvidia-nat-atif 1.9.0, if these are installed; Anthropic's messages pass through the types
of anthropic. The others are in the documented shape.
"""

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CALL = {"id": "c1", "name": "read", "input": {"path": "/etc/hosts"}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Which port?"},
    {"role": "assistant", "content": "8080"},
]


def write_lines(path: Path, *rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_anthropic(folder: Path) -> None:
    from anthropic.types import MessageParam
    from pydantic import TypeAdapter

    messages = [
        {"role": "user", "content": "Which port?"},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", **CALL}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "port = 8080"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "8080"}]},
    ]
    TypeAdapter(list[MessageParam]).validate_python(messages)
    write_lines(folder / "anthropic.jsonl", {"task": "port", "messages": messages, "reward": 1.0})
    messages[1]["content"] = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    write_lines(folder / "thinking.jsonl", {"task": "port", "messages": messages, "reward": 1.0})


def write_langchain(folder: Path) -> None:
    from langchain_core.load import dumpd
    from langchain_core.messages import (
        AIMessage,
        HumanMessage,
        ToolMessage,
        convert_to_openai_messages,
        messages_to_dict,
    )

    call = {"name": "read", "args": CALL["input"], "id": "c1", "type": "tool_call"}
    messages = [
        HumanMessage("Which port?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("port = 8080", tool_call_id="c1"),
        AIMessage("8080"),
    ]
    forms: dict[str, list[Any]] = {
        "langchain_dump": [each.model_dump() for each in messages],
        "langchain_to_dict": messages_to_dict(messages),
        "langchain_dumpd": [dumpd(each) for each in messages],
    }
    for name, chat in forms.items():
        path = folder / f"{name}.jsonl"
        write_lines(path, {"task": "port", "messages": chat, "reward": 1.0})
    state = {"thread_id": "t", "values": {"messages": forms["langchain_dumpd"]}}
    write_lines(folder / "langgraph.jsonl", state)
    converted = {"task": "port", "messages": convert_to_openai_messages(messages), "reward": 1.0}
    write_lines(folder / "langchain_converted.jsonl", converted)


def write_gateway(folder: Path) -> None:
    from rllm_model_gateway.models import TraceRecord

    calls = []
    for turn in range(2):
        call = TraceRecord(
            trace_id=f"trace {turn}",
            session_id="port:0",
            messages=CHAT[: 2 * turn + 1],
            response_message={"role": "assistant", "content": "8080"},
            finish_reason="stop",
            metadata={"reward": 1.0},
        )
        calls.append(call.model_dump() | {"reward": 1.0})
    write_lines(folder / "gateway.jsonl", *calls)


def write_atif(folder: Path) -> None:
    from nat.atif import Trajectory

    agent = {"name": "main", "version": "1"}
    call = {"tool_call_id": "c", "function_name": "task", "arguments": {}}
    result = {"source_call_id": "c", "subagent_trajectory_ref": [{"trajectory_id": "sub"}]}
    plain = [
        {"step_id": 1, "source": "user", "message": "Which port?"},
        {"step_id": 2, "source": "agent", "message": "8080"},
    ]
    asked = plain[1] | {"tool_calls": [call], "observation": {"results": [result]}}
    copied = [plain[0] | {"is_copied_context": True}, plain[1]]
    runs: dict[str, dict[str, Any]] = {
        "plain": {"steps": plain},
        "first": {"steps": plain, "continued_trajectory_ref": "trajectory.cont-1.json"},
        "second": {"steps": copied},
        "team": {
            "steps": [plain[0], asked],
            "subagent_trajectories": [{"trajectory_id": "sub", "agent": agent, "steps": plain}],
        },
        "by_path": {
            "steps": [
                plain[0],
                asked
                | {
                    "observation": {
                        "results": [{"subagent_trajectory_ref": [{"trajectory_path": "sub.json"}]}]
                    }
                },
            ]
        },
    }
    for name, run in runs.items():
        ids = {"session_id": "run 1", "trajectory_id": name}
        whole = Trajectory.model_validate({**ids, "agent": agent, **run}).to_json_dict()
        whole["final_metrics"] = {"extra": {"reward": 1.0}}
        (folder / f"atif_{name}.json").write_text(json.dumps(whole))


def write_others(folder: Path) -> None:
    """In the documented shape."""
    write_lines(
        folder / "claude_code.jsonl",
        {"type": "user", "uuid": "a", "parentUuid": None, "sessionId": "s", "message": CHAT[0]},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "sessionId": "s", "message": CHAT[1]},
    )
    item = {"type": "message", "role": "assistant", "content": "8080"}
    write_lines(folder / "responses.jsonl", {"input": CHAT[:1], "output": [item], "score": 1.0})
    write_lines(folder / "responses_items.jsonl", {"items": [item], "reward": 1.0})
    turns = [{"from": "human", "value": "Which port?"}, {"from": "gpt", "value": "8080"}]
    write_lines(folder / "sharegpt.jsonl", {"conversations": turns, "reward": 1.0})
    span = {"traceId": "a", "spanId": "b", "name": "chat", "attributes": {}}
    write_lines(folder / "spans.jsonl", span)
    write_lines(folder / "otlp.jsonl", {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    trace = {"id": "t", "observations": [{"type": "GENERATION", "input": CHAT}], "scores": []}
    write_lines(folder / "langfuse.jsonl", trace)
    step = {"action": "ls", "observation": "etc", "state": "{}", "thought": "", "response": "ls"}
    run = {"environment": "e", "trajectory": [step], "history": CHAT, "info": {}}
    (folder / "swe.traj").write_text(json.dumps(run))
    events = [{"id": 0, "source": "agent", "action": "run"}, {"id": 1, "observation": "run"}]
    result = {"instance_id": "i", "history": events, "test_result": {"resolved": True}}
    write_lines(folder / "openhands.jsonl", result)
    simulation = {"task_id": "t", "trial": 0, "reward_info": {"reward": 1.0}, "messages": CHAT}
    tau = {"info": {}, "tasks": [{"id": "t"}], "simulations": [simulation]}
    (folder / "tau2.json").write_text(json.dumps(tau))


WRITERS: dict[Callable[[Path], None], str | None] = {
    write_others: None,
    write_anthropic: "anthropic",
    write_langchain: "langchain_core",
    write_gateway: "rllm_model_gateway",
    write_atif: "nat",
}
"""The writers, and the packages that they need."""


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for write, package in WRITERS.items():
        if package is None or find_spec(package):
            write(folder)


if __name__ == "__main__":
    main()
