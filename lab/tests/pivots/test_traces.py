"""Traces in: what each format says, and what is said of files that are broken or hostile."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.steps.files import write
from ascribe.steps.problems import ProblemKind, TableError
from ascribe_lab.models.policy import mix_seeds
from ascribe_lab.pivots import extract, read_turns, write_turns
from ascribe_lab.pivots.candidates import distinct
from ascribe_lab.rollout import Model, Plan, Setup, arrow, play
from lab.tests.pivots.made import CHAT, SEARCH, SHAREGPT, a_turn, lines
from tests.hostile import HOSTILE, LONG


def faults(path: Path, **options: Any) -> list[tuple[ProblemKind, list[int]]]:
    with pytest.raises(TableError) as caught:
        extract([path], **options)
    return [(problem.kind, problem.rows.tolist()) for problem in caught.value.problems]


BAD = ProblemKind.BAD_RECORD


# What is read.


def test_every_assistant_turn_is_a_candidate_with_its_whole_history(tmp_path: Path) -> None:
    found = extract([lines(tmp_path / "t.jsonl", CHAT)])
    first, second = found.candidates
    assert (found.traces, found.turns, found.problems) == (1, 2, [])
    assert [said["role"] for said in first.messages] == ["system", "user"]
    assert first.messages[0]["content"].startswith("You help.\n\nYou can call these tools.")
    assert '"name":"search"' in first.messages[0]["content"]
    assert first.action == (
        '<tool_call>\n{"name": "search", "arguments": {"query": "Lisbon", "count": 2}}\n'
        "</tool_call>"
    )
    assert [said["role"] for said in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[2]["content"] == first.action
    told = "<tool_response>\nA city in Portugal.\n</tool_response>"
    assert second.messages[3]["content"] == told
    assert second.action == "In Portugal."
    assert (second.origin.trace, second.origin.turn, second.origin.turns) == ("trip", 1, 2)
    assert json.loads(second.tools[0]) == SEARCH


def test_sharegpt_and_openai_give_the_same_candidates(tmp_path: Path) -> None:
    one = extract([lines(tmp_path / "a.jsonl", CHAT)]).candidates
    other = extract([lines(tmp_path / "b.jsonl", SHAREGPT)]).candidates
    assert [turn.id for turn in one] == [turn.id for turn in other]


def test_copies_are_counted_and_kept_once(tmp_path: Path) -> None:
    first = lines(tmp_path / "a.jsonl", CHAT, {**CHAT, "id": 7})
    found = extract([first, lines(tmp_path / "b.jsonl", SHAREGPT)])
    assert (found.traces, found.turns) == (3, 6)
    assert [turn.copies for turn in found.candidates] == [2, 2]
    assert {turn.origin.file for turn in found.candidates} == {"a.jsonl"}


def test_parallel_calls_and_tool_answers_stay_together(tmp_path: Path) -> None:
    calls = [{"function": {"name": f"t{i}", "arguments": {"i": i}}} for i in range(2)]
    row = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Both."}]},
            {"role": "assistant", "content": "Yes.", "tool_calls": calls},
            {"role": "tool", "content": "zero"},
            {"role": "tool", "content": "one"},
            {"role": "assistant", "content": "Done."},
        ]
    }
    first, second = extract([lines(tmp_path / "t.jsonl", row)]).candidates
    assert first.action.startswith("Yes.\n<tool_call>")
    assert first.action.count("<tool_call>") == 2
    assert [said["role"] for said in second.messages] == ["user", "assistant", "user"]
    assert second.messages[-1]["content"].count("<tool_response>") == 2


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ({"name": "search", "parameters": {"q": "x"}}, '{"q": "x"}'),
        ({"name": "search", "parameters": '{"q": "x"}'}, '{"q": "x"}'),
        ({"name": "search", "id": "1", "type": "function"}, "{}"),
        ({"name": "search", "arguments": ""}, "{}"),
        ({"function": {"name": "search"}, "id": "1", "type": "function", "index": 0}, "{}"),
    ],
)
def test_calls_as_others_write_them(told: Any, arguments: str, tmp_path: Path) -> None:
    turns = [SHARED, {"from": "function_call", "value": json.dumps(told)}]
    (found,) = extract([lines(tmp_path / "t.jsonl", {"conversations": turns})]).candidates
    written = f'{{"name": "search", "arguments": {arguments}}}'
    assert found.action == f"<tool_call>\n{written}\n</tool_call>"


def test_a_turn_of_no_weight_is_history_alone(tmp_path: Path) -> None:
    row = json.loads(json.dumps(CHAT))
    row["messages"][2]["weight"] = 0
    (only,) = extract([lines(tmp_path / "t.jsonl", row)]).candidates
    assert only.action == "In Portugal."


def test_packed_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(CHAT).encode() + b"\n"))
    assert len(extract([path]).candidates) == 2
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableError, match="cannot be decompressed"):
        extract([path])


# Ascribe's own files.


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of the expert of a small environment."""
    setup = Setup("ezpoints", style="plain", pool="serial")
    plan = Plan(groups=6, size=1, max_turns=setup.turns(None), seed=3, name="ezpoints")
    path = tmp_path_factory.mktemp("played") / "traces.parquet"
    write(arrow(play(setup, Model("expert"), plan)), path)
    return path


def test_rollouts_of_an_expert_are_traces(played: Path) -> None:
    found = extract([played], seed=3)
    assert found.traces == 6
    assert found.problems == []
    one = found.candidates[1]
    assert one.messages[0]["role"] == "user"
    assert one.action.startswith("<action>")
    assert one.scene is not None
    assert one.scene.seed in {mix_seeds(3, group) for group in range(6)}
    assert len(one.scene.actions) == one.origin.turn


def test_episodes_that_were_lost_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    setup = Setup("ezpoints", style="plain", pool="serial")
    plan = Plan(groups=8, size=1, max_turns=3, seed=0, name="ezpoints")
    path = tmp_path / "traces.parquet"
    write(arrow(play(setup, Model("random"), plan)), path)
    few = extract([path])
    assert few.skipped["lost_trace"] > 0
    assert len(extract([path], lost=True).candidates) > len(few.candidates)


def rows(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """An episode of one step for each change, as a file of rollouts holds it."""
    plain = {"step": 0, "state": "s", "action": "go", "reward": 1.0, "valid": True, "won": True}
    plain |= {"prompt": '[{"role": "user", "content": "Go."}]', "response": "<action>go</action>"}
    return [
        {"group": f"g/{n}", "trajectory": f"g/{n}/0", **plain, **change}
        for n, change in enumerate(changes)
    ]


@pytest.mark.parametrize(
    "prompt", ["{", "[]", "7", '[{"role": "user"}]', '[{"role": "user", "content": 7}]', None]
)
def test_a_prompt_that_is_no_chat_is_refused_with_its_row(prompt: Any, tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", *rows({}, {"prompt": prompt}))
    assert faults(path) == [(BAD, [1])]
    assert len(extract([path], skip_bad=True).candidates) == 1


def test_a_trace_with_a_bad_prompt_is_left_out_whole(tmp_path: Path) -> None:
    steps = rows({"step": 0}, {"step": 1, "prompt": "{"}, {"step": 2})
    one = [{**step, "group": "g/0", "trajectory": "g/0/0"} for step in steps]
    other = [{**step, "group": "g/1", "trajectory": "g/1/0"} for step in rows({"state": "t"})]
    path = lines(tmp_path / "r.jsonl", *one, *other)
    assert faults(path) == [(BAD, [1])]
    found = extract([path], skip_bad=True)
    assert [turn.origin.trace for turn in found.candidates] == ["g/1/0"]


def test_turns_that_were_invalid_or_empty_are_left_out(tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", *rows({"valid": False}, {"response": " "}, {}))
    found = extract([path])
    assert found.skipped == {"invalid_turn": 1, "empty_turn": 1}
    (only,) = found.candidates
    assert only.scene is not None
    assert only.scene.seed == mix_seeds(0, 2)


def test_groups_that_no_plan_named_have_no_scene(tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", *rows({"group": "mine"}))
    assert extract([path]).candidates[0].scene is None


def test_tasks_of_an_evaluation_are_counted_from_its_first(tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", *rows({}, {"state": "t"}))
    found = extract([path], first=30, seed=1)
    assert found.turns == 2
    scene = found.candidates[0].scene
    assert scene is not None
    assert (scene.task, scene.seed) == (30, mix_seeds(1, 0))


def test_a_table_without_a_transcript_is_refused(good_file: Path) -> None:
    assert faults(good_file) == [(BAD, [])]


def test_a_damaged_table_is_refused(played: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(played.read_bytes()[:-100])
    assert faults(broken) == [(ProblemKind.UNREADABLE_FILE, [])]


# What is refused, and where.

USER = {"role": "user", "content": "Hello."}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


DEEP = '{"a":' * 500 + "1" + "}" * 500

BROKEN: list[tuple[Any, str]] = [
    ("{", ""),
    ("[1, 2]", ""),
    ('{"messages": [], "messages": []}', ""),
    ('{"messages": NaN}', ""),
    ('{"messages": ' + "[" * 5000 + "]" * 5000 + "}", ""),
    ({"messages": []}, "a list that is not empty"),
    ({"messages": "hello"}, "a list that is not empty"),
    (chat("hello"), "not a mapping"),
    (chat({"role": "oracle", "content": "x"}), "its role is"),
    (chat({"content": "x"}), "its role is"),
    (chat({"role": "user", "content": 7}), "content|value"),
    (chat({"role": "user", "content": [{"type": "image_url"}]}), "content|value"),
    (chat(USER, {"role": "assistant", "tool_calls": 7}), "call|arguments"),
    (chat(USER, {"role": "assistant", "tool_calls": [{}]}), "call|arguments"),
    (
        chat(USER, {"role": "assistant", "tool_calls": [{"name": "x", "arguments": "{"}]}),
        "call|arguments",
    ),
    (
        chat(USER, {"role": "assistant", "tool_calls": [{"name": "x", "arguments": "[]"}]}),
        "call|arguments",
    ),
    (
        chat(USER, {"role": "assistant", "tool_calls": [{"name": "x", "input": {"a": 1}}]}),
        "call|arguments",
    ),
    (
        chat(
            USER, {"role": "assistant", "tool_calls": [{"name": "x", "arguments": '{"a":1e400}'}]}
        ),
        "call|arguments",
    ),
    (
        chat(USER, {"role": "assistant", "tool_calls": [{"name": "x", "arguments": DEEP}]}),
        "call|arguments",
    ),
    (
        '{"messages": [], "tools": [{"name": "x", "parameters": {"minimum": 1e400}}]}',
        "",
    ),
    (f'{{"messages": [], "tools": {DEEP}}}', ""),
    (chat(USER, tools='[{"name": "x", "parameters": {"a": 1e400}}]'), "tool"),
    (chat(USER, tools=DEEP), "tool"),
    (chat(USER, tools={}), "tool"),
    (chat(USER, tools=[{"name": ""}]), "tool"),
    (chat(USER, tools=[{"name": "x", "parameters": 3}]), "tool"),
]


@pytest.mark.parametrize(("row", "reason"), BROKEN)
def test_a_broken_trace_is_refused_with_its_line_and_what_to_do(
    row: Any, reason: str, tmp_path: Path
) -> None:
    path = lines(tmp_path / "t.jsonl", CHAT, row)
    with pytest.raises(TableError, match=rf"t\.jsonl, line 2.*({reason}).*\. [A-Z].*\."):
        extract([path])
    assert faults(path) == [(BAD, [1])]
    skipped = extract([path], skip_bad=True)
    assert len(skipped.candidates) == 2
    assert [problem.kind for problem in skipped.problems] == [BAD]


SHARED = {"from": "human", "value": "Hello."}
SHAREGPT_BROKEN: list[tuple[list[Any], str]] = [
    ([SHARED, {"from": "gpt"}], "content|value"),
    ([SHARED, {"from": "oracle", "value": "x"}], "its role is"),
    ([SHARED, {"from": ["gpt"], "value": "x"}], "its role is"),
    ([SHARED, {"from": "function_call", "value": "search(x)"}], "call|arguments"),
    (
        [SHARED, {"from": "function_call", "value": '{"name": "x", "q": 1}'}],
        "call|arguments",
    ),
    ([], "a list that is not empty"),
]


@pytest.mark.parametrize(("turns", "reason"), SHAREGPT_BROKEN)
def test_a_broken_sharegpt_trace_is_refused(turns: list[Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=rf"t\.jsonl, line 2.*({reason})"):
        extract([lines(tmp_path / "t.jsonl", SHAREGPT, {"conversations": turns})])


def test_turns_that_demonstrate_nothing_are_left_out_and_told(tmp_path: Path) -> None:
    silent = chat(USER, {"role": "assistant", "content": " "})
    opening = chat({"role": "assistant", "content": "Hello!"})
    nobody = chat(USER)
    found = extract([lines(tmp_path / "t.jsonl", silent, opening, nobody)])
    assert found.candidates == []
    assert found.skipped == {"empty_turn": 1, "no_history": 1, "no_assistant_turn": 1}


def test_files_of_nothing_or_something_else_are_refused(tmp_path: Path) -> None:
    assert faults(lines(tmp_path / "a.jsonl")) == [(BAD, [])]
    for row, title in (
        ({"text": "x"}, "an object of text"),
        ({"history": [{"action": "run"}]}, "OpenHands trajectories are not read here"),
    ):
        with pytest.raises(TableError, match=f"line 1: {title}.*Write OpenAI messages"):
            extract([lines(tmp_path / "b.jsonl", row)])
    with pytest.raises(FileNotFoundError):
        extract([tmp_path / "nowhere.jsonl"])


def test_a_line_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ascribe.steps.lines.LONGEST_LINE", 1 << 20)
    path = lines(tmp_path / "t.jsonl", CHAT, "x" * (1 << 21))
    assert faults(path) == [(BAD, [])]
    endless = lines(tmp_path / "u.jsonl", "x" * (1 << 21))
    assert faults(endless) == [(BAD, [])]


@pytest.mark.parametrize("name", [*HOSTILE, *LONG])
def test_hostile_texts_break_nothing(name: str, tmp_path: Path) -> None:
    text = {**HOSTILE, **LONG}[name]
    row = chat(
        {"role": "user", "content": text},
        {"role": "tool", "content": text},
        {
            "role": "assistant",
            "content": f"x{text}",
            "tool_calls": [{"name": "t", "arguments": {"a": text}}],
        },
        id=text,
    )
    found = extract([lines(tmp_path / "t.jsonl", row)])
    path = tmp_path / "c.jsonl"
    write_turns(path, found.candidates)
    assert read_turns(path).candidates == tuple(found.candidates)
    for turn in found.candidates:
        shown = turn.messages[1]["content"]
        assert shown.count("</tool_response>") == 1
        assert "<|" not in shown


@given(st.binary(max_size=200))
def test_whatever_the_bytes_the_faults_are_the_known_ones(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "t.jsonl"
    path.write_bytes(data)
    with pytest.raises(TableError):
        extract([path])


# Files of candidates.


def test_candidates_are_what_was_written(tmp_path: Path) -> None:
    found = extract([lines(tmp_path / "t.jsonl", CHAT)]).candidates
    path = tmp_path / "c.jsonl"
    write_turns(path, found, facts={"traces": 1})
    read = read_turns(path)
    assert (read.kind, dict(read.facts)) == ("pivot candidates", {"traces": 1})
    assert read.candidates == tuple(found)


def test_ids_follow_from_history_and_action_alone() -> None:
    assert a_turn("go").id == a_turn("go").id
    assert len({a_turn("go").id, a_turn("stay").id, a_turn("go", "Now!").id}) == 3
    assert len(distinct([a_turn("go"), a_turn("go")])) == 1


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    write_turns(path, [a_turn("go north")])
    text = path.read_text()
    for broken, match in (
        (text.replace("go north", "go south"), "line 2 .* does not match its id"),
        (text.replace('"version": 1', '"version": 9'), "line 1 .* another version"),
        (text.replace("pivot candidates", "shopping"), "line 1 .* does not say"),
        (text.replace('"scene"', '"scenery"'), "line 2"),
        ("\n".join(text.splitlines()[i] for i in (0, 1, 1, 2)), "twice"),
        (text + text.splitlines()[1], "line 4 .* after the end mark"),
        (text[:-20], "line 3"),
        ("\n".join(text.splitlines()[:2]), "1 turns and no end mark"),
        (text.replace('"turns": 1}\n', '"turns": 2}\n'), "1 turns and an end mark for 2"),
        ("", "empty"),
    ):
        path.write_text(broken)
        with pytest.raises(ValueError, match=match):
            read_turns(path)
