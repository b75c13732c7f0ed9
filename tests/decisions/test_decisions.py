"""Forks and findings, by hand and by property."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.decisions import Decisions, find_decisions
from ascribe.steps.table import StepTable
from tests.strategies import step_tables


def sessions(*rows: tuple[str, list[tuple[str, str]], float]) -> StepTable:
    """Sessions: the task, pairs of state and action, and what the session earned."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("group", "trajectory", "step", "state", "action", "reward")
    }
    for number, (task, steps, reward) in enumerate(rows):
        for step, (state, action) in enumerate(steps):
            columns["group"].append(task)
            columns["trajectory"].append(f"{number}")
            columns["step"].append(step)
            columns["state"].append(state)
            columns["action"].append(action)
            columns["reward"].append(reward if step == len(steps) - 1 else 0.0)
    return StepTable.from_columns(columns)


def call(name: str, **arguments: Any) -> str:
    return str({"name": name, "arguments": arguments}).replace("'", '"')


def first_fork(found: Decisions) -> Any:
    return found.forks[0]


def test_a_fork_by_hand() -> None:
    left, right = call("go", to="left"), call("go", to="right")
    table = sessions(
        *[("maze", [("hall", left)], 1.0)] * 6, *[("maze", [("hall", right)], 0.0)] * 6
    )
    fork = first_fork(find_decisions(table))
    assert fork.task == "maze"
    assert fork.state == "hall"
    assert (fork.better.action, fork.worse.action) == ('`go(to="left")`', '`go(to="right")`')
    assert (fork.better.sessions, fork.worse.sessions) == (6, 6)
    assert fork.difference == 1.0
    assert fork.p == pytest.approx(2 / math.comb(12, 6))
    assert fork.certain
    assert table.trajectory.take(fork.better.rows).texts()[0] in {"0", "1", "2", "3", "4", "5"}
    assert fork.better.actions == (left,)
    sentence = find_decisions(table).sentence
    assert sentence.startswith('Maze, at “hall”: `go(to="left")` won 100 % of 6')


def test_a_fork_without_a_text_is_at_the_start() -> None:
    first = [("maze", [("", "left" if n < 6 else "right")], float(n < 6)) for n in range(12)]
    found = find_decisions(sessions(*first))
    assert first_fork(found).start
    assert found.sentence.startswith("Maze, at the start: `left` won 100 % of 6")
    later = [(task, [("hall", "go"), *steps], won) for task, steps, won in first]
    assert first_fork(find_decisions(sessions(*later))).text.startswith("maze, at “”: ")


def test_a_session_counts_once_and_by_its_first_visit() -> None:
    # It comes back to the hall again and again; the later choices are no sessions more.
    again = [("hall", "a"), ("room", "back"), ("hall", "b"), ("room", "back"), ("hall", "b")]
    table = sessions(*[("t", again, 1.0)] * 4, *[("t", [("hall", "b")], 0.0)] * 4)
    fork = first_fork(find_decisions(table))
    assert (fork.better.action, fork.better.sessions, fork.worse.sessions) == ("`a`", 4, 4)


def test_states_of_two_tasks_are_two_forks_unless_asked() -> None:
    rows = [(task, [("s", a)], float(a == "x")) for task in "pq" for a in "xy" for _ in range(5)]
    assert len(find_decisions(sessions(*rows)).forks) == 2
    pooled = find_decisions(sessions(*rows), scope="batch")
    (fork,) = pooled.forks
    assert fork.tasks == 2
    assert not fork.across
    assert fork.better.sessions == 10


def test_an_action_of_easy_tasks_is_no_better() -> None:
    # "search" is called at the first step of easy tasks mostly; it changes nothing anywhere.
    rng, rows = np.random.default_rng(0), []
    for task in range(30):
        easy = task % 2
        for _ in range(8):
            tool = "search" if rng.random() < 0.2 + 0.6 * easy else "guess"
            rows.append(
                (f"{task}", [(f"{task}", call(tool))], float(rng.random() < 0.1 + 0.8 * easy))
            )
    found = find_decisions(sessions(*rows))
    assert not found.certain


def test_a_tool_is_found_over_tasks_whose_states_never_recur() -> None:
    rng, rows = np.random.default_rng(0), []
    for number in range(200):
        tool = "search" if rng.random() < 0.5 else "guess"
        won = float(rng.random() < (0.7 if tool == "search" else 0.3))
        task = f"{number // 5}"
        rows.append((task, [(task, call(tool, q=number)), (f"{number}", "done")], won))
    found = find_decisions(sessions(*rows))
    best = found.decisions[0]
    assert (best.kind, best.worse.action) == ("event", "calling `guess`")
    assert best.better.action == "those with `search` in its place"
    assert best.certain
    assert best.turn
    assert best.tasks > 20
    assert found.advice == "Look first at calling `guess`: attempts with it lost more often."


def test_one_attempt_per_task_claims_nothing() -> None:
    rng, rows = np.random.default_rng(0), []
    for number in range(100):
        tool = "search" if rng.random() < 0.5 else "guess"
        rows.append((f"{number}", [("start", call(tool))], float(tool == "search")))
    found = find_decisions(sessions(*rows))
    assert not found.forks
    assert found.findings[0].doubt == "a difference of tasks"
    assert not found.certain
    assert "single attempt" in found.notes[0]
    same_state = find_decisions(sessions(*rows), scope="batch")
    assert same_state.forks[0].difference == 1.0
    assert same_state.forks[0].how_sure.startswith("perhaps a difference of tasks")
    assert not same_state.certain


def followed(kind: str, seed: int) -> Decisions:
    """Luck makes a mistake of some kind; those who made it mostly ask for help, in vain."""
    rng, rows = np.random.default_rng(seed), []
    for number in range(240):
        task, wrong = number // 8, rng.random() < 0.4
        value = task % 4 + (1 + int(rng.integers(3))) * (wrong and kind == "value")
        steps = [(f"{task}", call("get", at=task))]
        if not (wrong and kind == "left out"):
            steps.append(("a file", call("check", at=task)))
        steps.append((f"checked {number}", call("put", item=task, value=value % 4)))
        refused = wrong and kind == "refused"
        if rng.random() < (0.8 if wrong else 0.1):
            steps.append((f"{'Error: no' if refused else 'ok'} {number}", call("ask")))
        steps.append((f"text {number}", call("end", at=number)))
        rows.append((f"{task}", steps, float(rng.random() < (0.1 if wrong else 0.8))))
    return find_decisions(sessions(*rows))


@pytest.mark.parametrize("kind", ["refused", "value", "left out"])
def test_what_follows_a_mistake_is_no_turn(kind: str) -> None:
    for seed in range(4):
        found = followed(kind, seed).findings
        assert not any(each.certain and "`ask`" in each.event.action for each in found)
        assert found[0].q < 0.1


def test_what_only_unsolved_sessions_come_to_is_no_turn() -> None:
    """Luck solves a task at each step, which ends it; some of the others repeat their query."""
    rng, rows = np.random.default_rng(0), []
    for number in range(400):
        steps, won = [(f"{number // 8}", call("query", text=0))], rng.random() < 0.4
        while len(steps) < 6 and not won:
            again = rng.random() < 0.3
            text = len(steps) - 1 if again else len(steps)
            steps.append((f"{number} {len(steps)}", call("query", text=text)))
            won = rng.random() < 0.1
        rows.append((f"{number // 8}", steps, float(won)))
    found = find_decisions(sessions(*rows)).findings
    assert found[0].q < 0.1
    assert not any(each.certain for each in found)


def test_a_refused_call_is_told_and_not_what_follows() -> None:
    """Of those whose call is refused, all who try again fail; the rest have no error."""
    rows = []
    for number in range(80):
        refused = number % 2
        steps = [("s", call("get", at=number)), ("Error: no" if refused else "ok", call("look"))]
        steps += [(f"{number}", call("wait"))] * refused + [(f"{number} end", call("put"))]
        rows.append((f"{number // 8}", steps, float(not refused)))
    found = {each.event.action: each for each in find_decisions(sessions(*rows)).findings}
    assert found["`get` refused"].turn


def test_outcomes_of_any_size_and_those_who_won() -> None:
    rows = [("t", [("s", a)], r) for a, r in (("x", 2.5), ("y", -1.0)) for _ in range(5)]
    table = sessions(*rows)
    found = find_decisions(table, won=table.reward > 5)
    assert not found.binary
    assert first_fork(found).better.won == 0
    by_success = find_decisions(table, won=table.reward > 0, outcome="won")
    assert by_success.binary
    assert first_fork(by_success).difference == 1.0
    assert "earned 2.5 on average in 5 sessions, `y` -1 in 5" in first_fork(found).text


def test_corrections_are_no_attempts_and_rows_stay_those_of_the_table() -> None:
    first = [("t", [("s", "y")], 0.0)] * 3
    rows = first + [("t", [("s", a)], float(a == "x")) for a in "xy" for _ in range(5)]
    table = sessions(*rows)
    corrects = ["9" if n < 3 else None for n in range(len(table))]
    corrected = StepTable.from_columns({**_columns(table), "corrects": corrects})
    fork = first_fork(find_decisions(corrected))
    assert (fork.better.sessions, fork.worse.sessions) == (5, 5)
    assert corrected.action.take(fork.better.rows).texts() == ["x"] * 5


def _columns(table: StepTable) -> dict[str, Any]:
    rows = table.to_dicts()
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_a_tool_that_another_agent_called_is_not_called_again() -> None:
    look, ask, error = call("look", at=1), call("ask"), "tool: Error: no such file"
    steps = [("s", look), (error, call("look", at=2))]
    other = [("s", look), (error, ask)]
    table = sessions(*[("t", steps, 0.0)] * 8, *[("t", other, 1.0)] * 8)
    two = StepTable.from_columns({**_columns(table), "agent": ["main", "sub"] * 16})
    assert find_decisions(table).findings
    assert find_decisions(two).findings


def test_nothing_to_compare_is_said() -> None:
    found = find_decisions(sessions(("t", [("s", "a")], 1.0), ("t", [("s", "a")], 0.0)))
    assert not found.decisions
    assert found.sentence.startswith("Nothing can be compared: no two attempts")


@given(step_tables(), st.randoms(use_true_random=False))
def test_row_order_and_padding_do_not_matter(table: StepTable, random: Any) -> None:
    order = list(range(len(table)))
    random.shuffle(order)
    one, other = find_decisions(table), find_decisions(table.take(np.array(order, dtype=np.int64)))
    assert [each.as_dict() for each in one.decisions] == [
        each.as_dict() for each in other.decisions
    ]


@given(step_tables())
def test_each_session_counts_once(table: StepTable) -> None:
    for each in find_decisions(table).decisions:
        rows = np.concatenate([each.better.rows, each.worse.rows])
        names = table.trajectory.codes[rows]
        assert np.unique(names).size == names.size == each.better.sessions + each.worse.sessions
        assert each.difference >= 0
        assert each.low <= each.high


def test_what_is_done_after_something_unseen_is_never_certain() -> None:
    """Tests pass by luck; an agent that sees them pass submits. Submitting earned nothing."""
    rng, rows = np.random.default_rng(0), []
    for number in range(80):
        steps, won = [("start", call("plan"))], 0.0
        while len(steps) < 12 and not won:
            steps += [(f"{rng.random()}", call("edit", to=rng.random()))]
            steps.append((f"{rng.random()}", call("test")))
            if rng.random() < 0.2:
                steps.append((f"passed in {rng.random()}", call("submit")))
                won = 1.0
        rows.append((f"{number // 16}", steps, won))
    found = find_decisions(sessions(*rows))
    submit = next(each for each in found.findings if each.better.action == "calling `submit`")
    assert submit.q < 0.1
    assert submit.sign == "an ending"
    assert not found.certain
    assert "perhaps an ending" in found.sentence


def test_a_repetition_is_compared_with_sessions_that_made_the_same_calls() -> None:
    """B is better at the start; later A is frequent, so those who began with A repeat more."""
    rng, rows = np.random.default_rng(0), []
    for number in range(80):
        first = "A" if rng.random() < 0.5 else "B"
        later = "A" if rng.random() < 0.85 else "B"
        steps = [("start", call(first)), ("hall", call("C")), ("Error: no", call(later))]
        rows.append((f"{number // 16}", steps, float(rng.random() < (0.2, 0.8)[first == "B"])))
    found = find_decisions(sessions(*rows))
    assert found.certain
    assert not any("again" in each.event.action for each in found.certain)


def test_of_two_tools_the_one_that_loses_is_named() -> None:
    rows = [(f"{n // 10}", [("a", call(("get", "put")[n % 2]))], n % 2) for n in range(20)]
    found = find_decisions(sessions(*rows))
    tool = found.decisions[0]
    assert found.advice == "Look first at calling `get`: attempts with it lost more often."
    assert tool.worse.action == tool.event.action == "calling `get`"
    assert tool.better.action == tool.other.action == "those with `put` in its place"


def updates(both: int, neither: int) -> StepTable:
    """Some sessions update a record, others all of them at once; few do both, or neither."""
    rng, rows = np.random.default_rng(0), []
    for number in range(72):
        tools = ["bulk_update" if rng.random() < 0.5 else "update_record"]
        tools = ["bulk_update", "update_record"] if number < both else tools
        tools = [] if number >= 72 - neither else tools
        won = tools == ["update_record"] and rng.random() < 0.87
        tools = ["find", *tools, *["read"] * (rng.random() < 0.5)]
        steps = [(f"{number} {at}" * (at > 0), call(each)) for at, each in enumerate(tools)]
        rows.append((f"{number // 12}", [*steps, (f"{number} end", "Done.")], float(won)))
    return sessions(*rows)


@pytest.mark.parametrize(("both", "neither"), [(0, 0), (3, 0), (0, 1), (3, 1)])
def test_a_call_that_ruins_attempts_is_named(both: int, neither: int) -> None:
    table = updates(both, neither)
    found = find_decisions(table)
    assert found.advice == "Look first at calling `bulk_update`: attempts with it lost more often."
    (finding,) = (each for each in found.findings if each.certain)
    assert finding.worse.won == 0
    others = "the others (mostly with {})" if neither else "those with {}"
    assert finding.better.action == others.format("`update_record` in its place")
    for each in found.findings[1:]:
        assert each.beside == ("calling `bulk_update`",)
        assert "after subtracting the effect of calling `bulk_update`" in each.how_sure
    order = np.random.default_rng(1).permutation(len(table))
    turned = find_decisions(table.take(order)).decisions
    assert [each.as_dict() for each in turned] == [each.as_dict() for each in found.decisions]


def test_what_wins_clearly_more_is_named_and_what_others_called() -> None:
    """Of those that call neither tool all lose, so that what they lack says more."""
    rows = []
    for number in range(72):
        tools = ["update_record" if number % 2 else "bulk_update"]
        tools = [] if number in (0, 12, 24, 36) else tools
        steps = [(f"{number}" * (at > 0), call(each)) for at, each in enumerate(["find", *tools])]
        rows.append((f"{number // 12}", [*steps, (f"{number} end", "Done.")], number % 2))
    (finding,) = (each for each in find_decisions(sessions(*rows)).findings if each.certain)
    assert finding.better.action == "calling `update_record`"
    assert finding.worse.action == "the others (mostly with `bulk_update` in its place)"


def test_equal_rewards_are_said() -> None:
    rows = [("t", [("a", f"{n % 2}"), (f"{n}", "end")], 1.0) for n in range(8)]
    found = find_decisions(sessions(*rows))
    assert found.sentence.startswith("Nothing can be compared")
    assert found.notes == ("Every session earned 1.",)


def test_of_many_actions_the_most_frequent_are_compared() -> None:
    rows = [("t", [("a", f"{n}" if n < 300 else "go")], float(n >= 300)) for n in range(330)]
    fork = find_decisions(sessions(*rows)).forks[0]
    assert fork.certain
    assert fork.better.action == "`go`"
    assert fork.worse.action == "300 other actions"


def test_actions_with_one_beginning_are_told_apart() -> None:
    same = "cd /srv/application/checkout && python -m pytest tests/integration/"
    rows = [("t", [("a", same + ("get", "put")[n % 2])], n % 2) for n in range(12)]
    fork = find_decisions(sessions(*rows)).forks[0]
    assert fork.better.action.endswith("tests/integration/put`")
    assert fork.worse.action.endswith("tests/integration/get`")


def test_a_finding_tells_the_shares_of_sessions_and_the_difference_at_the_task() -> None:
    """Where the tool is used, tasks are hard: with it fewer sessions won, and more at each task."""
    rows = [("hard", [("a", call("get"))], float(n < 10)) for n in range(40)]
    rows += [("hard", [("a", call("put"))], 0.0) for n in range(20)]
    rows += [("easy", [("a", call("get"))], 1.0) for n in range(10)]
    rows += [("easy", [("a", call("put"))], float(n < 30)) for n in range(40)]
    (found,) = (each for each in find_decisions(sessions(*rows)).findings if each.certain)
    assert found.worse.action == "calling `put`"
    assert (
        "calling `put`: won 50 % of 60 sessions, those with `get` in its place 40 % of 50"
        in found.text
    )
    assert found.difference == pytest.approx(0.25)
    assert "points at the same task" in found.how_sure
    assert len(found.read) == 2
