"""Write files of ``tests/data/formats`` in which a record is a whole conversation.

    python tests/sessions/make_chats.py tests/data/formats

All are in the documented shape, and hold the four attempts of ``make_samples.py``.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.sessions.make_samples import (
    ATTEMPTS,
    FILES,
    SYSTEM,
    TASK,
    Message,
    conversation,
    prompt,
    turns,
)

Turn = tuple[str, dict[str, Any], str, str]
"""The id of a call, its arguments, its result, and the answer instead of a call."""


def steps(attempt: int) -> Iterator[Turn]:
    for assistant, result in turns(attempt):
        if result is None:
            yield "", {}, "", assistant["content"]
        else:
            (call,) = assistant["tool_calls"]
            yield call["id"], json.loads(call["function"]["arguments"]), result["content"], ""


def records(of_attempt: Callable[[int], dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """The four attempts, each with its reward."""
    return [
        {**more, **of_attempt(attempt), "reward": reward}
        for attempt, (_, _, reward) in enumerate(ATTEMPTS)
    ]


def anthropic(attempt: int) -> dict[str, Any]:
    messages: list[Message] = [{"role": "user", "content": TASK}]
    for call, arguments, result, answer in steps(attempt):
        thought = {"type": "thinking", "thinking": "Hm.", "signature": f"s{attempt}"}
        use = {"type": "tool_use", "id": call, "name": "look", "input": arguments}
        text = {"type": "text", "text": answer or "I look."}
        content = [thought, text, use] if call else [text]
        messages.append({"role": "assistant", "content": content})
        if call:
            part = {"type": "tool_result", "tool_use_id": call, "content": result}
            messages.append({"role": "user", "content": [part]})
    return {"system": [{"type": "text", "text": SYSTEM}], "messages": messages}


def items(attempt: int) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    for call, arguments, result, answer in steps(attempt):
        thought = {"type": "summary_text", "text": "Hm."}
        output.append({"type": "reasoning", "id": f"rs_{call}", "summary": [thought]})
        if call:
            made = {"name": "look", "arguments": json.dumps(arguments), "status": "completed"}
            output.append({"type": "function_call", "id": f"f{call}", "call_id": call, **made})
            output.append({"type": "function_call_output", "call_id": call, "output": result})
        else:
            part = {"type": "output_text", "text": answer, "annotations": []}
            output.append({"type": "message", "role": "assistant", "content": [part]})
    return output


def responses(attempt: int) -> dict[str, Any]:
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TASK}]}
    return {"instructions": SYSTEM, "items": [asked, *items(attempt)]}


def responses_io(attempt: int) -> dict[str, Any]:
    return {
        "id": f"resp_{attempt}",
        "object": "response",
        "instructions": SYSTEM,
        "input": TASK,
        "output": items(attempt),
    }


def langchain(attempt: int) -> list[tuple[str, dict[str, Any]]]:
    """The type and the fields of each message."""
    messages: list[tuple[str, dict[str, Any]]] = [
        ("system", {"content": SYSTEM}),
        ("human", {"content": TASK}),
    ]
    for call, arguments, result, answer in steps(attempt):
        calls = [{"name": "look", "args": arguments, "id": call, "type": "tool_call"}]
        block = {"type": "tool_use", "id": call, "name": "look", "input": arguments}
        made = {"content": [block] if call else answer, "tool_calls": calls if call else []}
        messages.append(("ai", {**made, "invalid_tool_calls": [], "additional_kwargs": {}}))
        if call:
            messages.append(("tool", {"content": result, "tool_call_id": call, "artifact": None}))
    return messages


def langchain_to_dict(attempt: int) -> dict[str, Any]:
    chat = langchain(attempt)
    return {"messages": [{"type": kind, "data": {"type": kind, **each}} for kind, each in chat]}


def langchain_dump(attempt: int) -> dict[str, Any]:
    return {"messages": [{"type": kind, **each} for kind, each in langchain(attempt)]}


def langgraph(attempt: int) -> dict[str, Any]:
    classes = {"system": "System", "human": "Human", "ai": "AI", "tool": "Tool"}
    messages = [
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", f"{classes[kind]}Message"],
            "kwargs": each,
        }
        for kind, each in langchain(attempt)
    ]
    reward = ATTEMPTS[attempt][2]
    metadata = {"task": "port", "score": reward}
    config = {"configurable": {"thread_id": f"thread {attempt}"}}
    return {"values": {"messages": messages}, "config": config, "metadata": metadata}


def sharegpt(attempt: int) -> dict[str, Any]:
    chat = [("system", SYSTEM), ("human", TASK)]
    for call, arguments, result, answer in steps(attempt):
        if call:
            chat.append(("function_call", json.dumps({"name": "look", "arguments": arguments})))
            chat.append(("observation", result))
        else:
            chat.append(("gpt", answer))
    return {"conversations": [{"from": source, "value": value} for source, value in chat]}


def tau_bench(attempt: int) -> dict[str, Any]:
    """A session, with what the task expects beside it."""
    expected = [{"name": "look", "kwargs": {"path": "/etc/app.conf"}}]
    return {
        "task_id": 0,
        "reward": ATTEMPTS[attempt][2],
        "info": {"task": {"user_id": "u", "instruction": TASK, "actions": expected}},
        "traj": conversation(attempt),
        "trial": attempt,
    }


def tau2(attempt: int) -> dict[str, Any]:
    greeting = {"role": "assistant", "content": "Hi!", "tool_calls": None, "cost": 0.0}
    phone = {"id": "p", "name": "restart", "arguments": {}, "requestor": "user"}
    messages = [
        greeting,
        {"role": "user", "content": None, "tool_calls": [phone]},
        {"role": "tool", "id": "p", "content": "restarted", "requestor": "user"},
        {"role": "user", "content": TASK, "tool_calls": None},
    ]
    for call, arguments, result, answer in steps(attempt):
        made = {"id": call, "name": "look", "arguments": arguments, "requestor": "assistant"}
        said = {"content": answer or None, "tool_calls": [made] if call else None}
        messages.append({"role": "assistant", **said, "raw_data": {"id": "r"}})
        if call:
            shown = {"id": call, "role": "tool", "content": result, "requestor": "assistant"}
            messages.append({**shown, "error": False})
    return {
        "id": f"simulation {attempt}",
        "task_id": "port",
        "trial": attempt,
        "termination_reason": "user_stop",
        "reward_info": {"reward": ATTEMPTS[attempt][2]},
        "messages": messages,
    }


def swe_agent(attempt: int) -> dict[str, Any]:
    trajectory, query = [], prompt()
    for number, (call, arguments, result, answer) in enumerate(steps(attempt)):
        made = f"<tool_call>{json.dumps({'name': 'look', 'arguments': arguments})}</tool_call>"
        step = {
            "action": made if call else answer,
            "observation": result,
            "response": f"Hm.\n{made}",
            "thought": "Hm.",
            "state": {"process": f"{attempt} {number}"},
            "query": query,
        }
        trajectory.append(step)
    info = {"exit_status": "submitted", "submission": "diff"}
    return {"environment": "main", "trajectory": trajectory, "history": prompt(), "info": info}


def mini_swe_agent(attempt: int) -> dict[str, Any]:
    messages = prompt()
    for assistant, result in turns(attempt):
        messages.append({**assistant, "extra": {"actions": [], "cost": 0.0}})
        if result:
            messages.append({**result, "extra": {"raw_output": result["content"]}})
    ended = {"exit_status": "Submitted", "submission": "diff"}
    messages.append({"role": "exit", "content": "diff", "extra": ended})
    info = {"exit_status": "Submitted", "submission": "diff", "mini_version": "2.4.6"}
    return {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}


def openhands(attempt: int) -> dict[str, Any]:
    history: list[dict[str, Any]] = [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": SYSTEM}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": TASK}},
        {"id": 2, "source": "user", "action": "recall", "args": {"query": TASK}},
        {"id": 3, "cause": 2, "source": "environment", "observation": "recall", "content": ""},
    ]
    for call, arguments, result, answer in steps(attempt):
        number = len(history)
        action = {"id": number, "source": "agent", "action": "look" if call else "message"}
        args = {**arguments, "thought": "Hm."} if call else {"content": answer}
        history.append({**action, "args": args})
        if call:
            shown = {"id": number + 1, "cause": number, "source": "agent", "observation": "look"}
            history.append({**shown, "content": result})
    report = {"resolved": ATTEMPTS[attempt][2] > 0}
    return {"history": history, "test_result": {"git_patch": "diff", "report": report}}


def openhands_sdk(attempt: int) -> dict[str, Any]:
    def text(value: str) -> dict[str, str]:
        return {"type": "text", "text": value}

    def message(source: str, value: str) -> dict[str, Any]:
        role = "assistant" if source == "agent" else "user"
        return {
            "kind": "MessageEvent",
            "source": source,
            "llm_message": {"role": role, "content": [text(value)]},
        }

    events = [
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": text(SYSTEM)},
        message("user", TASK),
        {"kind": "ConversationStateUpdateEvent", "key": "status", "value": "running"},
    ]
    for call, arguments, result, answer in steps(attempt):
        if not call:
            events.append(message("agent", answer))
            continue
        action = {
            "kind": "ActionEvent",
            "source": "agent",
            "thought": [text("Hm.")],
            "tool_name": "look",
            "tool_call_id": call,
            "llm_response_id": f"response {call}",
        }
        made = {"id": call, "name": "look", "arguments": json.dumps(arguments)}
        shown = {"kind": "ObservationEvent", "tool_name": "look", "tool_call_id": call}
        seen = {"kind": "LookObservation", "content": [text(result)]}
        events += [{**action, "tool_call": made}, {**shown, "observation": seen}]
    for number, event in enumerate(events):
        event["id"] = f"event {attempt} {number}"
    return {"history": events, "test_result": {"report": {"resolved": ATTEMPTS[attempt][2] > 0}}}


def write_results(folder: Path) -> None:
    """Results of benchmarks: fields, or items of their own."""
    fields, mint, intercode, codex, bfcl, failed = [], [], {}, [], [], [{"accuracy": 0.5}]
    for attempt, (paths, answer, reward) in enumerate(ATTEMPTS):
        outcome = {"outcome": {"status": "solved" if reward else "failed"}}
        fields.append({"question_ID": "port", "history": conversation(attempt)} | outcome)
        said = [f"look {path}" for path in paths] + [answer]
        seen = [FILES[path] for path in paths]
        chat = [{"role": "user", "content": TASK}]
        for number, text in enumerate(said):
            chat.append({"role": "assistant", "content": text})
            chat += [{"role": "user", "content": each} for each in seen[number : number + 1]]
        task = {"task_id": "port", "prompt": TASK}
        mint.append({"state": {"history": chat, "success": reward == 1.0}, "task": task})
        history = {"actions": said, "observations": seen}
        intercode[f"{attempt}"] = {"task_id": 0, "query": TASK, "turn_history": history}
        intercode[f"{attempt}"]["summary"] = {"max_reward": reward}
        items = responses(attempt)["items"]
        codex.append([{"type": "session_meta", "payload": {"id": f"s{attempt}"}}])
        codex[-1] += [{"type": "response_item", "payload": item} for item in items]
        query = {"begin_of_turn_query": [{"role": "user", "content": TASK}]}
        turn: dict[str, Any] = dict(query)
        for number, (call, arguments, result, _) in enumerate(steps(attempt)):
            made = [{"look": json.dumps(arguments)}] if call else []
            turn[f"step_{number}"] = [{"role": "assistant", "content": made or answer}]
            turn[f"step_{number}"] += [{"role": "tool", "content": result}] if call else []
        bfcl.append({"id": f"multi_turn_{attempt}", "result": [], "inference_log": [[], turn]})
        failed += [] if reward else [{"id": f"multi_turn_{attempt}", "valid": False}]
    whole = {"model": "m-1", "sessions": fields}
    (folder / "fields.json").write_text(json.dumps(whole))
    (folder / "intercode.json").write_text(json.dumps(intercode))
    (folder / "codex.jsonl").write_text("".join(json.dumps(each) + "\n" for each in codex[0]))
    for name, rows in (("mint.jsonl", mint), ("BFCL_result.json", bfcl)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "BFCL_score.json").write_text("".join(json.dumps(row) + "\n" for row in failed))
    trial = folder / "terminal_bench" / "run" / "port" / "port.1-of-1"
    (trial / "sessions").mkdir(parents=True, exist_ok=True)
    about = {"task_id": "port", "trial_name": trial.name, "instruction": TASK, "is_resolved": True}
    (trial / "results.json").write_text(json.dumps(about))
    shown = "\x1b[2mWaiting for the LM to respond...\r\n"
    log = [f"mini-swe-agent (step {n}, $0.00):\n{shown}look {p}\n" for n, p in enumerate("ab")]
    (trial / "sessions" / "agent.log").write_text("$ mini\n" + "User:\nfound\n".join(log))
    metadata = {"agent_name": "mini", "model_name": "m-1"}
    (trial.parents[1] / "run_metadata.json").write_text(json.dumps(metadata))


def write(folder: Path) -> None:
    lines = {
        "anthropic": records(anthropic, task="port"),
        "responses": records(responses, task="port"),
        "responses_io": records(responses_io, task="port"),
        "langchain_to_dict": records(langchain_to_dict, task="port"),
        "langchain_dump": records(langchain_dump, task="port"),
        "langgraph": [langgraph(attempt) for attempt in range(len(ATTEMPTS))],
        "sharegpt": records(sharegpt, task="port"),
        "swe_agent": records(swe_agent),
        "mini_swe_agent": records(mini_swe_agent, instance_id="port"),
        "openhands": [
            {"instance_id": "port", **openhands(attempt)} for attempt in range(len(ATTEMPTS))
        ],
        "openhands_sdk": [
            {"instance_id": "port", **openhands_sdk(attempt)} for attempt in range(len(ATTEMPTS))
        ],
    }
    for name, rows in lines.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    simulations = [tau2(attempt) for attempt in range(len(ATTEMPTS))]
    results = {"info": {}, "tasks": [{"id": "port"}], "simulations": simulations}
    (folder / "tau2.json").write_text(json.dumps(results))
    write_results(folder)
    (folder / "tau_bench.json").write_text(json.dumps([*map(tau_bench, range(len(ATTEMPTS)))]))
    chats = records(lambda attempt: {"messages": conversation(attempt)}, task="port")
    pq.write_table(pa.Table.from_pylist(chats), folder / "chats.parquet", row_group_size=2)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
