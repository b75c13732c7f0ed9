"""How the conversations of a session are linked, and by what evidence."""

import gc
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ascribe.sessions import Conversation, Forest, from_messages, link
from ascribe.steps.problems import ProblemKind

pytestmark = pytest.mark.unit

SYSTEM = {"role": "system", "content": "Use the tools."}
TASK = {"role": "user", "content": "Find the port of the server."}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def tool(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content}


def answer(content: str, **arguments: Any) -> dict[str, Any]:
    calls = [{"id": "x", "function": {"name": "agent", "arguments": arguments}}]
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if arguments else {})


def call(*messages: dict[str, Any], **fields: Any) -> Conversation:
    """A call: all but the last message is what it was shown."""
    return Conversation(
        group="g", trajectory="0", messages=messages, context=len(messages) - 1, **fields
    )


def kinds(forest: Forest) -> list[str]:
    return [each.kind if each else "" for each in forest.links]


def previous(forest: Forest) -> list[int]:
    return [each.previous for each in forest.decisions]


FIRST = (SYSTEM, TASK, answer("look"))


@pytest.mark.parametrize(
    ("second", "kind", "evidence"),
    [
        ((*FIRST, tool("80"), answer("80")), "extension", "its first 3 messages are the same"),
        ((SYSTEM, TASK, answer("see")), "retry", "its context is the same"),
        (
            (SYSTEM, user("So far:"), answer("look"), tool("80"), answer("80")),
            "rewriting",
            "it keeps an earlier response",
        ),
        (
            (SYSTEM, TASK, user("Turns were dropped."), answer("80")),
            "rewriting",
            "it begins with the same messages",
        ),
        (
            (SYSTEM, user("Go on."), answer("80")),
            "rewriting",
            "it has the same system message",
        ),
    ],
)
def test_a_second_call(second: Any, kind: str, evidence: str) -> None:
    forest = link([call(*FIRST), call(*second)])
    assert (forest.links[1].kind, forest.links[1].evidence) == (kind, evidence)
    assert not forest.problems


def test_a_summary_is_a_decision_and_what_quotes_it_follows_it() -> None:
    text = "The server listens on port 80; nothing was changed."
    calls = [
        call(*FIRST),
        call(*FIRST, tool("80"), user("Summarise."), answer(text)),
        call(SYSTEM, TASK, user(f"Summary so far: {text}"), answer("It is 80.")),
    ]
    forest = link(calls)
    assert previous(forest) == [-1, 0, 1]
    assert kinds(forest) == ["start", "extension", "rewriting"]
    assert "stands in one of its messages" in forest.links[2].evidence
    assert len(from_messages(calls)) == 3


def test_sub_agents_by_their_task_and_by_their_result() -> None:
    main = (SYSTEM, TASK, answer("", prompt="List the open sockets of this machine."))
    helper = user("You are a helper. List the open sockets of this machine.")
    sub = [
        call(helper, answer("ls")),
        call(helper, answer("ls"), tool("80"), answer("Port 80 is open.")),
    ]
    after = call(*main, tool("Port 80 is open."), answer("80"))
    forest = link([call(*main), *sub, after])
    assert kinds(forest) == ["start", "spawning", "extension", "extension"]
    assert [each.agent for each in forest.decisions] == [
        "main",
        "sub-agent 1",
        "sub-agent 1",
        "main",
    ]
    assert [each.parent for each in forest.decisions] == [None, 0, 0, None]

    # The task is not quoted, but the result is.
    other = [
        call(user("Work."), answer("ls")),
        call(user("Work."), answer("ls"), tool("80"), answer("Port 80 is open.")),
    ]
    forest = link([call(*main), *other, after])
    assert "tool's result" in forest.links[1].evidence
    assert [each.step for each in forest.decisions] == [0, 1, 2, 3]


def test_retries_and_forks_are_branches() -> None:
    main = (*FIRST, tool("80"), answer("try again"), tool("81"), answer("81"))
    calls = [call(*FIRST), call(*FIRST, tool("80"), answer("80")), call(*main[:5]), call(*main)]
    forest = link(calls)
    assert kinds(forest) == ["start", "extension", "retry", "extension"]
    assert [each.parent for each in forest.decisions] == [None, 0, None, None]
    other = call(*FIRST, tool("another result"), answer("none"))
    assert kinds(link([*calls, other]))[-1] == "fork"


def test_a_context_whose_old_results_were_cleared_follows_its_last_response() -> None:
    turns = [*FIRST, tool("80"), answer("try again"), tool("81"), answer("once more")]
    calls = [call(*turns[:3]), call(*turns[:5]), call(*turns)]
    turns[3] = tool("(cleared)")
    forest = link([*calls, call(*turns, tool("82"), answer("82"))])
    assert kinds(forest) == ["start", "extension", "extension", "rewriting"]
    assert previous(forest) == [-1, 0, 1, 2]
    assert [each.parent for each in forest.decisions] == [None] * 4


def test_of_several_responses_the_one_that_went_on_is_the_last() -> None:
    """At the start and later: a harness may sample twice and keep the first."""
    calls = [call(SYSTEM, TASK, answer("look")), call(SYSTEM, TASK, answer("stop"))]
    later = (*FIRST, tool("80"))
    calls += [call(*later, answer("go on")), call(*later, answer("stop"))]
    calls += [call(*later, answer("go on"), tool("81"), answer("81"))]
    forest = link([replace(each, reward=1.0) for each in calls])
    assert [each.step for each in forest.decisions] == [1, 0, 3, 2, 4]
    assert [each.parent for each in forest.decisions] == [None, None, None, 1, None]
    assert kinds(forest) == ["start", "retry", "extension", "retry", "extension"]


def test_sub_agents_with_the_same_task_are_no_retries_of_the_main_agent() -> None:
    task = "List the open sockets of this machine."
    main = (SYSTEM, TASK, answer("", prompt=task))
    forest = link(
        [
            call(*main),
            call(user(task), answer("80")),
            call(user(task), answer("81")),
            call(*main, tool("80"), tool("81"), answer("both")),
        ]
    )
    assert kinds(forest) == ["start", "spawning", "spawning", "extension"]
    assert [each.agent for each in forest.decisions][1:3] == ["sub-agent 1", "sub-agent 2"]
    assert [each.parent for each in forest.decisions] == [None, 0, 0, None]
    # Chats of such sub-agents may even be the same.
    chats = [
        Conversation(group="g", trajectory="0", messages=[user(task), answer("80")], **each)
        for each in ({"id": "1", "parent": "0"}, {"id": "2", "parent": "0"})
    ]
    assert len(link([call(*main, id="0", agent="main"), *chats]).decisions) == 3


def test_of_equal_calls_the_latest_before_it_is_extended() -> None:
    forest = link([call(*FIRST), call(*FIRST), call(*FIRST, tool("80"), answer("80"))])
    assert previous(forest) == [-1, -1, 1]


def test_the_history_of_a_sub_agent_begins_with_its_task() -> None:
    """Whoever gave the task: its states are compared with those of other sub-agents."""
    task = "List the open sockets of this machine."
    sub = call(user(task), answer("80"))
    calls = [call(SYSTEM, TASK, answer("", prompt=task)), sub]
    alone = from_messages([sub], state="history").state.texts()
    assert from_messages(calls, state="history").state.texts()[1:] == alone


def test_a_task_that_is_given_again_follows_the_call_that_gave_it() -> None:
    task = "Run the tests and report."
    delegate, sub = answer("", prompt=task), {"role": "system", "content": "You run tests."}
    first = (SYSTEM, TASK, delegate)
    again = (*first, tool("2 failed"), delegate)
    calls = [call(*first), call(sub, user(task), answer("2 failed")), call(*again)]
    calls.append(call(sub, user(task), answer("0 failed")))
    forest = link([*calls, call(*again, tool("0 failed"), answer("done"))])
    assert previous(forest) == [-1, 0, 0, 2, 2]
    assert [each.step for each in forest.decisions] == [0, 1, 2, 3, 4]


def test_a_summary_by_another_model_does_not_end_the_agent() -> None:
    text = "The server listens on port 80; nothing was changed."
    calls = [
        call(*FIRST),
        call({"role": "system", "content": "Summarise."}, user("The log."), answer(text)),
        call(SYSTEM, user(f"Summary so far: {text}"), answer("It is 80.")),
    ]
    assert [each.agent for each in link(calls).decisions] == ["main", "sub-agent 1", "main"]


def test_a_message_of_the_developer_is_one_of_the_system() -> None:
    developer, task = {"role": "developer", "content": "Be brief."}, "List the open sockets."
    main = (developer, TASK, answer("", prompt=task))
    assert kinds(link([call(*main), call(developer, user(task), answer("80"))]))[1] == "spawning"


def test_of_equal_responses_a_context_keeps_that_of_its_own_task() -> None:
    tasks = [user("List the open sockets."), user("List the running programs.")]
    calls = [call(SYSTEM, task, answer("", command="ls")) for task in tasks]
    for task in tasks:
        rewritten = (SYSTEM, task, user("(dropped)"), answer("", command="ls"))
        calls.append(call(*rewritten, tool("80"), answer("done")))
    assert previous(link(calls))[2:] == [0, 1]


def test_what_the_file_states() -> None:
    main, sub = call(*FIRST, id="a", agent="main"), call(user("?"), answer("!"), agent="sub")
    forest = link([main, replace(sub, parent="a")])
    assert (forest.links[1].kind, forest.links[1].evidence) == ("spawning", "the file says so")
    one = call(user("1"), answer("one"), id="1", parent="2")
    two = call(user("2"), answer("two"), id="2", parent="1")
    with pytest.raises(ValueError, match="name each other as parents in a circle"):
        link([one, two])
    with pytest.raises(ValueError, match="have the same id"):
        link([one, replace(two, id="1")])


def test_what_is_missing_is_reported() -> None:
    lost = link(
        [call(*FIRST), call(*FIRST, tool("1"), answer("not logged"), tool("2"), answer("2"))]
    )
    assert [problem.kind for problem in lost.problems] == [ProblemKind.LOST_RESPONSE]
    alone = link([call(*FIRST), call(user("Something else."), answer("!"))])
    assert [problem.kind for problem in alone.problems] == [ProblemKind.UNLINKED_CONVERSATION]
    chat = replace(call(*FIRST), context=0)
    twice = link([chat, replace(chat, messages=[*FIRST, tool("1"), answer("2")]), chat])
    assert [problem.kind for problem in twice.problems] == [ProblemKind.REPEATED_CONVERSATION]
    assert len(twice.decisions) == 2
    calls = [call(*FIRST), call(*FIRST, tool("1"), answer("2"))]
    whole = link([replace(calls[1], context=0), *calls])  # written when the session began
    assert [problem.kind for problem in whole.problems] == [ProblemKind.REPEATED_CONVERSATION]
    assert len(whole.decisions) == 2


def test_a_stated_step_is_followed() -> None:
    main = replace(call(*FIRST, tool("80"), answer("80"), id="a", agent="main"), context=0)
    sub = call(user("?"), answer("!"), agent="sub", parent="a")
    assert previous(link([main, sub])) == [-1, 0, 1]
    assert previous(link([main, replace(sub, parent_step=0)])) == [-1, 0, 0]


def test_rows_are_those_of_all_sessions() -> None:
    calls = [call(*FIRST), call(*FIRST, tool("80"), answer("80"))]
    lost = call(*FIRST, tool("80"), answer("80"), tool("81"), answer("lost"), tool(""), answer(""))
    others = [replace(each, trajectory="1") for each in (*calls, lost)]
    forest = link([*calls, *others])
    assert [each.previous for each in forest.links if each] == [-1, 0, -1, 2, 3]
    assert previous(forest) == [-1, 0, -1, 2, 3]
    assert [problem.rows.tolist() for problem in forest.problems] == [[4]]


@pytest.mark.parametrize(
    ("argument", "more"),
    [
        ("src/server/of/the/port.py", " It has many lines, and this is one of them." * 9),
        ("a.py", ""),
    ],
)
def test_a_path_in_a_message_is_no_task(argument: str, more: str) -> None:
    main = call(SYSTEM, TASK, answer("", path=argument))
    text = f"Look at {argument}{more}"
    forest = link([main, call(user(text), answer("ok"))])
    assert [problem.kind for problem in forest.problems] == [ProblemKind.UNLINKED_CONVERSATION]


def test_branches_have_the_same_history_before_them() -> None:
    results = [(*FIRST, tool(text), answer("80")) for text in ("80", "81", "82")]
    alone = [from_messages([call(*FIRST), call(*r)], state="history") for r in results]
    together = from_messages([call(*FIRST), *(call(*r) for r in results)], state="history")
    assert together.state.texts()[1:] == [each.state.texts()[1] for each in alone]
    chat = replace(call(*results[0]), context=0)
    forked = from_messages([chat, call(*results[1])], state="history").state.texts()
    assert forked[2] == together.state.texts()[2]


def test_what_belongs_to_repeated_steps_is_dropped_with_them() -> None:
    chat = replace(call(*FIRST), context=0)
    longer = replace(
        chat,
        messages=[*FIRST, tool("80"), answer("80")],
        rewards=[0.0, 1.0],
        states=["start", "end"],
        truncated_turns=[1],
    )
    rest = link([chat, longer]).conversations[1]
    assert (rest.rewards, rest.states, rest.truncated_turns) == ([1.0], ["end"], [0])


def test_the_reward_of_a_session_counts_once() -> None:
    calls = [call(*FIRST, reward=1.0), call(*FIRST, tool("80"), answer("80"), reward=1.0)]
    assert from_messages(calls).reward.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="different final rewards, 1 and 0"):
        from_messages([calls[0], replace(calls[1], reward=0.0)])


@pytest.mark.parametrize("shape", ["chain", "starts", "rewritten", "retries", "equal"])
def test_linking_takes_linear_time(shape: str) -> None:
    """Within a fixed number of messages in each context."""

    def session(count: int) -> list[Conversation]:
        calls = []
        for number in range(count):
            own = answer("look" if shape == "equal" else f"response number {number}")
            contexts = {
                "chain": [SYSTEM, TASK, answer(f"response number {number - 1}"), tool("ok")],
                "starts": [user(f"task number {number}")],
                "rewritten": [SYSTEM, TASK, user(f"turn {number}")],
                "retries": [SYSTEM, TASK],
                "equal": [*FIRST, tool("80")] if number % 2 else [SYSTEM, TASK],
            }
            calls.append(call(*contexts[shape], own))
        return calls

    def seconds(count: int) -> float:
        calls = session(count)
        gc.collect()
        gc.disable()  # its passes over what earlier tests left are not the linking's
        try:
            start = time.process_time()
            link(calls)
            return time.process_time() - start
        finally:
            gc.enable()

    def best(count: int) -> float:  # another process only ever adds time
        return min(seconds(count) for _ in range(3))

    best(100)
    assert best(8000) < 60 * max(best(500), 0.01)  # squared: 256 times


def test_any_calls_in_any_order_become_one_forest() -> None:
    """Short texts and few of them, so that all evidence is found in the wrong places, too."""
    for seed in range(500):
        random = np.random.default_rng(seed)

        def text(random: Any = random) -> str:
            return f"text number {random.integers(4)}"

        calls = []
        for number in range(random.integers(2, 12)):
            messages: list[Any] = [SYSTEM] * int(random.integers(2))
            for _ in range(random.integers(1, 5)):
                made = [user(text()), tool(text()), answer(text()), answer("", prompt=text())]
                messages.append(made[random.integers(4)])
            fields = {"time": float(random.integers(5))} if seed % 2 else {}
            parent = str(random.integers(number)) if number and random.integers(4) == 0 else None
            calls.append(call(*messages, answer(text()), id=str(number), parent=parent, **fields))
        forest = link(calls)
        assert sorted(each.step for each in forest.decisions) == list(range(len(calls)))
        for each in forest.decisions:
            assert each.previous < 0 or forest.decisions[each.previous].step < each.step
            assert each.parent is None or each.parent < each.step
        from_messages(calls, state="history")


def test_a_response_that_is_the_task_of_another_agent():
    """A program hands it on without a call of a tool; the same agent would have one system."""
    other = {"role": "system", "content": "Answer questions."}
    lead = (SYSTEM, TASK, answer("Which port is open?"))
    more = (*lead, user("80"), answer("Which is the other?"))
    calls = [
        call(*lead),
        call(other, user("Which port is open?"), answer("80")),
        call(*more),
        call(other, user("Which is the other?"), answer("443")),
        call(*more, user("443"), answer("Both are 80 and 443.")),
        call(SYSTEM, user("Both are 80 and 443."), answer("80")),
    ]
    forest = link(calls)
    spawned = ["start", "spawning", "extension", "spawning", "extension", "rewriting"]
    assert kinds(forest) == spawned
    agents = ["main", "sub-agent 1", "main", "sub-agent 2", "main", "main"]
    assert [each.agent for each in forest.decisions] == agents
    assert [each.parent for each in forest.decisions] == [None, 0, None, 2, None, None]


@pytest.mark.parametrize("state", ["observation", "tool", "history"])
def test_results_of_parallel_calls_are_in_the_order_of_the_calls(state: Any) -> None:
    """In a chat, and in calls that were logged one by one."""
    calls = [{"id": name, "function": {"name": "read", "arguments": {"p": name}}} for name in "ab"]
    ask = {"role": "assistant", "content": "", "tool_calls": calls}
    results = [tool(f"of {name}") | {"tool_call_id": name} for name in "ba"]
    chat = call(SYSTEM, TASK, ask, *results, answer("done"), reward=1.0)
    one_by_one = [call(SYSTEM, TASK, ask, reward=1.0), chat]
    whole = from_messages([replace(chat, context=0)], state=state)
    assert from_messages(one_by_one, state=state).state.texts() == whole.state.texts()
