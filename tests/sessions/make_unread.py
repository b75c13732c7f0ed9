"""Write the files of ``tests/data/unread``: one attempt in formats that Ascribe refuses by name.

    python tests/sessions/make_unread.py tests/data/unread

Those of the gateway and of ATIF are written with rllm-model-gateway 0.1.0 and nvidia-nat-atif
1.9.0, if these are installed. The others are in the documented shape.
"""

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Which port?"},
    {"role": "assistant", "content": "8080"},
]


def write_lines(path: Path, *rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


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
    span = {"traceId": "a", "spanId": "b", "name": "chat", "attributes": {}}
    write_lines(folder / "spans.jsonl", span)
    write_lines(folder / "otlp.jsonl", {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    trace = {"id": "t", "observations": [{"type": "GENERATION", "input": CHAT}], "scores": []}
    write_lines(folder / "langfuse.jsonl", trace)


WRITERS: dict[Callable[[Path], None], str | None] = {
    write_others: None,
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
