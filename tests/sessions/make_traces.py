"""Write the files of ``tests/data/sessions``: the attempts of ``make_samples.py`` as model calls.

    python tests/sessions/make_traces.py tests/data/sessions

All are in the documented shape.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.sessions.make_samples import ATTEMPTS, Message, prompt, turns

START = 1_700_000_000


def calls(attempt: int) -> Iterator[tuple[list[Message], Message]]:
    """What each call of an attempt was shown, and its response."""
    shown = prompt()
    for response, result in turns(attempt):
        yield list(shown), response
        shown += [response, *([result] if result else [])]


def write_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_gateway(folder: Path) -> None:
    """As rllm-model-gateway logs them: attempts alternate, and the reward is the session's."""
    rows = [
        {
            "trace_id": f"{attempt}-{turn}",
            "session_id": f"port:{attempt}",
            "model": "m",
            "messages": shown,
            "prompt_token_ids": [1, 2],
            "response_message": response,
            "completion_token_ids": [3],
            "logprobs": [-0.5],
            "finish_reason": "stop",
            "timestamp": START + turn * 10.0 + attempt,
            "metadata": {"reward": ATTEMPTS[attempt][2]},
        }
        for attempt in range(len(ATTEMPTS))
        for turn, (shown, response) in enumerate(calls(attempt))
    ]
    write_lines(folder / "gateway.jsonl", sorted(rows, key=lambda row: row["timestamp"]))


def parts(message: Message) -> dict[str, Any]:
    """A message in the form of OpenTelemetry."""
    inside: list[dict[str, Any]] = []
    if message["role"] == "tool":
        answer = {"id": message["tool_call_id"], "response": message["content"]}
        inside.append({"type": "tool_call_response", **answer})
    elif message["content"]:
        inside.append({"type": "text", "content": message["content"]})
    for call in message.get("tool_calls", ()):
        function = {"name": call["function"]["name"], "id": call["id"]}
        arguments = json.loads(call["function"]["arguments"])
        inside.append({"type": "tool_call", **function, "arguments": arguments})
    return {"role": message["role"], "parts": inside}


def spans(attempt: int, *, openinference: bool = False) -> list[dict[str, Any]]:
    """An agent's span, with the task and an evaluation, around those of its calls."""
    ids = {"traceId": f"{attempt:032x}", "parentSpanId": f"a{attempt}"}
    evaluation = {"gen_ai.evaluation.name": "right"}
    evaluation |= {"gen_ai.evaluation.score.value": ATTEMPTS[attempt][2]}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder", "task": "port"}
    whole = [
        ids
        | {
            "spanId": ids["parentSpanId"],
            "parentSpanId": "",
            "name": "invoke_agent finder",
            "startTimeUnixNano": f"{START}000000000",
            "attributes": agent,
            "events": [{"name": "gen_ai.evaluation.result", "attributes": evaluation}],
        }
    ]
    for turn, (shown, response) in enumerate(calls(attempt)):
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.system_instructions": json.dumps(parts(shown[0])["parts"]),
            "gen_ai.input.messages": json.dumps([parts(each) for each in shown[1:]]),
            "gen_ai.output.messages": json.dumps([parts(response) | {"finish_reason": "stop"}]),
        }
        if openinference:
            attributes = {"openinference.span.kind": "LLM"}
            attributes |= flat("llm.input_messages", shown)
            attributes |= flat("llm.output_messages", [response])
        whole.append(
            ids
            | {
                "spanId": f"{attempt}-{turn}",
                "name": "chat m",
                "startTimeUnixNano": f"{START + 1 + turn}000000000",
                "attributes": attributes,
            }
        )
    return whole


def flat(prefix: str, messages: list[Message]) -> dict[str, Any]:
    """Messages in the form of OpenInference."""
    attributes: dict[str, Any] = {}
    for place, message in enumerate(messages):
        name = f"{prefix}.{place}.message"
        for key in ("role", "content", "tool_call_id"):
            if message.get(key):
                attributes[f"{name}.{key}"] = message[key]
        for number, call in enumerate(message.get("tool_calls", ())):
            inside = f"{name}.tool_calls.{number}.tool_call"
            attributes[f"{inside}.id"] = call["id"]
            attributes[f"{inside}.function.name"] = call["function"]["name"]
            attributes[f"{inside}.function.arguments"] = call["function"]["arguments"]
    return attributes


def write_spans(folder: Path) -> None:
    """A line for each span; the attempts end before they began."""
    rows = [each for attempt in range(len(ATTEMPTS)) for each in spans(attempt)[::-1]]
    write_lines(folder / "spans.jsonl", rows)


def write_openinference(folder: Path) -> None:
    rows = [each for attempt in range(len(ATTEMPTS)) for each in spans(attempt, openinference=True)]
    write_lines(folder / "openinference.jsonl", rows)


def otlp(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = {str: "stringValue", float: "doubleValue"}
    return [{"key": k, "value": {kinds[type(v)]: v}} for k, v in attributes.items()]


def write_otlp(folder: Path) -> None:
    """All attempts in one batch, as a collector writes them."""
    batch = [each for attempt in range(len(ATTEMPTS)) for each in spans(attempt)]
    for each in (*batch, *(event for span in batch for event in span.get("events", ()))):
        each["attributes"] = otlp(each["attributes"])
    scopes = [{"scope": {"name": "s"}, "spans": batch}]
    whole = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": scopes}]}
    (folder / "otlp.json").write_text(json.dumps(whole))


def write_console(folder: Path) -> None:
    """Objects over several lines, as ``ConsoleSpanExporter`` prints them."""
    rows = []
    for span in (each for attempt in range(len(ATTEMPTS)) for each in spans(attempt)):
        ids = {"trace_id": f"0x{span['traceId']}", "span_id": f"0x{span['spanId']}"}
        minute, second = divmod(int(span["startTimeUnixNano"]) // 10**9 - START, 60)
        time = f"2026-01-01T00:{minute:02}:{second:02}.000000Z"
        rows.append(
            {
                "name": span["name"],
                "context": {**ids, "trace_state": "[]"},
                "kind": "SpanKind.INTERNAL",
                "parent_id": f"0x{span['parentSpanId']}" if span["parentSpanId"] else None,
                "start_time": time,
                "end_time": time,
                "status": {"status_code": "UNSET"},
                "attributes": span["attributes"],
                "events": span.get("events", []),
                "links": [],
                "resource": {"attributes": {}, "schema_url": ""},
            }
        )
    (folder / "console.json").write_text("".join(json.dumps(row, indent=4) + "\n" for row in rows))


def write_langfuse(folder: Path) -> None:
    rows = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        observations = [
            {
                "id": f"o{turn}",
                "type": "GENERATION",
                "name": "llm",
                "startTime": f"2026-01-01T00:00:{turn:02}.000Z",
                "parentObservationId": None,
                "input": shown,
                "output": response,
            }
            for turn, (shown, response) in enumerate(calls(attempt))
        ]
        scores = [{"name": "right", "value": reward, "dataType": "NUMERIC"}]
        scores.append({"name": "comment", "value": None, "stringValue": "ok"})
        trace = {"id": f"t{attempt}", "sessionId": None, "metadata": {"task": "port"}}
        rows.append({**trace, "scores": scores, "observations": observations})
    write_lines(folder / "langfuse.jsonl", rows)


def write_agents(folder: Path) -> None:
    rows: list[dict[str, Any]] = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        trace = {"object": "trace", "id": f"trace_{attempt}", "workflow_name": "w"}
        metadata = {"task": "port", "reward": reward}
        own = {"object": "trace.span", "trace_id": trace["id"], "error": None}
        agent = {"type": "agent", "name": "finder", "handoffs": [], "tools": ["look"]}
        start = "2026-01-01T00:00:00+00:00"
        spans = [
            own
            | {
                "id": f"span_{attempt}_{turn}",
                "parent_id": f"agent_{attempt}",
                "started_at": f"2026-01-01T00:00:{turn:02}+00:00",
                "span_data": {"type": "generation", "input": shown, "output": [response]},
            }
            for turn, (shown, response) in enumerate(calls(attempt))
        ]
        ids = {"id": f"agent_{attempt}", "parent_id": None}
        rows += [
            trace | {"group_id": f"chat {attempt}", "metadata": metadata},
            *spans,
            own | ids | {"started_at": start, "span_data": agent},
        ]
    write_lines(folder / "openai_agents.jsonl", rows)


def langchain(message: Message) -> dict[str, Any]:
    """A message as ``dumpd`` of LangChain writes it."""
    names = {"system": "System", "user": "Human", "assistant": "AI", "tool": "Tool"}
    fields: dict[str, Any] = {"content": message["content"] or ""}
    if message["role"] == "tool":
        fields["tool_call_id"] = message["tool_call_id"]
    if message.get("tool_calls"):
        fields["tool_calls"] = [
            {
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
                "id": call["id"],
                "type": "tool_call",
            }
            for call in message["tool_calls"]
        ]
    path = ["langchain", "schema", "messages", f"{names[message['role']]}Message"]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": fields}


def write_langsmith(folder: Path) -> None:
    """A run of each call, inside of one with the feedback."""
    rows: list[dict[str, Any]] = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        trace = {"trace_id": f"r{attempt}", "session_id": "project"}
        root = trace | {"id": f"r{attempt}", "run_type": "chain", "name": "agent"}
        root |= {"start_time": "2026-01-01T00:00:00", "parent_run_id": None, "inputs": {}}
        feedback = {"right": {"n": 1, "avg": reward, "values": {}}}
        rows.append(root | {"reference_example_id": "port", "feedback_stats": feedback})
        for turn, (shown, response) in enumerate(calls(attempt)):
            message = {"text": "", "message": langchain(response), "type": "ChatGeneration"}
            rows.append(
                trace
                | {
                    "id": f"r{attempt}-{turn}",
                    "run_type": "llm",
                    "name": "ChatModel",
                    "start_time": f"2026-01-01T00:00:{turn + 1:02}.000000",
                    "parent_run_id": f"r{attempt}",
                    "dotted_order": f"20260101T000000Zr{attempt}.20260101T0000{turn + 1:02}Z",
                    "inputs": {"messages": [[langchain(each) for each in shown]]},
                    "outputs": {"generations": [[message]], "llm_output": None},
                    "extra": {"metadata": {}},
                    "feedback_stats": None,
                }
            )
    write_lines(folder / "langsmith.jsonl", rows)


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "gateway.jsonl": ("gateway", write_gateway),
    "spans.jsonl": ("otel", write_spans),
    "openinference.jsonl": ("otel", write_openinference),
    "otlp.json": ("otel", write_otlp),
    "console.json": ("otel", write_console),
    "langsmith.jsonl": ("langsmith", write_langsmith),
    "langfuse.jsonl": ("langfuse", write_langfuse),
    "openai_agents.jsonl": ("openai-agents", write_agents),
}
"""The format of each file, and what writes it."""


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for _, write in FILES.values():
        write(folder)


if __name__ == "__main__":
    main()
