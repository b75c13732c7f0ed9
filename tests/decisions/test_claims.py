"""Nothing is certain that must not be: rounding, prompts, versions, copies, endings, silence."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.decisions import Decisions, find_decisions
from ascribe.decisions.versions import changes, compare_versions
from ascribe.steps.hints import command_line
from ascribe.steps.table import StepTable
from tests.decisions.test_decisions import call, sessions

pytestmark = pytest.mark.unit

Session = tuple[str, list[tuple[str, str]], float]


def with_columns(table: StepTable, **columns: Any) -> StepTable:
    """The table with more columns, of which each has a value for each session."""
    rows = table.to_dicts()
    named = {name: [row[name] for row in rows] for name in rows[0]}
    for name, values in columns.items():
        named[name] = [values[int(row["trajectory"])] for row in rows]
    return StepTable.from_columns(named)


def door(seed: int, attempts: int = 40, good: float = 0.9, task: str = "maze") -> list[Session]:
    """Attempts at a task in which the left door is better."""
    rng, rows = np.random.default_rng(seed), list[Session]()
    for _ in range(attempts):
        left = rng.random() < 0.5
        won = float(rng.random() < (good if left else 0.2))
        steps = [("hall", call("look")), ("doors", call("left" if left else "right")), ("end", "")]
        rows.append((task, steps, won))
    return rows


# Rounding.


def thirds(seed: int) -> StepTable:
    """Sessions that all earn three tenths, in any order of their steps."""
    rng, rows = np.random.default_rng(seed), list[dict[str, Any]]()
    for number in range(24):
        rewards = rng.permutation([0.1, 0.2, 0.3, -0.3]).tolist()
        for step, reward in enumerate(rewards):
            row = {"group": f"{number % 2}", "trajectory": f"{number}", "step": step}
            action = call(("get", "put")[int(rng.integers(2))])
            rows.append(row | {"state": f"{step}", "action": action, "reward": reward})
    return StepTable.from_dicts(rows)


@pytest.mark.parametrize("seed", range(10))
def test_outcomes_that_differ_by_rounding_are_equal(seed: int) -> None:
    found = find_decisions(thirds(seed))
    assert not found.decisions
    assert "Every session earned 0.3." in found.notes


def test_a_reward_that_is_rounding_is_no_win() -> None:
    rows = [
        {"group": "t", "trajectory": f"{n}", "step": step, "state": "s", "action": f"{n}"}
        | {"reward": reward}
        for n, rewards in enumerate(([0.1, 0.2, -0.3], [0.0], [1.0]))
        for step, reward in enumerate(rewards)
    ]
    found = find_decisions(StepTable.from_dicts(rows))
    assert found.success == pytest.approx(1 / 3)
    assert found.binary


@given(st.integers(0, 10_000))
def test_rounding_tells_no_sessions_apart(seed: int) -> None:
    """Outcomes are tenths; what is paid at which step only changes how their sum is rounded."""
    rng = np.random.default_rng(seed)
    rows, plain = list[dict[str, Any]](), list[dict[str, Any]]()
    for number in range(16):
        paid = rng.integers(-3, 4, 3)
        for step in range(3):
            row = {"group": "t", "trajectory": f"{number}", "step": step, "state": f"{step}"}
            row |= {"action": call(("get", "put")[int(rng.integers(2))])}
            rows.append(row | {"reward": paid[step] / 10})
            plain.append(row | {"reward": float(paid.sum()) / 10 if step == 2 else 0.0})
    one, other = (
        [
            (
                each.kind,
                each.state,
                each.difference,
                each.low,
                each.high,
                repr(each.p),
                each.certain,
            )
            for each in find_decisions(StepTable.from_dicts(table)).decisions
        ]
        for table in (rows, plain)
    )
    assert one == other


# Prompts.


def questions(count: int = 40) -> list[Session]:
    """Different questions under one task, of which those for the calculator are easier."""
    rng = np.random.default_rng(0)
    return [
        (
            "support",
            [(f"What is {rng.random()}?", call(tool)), (f"{number}", "an answer")],
            float(rng.random() < (0.9 if tool == "calc" else 0.1)),
        )
        for number in range(count)
        for tool in (("calc", "search")[number % 2],)
    ]


def test_different_prompts_under_one_task_claim_nothing() -> None:
    table = sessions(*questions())
    with command_line():
        found = find_decisions(table)
    tool = found.decisions[0]
    assert tool.q < 0.01
    assert not tool.certain
    assert tool.doubt == "a difference of tasks"
    assert not found.certain
    assert found.notes[0].startswith("Not compared with each other: 40 sessions of 1 task")
    assert "--same-task" in found.notes[0]
    assert "same_task=True" in find_decisions(table).notes[0]


def test_who_says_that_they_are_one_task_is_believed_and_told() -> None:
    table = with_columns(sessions(*questions()), task=["support"] * 40)
    found = find_decisions(table)
    assert found.certain
    assert "is known by its name alone" in found.notes[0]


def test_tasks_that_may_be_compared_are_compared_without_the_others() -> None:
    table = sessions(*questions(), *door(0))
    found = find_decisions(table)
    assert found.sessions == 80
    assert found.tasks == 2
    assert found.success == pytest.approx(
        np.mean([np.mean([row[2] for row in rows]) for rows in (questions(), door(0))])
    )
    assert {each.task for each in found.decisions} == {"maze"}
    left = found.certain[0].better
    assert left.action == "calling `left`" or "left" in left.actions[0]
    assert set(table.group.take(left.rows).texts()) == {"maze"}
    assert found.as_dict()["notes"][0].startswith("Not compared with each other: 40 sessions")
    assert found.as_dict()["unlike"] == ["support"]


# Endings and silence.


def stops(seed: int, *, after: bool = False) -> StepTable:
    """Luck solves the task; an agent that sees it solved says so, and that ends the session."""
    rng, rows = np.random.default_rng(seed), list[Session]()
    for _ in range(100):
        steps, won = [("q", call("step"))], 0.0
        while len(steps) < 6 and not won:
            won = float(rng.random() < 0.2)
            steps.append(("ok", call("submit") if won else call("step")))
        if after:
            steps.append(("bye", "done"))
        rows.append(("t", steps, won))
    return sessions(*rows)


@pytest.mark.parametrize("after", [False, True])
def test_an_ending_is_never_a_decision(after: bool) -> None:
    found = find_decisions(stops(0, after=after))
    endings = [each for each in found.decisions if "submit" in each.better.action]
    assert all(each.ending and not each.certain for each in endings)
    assert endings[0].q < 0.1
    assert endings[0].doubt == "an ending"
    assert endings[0].as_dict()["ending"] is True
    assert "perhaps an ending" in endings[0].how_sure
    assert not found.certain


def test_a_session_that_a_limit_cut_did_not_end() -> None:
    rows = [("t", [("s", call("wait"))], 0.0)] * 8
    rows += [("t", [("s", call("go")), ("there", call("open"))], 1.0)] * 8
    table = sessions(*rows)
    assert find_decisions(table).forks[0].ending
    cut = with_columns(table, truncated=[False] * 16)
    flags = np.array([row["action"] == call("wait") for row in cut.to_dicts()])
    cut = StepTable.from_columns(
        {name: [row[name] for row in cut.to_dicts()] for name in cut.to_dicts()[0]}
        | {"truncated": flags}
    )
    assert not find_decisions(cut).forks[0].ending


def test_a_session_without_a_response_counts_and_takes_no_side() -> None:
    rows = door(0)
    whole = find_decisions(sessions(*rows))
    table = sessions(*rows, *[("maze", [("", "")], 0.0)] * 10)
    silent = [
        row | ({"state": None, "action": None} if int(row["trajectory"]) >= 40 else {})
        for row in table.to_dicts()
    ]
    found = find_decisions(StepTable.from_dicts(silent))
    assert found.sessions == 50
    assert found.success == pytest.approx(0.8 * whole.success)
    assert [(e.kind, e.state, e.sessions, e.p) for e in found.forks] == [
        (e.kind, e.state, e.sessions, e.p) for e in whole.forks
    ]
    assert max(each.sessions for each in found.findings) <= 40


# Versions.


def two_agents(
    seed: int, effect: float, tasks: int = 50, times: int = 1
) -> tuple[StepTable, list[str]]:
    """Agents that win .2 and .7 of their attempts at most; the better one mostly unlocks doors."""
    rng, rows, versions = np.random.default_rng(seed), list[Session](), list[str]()
    for task in range(tasks):
        for agent, (chance, habit) in enumerate(((0.05, 0.35), (0.55, 0.65))):
            for _ in range(times):
                good = rng.random() < habit
                steps = [(f"door {task}", call("unlock" if good else "force")), ("room", "done")]
                rows.append((f"{task}", steps, float(rng.random() < chance + effect * good)))
                versions.append(f"agent {agent}")
    return sessions(*rows), versions


def test_agents_of_different_strength_are_not_pooled() -> None:
    pooled = apart = 0
    for seed in range(40):
        table, versions = two_agents(seed, 0.0)
        pooled += bool(find_decisions(table).certain)
        apart += bool(find_decisions(with_columns(table, version=versions)).certain)
    assert pooled > 15
    assert apart <= 8


def test_a_decision_of_one_attempt_each_is_found_and_says_what_it_compares() -> None:
    table, versions = two_agents(0, 0.4)
    found = find_decisions(with_columns(table, version=versions))
    (tool,) = found.certain
    assert tool.versions == 2
    assert tool.as_dict()["versions"] == 2
    assert "between 2 versions" in tool.text
    assert tool.worse.action == "calling `force`"
    assert tool.better.action == "those with `unlock` in its place"
    assert tool.low <= 0.4 <= tool.high
    assert any("agent 0 (50 sessions, " in note for note in found.notes)


def test_a_version_that_tried_several_times_is_compared_with_itself() -> None:
    table, versions = two_agents(0, 0.4, tasks=10, times=6)
    found = find_decisions(with_columns(table, version=versions))
    tool = next(each for each in found.decisions if each.kind == "event")
    assert tool.versions == 1
    names = [f"{row['group']} {versions[int(row['trajectory'])]}" for row in table.to_dicts()]
    rows = table.to_dicts()
    split = StepTable.from_dicts(
        row | {"group": name} for row, name in zip(rows, names, strict=True)
    )
    alone = next(each for each in find_decisions(split).decisions if each.kind == "event")
    assert (tool.difference, tool.low, tool.high, tool.p) == (
        alone.difference,
        alone.low,
        alone.high,
        alone.p,
    )


def test_a_share_over_versions_is_not_called_one_of_so_many_sessions() -> None:
    """One task, tried several times by an agent that wins and one that does not."""
    rows = [*door(0, good=1.0), *door(1, good=0.3)]
    found = find_decisions(with_columns(sessions(*rows), version=["a"] * 40 + ["b"] * 40))
    fork = next(each for each in found.forks if each.state == "doors")
    assert fork.strata == 2
    assert fork.tasks == 1
    assert "on average in" in fork.text


def test_one_version_is_none() -> None:
    table = sessions(*door(0))
    one = find_decisions(with_columns(table, version=["a"] * 40))
    assert one.as_dict() == find_decisions(table).as_dict()


def test_row_order_does_not_matter_with_versions() -> None:
    table, versions = two_agents(3, 0.3, tasks=20)
    table = with_columns(table, version=versions)
    order = np.random.default_rng(0).permutation(len(table))
    assert find_decisions(table.take(order)).as_dict() == find_decisions(table).as_dict()


# Copies.


def wander(seed: int, originals: int, copies: int) -> StepTable:
    """Sessions of ten steps in which nothing matters, and copies of them under new names."""
    rng, rows = np.random.default_rng(seed), list[Session]()
    for task in "ab":
        own: list[Session] = []
        for _ in range(originals):
            steps = [
                (f"{task} {n}", call(("get", "put", "look")[int(rng.integers(3))], at=n))
                for n in range(10)
            ]
            own.append((task, steps, float(rng.random() < 0.5)))
        rows += own + [own[int(rng.integers(originals))] for _ in range(copies)]
    return sessions(*rows)


def test_copies_count_once() -> None:
    certain = [bool(find_decisions(wander(seed, 4, 26)).certain) for seed in range(10)]
    assert sum(certain) <= 1
    found = find_decisions(wander(0, 4, 26))
    assert any("52 sessions of 60 look like copies" in note for note in found.notes)
    copied = [each for each in found.decisions if each.copied]
    assert copied
    assert copied[0].q < 0.1
    assert copied[0].doubt == "a session counted several times"
    assert "sessions equal another in all they did" in copied[0].how_sure


def test_short_sessions_that_are_equal_in_words_keep_their_power() -> None:
    found = find_decisions(sessions(*door(0, attempts=60)))
    assert found.certain
    assert found.certain[0].equal > 50
    assert not any("look like copies" in note for note in found.notes)


# Two files.


def test_tasks_that_begin_otherwise_are_not_compared_and_are_named() -> None:
    old = sessions(*door(0), *door(1, task="other"))
    changed = [
        row
        | ({"state": "a new hall"} if row["state"] == "hall" and row["group"] == "other" else {})
        for row in sessions(*door(2, good=0.3), *door(3, good=0.3, task="other")).to_dicts()
    ]
    found = compare_versions(old, StepTable.from_dicts(changed))
    assert found.missing == {"other": "the attempts begin in different states"}
    assert found.changes[0].tasks == 1
    assert {each.task for each in found.changes} == {"", "maze"}
    with pytest.raises(ValueError, match="same_task=True"):
        changes(
            sessions(*door(1, task="other")),
            StepTable.from_dicts(row for row in changed if row["group"] == "other"),
        )


def test_a_run_that_was_written_twice_is_no_surer() -> None:
    """Each version has its own originals, in which nothing matters."""
    certain = 0
    for seed in range(10):
        old, new = wander(seed, 3, 27), wander(seed + 50, 3, 27)
        found = compare_versions(old, new)
        assert found.copies == 108
        certain += any(each.certain for each in found.changes)
    assert certain <= 2
    same = wander(0, 30, 0)
    assert compare_versions(same, same).copies == 0  # those of another version are no copies


def test_everything_is_in_the_json() -> None:
    found: Decisions = find_decisions(sessions(*questions(), *door(0)))
    told = json.loads(json.dumps(found.as_dict()))
    assert {"notes", "missing", "decisions"} <= set(told)
    keys = {"certain", "doubt", "across", "sign", "ending", "copied", "versions", "equal", "more"}
    assert all(keys <= set(each) for each in told["decisions"])
    assert all(
        each["certain"] != bool(each["doubt"]) or not each["certain"] for each in told["decisions"]
    )
