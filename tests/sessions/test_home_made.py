"""Logs as people write them who have read no format: each opens without options."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ascribe.sessions.reading import Imported, import_files
from ascribe.steps.hints import command_line
from ascribe.steps.problems import TableError

TASKS = {"mug": "Put the mug away.", "lamp": "Switch on the lamp."}
REWARDS = {("mug", 0): 1.0, ("mug", 1): 0.0, ("lamp", 0): 0.0, ("lamp", 1): 1.0}
ACTS = {key: [f"look {key[1]}", "take it", "put it"][: 2 + key[1]] for key in REWARDS}
KEYS = list(REWARDS)


def seen(key: tuple[str, int]) -> list[str]:
    """What is observed before each action."""
    return [TASKS[key[0]], *(f"seen after {act}" for act in ACTS[key][:-1])]


def chat(key: tuple[str, int], agent: str = "assistant") -> list[dict[str, str]]:
    pairs = zip(seen(key), ACTS[key], strict=True)
    return [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", agent), pair, strict=True)
    ]


def by_task(session: Callable[[tuple[str, int]], Any]) -> dict[str, list[Any]]:
    return {task: [session(key) for key in KEYS if key[0] == task] for task in TASKS}


def dump(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def dump_lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def dump_csv(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def result(key: tuple[str, int]) -> dict[str, Any]:
    return {"turns": chat(key), "passed": bool(REWARDS[key])}


def lists_under_tasks(folder: Path) -> Path:
    return dump(folder / "a.json", by_task(result))


def attempts_under_tasks(folder: Path) -> Path:
    runs = {
        task: {f"try {n}": e for n, e in enumerate(own)} for task, own in by_task(result).items()
    }
    return dump(folder / "a.json", {"config": {"seed": 1}, "results": runs})


def tasks_with_attempts(folder: Path) -> Path:
    tasks = [
        {"id": task, "prompt": TASKS[task], "attempts": own}
        for task, own in by_task(result).items()
    ]
    return dump(folder / "a.json", {"benchmark": "b", "score": 0.5, "tasks": tasks})


def rollouts_of_a_line(folder: Path) -> Path:
    scores, chats = by_task(REWARDS.__getitem__), by_task(chat)
    rows = [{"task_id": t, "rollouts": chats[t], "rewards": scores[t]} for t in TASKS]
    return dump_lines(folder / "a.jsonl", rows)


def rows_of_messages(folder: Path) -> Path:
    rows = [
        {"session_id": f"{k}", "task_id": k[0], **m, "reward": None} for k in KEYS for m in chat(k)
    ]
    ends = [{"session_id": f"{key}", "task_id": key[0], "reward": REWARDS[key]} for key in KEYS]
    return dump_lines(folder / "a.jsonl", [*rows, *ends])


def rows_of_steps(folder: Path) -> Path:
    rows = [
        {
            "run_id": f"{key}",
            "task": key[0],
            "step": step,
            "observation": seen(key)[step],
            "action": act,
            "reward": REWARDS[key] * (step == len(ACTS[key]) - 1),
        }
        for key in KEYS
        for step, act in enumerate(ACTS[key])
    ]
    return dump_csv(folder / "a.csv", rows[::-1])


def calls_with_a_request(folder: Path) -> Path:
    rows = [
        {
            "run_id": f"{key}",
            "request": {"model": "m", "messages": chat(key)[:place]},
            "response": {"choices": [{"message": chat(key)[place], "finish_reason": "stop"}]},
            "metadata": {"task": key[0]},
            "reward": REWARDS[key],
        }
        for key in KEYS
        for place in range(1, len(chat(key)), 2)
    ]
    return dump_lines(folder / "a.jsonl", rows)


def steps_with_results(folder: Path) -> Path:
    steps = {
        key: [
            {"thought": "So.", "tool": "act", "args": {"text": act}, "response": "done"}
            for act in ACTS[key]
        ]
        for key in KEYS
    }
    for number, key in enumerate(KEYS):
        session = {"qid": key[0], "instruction": TASKS[key[0]], "steps": steps[key]}
        dump(folder / f"{number}.json", session | {"outcome": "pass" if REWARDS[key] else "fail"})
    return folder


def commands_with_outputs(folder: Path) -> Path:
    rows = [
        {
            "task": {"id": key[0], "question": TASKS[key[0]]},
            "commands": [{"command": act, "output": "ok", "exit_code": 0} for act in ACTS[key]],
            "score": f"{REWARDS[key]:.1f}",
        }
        for key in KEYS
    ]
    return dump(folder / "a.json", rows)


def lists_beside_each_other(folder: Path) -> Path:
    rows = [
        {
            "game_id": key[0],
            "goal": TASKS[key[0]],
            "won": bool(REWARDS[key]),
            "acts": ACTS[key],
            "obs": seen(key),
        }
        for key in KEYS
    ]
    return dump(folder / "a.json", {"episodes": rows})


def rewards_of_steps(folder: Path) -> Path:
    rows = [
        {
            "env_id": key[0],
            "transitions": [
                {"state": state, "action": act, "reward": REWARDS[key] * (act == ACTS[key][-1])}
                for state, act in zip(seen(key), ACTS[key], strict=True)
            ],
        }
        for key in KEYS
    ]
    return dump_lines(folder / "a.jsonl", rows)


def events_with_data(folder: Path) -> Path:
    kinds = {"user": "user_message", "assistant": "llm_response"}
    rows = [
        {
            "instance_id": key[0],
            "events": [
                *({"type": kinds[e["role"]], "data": {"text": e["content"]}} for e in chat(key)),
                {"type": "metrics", "data": {"tokens": 3}},
            ],
            "status": "SUCCESS" if REWARDS[key] else "FAILURE",
        }
        for key in KEYS
    ]
    return dump_lines(folder / "a.jsonl", rows)


def folders_of_tasks(folder: Path) -> Path:
    for task, attempt in KEYS:
        (folder / task).mkdir(exist_ok=True)
        session = {"messages": chat((task, attempt), "model")}
        reward = {"result": {"success": bool(REWARDS[task, attempt])}}
        dump(folder / task / f"{attempt}.json", session | reward)
    return folder


def structs_of_parquet(folder: Path) -> Path:
    columns = {
        "metadata": [{"task": key[0]} for key in KEYS],
        "conversations": [json.dumps(chat(key)) for key in KEYS],
        "metrics": [{"success": REWARDS[key]} for key in KEYS],
    }
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return folder / "a.parquet"


LOGS = (
    *(lists_under_tasks, attempts_under_tasks, tasks_with_attempts, rollouts_of_a_line),
    *(rows_of_messages, rows_of_steps, calls_with_a_request, steps_with_results),
    *(commands_with_outputs, lists_beside_each_other, rewards_of_steps, events_with_data),
    *(folders_of_tasks, structs_of_parquet),
)


def returns(imported: Imported) -> dict[str, list[float]]:
    """The rewards of the sessions of each task."""
    table = imported.table
    found: dict[str, dict[int, float]] = {}
    for group, session, reward in zip(
        table.group.texts(), table.trajectory.codes, table.reward, strict=True
    ):
        own = found.setdefault(group, {})
        own[session] = own.get(session, 0.0) + reward
    return {group: sorted(own.values()) for group, own in found.items()}


@pytest.mark.parametrize("write", LOGS, ids=lambda each: each.__name__)
def test_a_home_made_log_opens(tmp_path: Path, write: Callable[[Path], Path]):
    imported = import_files([write(tmp_path)])
    assert returns(imported) == {task: [0.0, 1.0] for task in TASKS}
    assert imported.balance.used("session") == imported.balance.seen["session"] == 4
    assert len(imported.table) == sum(map(len, ACTS.values()))
    if write not in (steps_with_results, commands_with_outputs):  # which have no first one
        acts = [action.rsplit(maxsplit=1)[-1] for action in imported.table.action.texts()]
        assert sorted(acts) == sorted(act.split()[-1] for own in ACTS.values() for act in own)
        first = {imported.table.state.texts()[row] for row in np.flatnonzero(_first(imported))}
        assert all(any(text in state for state in first) for text in TASKS.values())


def _first(imported: Imported) -> np.ndarray:
    return np.asarray(imported.table.step) == 0


@pytest.mark.parametrize(
    ("write", "what", "taken"),
    [
        (lists_under_tasks, "task", "its container"),
        (rows_of_steps, "messages", "rows with observation and action in the order of step"),
        (calls_with_a_request, "session", "run_id"),
        (lists_beside_each_other, "observations", "obs (each before its action)"),
        (events_with_data, "messages", "events (without metrics)"),
        (folders_of_tasks, "task", "its folder"),
    ],
)
def test_a_guess_is_said(tmp_path: Path, write: Callable[[Path], Path], what: str, taken: str):
    assert [*import_files([write(tmp_path)]).balance.fields[what]] == [taken]


def test_the_input_of_a_tool_is_not_observed(tmp_path: Path):
    calls = [
        {"type": "llm_response", "data": {"text": "So.", "tool": "go", "input": {"to": "desk"}}},
        {"type": "tool_result", "data": {"tool": "go", "output": "a desk"}},
        {"type": "llm_response", "data": {"tool": "stop", "input": {}}},
    ]
    path = dump_lines(tmp_path / "a.jsonl", [{"task": "t", "reward": 1, "events": calls}])
    assert import_files([path]).table.state.texts() == ["", "tool: a desk"]


def test_splits_of_a_file_are_no_tasks(tmp_path: Path):
    splits = {"train": list(map(result, KEYS)), "test": list(map(result, KEYS))}
    assert not returns(import_files([dump(tmp_path / "a.json", splits)])).keys() & splits.keys()


def test_chats_of_two_sides_are_not_two_sessions(tmp_path: Path):
    sides = {"agent": {"history": chat(KEYS[0])}, "user": {"history": chat(KEYS[1])}, "reward": 1}
    with pytest.raises(TableError, match="both look like its messages, and differ"):
        import_files([dump_lines(tmp_path / "a.jsonl", [sides])])


def test_unknown_outcomes_are_named_at_once(tmp_path: Path):
    words = ["gold", "silver", "1.0", "gold", "passed", "no prize"]
    rows = [{"task": "t", "chat": chat(KEYS[0]), "medal": word} for word in words]
    path = dump_lines(tmp_path / "a.jsonl", rows)
    with command_line(), pytest.raises(TableError) as caught:
        import_files([path], reward="medal")
    said = "--outcome-map 'gold=NUMBER,silver=NUMBER,no prize=NUMBER'"
    assert said in caught.value.problems[0].hint
    worth = {"gold": 1.0, "silver": 0.5, "no prize": 0.0}
    imported = import_files([path], reward="medal", outcome_map=worth)
    assert sum(imported.table.reward) == 4.5


def attempt(question: str, reward: float) -> dict[str, Any]:
    said = [{"role": "user", "content": question}, {"role": "assistant", "content": "80"}]
    return {"messages": said, "reward": reward}


PAIR = [attempt("q", 0), attempt("q", 1)]


@pytest.mark.parametrize(
    ("value", "groups"),
    [
        ({"results": {name: {"runs": PAIR} for name in "ab"}}, {"a", "b"}),
        ({"id": "exp7", "tasks": [{"id": name, "attempts": PAIR} for name in "ab"]}, {"a", "b"}),
        ({"won": [attempt("q", 1)] * 2, "lost": [attempt("q", 0)] * 2}, {"prompt"}),
        ([{"task_id": "a", "attempts": PAIR[:1], "trials": PAIR[1:]}], {"a"}),
    ],
)
def test_what_is_around_tasks_is_no_task(tmp_path: Path, value: Any, groups: set[str]):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(value))
    table = import_files([path]).table
    assert {name.partition(" ")[0] for name in table.group.values} == groups
    assert sum(table.reward) == table.trajectory.values.size / 2


@pytest.mark.parametrize("own", [{"id": "s"}, {"task_id": "t"}])
def test_a_run_of_many_sessions_is_not_one_session(tmp_path: Path, own: dict[str, str]):
    lines = [
        {"run_id": "exp", "messages": attempt(f"q{n}", 0)["messages"][:1], "response": "80"}
        | {name: f"{value}{n}" for name, value in own.items()}
        | {"reward": n % 2}
        for n in range(4)
    ]
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = import_files([path]).table
    assert (table.trajectory.values.size, sum(table.reward)) == (4, 2.0)


@pytest.mark.parametrize("task", [{}, {"question": "q{}"}])
def test_rows_of_numbered_episodes_are_told_apart(tmp_path: Path, task: dict[str, str]):
    lines = [
        {"episode": n % 2 if task else n, "step": step, "action": f"go {step}", "observation": "ok"}
        | {name: text.format(n // 2) for name, text in task.items()}
        | ({} if task else {"run_id": "exp"})
        | {"reward": n % 2}
        for n in range(4)
        for step in range(3)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = import_files([path]).table
    assert (table.trajectory.values.size, len(table), sum(table.reward)) == (4, 12, 2.0)
