"""Let agents of real packages play the attempts of ``make_samples.py``, and write what they write.

    python -m tests.sessions.write_with_packages tests/data/packages

The model is a server on loopback; the loops, the types and the exporters are those of the packages
in ``scripts/locks/formats.txt``. Where a format has no reward, the name of the task and the reward
are added as a user would, beside what the package wrote.
"""

import asyncio
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from tests.sessions.loopback import Server, serving
from tests.sessions.make_samples import ATTEMPTS, FILES, SYSTEM, TASK, Message, prompt, turns

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo"
LOOK = {
    "name": "look",
    "description": "Look at a file or folder.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}


def write_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))


def write_anthropic(folder: Path, server: Server) -> None:
    """A loop on Anthropic's client, whose blocks go back as it returned them."""
    from anthropic import Anthropic

    client = Anthropic(base_url=server.url, api_key="none")
    tool = {k: LOOK[k] for k in ("name", "description")} | {"input_schema": LOOK["parameters"]}
    lines = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        messages: list[Any] = [{"role": "user", "content": TASK}]
        while True:
            response = client.messages.create(
                model=f"attempt-{attempt}",
                max_tokens=100,
                system=SYSTEM,
                messages=messages,
                tools=[tool],
            )
            content = [block.model_dump() for block in response.content]
            messages.append({"role": "assistant", "content": content})
            if response.stop_reason != "tool_use":
                break
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": b["id"],
                    "content": FILES[b["input"]["path"]],
                }
                for b in content
                if b["type"] == "tool_use"
            ]
            messages.append({"role": "user", "content": results})
        lines.append({"task": "port", "system": SYSTEM, "messages": messages, "reward": reward})
    write_lines(folder / "anthropic.jsonl", lines)


def langgraph_agent(server: Server, attempt: int) -> Any:
    """A graph of a model and a tool, with a checkpointer."""
    from langchain_core.messages import SystemMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    @tool
    def look(path: str) -> str:
        """Look at a file or folder."""
        return FILES[path]

    options: Any = {"model": f"attempt-{attempt}", "base_url": f"{server.url}/v1"}
    model = ChatOpenAI(**options, api_key="none").bind_tools([look])

    def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", call)
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    asked = {"messages": [SystemMessage(SYSTEM), ("user", TASK)]}
    return graph.compile(checkpointer=InMemorySaver()), asked


def write_langchain(folder: Path, server: Server) -> None:
    """The messages of LangGraph's state by three functions of langchain-core, and the state."""
    from langchain_core.load import dumpd, dumps
    from langchain_core.messages import messages_to_dict

    files: dict[str, list[Any]] = {name: [] for name in ("dump", "to_dict", "dumpd", "state")}
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        graph, asked = langgraph_agent(server, attempt)
        config = {"configurable": {"thread_id": f"run {attempt}"}, "metadata": {"task": "port"}}
        graph.invoke(asked, config)
        state = graph.get_state(config)
        messages = state.values["messages"]
        forms = {
            "dump": [each.model_dump() for each in messages],
            "to_dict": messages_to_dict(messages),
            "dumpd": [dumpd(each) for each in messages],
        }
        for name, form in forms.items():
            files[name].append({"task": "port", "messages": form, "reward": reward})
        files["state"].append(json.loads(dumps(state._asdict())) | {"reward": reward})
    for name, lines in files.items():
        write_lines(folder / f"langchain_{name}.jsonl", lines)


def write_langsmith(folder: Path, server: Server) -> None:
    """Runs that LangSmith's client sent, as its class of runs reads and writes them."""
    from langchain_core.tracers import LangChainTracer
    from langsmith import Client
    from langsmith.schemas import Run

    client = Client(
        api_url=server.url,
        api_key="none",
        auto_batch_tracing=False,
        info={},
        omit_traced_runtime_info=True,
    )
    server.received.clear()
    rewards = []
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        graph, asked = langgraph_agent(server, attempt)
        tracer = LangChainTracer(client=client, project_name="port")
        graph.invoke(
            asked,
            {"callbacks": [tracer], "configurable": {"thread_id": f"run {attempt}"}},
        )
        tracer.wait_for_futures()
        rewards.append(reward)
    runs: dict[str, Message] = {}
    for method, path, body in server.received:
        if method == "POST" and path == "/runs":
            runs[body["id"]] = body
        elif method == "PATCH" and path.startswith("/runs/"):
            runs[path.rpartition("/")[2]].update(body)
    lines = []
    for run in runs.values():
        if run.get("parent_run_id") is None:
            run["feedback_stats"] = {"reward": {"n": 1, "avg": rewards.pop(0)}}
        elif run["run_type"] == "chain":
            continue  # the nodes of the graph, which repeat what is in the others
        run["extra"].pop("runtime")  # of this machine
        lines.append(json.loads(Run(**run).model_dump_json(exclude_none=True)))
    write_lines(folder / "langsmith.jsonl", lines)


def write_openai_agents(folder: Path, server: Server) -> None:
    """Traces and spans of the Agents SDK, as they are exported."""
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, trace
    from agents.tracing import TracingProcessor, set_trace_processors
    from openai import AsyncOpenAI

    lines: list[Any] = []

    class Writer(TracingProcessor):
        def on_trace_start(self, trace: Any) -> None:
            pass

        def on_trace_end(self, trace: Any) -> None:
            lines.append(trace.export())

        def on_span_start(self, span: Any) -> None:
            pass

        def on_span_end(self, span: Any) -> None:
            lines.append(span.export())

        def shutdown(self) -> None:
            pass

        def force_flush(self) -> None:
            pass

    @function_tool
    def look(path: str) -> str:
        """Look at a file or folder."""
        return FILES[path]

    async def run(attempt: int, reward: float) -> None:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none")
        model = OpenAIChatCompletionsModel(f"attempt-{attempt}", client)
        agent = Agent("finder", instructions=SYSTEM, model=model, tools=[look])
        metadata = {"task": "port", "reward": reward}
        with trace("port", group_id=f"run {attempt}", metadata=metadata):
            await Runner.run(agent, TASK)

    set_trace_processors([Writer()])
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        asyncio.run(run(attempt, reward))
    write_lines(folder / "openai_agents.jsonl", lines)


def play(server: Server, attempt: int) -> Iterator[tuple[list[Message], Message, str | None]]:
    """Each context of an attempt, the response, and the result of the tool it calls."""
    from openai import OpenAI

    client = OpenAI(base_url=f"{server.url}/v1", api_key="none")
    chat = prompt()
    for _, result in turns(attempt):
        answer = client.chat.completions.create(
            model=f"attempt-{attempt}",
            messages=chat,
            tools=[{"type": "function", "function": LOOK}],
        )
        message = answer.choices[0].message.model_dump(exclude_none=True)
        yield chat, message, result and result["content"]
        chat = [*chat, message, *([result] if result else [])]


def write_opentelemetry(folder: Path, server: Server) -> None:
    """Spans of OpenTelemetry's SDK: those of OpenInference, and with its attributes of GenAI alone.

    As ``ReadableSpan.to_json`` writes them, and as OTLP, whose JSON has ids in hexadecimal.
    """
    from base64 import b64decode

    from google.protobuf.json_format import MessageToDict
    from openinference.instrumentation import (
        TraceConfig,
        TracerProvider,
        get_evaluation_attributes,
        get_llm_attributes,
        get_session_attributes,
        get_span_kind_attributes,
        get_tool_attributes,
    )
    from openinference.instrumentation._genai_conversion import get_genai_attributes
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as SDKProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    def record(provider: Any, form: Callable[[Message], Message], genai: bool) -> Any:
        exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("samples")
        for attempt, (_, _, reward) in enumerate(ATTEMPTS):
            session = get_session_attributes(session_id=f"run {attempt}")
            agent = get_span_kind_attributes("agent") | session
            with tracer.start_as_current_span("agent", attributes=form(agent)) as root:
                for chat, message, result in play(server, attempt):
                    called: Message = get_llm_attributes(
                        provider="openai",
                        model_name="m",
                        input_messages=chat,
                        output_messages=[message],
                    )
                    called |= get_span_kind_attributes("llm") | session
                    tracer.start_span("chat m", attributes=form(called)).end()
                    if result is not None:
                        used: Message = get_tool_attributes(name="look", parameters={})
                        used |= get_span_kind_attributes("tool") | session
                        tracer.start_span("look", attributes=form(used)).end()
                if genai:
                    name, score = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"
                    root.add_event("gen_ai.evaluation.result", {name: "right", score: reward})
                else:
                    right: Any = [{"name": "right", "score": reward}]
                    root.set_attributes(
                        get_evaluation_attributes(evaluations=right, scope="session")
                    )
        return exporter.get_finished_spans()

    both = TracerProvider(config=TraceConfig(enable_genai_semconv=True))
    spans = record(both, dict, genai=False)
    write_lines(folder / "openinference.jsonl", [json.loads(each.to_json()) for each in spans])
    resource = Resource({"service.name": "samples"})
    spans = record(SDKProvider(resource=resource), get_genai_attributes, genai=True)
    write_lines(folder / "spans.jsonl", [json.loads(each.to_json()) for each in spans])
    request = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
            span[key] = b64decode(span[key]).hex()
    (folder / "otlp.json").write_text(json.dumps(request) + "\n")


def write_langfuse(folder: Path, server: Server) -> None:
    """Observations and scores in the types of Langfuse's API, from the spans that its SDK sent."""
    from datetime import UTC, datetime

    from langfuse import Langfuse
    from langfuse.api.commons.types.observation_v2 import ObservationV2
    from langfuse.api.scores.types.score_subject_v3 import ScoreSubjectV3_Trace
    from langfuse.api.scores.types.score_v3 import ScoreV3_Numeric
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    options = {"public_key": "pk-none", "secret_key": "sk-none", "base_url": server.url}
    langfuse = Langfuse(**options, span_exporter=exporter)
    rewards = {}
    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        with langfuse.start_as_current_observation(name="agent", as_type="agent") as root:
            for chat, message, result in play(server, attempt):
                kind: Any = {"name": "chat", "as_type": "generation", "model": "m"}
                with langfuse.start_as_current_observation(**kind, input=chat) as generation:
                    generation.update(output=message)
                if result is not None:
                    with langfuse.start_as_current_observation(name="look", as_type="tool") as tool:
                        tool.update(output=result)
            rewards[root.trace_id] = reward
    langfuse.flush()
    lines = []

    def at(nanoseconds: int) -> datetime:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC)

    def parsed(text: str) -> Any:  # the server reads what is JSON
        return json.loads(text) if text[0] in "[{" else text

    for span in exporter.get_finished_spans():
        attributes = {
            k.removeprefix("langfuse.observation."): v for k, v in span.attributes.items()
        }
        given = {k: parsed(attributes[k]) for k in ("input", "output") if k in attributes}
        trace = f"{span.context.trace_id:032x}"
        observation = ObservationV2(
            id=f"{span.context.span_id:016x}",
            trace_id=trace,
            start_time=at(span.start_time),
            end_time=at(span.end_time),
            project_id="p",
            parent_observation_id=f"{span.parent.span_id:016x}" if span.parent else None,
            type=attributes["type"].upper(),
            name=span.name,
            model=attributes.get("model.name"),
            **given,
        )
        lines.append(json.loads(observation.json(by_alias=True)))
        if not span.parent:
            moment = at(span.end_time)
            score = ScoreV3_Numeric(
                id=f"score {trace}",
                project_id="p",
                subject=ScoreSubjectV3_Trace(id=trace),
                name="right",
                value=rewards[trace],
                source="API",
                timestamp=moment,
                created_at=moment,
                updated_at=moment,
                environment="default",
            )
            lines.append(json.loads(score.json(by_alias=True)))
    write_lines(folder / "langfuse.jsonl", lines)
    langfuse.shutdown()


def write_mini_swe_agent(folder: Path, _: Server) -> None:
    """Trajectories of the real agent, with its model for tests and commands that really run."""
    os.environ["MSWEA_SILENT_STARTUP"] = "1"
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.test_models import DeterministicToolcallModel, make_toolcall_output

    def output(attempt: int, number: int, command: str) -> dict[str, Any]:
        name = f"call_{attempt}_{number}"
        function = {"name": "bash", "arguments": json.dumps({"command": command})}
        call = {"id": name, "type": "function", "function": function}
        return make_toolcall_output(None, [call], [{"command": command, "tool_call_id": name}])

    (folder / "mini_swe_agent").mkdir(exist_ok=True)
    with TemporaryDirectory() as bin_:
        cases = "".join(f"'{path}') echo '{text}' ;;\n" for path, text in FILES.items())
        script = Path(bin_) / "look"
        script.write_text(f"#!/bin/sh\ncase $1 in\n{cases}esac\n")
        script.chmod(0o755)
        environment = LocalEnvironment(env={"PATH": f"{bin_}:/usr/bin:/bin"}, timeout=10)
        for attempt, (paths, answer, reward) in enumerate(ATTEMPTS):
            commands = [*(f"look {path}" for path in paths), f"{SUBMIT} {answer}"]
            outputs = [output(attempt, n, command) for n, command in enumerate(commands)]
            model = DeterministicToolcallModel(
                outputs=outputs, observation_template="{{ output.output | trim }}"
            )
            templates = {"system_template": SYSTEM, "instance_template": "{{ task }}"}
            agent = DefaultAgent(model, environment, **templates, cost_limit=0)
            agent.run(TASK)
            environment.config.env = {}  # its path is that of this machine
            path = folder / "mini_swe_agent" / f"port_{attempt}.traj.json"
            agent.save(path, {"instance_id": "port", "info": {"reward": reward}})
            environment.config.env = {"PATH": f"{bin_}:/usr/bin:/bin"}


def write_atif_models(folder: Path, _: Server) -> None:
    """ATIF by its own classes, in Harbor's folders: a run in two files, with a sub-agent."""
    from nat.atif import Agent, Observation, ObservationResult, Step, ToolCall, Trajectory
    from nat.atif import SubagentTrajectoryRef as Reference

    agent = Agent(name="finder", version="1.0", model_name="m")

    def asked() -> list[Step]:
        return [
            Step(step_id=number, source=each["role"], message=each["content"])
            for number, each in enumerate(prompt(), start=1)
        ]

    def acted(number: int, assistant: Message, result: Message | None, **more: Any) -> Step:
        call = next(iter(assistant.get("tool_calls", [])), None)
        if call is None:
            return Step(step_id=number, source="agent", message=assistant["content"])
        arguments = json.loads(call["function"]["arguments"])
        made = ToolCall(tool_call_id=call["id"], function_name="look", arguments=arguments)
        seen = ObservationResult(source_call_id=call["id"], content=result["content"], **more)
        observation = Observation(results=[seen])
        return Step(step_id=number, source="agent", tool_calls=[made], observation=observation)

    for attempt, (_, _, reward) in enumerate(ATTEMPTS):
        trial = folder / "atif" / f"port__{attempt}"
        (trial / "agent").mkdir(parents=True, exist_ok=True)
        (trial / "verifier").mkdir(exist_ok=True)
        steps = asked()
        steps += [acted(n, *turn) for n, turn in enumerate(turns(attempt), start=3)]
        whole = Trajectory(session_id=f"session-{attempt}", agent=agent, steps=steps)
        path = trial / "agent" / "trajectory.json"
        path.write_text(json.dumps(whole.to_json_dict()) + "\n")
        (trial / "verifier" / "reward.txt").write_text(f"{reward}\n")
        (trial / "result.json").write_text(json.dumps({"task_name": "port"}) + "\n")

    # The same first attempt, compacted after its first look; the second is that of a sub-agent.
    first, second, third, last = turns(0)
    reference = Reference(trajectory_id="helper", session_id="session-0")
    helper = Trajectory(
        session_id="session-0",
        trajectory_id="helper",
        agent=Agent(name="helper", version="1.0", model_name="m"),
        steps=[
            Step(step_id=1, source="user", message="Look at /etc/app.conf."),
            acted(2, *third),
            Step(step_id=3, source="agent", message="port = 8080"),
        ],
    )
    trial = folder / "atif_session" / "port__0"
    (trial / "agent").mkdir(parents=True, exist_ok=True)
    (trial / "verifier").mkdir(exist_ok=True)
    runs = {
        "trajectory.json": Trajectory(
            session_id="session-0",
            trajectory_id="main",
            agent=agent,
            steps=[
                *asked(),
                acted(3, *first),
                acted(4, *second, subagent_trajectory_ref=[reference]),
            ],
            subagent_trajectories=[helper],
            continued_trajectory_ref="trajectory.cont-1.json",
        ),
        "trajectory.cont-1.json": Trajectory(
            session_id="session-0",
            trajectory_id="main-1",
            agent=agent,
            steps=[
                *asked(),
                Step(step_id=3, source="user", message="So far: /etc/app.conf says port = 8080."),
                acted(4, *last),
            ],
        ),
    }
    for name, run in runs.items():
        (trial / "agent" / name).write_text(json.dumps(run.to_json_dict()) + "\n")
    (trial / "verifier" / "reward.txt").write_text("1.0\n")
    (trial / "result.json").write_text(json.dumps({"task_name": "port"}) + "\n")


@contextmanager
def gateway(server: Server) -> Iterator[str]:
    """rllm-model-gateway in front of the server."""
    import httpx
    import uvicorn
    from rllm_model_gateway.models import GatewayConfig, WorkerConfig
    from rllm_model_gateway.server import create_app

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = [WorkerConfig(url=f"{server.url}/v1")]
    app = create_app(GatewayConfig(workers=workers, store_worker="memory", sync_traces=True))
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.05)
    httpx.get(f"http://127.0.0.1:{port}/health").raise_for_status()
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join()


def write_gateway(folder: Path, server: Server) -> None:
    """The calls that rllm-model-gateway recorded of OpenAI's client, and the rewards in a table."""
    import httpx

    lines: list[Any] = []
    with gateway(server) as url:
        for attempt in range(len(ATTEMPTS)):
            session = f"{url}/sessions/port-{attempt}"
            behind = type("Behind", (), {"url": session})()
            for _ in play(behind, attempt):
                pass
            lines += httpx.get(f"{session}/traces").json()
    write_lines(folder / "gateway.jsonl", lines)
    rewards = [f"port-{attempt},{reward}" for attempt, (_, _, reward) in enumerate(ATTEMPTS)]
    (folder / "gateway_rewards.csv").write_text("\n".join(["session,reward", *rewards, ""]))


WRITERS: dict[Callable[[Path, Server], None], tuple[str, ...]] = {
    write_anthropic: ("anthropic",),
    write_langchain: ("langgraph", "langchain_openai"),
    write_langsmith: ("langsmith", "langgraph", "langchain_openai"),
    write_openai_agents: ("agents",),
    write_opentelemetry: ("openinference.instrumentation", "opentelemetry.exporter.otlp"),
    write_langfuse: ("langfuse",),
    write_mini_swe_agent: ("minisweagent",),
    write_atif_models: ("nat.atif",),
    write_gateway: ("rllm_model_gateway",),
}
"""The writers, and the packages that each needs."""


def found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def writers() -> list[Callable[[Path, Server], None]]:
    """The writers whose packages are installed."""
    return [write for write, modules in WRITERS.items() if all(map(found, modules))]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    with serving() as server:
        for write in writers():
            write(folder, server)


if __name__ == "__main__":
    main()
