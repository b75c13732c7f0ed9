"""Chats to steps: what is a state, an action and a reward."""

import math
from dataclasses import replace
from typing import Any

import pytest

from ascribe import check
from ascribe.sessions import Conversation, from_messages

pytestmark = pytest.mark.unit


def call(name: str, arguments: Any, key: str = "c") -> dict[str, Any]:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(content: str | None = None, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return message | {"tool_calls": list(calls)} if calls else message


def result(content: Any, key: str = "c") -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": key}


USER = {"role": "user", "content": "What is 6 times 7?"}
MESSAGES = [
    {"role": "system", "content": "Use the tools."},
    USER,
    assistant(None, call("times", '{"b": 7.0, "a": 6}', "x1"), reasoning_content="Multiply."),
    result("42", "x1"),
    assistant("<think>Done.</think>It is 42."),
]
EPISODE = Conversation(group="sums", trajectory="0", messages=MESSAGES, reward=1.0)


def column(name: str, *episodes: Conversation, **options: Any) -> list[Any]:
    return [row[name] for row in from_messages(episodes, **options).to_dicts()]


def test_an_assistant_message_is_a_step() -> None:
    first, second = from_messages([EPISODE]).to_dicts()
    assert first == {
        "group": "sums",
        "trajectory": "sums/0",
        "step": 0,
        "state": "system: Use the tools.\n\nuser: What is 6 times 7?",
        "action": '{"arguments":{"a":6,"b":7},"name":"times"}',
        "reward": 0.0,
        "terminated": False,
        "truncated": False,
    }
    assert second["state"] == "tool: 42"
    assert (second["step"], second["action"]) == (1, "It is 42.")
    assert (second["reward"], second["terminated"], second["truncated"]) == (1.0, True, False)


def test_choices_of_the_state() -> None:
    assert column("state", EPISODE, state="tool")[1] == "42"
    keyed = replace(EPISODE, states=["start", None])
    assert column("state", keyed, state="key") == ["start", None]
    with pytest.raises(ValueError, match="sums/0 has no states for 2 messages"):
        from_messages([EPISODE], state="key")
    with pytest.raises(ValueError, match="no state 'turn'; there are: observation, tool"):
        from_messages([EPISODE], state="turn")  # type: ignore[arg-type]


def test_a_history_recurs_only_after_the_same_messages_and_actions() -> None:
    other = [*MESSAGES]
    other[2] = assistant(None, call("times", {"a": 6, "b": 7}, "random"))  # other reasoning and id
    other[3] = result("42", "random")
    changed = [*MESSAGES]
    changed[2] = assistant(None, call("times", {"a": 7, "b": 6}))
    episodes = [replace(EPISODE, messages=each) for each in (MESSAGES, other, changed)]
    first, second, third = (column("state", each, state="history") for each in episodes)
    assert first == second
    assert first[0] == third[0]
    assert first[1] != third[1]


def test_parallel_calls_are_one_step_and_their_results_are_in_the_order_of_the_calls() -> None:
    calls = [call("look", "{}", "a"), call("wait", "", "b")]
    states = []
    for results in ([result("A", "a"), result("B", "b")], [result("B", "b"), result("A", "a")]):
        messages = [USER, assistant(None, *calls), *results, assistant("done")]
        episode = replace(EPISODE, messages=messages)
        actions = column("action", episode)
        assert actions[0] == '[{"arguments":{},"name":"look"},{"arguments":{},"name":"wait"}]'
        states.append(column("state", episode, state="tool")[1])
    assert states == ["A\n\nB"] * 2


@pytest.mark.parametrize(
    ("message", "action"),
    [
        (assistant(None, call("f", "no json")), '{"arguments":"no json","name":"f"}'),
        (assistant('<tool_call>{"name": "f"}</tool_call>'), '{"arguments":{},"name":"f"}'),
        (assistant("<tool_call>{</tool_call>"), "<tool_call>{</tool_call>"),
        (assistant(None, function_call={"name": "f", "arguments": "{}"}), None),
        (assistant([{"type": "text", "text": "hi"}]), "hi"),  # type: ignore[arg-type]
        (assistant(None), ""),
    ],
)
def test_actions(message: dict[str, Any], action: str | None) -> None:
    episode = replace(EPISODE, messages=[USER, message])
    assert column("action", episode) == [
        action or ("" if action == "" else '{"arguments":{},"name":"f"}')
    ]


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        (["id"], "not JSON|Expecting"),
        ([None], "a call needs a name and arguments, and has nothing"),
        ([{"id": {"a": 1}, "name": 3}], "a call needs a name and arguments, and has id, name"),
        ("id", "its tool_calls are a str"),
        ({"id": 1}, "its tool_calls are a dict"),
    ],
)
def test_malformed_calls_are_refused(calls: Any, why: str) -> None:
    """Read somehow, different calls would be one action."""
    messages = [USER, assistant(None) | {"tool_calls": calls}, assistant("b")]
    with pytest.raises(ValueError, match=f"conversation sums/0, message 1: .*({why})"):
        from_messages([replace(EPISODE, messages=messages)])


def test_a_result_with_an_odd_id_is_no_error() -> None:
    messages = [USER, assistant(None, {"function": "f"}), result("a", {}), assistant("b")]  # type: ignore[arg-type]
    assert column("action", replace(EPISODE, messages=messages)) == [
        '{"arguments":{},"name":"f"}',
        "b",
    ]


def test_images_differ_by_their_hash() -> None:
    texts = [
        column(
            "state",
            replace(EPISODE, messages=[{"role": "user", "content": [part]}, assistant("a")]),
        )
        for part in ({"type": "image_url", "image_url": {"url": url}} for url in "ab")
    ]
    assert texts[0] != texts[1]
    assert all(text[0].startswith("user: [image_url ") for text in texts)


def test_rewards_of_steps() -> None:
    stepwise = replace(EPISODE, reward=None, rewards=[0.5, None])
    assert column("reward", stepwise) == [0.5, 0.0]
    assert column("reward", replace(stepwise, reward=0.5)) == [0.5, 0.0]
    assert column("reward", replace(EPISODE, rewards=[None, None])) == [0.0, 1.0]
    with pytest.raises(ValueError, match=r"final reward 1, but those of its steps sum to 0\.5"):
        from_messages([replace(stepwise, reward=1.0)])
    with pytest.raises(ValueError, match="1 rewards for 2 messages"):
        from_messages([replace(stepwise, rewards=[0.5])])


def test_a_missing_reward_is_reported_and_not_taken_for_zero() -> None:
    table = from_messages([replace(EPISODE, reward=None)])
    assert math.isnan(table.reward[1])
    assert "non_finite_reward" in check(table).counts()


def test_several_conversations_of_one_episode_are_numbered_through() -> None:
    helper = replace(EPISODE, messages=[USER, assistant("sub")], agent="helper", reward=None)
    compacted = [*MESSAGES, USER, assistant("more")]
    main = replace(EPISODE, agent="main", messages=compacted, context=len(MESSAGES))
    table = from_messages([replace(EPISODE, agent="main", reward=None), helper, main])
    rows = table.to_dicts()
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert [row["agent"] for row in rows] == ["main", "main", "helper", "main"]
    assert [row["reward"] for row in rows] == [0.0, 0.0, 0.0, 1.0]
    assert [row["terminated"] for row in rows] == [False, False, False, True]


def test_a_truncated_episode_has_not_terminated() -> None:
    rows = from_messages([replace(EPISODE, truncated=True)]).to_dicts()
    assert (rows[1]["terminated"], rows[1]["truncated"]) == (False, True)


def test_nothing() -> None:
    assert len(from_messages([])) == 0
    with pytest.raises(ValueError, match="no message has the role assistant"):
        from_messages([replace(EPISODE, messages=[USER])])
