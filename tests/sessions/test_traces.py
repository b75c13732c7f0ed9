"""Importers of model calls: several records, or parts of a record, are one session."""

import json
import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ascribe import TableError
from ascribe.sessions import Conversation
from ascribe.sessions.reading import import_files
from ascribe.sessions.reading.files import read_records
from ascribe.sessions.reading.format import formats
from tests.sessions.make_traces import FILES
from tests.sessions.test_formats import DATA as FORMAT_DATA
from tests.sessions.test_formats import JUNK, lines, places

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[1] / "data" / "sessions"
COLUMNS = ("state", "action", "reward")
USER, ACT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def sessions(imported: Any, *names: str) -> list[list[tuple[Any, ...]]]:
    """These columns of each session, sorted, whatever the sessions are called."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for row in imported.table.to_dicts():
        rows.setdefault(row["trajectory"], []).append(tuple(row[name] for name in names))
    return sorted(rows.values())


def conversations(path: Path, form: str) -> list[Conversation]:
    """What the importer makes of the records of a file, which are one session."""
    records = [part for record in read_records(path) for part in formats()[form].split(record)]
    return list(formats()[form].reads(records))


@pytest.mark.parametrize("state", ["observation", "tool", "history"])
@pytest.mark.parametrize("name", FILES)
def test_calls_give_the_steps_of_the_chats(name: str, state: Any) -> None:
    imported = import_files([DATA / name], state=state)
    assert imported.format == FILES[name][0]
    chats = import_files([FORMAT_DATA / "openai.jsonl"], state=state)
    assert sessions(imported, *COLUMNS) == sessions(chats, *COLUMNS)
    assert len(imported.table.group.values) == 1


@pytest.mark.parametrize("name", FILES)
def test_committed_files_are_those_of_the_script(tmp_path: Path, name: str) -> None:
    FILES[name][1](tmp_path)
    assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()


# Gateways.


def call(turn: int, session: str = "t:0", **more: Any) -> dict[str, Any]:
    """The call after so many turns."""
    return {
        "trace_id": f"{session} {turn}",
        "session_id": session,
        "messages": [USER, ACT] * turn + [USER],
        "response_message": ACT,
        **more,
    }


def test_calls_are_told_apart_by_the_session_and_the_folder(tmp_path: Path) -> None:
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        for part in range(2):
            lines(tmp_path / run, call(part, reward=1.0, run=run), name=f"{part}.jsonl")
    table = import_files([tmp_path]).table
    assert table.step.tolist() == [0, 1, 0, 1], "a log may be in several files"
    assert table.trajectory.values.size == 2, "runs may use names again"


@pytest.mark.parametrize(
    ("more", "group"),
    [
        ({"task_id": 7}, "7"),
        ({"metadata": {"task": "sum"}}, "sum"),
        ({"session_id": "a:b:1"}, "a:b"),
        ({"session_id": "run"}, "prompt "),
    ],
)
def test_the_task_of_a_call(tmp_path: Path, more: Any, group: str) -> None:
    path = lines(tmp_path, *(call(turn, reward=1.0) | more for turn in range(2)))
    (name,) = import_files([path]).table.group.values
    assert name.startswith(group)


def test_rewards_of_a_session_and_of_its_calls(tmp_path: Path) -> None:
    rows = [call(turn, reward=1.0) for turn in range(3)]
    assert import_files([lines(tmp_path, *rows)]).table.reward.tolist() == [0.0, 0.0, 1.0]
    last = [rows[2], *(row | {"reward": None} for row in rows[:2])]
    assert sum(import_files([lines(tmp_path, *last)]).table.reward) == 1.0
    each = [row | {"reward": float(turn)} for turn, row in enumerate(rows)]
    assert import_files([lines(tmp_path, *each)]).table.reward.tolist() == [0.0, 1.0, 2.0]
    named = [row | {"metadata": {"r": turn / 2}} for turn, row in enumerate(rows)]
    path = lines(tmp_path, *named)
    assert import_files([path], reward="metadata.r").table.reward.tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(
        TableError, match=r"no session has a reward in metadata.s; there are: .*, reward, "
    ):
        import_files([path], reward="metadata.s")


def test_a_call_that_was_logged_twice_is_one(tmp_path: Path) -> None:
    rows = [call(0, reward=1.0), call(1, reward=1.0)]
    assert len(import_files([lines(tmp_path, *rows, rows[0])]).table) == 2
    other = rows[0] | {"response_message": ACT | {"content": "b"}}
    with pytest.raises(TableError, match=r"line 3, trace_id: runs.jsonl, line 1 has the same name"):
        import_files([lines(tmp_path, *rows, other)])


@pytest.mark.parametrize(
    "response",
    [
        {"response": ACT},
        {"response": "a"},
        {"response": {"choices": [{"message": ACT, "finish_reason": "length"}]}},
        {"choices": [{"message": {"content": "a"}}]},
        {"completion": "a"},
        {"output": ACT, "finish_reason": "length"},
    ],
)
def test_responses_in_other_places(tmp_path: Path, response: Any) -> None:
    rows = [
        {"session_id": "s", "messages": [USER, ACT] * turn + [USER], **response, "reward": 1.0}
        for turn in range(2)
    ]
    imported = import_files([lines(tmp_path, *rows)])
    assert imported.format == "gateway"
    assert imported.table.action.texts() == ["a", "a"]
    cut = "length" in json.dumps(response)
    assert imported.table.flag("truncated", default=False).tolist() == [False, cut]


def test_each_choice_is_a_response(tmp_path: Path) -> None:
    choices = [{"message": ACT | {"content": text}} for text in "ab"]
    path = lines(tmp_path, {"trace_id": "t", "messages": [USER], "choices": choices})
    assert [each.id for each in conversations(path, "gateway")] == ["t", "t/1"]


@pytest.mark.parametrize("key", ["session_id", "conversation_id"])
def test_chats_of_a_session_that_extend_each_other(tmp_path: Path, key: str) -> None:
    """Each would be a trajectory with the whole reward."""
    thought = [USER, {**ACT, "reasoning_content": "Hm."}]  # gone in the next call
    rows = [{key: "s", "messages": chat, "reward": 1.0} for chat in (thought, [USER, ACT] * 2)]
    for order in (rows, rows[::-1], [*rows, rows[1]]):
        table = import_files([lines(tmp_path, *order)]).table
        assert (len(table), table.trajectory.values.size) == (2, 1)
    assert len(import_files([lines(tmp_path, rows[1])]).table) == 2, "a session in one line"


def test_calls_without_the_name_of_a_session(tmp_path: Path) -> None:
    single = [{"messages": [USER], "response": text, "reward": 1.0} for text in "ab"]
    assert import_files([lines(tmp_path, *single)]).table.trajectory.values.size == 2
    rows = [{**call(turn), "session_id": None, "reward": 1.0} for turn in range(2)]
    with pytest.raises(TableError, match=r"line 2.*another line goes on where it ends.*session_id"):
        import_files([lines(tmp_path, *rows)])


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([call(0, response_message={})], "response_message: the call has no response.*Leave it"),
        ([call(0, response_message=7)], "response_message: it must be an object, not a number"),
        ([call(0, choices=[7], response_message=None)], r"choices\[0\]: it must be an object"),
        ([call(0, messages=None)], "it must be a list, not missing"),
        ([call(0, timestamp="soon")], "timestamp: it must be a number or a date"),
        ([call(0, timestamp=[1])], "timestamp: it must be a number, not a list"),
        ([call(0, task="a"), call(1, task="b")], "line 2, task: .*line 1, task .*another task"),
    ],
)
def test_calls_that_are_refused(tmp_path: Path, rows: Any, why: str) -> None:
    with pytest.raises(TableError, match=why):
        import_files([lines(tmp_path, *rows)], form="gateway")


# ATIF.


def step(source: str, text: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "message": text, **more}


def atif(path: Path, *steps: Any, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"schema_version": "ATIF-v1.7", "agent": {"name": "main"}, "steps": steps, **more}
    path.write_text(json.dumps(document))


def delegate(text: str, *references: Any) -> dict[str, Any]:
    results = [{"content": "done", "subagent_trajectory_ref": list(references)}]
    return step("agent", text, observation={"results": results})


def trial(folder: Path, reward: float = 1.0) -> Path:
    """A run that starts two sub-agents, is compacted, and goes on in another file."""
    agent = folder / "port__0" / "agent"
    task, copied = step("user", "task"), {"is_copied_context": True}
    inner = {"trajectory_id": "inner", "agent": {"name": "sub"}, "steps": [step("agent", "s1")]}
    atif(
        agent / "trajectory.json",
        task,
        step("agent", "m0"),
        delegate("m1", {"trajectory_id": "inner"}, {"trajectory_path": "logs/sub.json"}),
        step("agent", "dispatched", llm_call_count=0),
        subagent_trajectories=[inner],
        continued_trajectory_ref="trajectory.cont-1.json",
    )
    atif(agent / "sub.json", step("user", "go"), step("agent", "s2"), agent={"name": "sub"})
    shown = [task | copied, delegate("m1", {"trajectory_id": "inner"}) | copied]
    atif(agent / "trajectory.cont-1.json", *shown, step("agent", "m2"))
    (folder / "port__0" / "verifier").mkdir()
    (folder / "port__0" / "verifier" / "reward.txt").write_text(str(reward))
    return agent


def test_a_trial_of_several_trajectories_is_one_session(tmp_path: Path) -> None:
    agent = trial(tmp_path)
    imported = import_files([tmp_path])
    assert imported.table.trajectory.values.size == 1
    assert sorted(imported.table.action.texts()) == ["m0", "m1", "m2", "s1", "s2"]
    assert sum(imported.table.reward) == 1.0
    records = [each for path in sorted(agent.iterdir()) for each in read_records(path)]
    read = {each.messages[-1]["content"]: each for each in formats()["atif"].reads(records)}
    main = next(each for each in read.values() if each.parent is None)
    found = {name: (each.agent, each.parent, each.parent_step) for name, each in read.items()}
    assert found == {
        "dispatched": ("main", None, None),
        "s1": ("sub", main.id, 1),
        "s2": ("sub", main.id, 1),
        "m2": ("main", main.id, None),
    }
    assert [read["m2"].messages[place]["content"] for place in read["m2"].steps] == ["m2"]


@pytest.mark.parametrize("missing", ["trajectory.cont-1.json", "sub.json", "trajectory.json"])
def test_a_part_of_a_trial_is_refused(tmp_path: Path, missing: str) -> None:
    agent = trial(tmp_path)
    (agent / missing).unlink()
    with pytest.raises(TableError, match="is not among the files given; give the folder of the"):
        import_files([tmp_path])


def test_runs_in_one_folder_are_told_apart_by_their_session(tmp_path: Path) -> None:
    scored = {"final_metrics": {"extra": {"reward": 1.0}}}
    for number, name in enumerate(["a", "b", "a", None, None]):
        said = step("agent", f"x{number}")
        atif(tmp_path / "runs" / f"{number}.json", said, session_id=name, **scored)
    assert import_files([tmp_path]).table.trajectory.values.size == 4


def test_a_reference_is_never_opened(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    path = tmp_path / "runs" / "a.json"
    for name in ("../secret.json", str(tmp_path / "secret.json"), "/dev/zero", ""):
        atif(path, step("agent", "x"), continued_trajectory_ref=name)
        with pytest.raises(TableError, match=r"continued_trajectory_ref: .* not among the files"):
            import_files([path])


def test_trajectories_that_continue_each_other_are_refused(tmp_path: Path) -> None:
    for name, following in (("a", "b"), ("b", "a")):
        atif(
            tmp_path / "t" / "agent" / f"{name}.json",
            step("agent", "x"),
            continued_trajectory_ref=f"{following}.json",
        )
    with pytest.raises(TableError, match="its references form a cycle"):
        import_files([tmp_path])


# Traces.


def span(name: str, kind: str = "chat", parent: str | None = None, **more: Any) -> dict[str, Any]:
    """A span of the trace ``t``; its name is that of its response, and orders it."""
    attributes = {"gen_ai.operation.name": kind, **more.pop("attributes", {})}
    if kind == "chat":
        text = {"type": "text", "content": name}
        attributes.setdefault("gen_ai.input.messages", [{"role": "user", "parts": [text]}])
        output = [{"role": "assistant", "parts": [text, *more.pop("calls", ())]}]
        attributes.setdefault("gen_ai.output.messages", output)
    ids = {"traceId": "t", "spanId": name, "parentSpanId": parent, "name": f"{kind} {name}"}
    return {**ids, "startTimeUnixNano": str(ord(name[0])), "attributes": attributes, **more}


SCORED = {"gen_ai.evaluation.score.value": 1.0}


def grouped(table: Any) -> list[set[str]]:
    """The actions of each trajectory."""
    actions: dict[str, set[str]] = {}
    for row in table.to_dicts():
        actions.setdefault(row["trajectory"], set()).add(row["action"])
    return sorted(actions.values(), key=sorted)


def test_a_session_is_a_conversation_or_a_trace(tmp_path: Path) -> None:
    first = {"gen_ai.conversation.id": "c"}
    rows = [
        span("a", attributes=first | SCORED),
        span("b"),  # of the only conversation of its trace
        span("e", attributes=first, traceId="u"),
        span("f", traceId="v", attributes=SCORED),
        span("g", traceId="w", attributes=first),
        span("h", traceId="w", attributes={"session.id": "d"}),
        span("i", traceId="w", attributes=SCORED),  # of neither
    ]
    table = import_files([lines(tmp_path, *rows)]).table
    assert grouped(table) == [{"a", "b", "e", "g"}, {"f"}, {"i"}], "h has no reward"


def test_calls_of_agents_and_what_started_them(tmp_path: Path) -> None:
    work = {"type": "tool_call", "id": "c1", "name": "delegate", "arguments": {}}
    agent = {"gen_ai.agent.name": "main"}
    rows = [
        span("A", "invoke_agent", attributes=agent | SCORED),
        span("a", parent="A", calls=[work]),
        span("b", parent="A"),
        span("T", "execute_tool", "A", attributes={"gen_ai.tool.call.id": "c1"}),
        span("U", "invoke_agent", "T", attributes={"gen_ai.agent.name": "sub"}),
        span("c", parent="U"),
        span("d", parent="U"),
        span("e", "invoke_agent", "A", attributes={"gen_ai.agent.name": "late"}),
        span("f", parent="e"),
        span("g", parent="gone"),
    ]
    path = lines(tmp_path, *rows[::-1])
    found = {each.id: (each.agent, each.parent) for each in conversations(path, "otel")}
    assert found == {
        "a": ("main", None),
        "b": ("main", None),
        "c": ("sub", "a"),
        "d": ("sub", None),
        "f": ("late", "b"),
        "g": (None, None),
    }
    assert import_files([path]).table.trajectory.values.size == 1


def test_one_of_several_evaluations_is_the_reward(tmp_path: Path) -> None:
    def scores(**values: float) -> list[dict[str, Any]]:
        return [
            {"name": "gen_ai.evaluation.result", "attributes": {"gen_ai.evaluation.name": name}}
            | {
                "attributes": {"gen_ai.evaluation.name": name, **SCORED}
                | {next(iter(SCORED)): value}
            }
            for name, value in values.items()
        ]

    path = lines(tmp_path, span("a", events=scores(tone=0.5, reward=0.0)))
    assert import_files([path]).table.reward.tolist() == [0.0]
    assert import_files([path], reward="tone").table.reward.tolist() == [0.5]
    path = lines(tmp_path, span("a", events=scores(tone=0.5, form=0.0)))
    with pytest.raises(TableError, match=r"several scores: form, tone; name the one .* reward="):
        import_files([path])
    path = lines(tmp_path, span("a", attributes={"task": "x", "my.task": "t", "my.score": 3}))
    table = import_files([path], reward="my.score", group="my.task").table
    assert (list(table.group.values), table.reward.tolist()) == (["t"], [3.0])


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([span("a", parent="b"), span("b", parent="a")], "its parents form a cycle"),
        ([span("a", parent="a")], "its parents form a cycle"),
        ([span("a"), span("a", attributes={"x": 1})], "line 2, span: .*line 1 has the same name"),
        ([span("a", calls=[{"type": "dance"}])], r"parts\[1\].type: a part of this type is not"),
        ([span("a", attributes={"gen_ai.output.messages": "[{"})], "messages: it is not JSON"),
        ([span("a", attributes={"gen_ai.output.messages": "[]"})], "has none; record contents"),
        ([span("a", attributes={"gen_ai.output.messages": "7"})], "must be a list, not a number"),
        ([span("a", startTimeUnixNano="x")], "startTimeUnixNano: it must be a number or a date"),
        ([span("a", attributes={"gen_ai.conversation.id": 1.5})], "conversation.id: it must be a"),
        ([span("a", events=7)], "events: it must be a list"),
        ([{"traceId": 1.5, "spanId": "a", "attributes": {}}], "traceId: it must be a name"),
        ([{"resourceSpans": [{"scopeSpans": [{"spans": [7]}]}]}], r"spans\[0\]: it must be an obj"),
        (
            [{"traceId": "t", "spanId": "a", "attributes": [{"key": 1, "value": {}}]}],
            r"attributes\[0\].key: it must be text",
        ),
    ],
)
def test_spans_that_are_refused(tmp_path: Path, rows: Any, why: str) -> None:
    with pytest.raises(TableError, match=why):
        import_files([lines(tmp_path, *rows)])


@pytest.mark.parametrize("deep", [False, True])
def test_a_trace_of_many_spans_takes_time_in_proportion(tmp_path: Path, deep: bool) -> None:
    """Each span in the one before it, or agents in one agent."""
    rows = [span("r", "invoke_agent", attributes=SCORED)]
    for number in range(5_000):
        parent = rows[-1]["spanId"] if deep else "r"
        kind = "internal" if deep else "invoke_agent"
        rows.append(span(f"s{number}", kind, parent))
    rows.append(span("z", parent=rows[-1]["spanId"]))
    path = lines(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": rows}]}]})
    started = time.process_time()
    assert len(import_files([path]).table) == 1
    assert time.process_time() - started < 20


def test_openinference_parts_and_keys(tmp_path: Path) -> None:
    prefix = "llm.input_messages"
    attributes = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.content": "x"}
    attributes |= {"llm.output_messages.0.message.role": "assistant", **SCORED}
    content = f"{prefix}.0.message.contents"
    more = {f"{content}.{n}.message_content.type": "text" for n in range(11)}
    more |= {f"{content}.{n}.message_content.text": str(n) for n in range(11)}
    row = {"traceId": "t", "spanId": "a", "attributes": attributes | more}
    row["attributes"][f"{prefix}.0.message.role"] = "user"
    table = import_files([lines(tmp_path, row)]).table
    shown = table.state.texts()[0].removeprefix("user: ").split()
    assert shown == [str(n) for n in range(11)], "in the order of numbers"
    row["attributes"][f"{prefix}.0"] = "a value"
    with pytest.raises(TableError, match="a value is where it needs an object"):
        import_files(
            [lines(tmp_path, dict(row, attributes=dict(reversed(row["attributes"].items()))))]
        )
    deep = {f"{prefix}." + "0." * 5000 + "x": 1}
    with pytest.raises(TableError, match=r"llm.input_messages"):
        import_files([lines(tmp_path, dict(row, attributes=attributes | deep))])


def test_langfuse_sessions_scores_and_agents(tmp_path: Path) -> None:
    def trace(name: str, **more: Any) -> dict[str, Any]:
        output = {"role": "assistant", "content": name}
        observations = [
            {"id": "g", "type": "GENERATION", "input": "q", "output": output}
            | {"parentObservationId": "w"},
            {"id": "w", "type": "AGENT", "name": "worker"},
        ]
        return {"id": name, "observations": observations, "scores": [], **more}

    def score(value: Any, name: str = "right", **more: Any) -> dict[str, Any]:
        return {"name": name, "value": value, **more}

    rows = [trace(name, sessionId="s", scores=[score(n)]) for n, name in enumerate("ab")]
    table = import_files([lines(tmp_path, *rows)]).table
    assert (table.trajectory.values.size, table.reward.tolist()) == (1, [0.0, 1.0])
    assert table.to_dicts()[0]["agent"] == "worker"
    own = trace("a", scores=[score(1.0, observationId="g"), score("good", "note")])
    assert import_files([lines(tmp_path, own)]).table.reward.tolist() == [1.0]
    several = trace("a", scores=[score(1.0), score(0.5, "tone")], metadata="text")
    path = lines(tmp_path, several)
    with pytest.raises(TableError, match="several scores: right, tone; name the one"):
        import_files([path])
    assert import_files([path], reward="tone").table.reward.tolist() == [0.5]
    with pytest.raises(TableError, match="no session has a reward in form; there are"):
        import_files([path], reward="form")
    twice = trace("a", scores=[score(1.0)])
    twice["observations"].append(twice["observations"][0] | {"input": "other"})
    with pytest.raises(TableError, match=r"has the same name and other content.*Keep one"):
        import_files([lines(tmp_path, twice)])


def test_langfuse_scores_on_lines_of_their_own(tmp_path: Path):
    calls = [
        {"id": name, "traceId": "t", "sessionId": "s", "type": "GENERATION", "startTime": start}
        | {"input": name, "output": {"role": "assistant", "content": name}}
        for name, start in (("a", "2026-01-01T00:00:00Z"), ("b", "2026-01-01T00:00:01Z"))
    ]

    def rewards(*owners: dict[str, Any]) -> list[float]:
        score = {"name": "right", "source": "API"}
        scores = [score | {"id": str(n), "value": n + 1.0} | of for n, of in enumerate(owners)]
        return import_files([lines(tmp_path, *calls, *scores)]).table.reward.tolist()

    trace, first = {"kind": "trace", "id": "t"}, {"kind": "observation", "id": "a", "traceId": "t"}
    assert rewards({"subject": {"kind": "session", "id": "s"}}) == [0.0, 1.0]
    assert rewards({"subject": trace}) == rewards({"traceId": "t"}) == [0.0, 1.0]
    assert rewards({"subject": first}, {"subject": trace}) == [1.0, 2.0]
    assert rewards({"traceId": "t"}, {"traceId": "t", "observationId": "a"}) == [2.0, 1.0]
    with pytest.raises(TableError, match=r"subject.kind: it must be one of trace, observation"):
        rewards({"subject": {"kind": "experiment", "id": "e"}})


def test_agents_traces(tmp_path: Path) -> None:
    path = DATA / "openai_agents.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    batch = tmp_path / "batch.json"
    batch.write_text(json.dumps({"data": rows}))
    assert sessions(import_files([batch]), *COLUMNS) == sessions(import_files([path]), *COLUMNS)
    assert {row["agent"] for row in import_files([path]).table.to_dicts()} == {"finder"}
    silent = import_files([lines(tmp_path, rows[0])]).table
    assert (silent.action.texts(), silent.reward.tolist()) == ([None], [1.0]), "no response"
    item = {"type": "message", "role": "assistant", "content": "8"}
    data = {"type": "response", "input": "q", "output": [item]}
    responded = lines(tmp_path, rows[0], rows[1] | {"span_data": data})
    assert import_files([responded]).table.action.texts() == ["8"]
    response = rows[1] | {"span_data": {"type": "response", "response_id": "r"}}
    with pytest.raises(TableError, match=r"span_data.input: it has no messages; write the input"):
        import_files([lines(tmp_path, rows[0], response)])


def run(uuid: str, kind: str = "llm", parent: str | None = None, **more: Any) -> dict[str, Any]:
    """A run of the trace ``t``."""
    inside = {"inputs": {"messages": [USER]}, "outputs": {"choices": [{"message": ACT}]}}
    ids = {"id": uuid, "trace_id": "t", "parent_run_id": parent, "run_type": kind}
    return {**ids, "start_time": f"2026-01-01T00:00:{ord(uuid[0]) % 60:02}", **inside, **more}


def test_langsmith_threads_feedback_and_tools(tmp_path: Path) -> None:
    thread, mean = {"extra": {"metadata": {"thread_id": "c", "task": "x"}}}, {"n": 1, "avg": 1.0}
    rows = [run("a", trace_id="u", **thread), run("b", **thread)]
    rows += [run("c", "chain", feedback_stats={"right": mean, "form": mean | {"avg": None}})]
    rows += [run("d", error="timed out", outputs=None)]
    table = import_files([lines(tmp_path, *rows)]).table
    assert (list(table.trajectory.values), table.reward.tolist()) == (["x/c"], [0.0, 1.0])
    several = run("a", feedback_stats={"right": mean, "tone": mean | {"avg": 0.5}})
    path = lines(tmp_path, several)
    with pytest.raises(TableError, match="several scores: right, tone; name the one"):
        import_files([path])
    assert import_files([path], reward="tone").table.reward.tolist() == [0.5]
    with pytest.raises(TableError, match=r"outputs: the call has no response.*Leave it out"):
        import_files([lines(tmp_path, run("a", outputs=None))])
    rows = [run("a"), run("b", "tool", name="search"), run("c", parent="b")]
    calls = conversations(lines(tmp_path, *rows), "langsmith")
    assert [(each.id, each.agent, each.parent) for each in calls] == [
        ("a", None, None),
        ("c", "search", "a"),
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        ('[{"a": 1}]', '[{"a": 1}]'),
        ('[{"role": "user", "content": "text"}]', "text"),
        ({"messages": [{"role": "user", "content": "text"}]}, "text"),
        ([[{"type": "human", "content": "text"}]], "text"),
        ({"prompts": ["text"]}, "text"),
        ({"content": "text"}, "text"),
    ],
)
def test_forms_of_an_input(tmp_path: Path, value: Any, shown: str) -> None:
    path = lines(tmp_path, run("a", inputs=value, feedback_stats={"x": {"avg": 1}}))
    assert import_files([path], state="observation").table.state.texts() == [f"user: {shown}"]


# Claude Code.


def line(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """A line; those of the assistant have upper case names."""
    role = "assistant" if uuid[0].isupper() else "user"
    message = {"role": role, "content": content, **more.pop("message", {})}
    ids = {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "s"}
    return {**ids, "message": message, "isSidechain": False, **more}


def use(name: str, **arguments: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": name, "name": "Task", "input": arguments}]


def result(*names: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": name, "content": f"of {name}"} for name in names]


def test_lines_of_a_response_are_one_step(tmp_path: Path) -> None:
    """Results of parallel calls hang on the line of their call, not on one chain."""
    same = {"message": {"id": "m1"}}
    rows = [
        {"type": "summary", "summary": "A title", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        line("u", None, "task"),
        {"type": "attachment", "uuid": "x", "parentUuid": "u", "sessionId": "s"},
        line("A", "x", [{"type": "thinking", "thinking": "Hm."}], **same),
        line("B", "A", use("c1", a=1), **same),
        line("C", "B", use("c2", a=2), **same),
        line("v", "B", result("c1")),
        line("w", "C", result("c2")),
        line("D", "w", "done"),
        line("E", "D", "Overloaded", message={"model": "<synthetic>"}),
        {"type": "progress", "uuid": "p", "parentUuid": "u", "sessionId": "s"},
    ]
    (chat,) = conversations(lines(tmp_path, *rows), "claude-code")
    assert [each["role"] for each in chat.messages] == [
        *("user", "assistant", "tool", "tool", "assistant")
    ]
    assert [len(chat.messages[place].get("tool_calls", ())) for place in chat.steps] == [2, 0]
    (backwards,) = conversations(lines(tmp_path, *rows[::-1]), "claude-code")
    assert [m.get("tool_calls") for m in backwards.messages] == [
        m.get("tool_calls") for m in chat.messages
    ]
    scored_rows = [*rows, line("z", "D", "thanks", reward=1.0)]
    table = import_files([lines(tmp_path, *scored_rows)], reward="reward").table
    assert (len(table), table.reward.tolist()) == (2, [0.0, 1.0])


def test_compaction_forks_and_sub_agents(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "k", "sessionId": "s"}
    spawned = {"toolUseResult": {"agentId": "a1"}}
    rows = [
        line("u", None, "task"),
        line("A", "u", use("c1", prompt="look", subagent_type="Explore")),
        line("v", "A", result("c1"), **spawned),
        line("B", "v", use("c2", prompt="think")),
        line("w", "B", result("c2")),
        line("C", "w", "first try"),
        line("D", "w", "second try"),
        boundary | {"parentUuid": None, "logicalParentUuid": "D"},
        line("x", "k", "What was done: much.", isCompactSummary=True),
        line("E", "x", "done"),
        line("y", None, "think", isSidechain=True),
        line("F", "y", "thought", isSidechain=True),
    ]
    lines(tmp_path, *rows)
    agent = [line("z", None, "go", isSidechain=True, agentId="a1")]
    agent += [line("G", "z", "looked", isSidechain=True, agentId="a1")]
    lines(tmp_path, *agent, name="agent-a1.jsonl")
    records = [each for path in sorted(tmp_path.iterdir()) for each in read_records(path)]
    kept = [each for record in records for each in formats()["claude-code"].split(record)]
    found = {
        each.messages[-1]["content"]: (each.agent, each.parent, each.parent_step, len(each.steps))
        for each in formats()["claude-code"].reads(kept)
    }
    assert found == {
        "first try": (None, None, None, 3),
        "second try": (None, None, None, 1),
        "done": (None, "D", 0, 1),
        "thought": ("sub-agent", "C", 1, 1),
        "looked": ("Explore", "C", 0, 1),
    }
    with pytest.raises(TableError, match=r"no session has a reward .*[Nn]ame the field"):
        import_files([tmp_path])
    scores = tmp_path / "scores.csv"
    scores.write_text("session,reward\ns,1\n")
    assert sum(import_files([tmp_path], reward=str(scores)).table.reward) == 1.0


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([line("u", "A", "q"), line("A", "u", "a")], "its parents form a cycle"),
        ([line("u", "u", "q")], "its parents form a cycle"),
        ([line("u", "gone", "q")], "parentUuid: no line of the files given has this uuid.*Give"),
        ([line("u", None, "q"), line("u", None, "r")], "line 2, uuid: .*has the same name"),
        ([line("u", None, "q") | {"uuid": None}], "line 1, uuid: a message needs one"),
        ([line("u", None, [{"type": "dance"}])], "'dance', which is not read"),
        ([line("u", None, "q", sessionId=None)], "sessionId: it must be a name"),
    ],
)
def test_lines_of_sessions_that_are_refused(tmp_path: Path, rows: Any, why: str) -> None:
    with pytest.raises(TableError, match=why):
        import_files([lines(tmp_path, *rows)], form="claude-code")


def test_long_sessions_with_many_ends_take_time_in_proportion(tmp_path: Path) -> None:
    chain = [line("u", None, "task", reward=1.0)]
    for number in range(3000):
        chain.append(line(f"A{number}", chain[-1]["uuid"], "act"))
    started = time.process_time()
    ends = [line(f"x{number}", f"A{number}", "left") for number in range(3000)]
    assert len(import_files([lines(tmp_path, *chain, *ends)], reward="reward").table) == 3000
    assert time.process_time() - started < 20
    forks = [line(f"B{number}", "A2999", "act") for number in range(300)]
    with pytest.raises(TableError, match="its branches share each node 50 times"):
        import_files([lines(tmp_path, *chain, *forks)], reward="reward")


# Damage.


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".jsonl")])
def test_damaged_records_are_refused_or_read(tmp_path: Path, name: str) -> None:
    clean, random, refused = (DATA / name).read_text(), Random(name), 0
    for _ in range(25):
        rows = [json.loads(row) for row in clean.splitlines()]
        for _ in range(random.choice((1, 1, 3))):
            inside, key = random.choice(places(random.choice(rows)))
            inside[key] = random.choice(JUNK)
        try:
            import_files([lines(tmp_path, *rows)], form=FILES[name][0])
        except TableError:
            refused += 1
    assert refused > 5


def test_damaged_trials_are_refused_or_read(tmp_path: Path) -> None:
    paths = sorted(trial(tmp_path).iterdir())
    clean, random, refused = [path.read_text() for path in paths], Random(0), 0
    for _ in range(50):
        documents = [json.loads(text) for text in clean]
        inside, key = random.choice(places(random.choice(documents)))
        inside[key] = random.choice(JUNK)
        for path, document in zip(paths, documents, strict=True):
            path.write_text(json.dumps(document))
        try:
            import_files([tmp_path], form="atif")
        except TableError:
            refused += 1
    assert refused > 20


# More files: the folder that ASCRIBE_SESSION_SAMPLES names.

SAMPLES = Path(os.environ.get("ASCRIBE_SESSION_SAMPLES", "-"))
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="ASCRIBE_SESSION_SAMPLES")


@needs_samples
def test_samples_of_calls_are_read() -> None:
    assert sum(import_files([SAMPLES / "gateway.jsonl"]).table.reward) == 1.0
    with pytest.raises(TableError, match="record contents"):
        import_files([SAMPLES / "otlp.json"])
    with pytest.raises(TableError, match=r"no session has a reward .*[Nn]ame the field"):
        import_files([SAMPLES / "cc.jsonl"])
    table = import_files([SAMPLES / "atif_job"]).table
    assert (len(table), table.trajectory.values.size, sum(table.reward)) == (6, 2, 1.0)


@needs_samples
@pytest.mark.parametrize("state", ["observation", "tool", "history"])
@pytest.mark.parametrize("name", ["langfuse", "otel_spans", "otlp"])
def test_samples_hold_the_conversations_of_the_chats(name: str, state: Any) -> None:
    columns = ("group", *COLUMNS)
    chats = import_files([SAMPLES / "made" / "openai_chat.jsonl"], state=state)
    imported = import_files([SAMPLES / "made" / f"{name}.jsonl"], state=state)
    assert sessions(imported, *columns) == sessions(chats, *columns)


def test_calls_that_were_written_twice_count_once(tmp_path: Path) -> None:
    """Without the name of a call, a copy has the same time."""
    asked, said = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    row = {"session_id": "t:0", "messages": [asked], "response_message": said, "reward": 1.0}
    timed = [row | {"timestamp": 1.0}, row | {"timestamp": 2.0}]
    assert len(import_files([lines(tmp_path, *timed, *timed)]).table) == 2
    wrong = row | {"response_message": said | {"role": "tool"}}
    with pytest.raises(TableError, match="role: a response must be the assistant"):
        import_files([lines(tmp_path, row, wrong)])
