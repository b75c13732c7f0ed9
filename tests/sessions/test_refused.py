"""What is not read whole is refused by name; nothing becomes other steps than were written."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import TableError
from ascribe.sessions import Conversation, from_messages
from ascribe.sessions.reading import import_files, read, write_credit
from ascribe.steps.files import read as read_steps
from ascribe.steps.files import read_parts

pytestmark = pytest.mark.unit

ADVICE = ("write ", "give ", "name ", "record ")


def lines(folder: Path, *rows: Any, name: str = "runs.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_all_samples_are_read_or_refused_by_name() -> None:
    """More files: the folder that ASCRIBE_SESSION_SAMPLES names."""
    folder = os.environ.get("ASCRIBE_SESSION_SAMPLES")
    if not folder:
        pytest.skip("ASCRIBE_SESSION_SAMPLES is not set")
    for path in (path for path in Path(folder).rglob("*") if path.suffix not in ("", ".txt")):
        try:
            assert len(read(path).table) > 0
        except TableError as error:
            (problem,) = error.problems
            assert any(word in problem.detail for word in ADVICE)


# In Python.


def blocks(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "task"}, {"role": "assistant", "content": list(parts)}]


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        (blocks("a", {"type": "tool_use", "name": "f"}), "message 1: part 1.*'tool_use'.*; write"),
        (blocks({"type": "new", "text": "x"}), "'new', which is not read; write"),
        (blocks({"type": "text", "text": 3}), "'text', which is not read"),
        (blocks(7), "'int', which is not read"),
        ([{"type": "human", "content": "a"}], "its role is None.*[Tt]here are: system"),
        ([{"content": "a"}], "its role is None.*[Tt]here are: system"),
        ([{"role": "ai", "content": "a"}], "its role is 'ai'"),
        ([Path("a")], "Path, not a mapping"),
        (
            [{"role": "assistant", "tool_calls": [{"name": "f", "args": {"a": 1}}]}],
            "a call needs a name and arguments, and has name, args; write",
        ),
        ([{"role": "user", "content": "a"}], "no message has the role assistant"),
    ],
)
def test_messages_of_other_forms_are_refused(messages: Any, why: str) -> None:
    for state in ("observation", "history", "tool"):
        with pytest.raises(ValueError, match=why):
            from_messages(
                [Conversation(group="g", trajectory="t", messages=messages, reward=1)], state=state
            )


GEMINI = [{"role": "user", "parts": [{"text": "a"}]}, {"role": "model", "parts": [{"text": "b"}]}]


def acted(**message: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, **message}]


@pytest.mark.parametrize(
    ("chat", "why"),
    [
        (
            acted(tool_calls=[{"function": {"name": "f", "input": {"x": 1}}}]),
            "has .*input.*[Ww]rite",
        ),
        (acted(tool_calls=[{"name": "f", "input": {"x": 1}}]), "call needs .* has name, input"),
        (acted(tool_calls=[{"custom": {"name": "f", "input": "x"}}]), "and has custom.*[Ww]rite"),
        (acted(tool_calls={"name": "f"}), "its tool_calls are a dict.*[Gg]ive a list"),
        (acted(toolCalls=[{"name": "f"}]), "its toolCalls would be left unread.*[Ww]rite"),
        (acted(content="I look.", toolCalls=[{"name": "f"}]), "its toolCalls would be left unread"),
        (acted(content="", tool_call={"name": "f"}), "its tool_call would be left unread"),
        (acted(additional_kwargs={"tool_calls": [{}]}), "its additional_kwargs would be left"),
        (acted(content="<think>Hm.</think>", answer="yes"), "its answer would be left unread"),
        (acted(audio={"id": "a"}), "its audio would be left unread"),
        ([{"role": "user", "text": "q"}, acted(content="a")[1]], "its text would be left unread"),
        (GEMINI, "its parts would be left unread: these are Gemini contents.*[Ww]rite"),
        (
            [acted()[0], {"role": "narrator", "content": "a"}],
            "its role is 'narrator'.*[Tt]here are: system",
        ),
        (blocks({"type": "input_json", "x": 1}), "'input_json', which is not read"),
    ],
)
def test_no_action_or_state_is_left_unread(tmp_path: Path, chat: Any, why: str) -> None:
    """Read without them, different actions or tasks would be one."""
    with pytest.raises(ValueError, match=why):
        from_messages([Conversation(group="g", trajectory="t", messages=chat, reward=1)])
    with pytest.raises(TableError, match=rf"line 1, messages.*{why}"):
        import_files([lines(tmp_path, {"messages": chat, "reward": 1.0})])


def test_calls_are_read_alike_in_python_and_in_files(tmp_path: Path) -> None:
    calls = [
        {"function": {"name": "f", "arguments": '{"x": 1}'}},
        {"function": {"name": "f", "parameters": {"x": 2}}},
        {"name": "f", "parameters": {"x": 3}},
        {"function": "f", "arguments": {"x": 4}},
        json.dumps({"name": "f", "arguments": {"x": 5}}),
        {"function": {"name": "f", "arguments": None}, "parameters": {"x": 6}},
    ]
    chats = [*(acted(tool_calls=[call]) for call in calls), acted(function_call=calls[0])]
    episodes = [
        Conversation(group="g", trajectory=str(n), messages=chat, reward=1.0)
        for n, chat in enumerate(chats)
    ]
    path = lines(tmp_path, *({"task": "g", "messages": chat, "reward": 1.0} for chat in chats))
    expected = [f'{{"arguments":{{"x":{x}}},"name":"f"}}' for x in (1, 2, 3, 4, 5, 6, 1)]
    assert from_messages(episodes).action.texts() == expected
    assert import_files([path]).table.action.texts() == expected


def test_what_says_nothing_of_the_action_may_stand_beside_an_empty_one(tmp_path: Path) -> None:
    beside = {"id": "m", "finish_reason": "stop", "reasoning_details": [{}], "latency": 1.5}
    chat = acted(**beside, created_at="now", model="m", annotations=[{}])
    path = lines(tmp_path, {"messages": chat, "reward": 1.0})
    assert import_files([path]).table.action.texts() == [""]


@pytest.mark.parametrize("key", ["task_id", "trajectory_id"])
def test_lines_that_extend_each_other_are_a_log(tmp_path: Path, key: str) -> None:
    """Each would be a trajectory with the whole reward."""
    thought = [CHAT[0], {**CHAT[1], "reasoning_content": "Hm."}]  # gone in the next call
    rows = [{key: "s", "messages": chat, "reward": 1.0} for chat in (thought, [*CHAT, *CHAT])]
    for order in (rows, rows[::-1]):
        with pytest.raises(TableError, match=r"line 2: another line goes on where.*session_id"):
            import_files([lines(tmp_path, *order)])
    apart = [{**row, "session_id": str(number)} for number, row in enumerate(rows)]
    assert import_files([lines(tmp_path, *apart)]).table.trajectory.values.size == 2
    equal = import_files([lines(tmp_path, rows[1], rows[1])])
    assert equal.table.trajectory.values.size == 2, "rollouts may be equal"


def test_rollouts_of_a_task_that_end_earlier_are_read(tmp_path: Path) -> None:
    cut, whole = ({"task": "t", "messages": CHAT * n, "reward": n - 1.0} for n in (1, 2))
    assert import_files([lines(tmp_path, cut, whole)]).table.trajectory.values.size == 2


def test_a_system_prompt_beside_the_messages_is_a_message(tmp_path: Path) -> None:
    rows = [{"system": text, "messages": CHAT, "reward": 1.0} for text in ("add", "delete")]
    table = import_files([lines(tmp_path, *rows)], state="observation").table
    assert table.state.texts() == ["system: add\n\nuser: q", "system: delete\n\nuser: q"]
    assert table.group.values.size == 2


def test_parts_that_are_read(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "a"}}
    parts = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "output_text", "text": "yes"}]
    chats = [
        [{"role": "user", "content": [picture, {"type": "text", "text": "?"}]}, blocks(*parts)[1]]
        for picture in (picture, picture | {"image_url": {"url": "b"}})
    ]
    episodes = [
        Conversation(group="g", trajectory=str(n), messages=chat, reward=1.0)
        for n, chat in enumerate(chats)
    ]
    path = lines(tmp_path, *({"task": "g", "messages": chat, "reward": 1.0} for chat in chats))
    for table in (from_messages(episodes), import_files([path], state="observation").table):
        assert table.action.texts() == ["yes", "yes"], "reasoning is no part of an action"
        first, second = table.state.texts()
        assert first != second, "two pictures are two states"


# verl's dump.


def dumped(*, score: float, **more: Any) -> dict[str, Any]:
    return {"input": "task", "output": f"act {score:g}", "score": score, **more}


def test_a_list_of_verl_rollouts_is_so_many_trajectories(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps([dumped(score=float(n)) for n in range(3)]))
    table = import_files([path]).table
    assert table.trajectory.values.size == 3
    assert table.step.tolist() == [0, 0, 0]
    assert table.reward.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("form", ["verl", "verifiers-results"])
def test_files_with_equal_names_are_not_joined(tmp_path: Path, form: str) -> None:
    """Line by line, the first rollouts of all files would be one."""
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        row = dumped(score=float(number))
        if form != "verl":
            row = {"example_id": 1, "prompt": "task", "completion": "a", "reward": float(number)}
        lines(folder, row, row)
    table = import_files([tmp_path]).table
    assert table.trajectory.values.size == 8
    assert table.step.tolist() == [0] * 8


def test_outputs_of_a_named_rollout_are_joined_over_files(tmp_path: Path) -> None:
    for number in range(2):
        lines(tmp_path, dumped(score=1.0, uid=f"a_0_{number}"), name=f"{number}.jsonl")
    assert import_files([tmp_path]).table.step.tolist() == [0, 1]


# Values that ended in a traceback.


def rllm(**trajectory: Any) -> dict[str, Any]:
    return {"id": "k:0", "trajectories": [{"name": "a", **trajectory}]}


CHAT = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            {"messages": CHAT, "reward": 1, "rewards": [0.5]},
            "line 1.*final reward 1, but those of its steps sum to 0.5",
        ),
        (
            {"messages": CHAT, "reward": 1, "rewards": [0]},
            "line 1: session .* steps sum to 0.*Give either",
        ),
        (
            {
                "task": "t",
                "reward": 1,
                "messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": ""}]}],
            },
            r"line 1, messages\[0\]: a call needs a name",
        ),
        (dumped(score=1.0, step=2**70), "step: the number is too large"),
        (rllm(reward=1.0), r"trajectories\[0\].steps: it must be a list, not missing"),
        (
            {
                "_ng_task_index": 0,
                "response": {"output": [{"type": "function_call", "name": "", "arguments": "{}"}]},
                "reward": 1.0,
            },
            "line 1: conversation .* message 0: a call needs a name",
        ),
        (rllm(reward=1.0, steps=[None]), r"steps\[0\]: it must be an object, not missing"),
        (rllm(name=["a"], steps=[]), r"trajectories\[0\].name: it must be text, not a list"),
        (rllm(name={"a": 1}, steps=[]), "name: it must be text, not an object"),
        ({**rllm(steps=[{"action": "a"}]), "training_step": 2**70}, "training_step: the number"),
        ({"schema_version": "ATIF-v1.7"}, "steps: it must be a list, not missing"),
    ],
)
def test_bad_values_are_refused_with_their_place(tmp_path: Path, row: Any, why: str) -> None:
    with pytest.raises(TableError, match=why):
        import_files([lines(tmp_path, row)])


def test_a_line_without_messages_is_not_skipped(tmp_path: Path) -> None:
    path = lines(tmp_path, {"messages": CHAT, "reward": 1.0}, {"reward": 0.0})
    with pytest.raises(TableError, match="line 2, messages: it must be a list, not missing"):
        import_files([path])
    path = lines(tmp_path, rllm(reward=1.0, steps=[{"chat_completions": CHAT}]), {"id": "k:1"})
    with pytest.raises(TableError, match="line 2, trajectories: it must be a list, not missing"):
        import_files([path])


PLAIN = {
    "schema_version": "ATIF-v1.7",
    "session_id": "run 1",
    "agent": {"name": "main", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Which port?"},
        {"step_id": 2, "source": "agent", "message": "8080"},
    ],
    "final_metrics": {"extra": {"reward": 1.0}},
}


def atif(path: Path, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(PLAIN | more))


OWN = {"final_metrics": {"extra": {"reward": 1.0}}}


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"message": [{"type": "audio"}]}, r"steps\[0\].message\[0\].type: a part of ATIF is text"),
        (
            {"observation": {"results": [{"content": [{"type": "x"}]}]}},
            r"content\[0\].type: a part",
        ),
        ({"tool_calls": [{"function_name": "f", "input": {}}]}, "arguments: it must be an object"),
    ],
)
def test_parts_and_calls_that_atif_does_not_have(tmp_path: Path, step: Any, why: str) -> None:
    steps = [{"source": "agent", "message": [{"type": "text", "text": "a"}], **step}]
    atif(tmp_path / "runs" / "0.json", steps=steps, **OWN)
    with pytest.raises(TableError, match=why):
        import_files([tmp_path])


@pytest.mark.parametrize("text", ["[]", "[3]", "3", "null"])
def test_a_result_of_harbor_that_holds_nothing(tmp_path: Path, text: str) -> None:
    trial = tmp_path / "port__0"
    atif(trial / "agent" / "trajectory.json")
    (trial / "result.json").write_text(text)
    if "3" in text:
        with pytest.raises(TableError, match=r"result.json.*it must be an object"):
            import_files([trial / "agent" / "trajectory.json"])
    else:
        table = import_files([trial / "agent" / "trajectory.json"]).table
        assert list(table.group.values) == ["port"]


def test_a_reward_of_zero_is_no_missing_reward(tmp_path: Path) -> None:
    """rLLM with a trajectory's reward of 0.0 and none for its steps."""
    step = {"chat_completions": CHAT}
    failed, won = rllm(reward=0.0, steps=[step]), rllm(reward=1.0, steps=[step])
    path = lines(tmp_path, failed, {**won, "id": "k:1"})
    assert import_files([path]).table.reward.tolist() == [0.0, 1.0]
    # A rewritten history: the reward of a step is in the second conversation alone.
    other = [{"role": "user", "content": "summary"}, CHAT[1]]
    steps = [step, {"chat_completions": other, "reward": 1.0}]
    path = lines(tmp_path, rllm(reward=1.0, steps=steps))
    assert import_files([path]).table.reward.tolist() == [0.0, 1.0]


def test_rllm_without_chats_takes_time_in_proportion_to_its_steps(tmp_path: Path) -> None:
    steps = [{"observation": str(n), "action": "go"} for n in range(3000)]
    path = lines(tmp_path, rllm(reward=1.0, steps=steps))
    imported = import_files([path])
    assert imported.table.step.tolist() == list(range(3000))
    write_credit(path, imported, np.arange(3000.0), tmp_path / "out.jsonl")
    credited = json.loads((tmp_path / "out.jsonl").read_text())
    assert credited["trajectories"][0]["steps"][-1]["advantage"] == 2999.0


def test_a_head_of_csv_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"group,trajectory,step,state,action,reward,\xff\n1,1,0,s,a,1,2\n")
    for reader in (read_steps, lambda path: list(read_parts(path))):
        with pytest.raises(TableError, match="cannot be read as CSV"):
            reader(path)
