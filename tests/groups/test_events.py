"""Events of sessions: which calls are the same, refused, usual; and who sees which outcome."""

import json
from typing import Any

import numpy as np
import pytest

from ascribe import StepTable
from ascribe.groups.events import Usual, digests, events, folds_of, read_calls
from ascribe.groups.responses import written_calls
from ascribe.steps.check import arrange

Session = tuple[str, list[tuple[str, str]], float]
"""Task, pairs of state and action, and reward."""


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def table(sessions: list[Session], **columns: list[Any]) -> StepTable:
    rows = [
        {"group": task, "trajectory": f"{k}", "step": number, "state": state, "action": action}
        | {"reward": reward * (number == len(steps) - 1)}
        for k, (task, steps, reward) in enumerate(sessions)
        for number, (state, action) in enumerate(steps)
    ]
    made = {name: [row[name] for row in rows] for name in rows[0]}
    return StepTable.from_columns(made | columns)


def said(*actions: str, task: str = "t", reward: float = 0.0) -> Session:
    return task, [(f"tool: {k}", action) for k, action in enumerate(actions)], reward


@pytest.mark.parametrize(
    "other",
    [
        '{"arguments": {"b": [1, 2.0], "a": "x"}, "name": "f"}',
        '{"name": "f", "arguments": "{\\"a\\": \\"x\\", \\"b\\": [1, 2]}", "id": "call_1"}',
        "{\"name\": \"f\", \"arguments\": \"{'a': 'x', 'b': '[1, 2]'}\"}",
        '[{"function": {"name": "f", "arguments": {"a": "x", "b": [1, 2]}}}]',
        'Well. <tool_call>{"name": "f", "arguments": {"a":"x","b":[1,2]}}</tool_call>',
    ],
)
def test_calls_that_differ_in_form_alone_are_one(other: str) -> None:
    assert written_calls(other) == written_calls(call("f", a="x", b=[1, 2]))
    assert len(written_calls(other)) == 1


@pytest.mark.parametrize(
    "text", ['{"name": 3}', '{"name": "f"', 'I saw "name" here', "", '[{"name": ""}]', "[" * 10_000]
)
def test_what_is_no_call(text: str) -> None:
    assert written_calls(text) == ()


def test_arguments_in_no_form() -> None:
    (made,) = written_calls('{"name": "f", "arguments": "just  do it"}')
    assert made.arguments == '{"":"just do it"}'


def test_generated_ids_do_not_count() -> None:
    ids = [f"{k}f9c1b2a-1111-4222-8333-444455556666" for k in range(3)]
    sessions = [said(call("pay", order="7", key=ids[0])), said(call("pay", order="7", key=ids[1]))]
    assert len(read_calls(table(sessions)).calls) == 1
    met = [
        said(call("open", id=ids[2])),
        said(call("open", id=ids[2])),
        said(call("open", id=ids[0])),
    ]
    assert len(read_calls(table(met)).calls) == 2, "an id that two sessions write is no noise"


def test_commands_have_a_verb_and_an_object() -> None:
    calls = read_calls(table([said("SELECT * FROM t", "<action>go to  hall</action>")]))
    assert list(calls.tools) == ["select", "go"]
    assert [each.arguments for each in calls.calls] == ["* FROM t", "to hall"]
    prose = [f"word{k} and more" for k in range(101)]
    assert not read_calls(table([said(*prose)])).calls, "the first words of messages are no tools"
    spoken = [said("Assistant:<thought> I look", "Assistant: go", "go on")]
    assert list(read_calls(table(spoken)).tools) == ["go"], "who speaks is no tool"
    slips = [said(*["go on"] * 2000, *prose)]
    assert "go" in read_calls(table(slips)).tools, "a few slips are no messages"


def test_refused_and_again() -> None:
    steps = [
        ("user: hi", call("f", a=1)),
        ("tool: Error: no such order", call("f", a=2)),
        ("tool: done", call("f", a=2)),
        ("user: Error, you said?", call("f", a=1)),
        ("tool: ok\n\ntool: Error: two", "bye"),
    ]
    calls = read_calls(table([("t", steps, 0.0)]))
    assert calls.refused.tolist() == [True, False, False, True]
    assert calls.again.tolist() == [False, False, True, False]
    assert calls.errors.tolist() == [1, 1, 1, 2]
    valid = [True, False, True, True, True]
    assert read_calls(table([("t", steps, 0.0)], valid=valid)).refused.tolist()[:3] == [
        True,
        True,
        False,
    ]


def test_parallel_calls_are_refused_one_by_one() -> None:
    several = f"[{call('f')},{call('g')},{call('h')}]"
    error, fine = "tool: Error: no such order", "tool: done"
    steps = [
        ("user: hi", several),
        (f"{fine}\n\n{error}\n\n{fine}", several),
        (f"user: and then?\n\n{error}\n\n{fine}\n\n{fine}", several),
        (f"{fine}\n\n{error}", several),
        (fine, "bye"),
    ]
    refused = read_calls(table([("t", steps, 0.0)])).refused.reshape(-1, 3).tolist()
    assert refused[:2] == [[False, True, False], [True, False, False]]
    assert refused[2] == [True] * 3, "whose result the error is, cannot be told"
    assert refused[3] == [False] * 3


def test_how_usual_a_call_is() -> None:
    a, b, c = call("f", a=1), call("f", a=2), call("g")
    sessions = [said(a, c, reward=1.0), said(a, reward=1.0), said(b, a), said(b), said(a, task="u")]
    steps = arrange(table(sessions))
    task, won = steps.group_of_trajectory, np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    calls = read_calls(table(sessions))
    usual = Usual(calls, task, won, np.arange(5), 5)
    assert usual.share.tolist() == pytest.approx([2 / 3, 0, 2 / 3, 1 / 3, 2 / 3, 1 / 3, 0])
    wins, made = usual.winners(-1)
    assert wins.tolist() == [1, 1, 1, 2, 2, 2, 0], "never one's own"
    assert made.tolist() == [1, 0, 1, 0, 2, 0, 0]
    assert usual.winners(0)[0].tolist() == [1, 1, 0, 1, 1, 1, 0], "nor those that are held out"
    unusual = usual.unusual()
    assert unusual[:2].tolist() == pytest.approx([1 - (1 + 2 / 3) / 2, 1.0])
    assert np.isnan(unusual[-1]), "one attempt at a task tells nothing"


def test_folds_do_not_depend_on_names() -> None:
    sessions = [said(call("f", a=k % 7), task=f"{k % 3}") for k in range(30)]
    one = table(sessions)
    other = table(sessions[::-1])
    folds = []
    for each in (one, other):
        steps = arrange(each)
        task = steps.group_of_trajectory
        fold = folds_of(digests(each), task, 4)
        action = steps.action[steps.starts]
        folds.append(
            {(t, each.action.values[a], f) for t, a, f in zip(task, action, fold, strict=True)}
        )
    assert folds[0] == folds[1]
    assert len(folds[0]) == 21, "equal sessions share a fold"


def test_named_events() -> None:
    a, b, c = call("f", a=1), call("g", b="x"), call("h")
    found = events(table([said(a, b, b), said(a, c), said(a, b, c, task="u")]), wide=True)
    named = [(int(s), found.names[e]) for s, e in zip(found.session, found.event, strict=True)]
    assert named.count((0, "calling `g`")) == 1, "once in a session"
    assert {(0, "`g` right after `f`"), (2, "`g` right after `f`")} <= set(named)
    assert (0, "`g(b=x)`") in named
    assert not any(name == "`g` as the last call" for _, name in named), "one session is not enough"
    assert (np.diff(found.place) >= 0).all()
    narrow = events(table([said(a, b), said(a, c)]))
    assert set(narrow.names) == {"calling `f`"}
