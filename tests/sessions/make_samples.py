"""Write the files of ``tests/data/formats`` with the packages whose formats they are.

    python tests/sessions/make_samples.py tests/data/formats

writes those whose package is installed. verifiers 0.4 writes ``traces.jsonl``, verifiers 0.1
``results.jsonl``, Inspect ``log.eval`` and ``log.json``. The others are in the documented shape,
and ``openai.jsonl`` needs no package. All hold the same four attempts at one task.
"""

import json
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Message = dict[str, Any]

SYSTEM = "You find settings on a server. Call the tool, then answer with the value alone."
TASK = "Which port does the app listen on?"
FILES = {
    "/": "etc  srv",
    "/etc": "app.conf  hosts",
    "/srv": "readme.txt",
    "/etc/app.conf": "port = 8080",
    "/etc/hosts": "127.0.0.1 localhost",
    "/srv/readme.txt": "The port is in /etc/app.conf.",
}
ATTEMPTS = (
    (("/", "/etc", "/etc/app.conf"), "8080", 1.0),
    (("/", "/srv", "/srv/readme.txt", "/etc/app.conf"), "8080", 1.0),
    (("/", "/etc", "/etc/hosts"), "80", 0.0),
    (("/", "/srv"), "80", 0.0),
)
"""The paths that each attempt looks at, its answer and its reward."""


def prompt() -> list[Message]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]


def turns(attempt: int) -> list[tuple[Message, Message | None]]:
    """Each message of the assistant with the result of its tool; the last one has none."""
    paths, answer, _ = ATTEMPTS[attempt]
    pairs: list[tuple[Message, Message | None]] = []
    for number, path in enumerate(paths):
        call = {
            "id": f"call_{attempt}_{number}",
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps({"path": path})},
        }
        result = {"role": "tool", "content": FILES[path], "tool_call_id": call["id"]}
        pairs.append(({"role": "assistant", "content": None, "tool_calls": [call]}, result))
    return [*pairs, ({"role": "assistant", "content": answer}, None)]


def conversation(attempt: int) -> list[Message]:
    return [*prompt(), *(m for pair in turns(attempt) for m in pair if m is not None)]


def write_openai(folder: Path) -> None:
    lines = [
        {"task": "port", "messages": conversation(attempt), "reward": reward}
        for attempt, (_, _, reward) in enumerate(ATTEMPTS)
    ]
    (folder / "openai.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_rllm(folder: Path) -> None:
    """In the documented shape: each step with its whole chat."""
    episodes = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        chat, steps = prompt(), []
        for assistant, result in turns(attempt):
            seen = chat[-1]["content"]
            chat = [*chat, assistant]
            steps.append(
                {
                    "prompt_ids": [1, 2],
                    "response_ids": [3, 4],
                    "logprobs": [-0.5, -0.5],
                    "chat_completions": chat,
                    "observation": seen,
                    "thought": "",
                    "action": assistant["content"],
                    "model_response": assistant["content"] or "",
                    "model_output": None,
                    "info": {},
                    "reward": 0.0 if result else reward,
                    "done": result is None,
                    "mc_return": 0.0,
                    "advantage": None,
                    "weight_version": 3,
                }
            )
            chat = [*chat, *([result] if result else [])]
        trajectory = {"uid": f"u{attempt}", "name": "finder", "reward": reward, "steps": steps}
        episodes.append(
            {
                "id": f"port:{attempt}",
                "task": {"question": TASK},
                "termination_reason": "env_done",
                "is_correct": reward > 0,
                "trajectories": [trajectory],
                "metrics": {},
                "info": {},
            }
        )
    (folder / "rllm.jsonl").write_text("".join(json.dumps(line) + "\n" for line in episodes))


def write_atif(folder: Path) -> None:
    """In the documented shape, in the folders that Harbor writes."""
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        trial = folder / "atif" / f"port__{attempt}"
        (trial / "agent").mkdir(parents=True, exist_ok=True)
        (trial / "verifier").mkdir(exist_ok=True)
        steps = [
            {"step_id": number, "source": m["role"], "message": m["content"]}
            for number, m in enumerate(prompt(), start=1)
        ]
        for assistant, result in turns(attempt):
            step = {
                "step_id": len(steps) + 1,
                "source": "agent",
                "message": assistant["content"] or "",
                "metrics": {"prompt_tokens": 10, "completion_tokens": 3},
            }
            for call in assistant.get("tool_calls", []):
                arguments = json.loads(call["function"]["arguments"])
                name = call["function"]["name"]
                step["tool_calls"] = [
                    {"tool_call_id": call["id"], "function_name": name, "arguments": arguments}
                ]
                results = [{"source_call_id": call["id"], "content": result["content"]}]
                step["observation"] = {"results": results}
            steps.append(step)
        whole = {
            "schema_version": "ATIF-v1.7",
            "session_id": f"session-{attempt}",
            "agent": {"name": "finder", "version": "1.0", "model_name": "m"},
            "steps": steps,
            "final_metrics": {"total_steps": len(steps)},
        }
        (trial / "agent" / "trajectory.json").write_text(json.dumps(whole))
        (trial / "verifier" / "reward.txt").write_text(f"{reward}\n")
        (trial / "result.json").write_text(json.dumps({"task_name": "port"}))


def write_nemo_gym(folder: Path) -> None:
    """In the documented shape: items of the Responses API."""
    lines = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        items: list[Message] = []
        for assistant, result in turns(attempt):
            items.append({"type": "reasoning", "id": "x", "summary": [], "content": None})
            for call in assistant.get("tool_calls", []):
                items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
                item = {"call_id": call["id"], "output": result["content"]}
                items.append({"type": "function_call_output", **item})
            if assistant["content"]:
                text = {"type": "output_text", "text": assistant["content"], "annotations": []}
                items.append({"type": "message", "role": "assistant", "content": [text]})
        lines.append(
            {
                "_ng_task_index": 0,
                "_ng_rollout_index": attempt,
                "responses_create_params": {"input": prompt()},
                "response": {"id": "r", "output": items, "incomplete_details": None},
                "reward": reward,
            }
        )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "nemo_gym.jsonl").write_text(text)


def write_verl(folder: Path) -> None:
    """As verl decodes a conversation of a Qwen model: without special tokens."""
    asked = "".join(f"{m['role']}\n{m['content']}\n" for m in prompt()) + "assistant\n"
    lines = []
    for attempt, (_, answer, reward) in enumerate(ATTEMPTS):
        text = ""
        for assistant, result in turns(attempt):
            for call in assistant.get("tool_calls", []):
                function = call["function"]
                value = {"name": function["name"], "arguments": json.loads(function["arguments"])}
                text += f"<tool_call>\n{json.dumps(value)}\n</tool_call>\n"
                text += f"user\n<tool_response>\n{result['content']}\n</tool_response>\n"
                text += "assistant\n"
        line = {"input": asked, "output": text + answer, "gts": "8080", "score": reward, "step": 7}
        lines.append(line)
    (folder / "verl.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


DOCUMENTED = (write_openai, write_rllm, write_atif, write_nemo_gym, write_verl)
"""Writers that need no package."""


def write_traces(folder: Path) -> None:
    """With verifiers 0.4: the message graph by its own builder, the file by its own writer."""
    from pydantic import TypeAdapter
    from verifiers.v1 import graph
    from verifiers.v1.configs.agent import WireAgentConfig
    from verifiers.v1.episode import Episode, GroupInfo
    from verifiers.v1.trace import AgentInfo, ModelCall, Trace, TraceTask, WireTaskData
    from verifiers.v1.types import AssistantMessage, Messages, Response, TurnTokens
    from verifiers.v1.utils.trace_store import write_episode

    as_messages = TypeAdapter(Messages).validate_python
    (folder / "traces.jsonl").unlink(missing_ok=True)
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        task = TraceTask(type="Task", data=WireTaskData(idx=0, prompt=TASK), key="port")
        trace = Trace(id=f"trace{attempt}", task=task, agent=AgentInfo(config=WireAgentConfig()))
        history = prompt()
        tokens = [1, 2, 3]
        for assistant, result in turns(attempt):
            calls = [{"id": c["id"], **c["function"]} for c in assistant.get("tool_calls", [])]
            completion = [10, 11, 12]
            response = Response(
                id="r",
                created=0,
                model="m",
                message=AssistantMessage(content=assistant["content"], tool_calls=calls or None),
                finish_reason="tool_calls" if calls else "stop",
                tokens=TurnTokens(
                    prompt_ids=list(tokens),
                    completion_ids=completion,
                    completion_logprobs=[-0.5] * len(completion),
                ),
            )
            turn = graph.prepare_turn(trace, as_messages(history))
            node = turn.commit(response)
            trace.calls.append(ModelCall(node=node, finish_reason=response.finish_reason))
            tokens += [*completion, 20, 21]
            sent = {**assistant, "tool_calls": calls} if calls else assistant
            history = [*history, sent, *([result] if result else [])]
        trace.record_reward("right", reward)
        trace.stop("agent_completed")
        trace.ok = True
        episode = Episode(task=task, traces=[trace], ok=True, group=GroupInfo(id="port"))
        write_episode(folder, episode)


def write_results(folder: Path) -> None:
    """With verifiers 0.1: a state's output, and the file, by its own functions."""
    from verifiers.types import RolloutTiming, State
    from verifiers.utils.save_utils import save_outputs, state_to_output

    outputs = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        state = State(
            example_id=0,
            prompt=prompt(),
            completion=conversation(attempt)[2:],
            reward=reward,
            timing=RolloutTiming(),
            is_completed=True,
            is_truncated=False,
            metrics={"right": reward},
            trajectory=[],
        )
        outputs.append(state_to_output(state))
    save_outputs(outputs, folder)


def write_inspect(folder: Path) -> None:
    """With Inspect: a real evaluation of a scripted model that calls a tool."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate, system_message, use_tools
    from inspect_ai.tool import Tool, tool

    @tool
    def look() -> Tool:
        async def execute(path: str) -> str:
            """Look at a file or folder.

            Args:
                path: the path.
            """
            return FILES[path]

        return execute

    outputs = []
    for paths, answer, _ in ATTEMPTS:
        outputs += [ModelOutput.for_tool_call("mockllm/model", "look", {"path": p}) for p in paths]
        outputs.append(ModelOutput.from_content("mockllm/model", answer))
    for output in outputs:  # or the model would fetch a tokeniser to count
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    task = Task(
        dataset=[Sample(id="port", input=TASK, target="8080")],
        solver=[system_message(SYSTEM), use_tools(look()), generate()],
        scorer=match(),
        epochs=len(ATTEMPTS),
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = evaluate(
        task,
        model=model,
        max_samples=1,
        display="none",
        log_dir=str(folder / "logs"),
        log_format="eval",
    )
    assert log.status == "success", log.error and log.error.message
    whole = read_eval_log(log.location)
    for sample in whole.samples or []:
        sample.events = []
    whole.eval.model_args, whole.eval.revision = {}, None
    write_eval_log(whole, str(folder / "log.eval"))
    write_eval_log(whole, str(folder / "log.json"))


def writers() -> list[Callable[[Path], None]]:
    """The writers whose package is installed."""

    def version_of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    packages = {
        write_traces: version_of("verifiers").startswith("0.4"),
        write_results: version_of("verifiers").startswith("0.1"),
        write_inspect: version_of("inspect-ai") != "",
    }
    return [write for write, present in packages.items() if present]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for write in [*DOCUMENTED, *writers()]:
        write(folder)


if __name__ == "__main__":
    main()
