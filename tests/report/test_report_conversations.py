"""Reports on conversations: messages in the browser, turns, cut responses."""

import json
import re
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ascribe import recipe
from ascribe.cli import app
from ascribe.estimators.diagnostics import credit_per_tool, diagnose
from ascribe.reports import Picture, picture
from tests.report.toys import groups_of
from tests.sessions.test_formats import DATA, lines

pytestmark = pytest.mark.unit

GRPO = recipe("grpo")


def conversation(turns: int, reward: float, tool: str = "look", **more: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "the task"}]
    for number in range(turns - 1):
        function = {"name": tool, "arguments": json.dumps({"n": number})}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]},
            {"role": "tool", "tool_call_id": "c", "content": f"result {number}"},
        ]
    messages.append({"role": "assistant", "content": f"answer {reward}"})
    return {"task": "t", "messages": messages, "reward": reward, **more}


def findings(page: Picture) -> dict[str, str]:
    return {finding.name: finding.message for finding in page.verdict.findings}


def test_messages_are_shown_as_such():
    page = picture([DATA / "openai.jsonl"], recipe("gigpo"))
    group = groups_of(page.browser)[0]
    texts = group["texts"]
    first, second = group["cells"]["messages"][:2]
    assert [message["role"] for message in first] == ["system", "user", "assistant"]
    assert [message["role"] for message in second] == ["tool", "assistant"]
    assert texts[second[0]["text"]] == "etc  srv"
    (call,) = second[1]["calls"]
    assert [texts[word] for word in call] == ["call_0_1", "look", "path", '"/etc"']
    assert texts[group["cells"]["action"][1]] == 'look(path="/etc")'
    assert page.notes == (
        "openai.jsonl: OpenAI messages, 16 steps in 4 sessions. State: observation; "
        "12.5% of the steps have no other step in the same state to compare with "
        "(tool: 12.5%, history: 25.0%).",
    )


@pytest.mark.parametrize(
    "text", ["{", "7", '"x"', "[7, null]", '[{"role": 5, "tool_calls": [7, {"function": 3}]}]', ""]
)
def test_messages_in_another_form_do_no_harm(tmp_path: Path, text: str):
    rows = [
        {"group": "g", "trajectory": f"t{n}", "step": 0, "state": "s", "action": "a", "reward": n}
        for n in range(2)
    ]
    path = lines(tmp_path, *({**row, "messages": text} for row in rows))
    shown = groups_of(picture([path], GRPO).browser)[0]["cells"]["messages"]
    assert len(shown) == 2


def test_a_call_that_cannot_be_read_is_shown_as_it_is(tmp_path: Path):
    row = conversation(2, 1.0)
    row["messages"][1]["tool_calls"][0]["function"]["arguments"] = '{"n": '
    page = picture([lines(tmp_path, row, conversation(2, 0.0))], GRPO, compare=recipe("gigpo"))
    group = groups_of(page.browser)[0]
    texts, cells = group["texts"], group["cells"]
    calls = [message[-1]["calls"][0][1:] for message in cells["messages"][::2]]
    actions = [texts[number] for number in cells["action"][::2]]
    assert actions == ['{"arguments":"{\\"n\\": ","name":"look"}', "look(n=0)"]
    assert [[texts[word] for word in call] for call in calls] == [actions[:1], ["look", "n", "0"]]


def test_collapse_to_few_turns_is_reported(tmp_path: Path):
    long = lines(tmp_path, *(conversation(8, n % 2) for n in range(4)), name="1.jsonl")
    short = lines(tmp_path, *(conversation(2, n % 2) for n in range(4)), name="2.jsonl")
    better = lines(tmp_path, *(conversation(2, float(n > 0)) for n in range(4)), name="3.jsonl")
    page = picture([long, short], GRPO)
    assert "from 8.0 turns to 2.0" in findings(page)["fewer_turns"]
    assert [row["turns"] for row in page.facts.tables["iterations"]] == [8.0, 2.0]
    assert "turns_over_iterations" in {figure.name for figure in page.figures}
    assert "fewer_turns" not in findings(picture([long, better], GRPO)), "success rose"
    assert "fewer_turns" not in findings(picture([short, long], GRPO))


def test_responses_that_a_limit_cut_are_counted(tmp_path: Path):
    rows = [conversation(2, 1.0), conversation(2, 0.0, finish_reason="length")]
    page = picture([lines(tmp_path, *rows)], GRPO)
    assert page.facts.cut_turns == 0.25
    assert page.facts.diagnosis.truncated_share == 0.5
    assert "25 % of the responses" in findings(page)["cut_responses"]
    kinds = [row["kind"] for row in page.facts.tables["problems"]]
    assert "cut_response" in kinds


def test_diagnosis_of_turns():
    from ascribe.sessions.reading import import_files

    table = import_files([DATA / "traces.jsonl"]).table
    diagnosis = diagnose(table, GRPO(table))
    assert diagnosis.turns == 4.0
    assert diagnosis.truncated_share == 0.0
    assert diagnosis.expected_equal_groups == pytest.approx(2 * 0.5**4)
    assert list(credit_per_tool(table, GRPO(table))) == ["look", "text"]


def clocked(attempts: int = 8) -> list[dict[str, Any]]:
    """Attempts at two tasks whose tools print the time: histories recur only where they begin."""
    rows, now = [], 0
    for task, number in product(range(2), range(attempts)):
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"task {task}"}]
        room = 0
        for turn in range(6):
            now += 7
            door = (number >> turn % 3) & 1
            call = {"name": "go", "arguments": json.dumps({"door": door})}
            room = (room + door) % 3
            clock = f"{now // 3600:02}:{now // 60 % 60:02}:{now % 60:02}"
            seen = f"Time {clock}. You are in room {room}."
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": call}]},
                {"role": "tool", "tool_call_id": "c", "content": seen},
            ]
        messages.append({"role": "assistant", "content": "done"})
        rows.append({"task": f"t{task}", "messages": messages, "points": float(room == 1)})
    return rows


HASHED = "my runs.jsonl", "--reward", "points", "--state", "history", "-o", "hashed.parquet"
COMMAND = re.compile(r"ascribe ((?:import|states) .+? --out [\w.]+\w)")


def test_the_advice_for_unique_states_works_when_it_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    lines(tmp_path, *clocked(), name="my runs.jsonl")

    def alone(file: str, **options: Any) -> tuple[float, str]:
        page = picture([file], recipe("gigpo"), **options)
        states = page.facts.diagnosis.states
        assert states is not None
        return states.singleton_share_of_rows, page.verdict.advice

    assert alone("my runs.jsonl", reward="points")[0] < 0.05, "without clocks"
    share, advice = alone("my runs.jsonl", state="history", reward="points")
    assert share > 0.5
    commands = [shlex.split(command) for command in COMMAND.findall(advice)]
    assert [command[0] for command in commands] == ["import", "states"]
    for command in commands:
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert alone("keyed.parquet")[0] < 0.05
    # Readable states need no import, and a table of hashes does not say which logs it is from.
    (command,) = COMMAND.findall(alone("steps.parquet")[1])
    assert command == "states steps.parquet --out keyed.parquet"
    done = CliRunner().invoke(app, ["import", *HASHED])
    assert done.exit_code == 0
    assert "ascribe import LOGS --state observation" in alone("hashed.parquet")[1]
