"""Formats in which a record is a whole conversation: what each of them has of its own."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ascribe import TableError
from ascribe.sessions.formats import import_files, read
from ascribe.sessions.reading.files import read_records
from ascribe.sessions.reading.format import formats
from ascribe.sessions.reading.records import Record
from tests.sessions import make_chats
from tests.sessions.test_formats import DATA, FILES, chat, lines

pytestmark = pytest.mark.unit


def messages(name: str, value: dict[str, Any], path: Path = Path("runs.jsonl")) -> list[Any]:
    """The messages that a format makes of a record, as pairs of a role and a text or calls."""
    record = Record(value, path, 1)
    form = formats()[name]
    (conversation,) = list(form.reads([record] if form.session else record))
    conversation.check()
    return [_short(each) for each in conversation.messages]


def _short(message: Any) -> tuple[str, Any]:
    calls = [
        (each["function"]["name"], json.loads(each["function"]["arguments"]))
        for each in message.get("tool_calls", [])
    ]
    return message["role"], calls or message["content"]


def refusal(name: str, value: dict[str, Any]) -> str:
    with pytest.raises(TableError) as caught:
        messages(name, value)
    return caught.value.problems[0].detail


# All formats.


def made() -> list[Path]:
    folder = os.environ.get("ASCRIBE_SESSION_SAMPLES")
    return sorted(Path(folder, "made").iterdir()) if folder else []


NAMES = ("group", "step", "state", "action", "reward", "terminated", "truncated")


@pytest.mark.parametrize("state", ["observation", "tool"])
def test_files_with_the_same_conversations_give_the_same_table(state: Any) -> None:
    """In more files: those of the folder that ASCRIBE_SESSION_SAMPLES names."""
    if not made():
        pytest.skip("ASCRIBE_SESSION_SAMPLES is not set")

    def columns(path: Path, *names: str) -> list[Any]:
        table = import_files([path], state=state).table
        return [tuple(row[name] for name in names) for row in table.to_dicts()]

    (chats,) = (path for path in made() if path.name == "openai_chat.jsonl")
    # ReAct has other actions, and results in messages of the user; the other has times in them.
    other = {"react.jsonl": {"state", "action"}, "deg_ts.jsonl": {"state"}}
    for path in made():
        names = [name for name in NAMES if name not in other.get(path.name, ())]
        assert columns(path, *names) == columns(chats, *names), path.name


@pytest.mark.parametrize("name", FILES)
def test_a_record_is_of_one_format(name: str) -> None:
    """But that lists of messages are OpenAI's, too, and these are recognised before others."""
    wider = {
        "inspect": {"gateway"},  # a sample has its last output beside its messages
        "langchain": {"anthropic"},  # whose blocks may be in its messages
    }
    paths = sorted((DATA / name).rglob("*trajectory.json")) or [DATA / name]
    for record in read_records(paths[0]):
        claims = [form for form, each in formats().items() if each.fits(record.value)]
        assert claims[0] == FILES[name]
        assert set(claims) <= {FILES[name], "openai", "fields", *wider.get(FILES[name], ())}


def test_a_file_with_several_kinds_of_messages_says_so(tmp_path: Path) -> None:
    used = make_chats.anthropic(0) | {"reward": 1.0}
    path = lines(tmp_path, chat(reward=0.0), used, chat(reward=0.0))
    imported = import_files([path])
    assert imported.sentence().startswith("OpenAI messages and Anthropic messages, 6 steps in 3")
    assert import_files([path], form="openai").also == imported.also == ("anthropic",)


def test_names_in_the_metadata_and_the_info(tmp_path: Path) -> None:
    rows = [
        chat(metadata={"task": "a", "reward": 1.0, "run_id": 7, "system": "Linux"}),
        chat("9", metadata="text", info={"task_id": "a", "reward": 0.0}),
    ]
    table = import_files([lines(tmp_path, *rows)]).table
    assert list(table.trajectory.values) == ["a/7", "a/line 2"]
    assert table.reward.tolist() == [1.0, 0.0]
    assert table.state.texts() == ["user: What is 3 + 5?"] * 2


# Anthropic.


def blocks(*content: Any, role: str = "assistant") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, {"role": role, "content": [*content]}]}


USE = {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}
TEXT = {"type": "text", "text": "a"}


def test_anthropic_tools_of_the_server_end_a_step() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    page = {"type": "web_search_result", "title": "X", "encrypted_content": "abc"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [page, "b"]}
    hidden = {"type": "redacted_thinking", "data": "abc"}
    assert messages("anthropic", blocks(hidden, search, found, TEXT)) == [
        ("user", "q"),
        ("assistant", [("web_search", {"query": "x"})]),
        ("tool", '[{"title":"X","type":"web_search_result"},"b"]'),
        ("assistant", "a"),
    ]


def test_anthropic_results_stand_beside_what_the_user_wrote() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [TEXT, TEXT]}
    record = blocks(USE)
    record["messages"].append({"role": "user", "content": [result, {"type": "text", "text": "b"}]})
    assert messages("anthropic", record)[2:] == [("tool", "a\na"), ("user", "b")]
    (conversation,) = formats()["anthropic"].reads(Record(record, Path("a.jsonl"), 1))
    assert conversation.messages[2]["tool_call_id"] == "t"


def test_anthropic_blocks_may_repeat_calls_beside_them() -> None:
    record = blocks({"type": "thinking", "thinking": "Hm."}, USE)
    call = {"id": "t", "function": {"name": "f", "arguments": '{"x": 1}'}}
    record["messages"][1]["tool_calls"] = [call]
    assert messages("anthropic", record)[1] == ("assistant", [("f", {"x": 1})])


def test_anthropic_contents_that_are_refused() -> None:
    assert "part 0 of the content is 'compaction'" in refusal(
        "anthropic", blocks(USE, {"type": "compaction", "content": "x"})
    )
    assert "a tool_use is the assistant's" in refusal("anthropic", blocks(USE, role="user"))
    assert "messages[1].content[0].type: it must be text" in refusal("anthropic", blocks({}, USE))


def test_calls_of_a_gateway_may_be_anthropic(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "q"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
    shown = [asked, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [result]}]
    rows = [
        {"session_id": "s", "messages": [asked], "response_message": {"content": [USE]}},
        {"session_id": "s", "messages": shown, "response_message": {"content": [TEXT]}},
    ]
    table = import_files([lines(tmp_path, *({**row, "reward": 1.0} for row in rows))]).table
    assert table.action.texts() == ['{"arguments":{"x":1},"name":"f"}', "a"]
    assert table.state.texts() == ["user: q", "tool: r"]


# OpenAI Responses.


def items(*each: Any, **more: Any) -> dict[str, Any]:
    return {"items": [{"role": "user", "content": "q"}, *each], **more}


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


def test_responses_with_tools_of_the_server() -> None:
    code = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1 + 1"}
    logs = [{"type": "logs", "logs": "2"}]
    remote = {"type": "mcp_call", "id": "m", "name": "f", "arguments": '{"x": 1}', "output": "3"}
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": '"raw"'}
    seen = {"type": "custom_tool_call_output", "call_id": "c", "output": "4"}
    chats = messages("responses", items({**code, "outputs": logs}, remote, custom, seen, SAID))
    assert chats[1:] == [
        ("assistant", [("code_interpreter_call", {"code": "1 + 1"})]),
        ("tool", '[{"logs":"2","type":"logs"}]'),
        ("assistant", [("f", {"x": 1})]),
        ("tool", "3"),
        ("assistant", [("g", "raw")]),
        ("tool", "4"),
        ("assistant", "a"),
    ]


def test_calls_with_the_same_session_are_one(tmp_path: Path) -> None:
    first = {"session_id": "s", "input": "q", "output": [SAID], "reward": 1.0}
    more = {"role": "user", "content": "more"}
    second = {**first, "input": [{"role": "user", "content": "q"}, SAID, more]}
    table = import_files([lines(tmp_path, first, second)]).table
    assert table.state.texts() == ["user: q", "user: more"]
    assert table.reward.tolist() == [0.0, 1.0]
    apart = [{**row, "session_id": None, "task": "t"} for row in (first, second)]
    with pytest.raises(TableError, match="line 2: another line goes on where it ends"):
        import_files([lines(tmp_path, *apart)])


def test_responses_that_are_refused() -> None:
    elsewhere = {"input": "q", "output": [SAID], "previous_response_id": "r"}
    assert "previous_response_id: its input is elsewhere" in refusal("responses", elsewhere)
    reference = {"type": "item_reference", "id": "m"}
    assert "items[1].type: 'item_reference' is not read" in refusal("responses", items(reference))


def test_a_response_that_a_limit_cut(tmp_path: Path) -> None:
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    row = {"input": "q", "output": [SAID], "reward": 1.0, **cut}
    imported = import_files([lines(tmp_path, row)])
    assert imported.table.flag("truncated", default=False).tolist() == [True]
    assert imported.carried.column("finish").to_pylist() == ["length"]


# LangChain.


def test_langchain_calls_that_could_not_be_parsed() -> None:
    invalid = {"name": None, "args": '"{x"', "id": "c", "error": "not JSON"}
    ai = {"type": "ai", "content": "", "tool_calls": [], "invalid_tool_calls": [invalid]}
    old = {"function_call": {"name": "f", "arguments": '{"x": 1}'}}
    raw = {"type": "AIMessageChunk", "content": "", "additional_kwargs": old}
    chats = messages("langchain", {"messages": [{"type": "human", "content": "q"}, ai, raw]})
    assert chats[1:] == [
        ("assistant", [("invalid_tool_call", "{x")]),
        ("assistant", [("f", {"x": 1})]),
    ]


def test_langchain_tools_of_the_server() -> None:
    search = {"type": "server_tool_call", "id": "s", "name": "search", "args": {"query": "x"}}
    found = {"type": "server_tool_result", "tool_call_id": "s", "output": ["page"]}
    call = {"type": "tool_call", "id": "c", "name": "f", "args": {"x": 1}}
    ai = {"type": "ai", "content": [search, found, call, TEXT], "tool_calls": [call]}
    assert messages("langchain", {"messages": [{"type": "human", "content": [TEXT]}, ai]}) == [
        ("user", "a"),
        ("assistant", [("search", {"query": "x"})]),
        ("tool", "page"),
        ("assistant", [("f", {"x": 1})]),
    ]


def test_langchain_roles() -> None:
    records = [
        {"type": "ChatMessageChunk", "role": "user", "content": "q"},
        {"type": "ai", "content": "shown", "example": True},
        {
            "lc": 1,
            "type": "constructor",
            "id": ["messages", "AIMessage"],
            "kwargs": {"content": "a"},
        },
        {"type": "function", "name": "f", "content": "b"},
    ]
    assert messages("langchain", {"messages": records}) == [
        ("user", "q"),
        ("demonstration", "shown"),
        ("assistant", "a"),
        ("tool", "b"),
    ]
    records.append({"type": "remove", "id": "m"})
    assert "messages[4].type: it must be one of human, ai" in refusal(
        "langchain", {"messages": records}
    )


def test_states_of_one_thread_are_one_session(tmp_path: Path) -> None:
    turns = [{"type": "human", "content": "q"}, {"type": "ai", "content": "a"}]
    config = {"configurable": {"thread_id": "t"}}
    rows = [
        {"values": {"messages": turns * number}, "config": config, "metadata": {"score": 1.0}}
        for number in (1, 2)
    ]
    table = import_files([lines(tmp_path, *rows)]).table
    assert table.step.tolist() == [0, 1]
    assert table.reward.tolist() == [0.0, 1.0]


# ShareGPT.


def test_sharegpt_demonstrations_and_lists(tmp_path: Path) -> None:
    turns = [
        {"from": "human", "loss": None, "value": "q"},
        {"from": "gpt", "loss": False, "value": "shown"},
        {"from": "human", "value": "q"},
        {"from": "gpt", "loss": True, "value": "Act: bash\n\n```bash\nls\n```"},
    ]
    path = tmp_path / "agent_instruct.json"
    path.write_text(json.dumps([{"id": "os_0", "conversations": turns, "reward": 1.0}]))
    imported = import_files([path])
    assert imported.table.action.texts() == ["Act: bash\n\n```bash\nls\n```"]
    assert imported.table.trajectory.values[0].endswith("/os_0")


@pytest.mark.parametrize(
    ("turn", "why"),
    [
        ({"from": "narrator", "value": "q"}, "conversations[0].from: it must be one of system"),
        ({"from": "function_call", "value": "f(1)"}, "conversations[0].value: "),
        ({"from": "function_call", "value": '{"f": 1}'}, "a call needs a name and arguments"),
    ],
)
def test_sharegpt_turns_that_are_refused(turn: Any, why: str) -> None:
    assert why in refusal("sharegpt", {"conversations": [turn]})


# tau2.


def test_tau2_limits_and_several_results() -> None:
    simulation = make_chats.tau2(0)
    several = {"role": "tool", "tool_messages": simulation["messages"][5:6] * 2}
    simulation["messages"][5] = several
    simulation["termination_reason"] = "max_steps"
    (conversation,) = formats()["tau2"].reads(Record(simulation, Path("results.json")))
    assert conversation.truncated
    roles = [each["role"] for each in conversation.messages]
    assert roles[:5] == ["demonstration", "user", "assistant", "tool", "tool"]
    assert "voices are not read" in refusal("tau2", {**simulation, "ticks": [{}]})


# SWE-agent.


def test_swe_agent_state_is_the_next_step_s(tmp_path: Path) -> None:
    run = make_chats.swe_agent(0)
    for number, step in enumerate(run["trajectory"]):
        step["state"] = {"n": number}
    path = tmp_path / "nightly" / "repo__1" / "repo__1.traj"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(run))
    with pytest.raises(TableError, match=r"no session has a reward"):
        read(path)
    rewards = tmp_path / "rewards.csv"
    rewards.write_text("group,session,reward\nrepo__1,nightly,1\n")
    table = import_files([path], state="key", reward=str(rewards)).table
    assert table.state.texts() == ["start", '{"n":0}', '{"n":1}', '{"n":2}']
    assert list(table.trajectory.values) == ["repo__1/nightly"]
    for step in run["trajectory"]:  # before 1.0, a state was a text, taken before the action
        del step["query"]
        step["state"] = json.dumps(step["state"])
    path.write_text(json.dumps(run | {"reward": 1.0}))
    assert import_files([path], state="key").table.state.texts()[0] == '{"n": 0}'


def test_swe_agent_demonstrations_and_limits() -> None:
    step = {"action": "", "observation": None, "response": "no action", "thought": "Hm."}
    history = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "shown", "is_demo": True},
        {"role": "assistant", "content": "no action"},
    ]
    run = {"trajectory": [step], "history": history, "info": {"exit_status": "exit_cost"}}
    chats = [("user", "q"), ("demonstration", "shown"), ("assistant", "no action")]
    assert messages("swe-agent", run) == chats
    (conversation,) = formats()["swe-agent"].reads(Record(run, Path("a.traj")))
    assert conversation.truncated
    assert conversation.states is None
    assert conversation.trajectory == Path.cwd().name, "not its trajectory, a list of steps"


# mini-swe-agent.


def test_mini_swe_agent_responses_without_an_action() -> None:
    written = {"choices": [{"message": {"role": "assistant", "content": "b"}}]}
    error = {"interrupt_type": "FormatError"}
    run = {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": {"exit_status": "LimitsExceeded"},
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "user", "content": "no", "extra": {**error, "model_response": "a"}},
            {"role": "user", "content": "no", "extra": {**error, "response": written}},
            {"role": "user", "content": "no", "extra": {**error, "response": "repr"}},
            {"role": "exit", "content": "LimitsExceeded"},
        ],
    }
    chats = [("user", "q")]
    for text in ("a", "b", "repr"):
        chats += [("assistant", text), ("user", "no")]
    assert messages("mini-swe-agent", run) == chats
    (conversation,) = formats()["mini-swe-agent"].reads(Record(run, Path("a.traj.json")))
    assert conversation.truncated


def test_mini_swe_agent_with_responses() -> None:
    call = {
        "type": "function_call",
        "call_id": "c",
        "name": "bash",
        "arguments": '{"command": "ls"}',
    }
    response = {"object": "response", "output": [call], "extra": {"actions": []}}
    failed = {"interrupt_type": "FormatError", "response": {"output": [SAID]}}
    asked = [{"type": "input_text", "text": "no"}]
    run = {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": {},
        "messages": [
            {"role": "user", "content": "q"},
            response,
            {"type": "function_call_output", "call_id": "c", "output": "etc", "extra": {}},
            {"type": "message", "role": "user", "content": asked, "extra": failed},
        ],
    }
    assert messages("mini-swe-agent", run) == [
        ("user", "q"),
        ("assistant", [("bash", {"command": "ls"})]),
        ("tool", "etc"),
        ("assistant", "a"),
        ("user", "no"),
    ]


# OpenHands.


def acted(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "source": "agent", "action": "run", "args": {"command": "ls"}, **more}


def test_openhands_actions_of_one_response_are_one_step() -> None:
    response = {"tool_call_metadata": {"model_response": {"id": "r"}}}
    shown = {"id": 1, "cause": 0, "observation": "run", "content": "etc", **response}
    again = {"id": 3, "cause": 2, "observation": "error", "content": "no"}
    status = {"id": 4, "source": "environment", "observation": "agent_state_changed", "content": ""}
    history = [acted(0, **response), shown, acted(2, **response), again, status, acted(5), acted(6)]
    run = ("run", {"command": "ls"})
    assert messages("openhands", {"history": history}) == [
        ("assistant", [run, run]),
        ("tool", "etc"),
        ("tool", "no"),
        ("assistant", [run]),
        ("assistant", [run]),
    ]


@pytest.mark.parametrize("sdk", [False, True])
def test_openhands_condensed_history_goes_on_in_a_new_context(tmp_path: Path, sdk: bool) -> None:
    fields = {"forgotten_event_ids": [0, 1], "summary": "was there"}
    old = {"id": 2, "source": "agent", "action": "condensation", "args": fields}
    condensed = {"id": 2, "kind": "Condensation", **fields} if sdk else old
    shown = {"id": 1, "cause": 0, "observation": "run", "content": "etc"}
    asked = {"id": "q", "source": "user", "action": "message", "args": {"content": "q"}}
    history = [asked, acted(0), shown, condensed, acted(3)]
    record = {"history": history, "test_result": {"report": {"resolved": True}}}
    first, second = formats()["openhands"].reads(Record(record, Path("output.jsonl"), 1))
    run = ("assistant", [("run", {"command": "ls"})])
    summary = ("assistant", "was there")
    assert [*map(_short, first.messages)] == [("user", "q"), run, ("tool", "etc"), summary]
    assert [*map(_short, second.messages)] == [("user", "q"), ("user", "was there"), run]
    assert (second.context, len(second.steps)) == (2, 1)
    assert first.group == second.group
    assert first.reward == second.reward == 1.0
    table = import_files([lines(tmp_path, record)]).table
    assert table.state.texts() == ["user: q", "tool: etc", "user: was there"]
    assert table.reward.tolist() == [0.0, 0.0, 1.0], "one session, one reward"


def test_openhands_condensation_takes_time_in_proportion_to_the_file() -> None:
    summary = {"action": "condensation", "source": "agent", "args": {"summary": "s"}}
    history = [acted(number) for number in range(500)] + [summary] * 500
    assert "condensed too often" in refusal("openhands", {"history": history})


def test_openhands_runs_without_a_result_or_with_unknown_events(tmp_path: Path) -> None:
    row = {"history": [acted(0)], "test_result": {"git_patch": ""}, "error": "maximum iterations"}
    (conversation,) = formats()["openhands"].reads(Record(row, Path("output.jsonl"), 1))
    assert conversation.reward is None
    with pytest.raises(TableError, match=r"no session has a reward"):
        import_files([lines(tmp_path, row)])
    assert "history[0].kind: 'HookEvent' is not read" in refusal(
        "openhands", {"history": [{"kind": "HookEvent"}]}
    )
    assert "it must have an action" in refusal("openhands", {"history": [acted(0), {"id": 1}]})


# Parquet.


def test_parquet_that_expands_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small as it is, it holds a long text in every row."""
    path = tmp_path / "chats.parquet"
    row = {"messages": json.dumps(chat("8" * 1000)["messages"]), "reward": 1.0}
    pq.write_table(pa.Table.from_pylist([row] * 100), path)
    monkeypatch.setattr("ascribe.sessions.reading.files.expansion_limit", lambda _: 50_000)
    with pytest.raises(TableError, match="it expands to more than 50,000 bytes"):
        import_files([path])


@pytest.mark.parametrize("name", ["openai.jsonl", "sharegpt.jsonl", "anthropic.jsonl"])
@pytest.mark.parametrize("as_text", [False, True])
def test_rows_of_parquet_are_records(tmp_path: Path, name: str, as_text: bool) -> None:
    rows = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    for row in rows:
        for message in row.get("messages", ()) if name == "anthropic.jsonl" else ():
            if isinstance(message["content"], str):  # a column has values of one type
                message["content"] = [{"type": "text", "text": message["content"]}]
        for column in row.keys() & {"messages", "conversations"} if as_text else ():
            row[column] = json.dumps(row[column])
    path = tmp_path / "chats.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    imported = read(path)
    lines_ = import_files([DATA / name])
    assert imported.format == FILES[name]
    assert imported.table.reward.tolist() == lines_.table.reward.tolist()
    for column in ("state", "action", "group"):
        texts = getattr(imported.table, column).texts()
        assert texts == getattr(lines_.table, column).texts(), column
    assert imported.table.trajectory.values[0].endswith("/row 1")


def test_arguments_of_other_calls_are_no_arguments(tmp_path: Path) -> None:
    """Arrow gives every object the entries of all."""
    uses = [{**USE, "input": values} for values in ({"x": 1}, {"y": 2})]
    rows = [{"messages": blocks(use)["messages"][1:], "reward": 1.0, "task": "t"} for use in uses]
    path = tmp_path / "chats.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    actions = import_files([path]).table.action.texts()
    assert actions == ['{"arguments":{"x":1},"name":"f"}', '{"arguments":{"y":2},"name":"f"}']


def test_a_step_table_in_parquet_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    row = {"group": "g", "trajectory": "t", "step": 0, "state": "s", "action": "a", "reward": 1.0}
    pq.write_table(pa.Table.from_pylist([row | {"messages": "[]"}]), path)
    assert read(path).table.action.texts() == ["a"]
    with pytest.raises(TableError, match="no session of a known format"):
        import_files([path])


def test_parquet_that_is_refused_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "chats.parquet"
    rows = [{"messages": "[]", "reward": 1.0}, {"messages": "{", "reward": float("nan")}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(TableError, match=r"chats.parquet, row 2, messages: it must be a list"):
        import_files([path])
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    pq.write_table(pa.table({"messages": [deep]}), path)
    for reader in (read, lambda path: import_files([path])):
        with pytest.raises(TableError, match="too deeply nested"):
            reader(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TableError, match="cannot be read as Parquet"):
        import_files([path])


def test_two_sessions_never_have_one_name(tmp_path: Path) -> None:
    """Trajectories are called GROUP/TRAJECTORY, and either may hold a slash."""
    asked, said = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    names = [("a", "b/1", 1.0), ("a/b", "1", 0.0)]
    rows = [
        {"messages": [asked, said], "group": group, "id": name, "reward": reward}
        for group, name, reward in names
    ]
    table = import_files([lines(tmp_path, *rows)]).table
    assert len(set(table.trajectory.texts())) == 2
    assert table.reward.tolist() == [1.0, 0.0]
