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


def steps(key: tuple[str, int]) -> list[dict[str, Any]]:
    return [
        {"observation": see, "action": act} for see, act in zip(seen(key), ACTS[key], strict=True)
    ]


def about(key: tuple[str, int]) -> dict[str, Any]:
    return {"task": key[0], "model": f"m-{key[1]}b", "reward": REWARDS[key]}


def columns_of_pandas(folder: Path) -> Path:
    rows = [about(key) | {"messages": chat(key)} for key in KEYS]
    return dump(
        folder / "a.json", {n: {f"{k}": row[n] for k, row in enumerate(rows)} for n in rows[0]}
    )


def table_of_rows(folder: Path) -> Path:
    rows = [
        [f"{k}", n, *e.values(), *about(k).values()] for k in KEYS for n, e in enumerate(steps(k))
    ]
    names = ["run_id", "step", "observation", "action", *about(KEYS[0])]
    return dump(folder / "a.table.json", {"columns": names, "data": rows})


def cells_of_python(folder: Path) -> Path:
    return dump_csv(folder / "a.csv", [about(key) | {"messages": chat(key)} for key in KEYS])


def steps_with_numbers(folder: Path) -> Path:
    keyed = {k: {f"{n}_{i}": v for i, e in enumerate(steps(k)) for n, v in e.items()} for k in KEYS}
    return dump(folder / "a.json", [about(key) | {"trajectory": keyed[key]} for key in KEYS])


def tuples_of_gym(folder: Path) -> Path:
    last = {key: len(ACTS[key]) - 1 for key in KEYS}
    rows = [
        {
            "env_id": k[0],
            "episode": [[*e.values(), REWARDS[k] * (n == last[k])] for n, e in enumerate(steps(k))],
        }
        for k in KEYS
    ]
    return dump(folder / "a.json", rows)


def rewards_beside_actions(folder: Path) -> Path:
    rows = [
        {"env_id": k[0], "actions": ACTS[k], "observations": seen(k), "dones": [0] * len(ACTS[k])}
        | {"goal": TASKS[k[0]], "rewards": [0.0] * (len(ACTS[k]) - 1) + [REWARDS[k]]}
        for k in KEYS
    ]
    return dump_lines(folder / "a.jsonl", rows)


def one_text_of_thoughts(folder: Path) -> Path:
    def text(key: tuple[str, int]) -> str:
        after = [*seen(key)[1:], "the end"]
        told = zip(ACTS[key], after, strict=True)
        return "".join(f"\nThought: so\nAction: {act}\nObservation: {see}" for act, see in told)

    rows = [about(k) | {"question": TASKS[k[0]], "scratchpad": text(k)} for k in KEYS]
    return dump_lines(folder / "a.jsonl", rows)


def one_text_of_speakers(folder: Path) -> Path:
    def text(key: tuple[str, int]) -> str:
        names = {"user": "Human", "assistant": "Assistant"}
        return "\n\n".join(f"{names[turn['role']]}: {turn['content']}" for turn in chat(key))

    return dump_lines(folder / "a.jsonl", [about(k) | {"transcript": text(k)} for k in KEYS])


def pairs_of_what_was_said(folder: Path) -> Path:
    rows = [about(k) | {"history": [*map(list, zip(seen(k), ACTS[k], strict=True))]} for k in KEYS]
    return dump_lines(folder / "a.jsonl", rows)


def rows_of_two_sides(folder: Path) -> Path:
    pairs = [(k, n, e) for k in KEYS for n, e in enumerate(steps(k))]
    rows = [
        {"conversation_id": f"{k}", "turn": n, "user": e["observation"], "assistant": e["action"]}
        | about(k)
        for k, n, e in pairs
    ]
    return dump_csv(folder / "a.csv", rows)


def events_by_time(folder: Path) -> Path:
    kinds = {"user": "user_message", "assistant": "llm_response"}
    logs = [
        [
            ("start", {"task": k[0]}),
            *((kinds[e["role"]], {"text": e["content"]}) for e in chat(k)),
            ("tool_result", {"success": True}),
            ("end", {"success": bool(REWARDS[k])}),
        ]
        for k in KEYS
    ]
    rows = [
        {"ts": 9 * at + place, "session_id": f"{place}", "type": log[at][0], "payload": log[at][1]}
        for at in range(max(map(len, logs)))
        for place, log in enumerate(logs)
        if at < len(log)
    ]
    return dump_lines(folder / "a.jsonl", rows[::-1])


def a_folder_for_each(folder: Path) -> Path:
    for number, key in enumerate(KEYS):
        own = folder / f"{number}"
        own.mkdir()
        dump(own / "meta.json", about(key))
        turns = chat(key)
        dump_lines(own / "chat.jsonl", turns) if number % 2 else dump(own / "chat.json", turns)
    return folder


def rounds_of_a_task(folder: Path) -> Path:
    rounds = by_task(lambda key: {"dialogue": chat(key), "score": REWARDS[key], "max_score": 10})
    return dump(folder / "a.json", [{"task": t, "rounds": own} for t, own in rounds.items()])


def calls_with_an_input(folder: Path) -> Path:
    rows = [
        {"session": f"{k}", "input": chat(k)[:place], "output": chat(k)[place]["content"]}
        | about(k)
        for k in KEYS
        for place in range(1, len(chat(k)), 2)
    ]
    return dump_lines(folder / "a.jsonl", rows)


def keys_of_models(folder: Path) -> Path:
    runs = {
        f"m-{n}b": [
            {"qid": t, "goal": TASKS[t], "log": chat((t, n)), "won": REWARDS[t, n]} for t in TASKS
        ]
        for n in (0, 1)
    }
    return dump(folder / "a.json", {"day": 1, "results": runs})


def lists_of_models(folder: Path) -> Path:
    models = [
        {
            "name": f"m-{n}b",
            "tasks": [
                {"id": t, "runs": [{"log": chat((t, n)), "score": REWARDS[t, n]}]} for t in TASKS
            ],
        }
        for n in (0, 1)
    ]
    return dump(folder / "a.json", {"models": models})


OTHERS = (
    *(columns_of_pandas, table_of_rows, cells_of_python, steps_with_numbers, tuples_of_gym),
    *(rewards_beside_actions, one_text_of_thoughts, one_text_of_speakers, pairs_of_what_was_said),
    *(rows_of_two_sides, events_by_time, a_folder_for_each, rounds_of_a_task),
    *(calls_with_an_input, keys_of_models, lists_of_models),
)


LOGS = (
    *(lists_under_tasks, attempts_under_tasks, tasks_with_attempts, rollouts_of_a_line),
    *(rows_of_messages, rows_of_steps, calls_with_a_request, steps_with_results),
    *(commands_with_outputs, lists_beside_each_other, rewards_of_steps, events_with_data),
    *(folders_of_tasks, structs_of_parquet),
    *OTHERS,
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
        (tuples_of_gym, "messages", "episode (as observation, action, reward)"),
        (rewards_beside_actions, "reward", "rewards"),
        (one_text_of_speakers, "messages", "transcript (as a text, each message after who speaks)"),
        (rounds_of_a_task, "reward", "score (as it is; max_score is 10)"),
    ],
)
def test_a_guess_is_said(tmp_path: Path, write: Callable[[Path], Path], what: str, taken: str):
    assert [*import_files([write(tmp_path)]).balance.fields[what]] == [taken]


VERSIONS = (columns_of_pandas, table_of_rows, a_folder_for_each, keys_of_models, lists_of_models)


@pytest.mark.parametrize("write", VERSIONS, ids=lambda each: each.__name__)
def test_who_acted_is_found(tmp_path: Path, write: Callable[[Path], Path]):
    assert import_files([write(tmp_path)]).balance.versions == {"m-0b": 2, "m-1b": 2}


def test_numbered_runs_and_parts_are_no_versions(tmp_path: Path):
    for names in (("run_0", "run_1"), ("train", "test")):
        runs = {name: [{"goal": g, **result(KEYS[0])} for g in "ab"] for name in names}
        assert not import_files([dump(tmp_path / "a.json", runs)]).balance.versions


CHAT = {"role": "system", "content": "Act."}, *chat(KEYS[0])


def test_in_dialogues_with_a_system_it_acts(tmp_path: Path):
    said = [{"speaker": who, "text": f"{who} {n}"} for n in (0, 1) for who in ("USER", "SYSTEM")]
    path = dump_lines(tmp_path / "a.jsonl", [{"task": "t", "log": said, "success": 1}])
    assert import_files([path]).table.action.texts() == ["SYSTEM 0", "SYSTEM 1"]


def test_single_answers_are_sessions(tmp_path: Path):
    rows = [{"prompt": "Add.", "responses": ["2", "3"], "rewards": [1, 0]}]
    assert [*returns(import_files([dump(tmp_path / "a.json", rows)])).values()] == [[0.0, 1.0]]
    rows = [
        {
            "task_id": "t",
            "completion": str(n),
            "passed": n > 0,
            "result": "passed" if n else "failed",
        }
        for n in (0, 1)
    ]
    assert returns(import_files([dump(tmp_path / "b.json", rows)])) == {"t": [0.0, 1.0]}


def test_calls_of_tools_are_no_sessions(tmp_path: Path):
    rows = [
        {"session_id": f"{n}", "name": "go", "input": {"to": k}, "output": "there", "score": n}
        for n in (0, 1)
        for k in (1, 2)
    ]
    path = dump_lines(tmp_path / "a.jsonl", rows)
    table = import_files([path], state="observation").table
    assert (table.trajectory.values.size, len(table)) == (2, 4)
    assert table.state.texts()[1] == "tool: there"
    rows = [{"session_id": f"{n}", "input": "so", "output": "go", "score": n} for n in (0, 1, 1)]
    assert import_files([dump_lines(tmp_path / "b.jsonl", rows)]).table.trajectory.values.size == 2


MISLEADING = {
    "its messages begin anew": [*CHAT, *CHAT],
    "no messages and no actions|no session": [{"task": "t", "trajectory": [["go on", "A hall."]]}],
    "several episodes": [{"actions": [*"aab"], "rewards": [0, 1, 1], "dones": [0, 1, 1]}],
    "and bonus_score says 1": [{"steps": [{"action": "a", "reward": 0}], "bonus_score": 1}],
    "begins with the same prompt": [
        {"run_id": "e", "messages": CHAT[:2], "response": text, "reward": 1} for text in "ab"
    ],
    "no event .* x, y": [{"session_id": "s", "event": k, "data": {"a": 1}} for k in "xy"],
    "holds no session": [{"task": "t", "scratchpad": "Question: a\nAction: b\nQuestion: c\n"}],
}


@pytest.mark.parametrize("says", MISLEADING)
def test_what_could_be_misread_is_refused(tmp_path: Path, says: str):
    with pytest.raises(TableError, match=says):
        import_files([dump_lines(tmp_path / "a.jsonl", MISLEADING[says])])


def test_a_session_is_named_after_its_folder(tmp_path: Path):
    names = import_files([a_folder_for_each(tmp_path)]).table.trajectory.texts()
    assert {"mug/1", "lamp/3"} < {*names}


def test_the_file_of_a_run_says_nothing_of_its_sessions(tmp_path: Path):
    dump(tmp_path / "meta.json", {"score": 0.5})
    for number, key in enumerate(KEYS):
        dump_lines(tmp_path / f"{number}.jsonl", chat(key))
    with pytest.raises(TableError, match="no session has a reward"):
        import_files([tmp_path])
    dump_csv(tmp_path / "s.csv", [{"session": f"{n}", "mark": n} for n in range(4)])
    with command_line(), pytest.raises(TableError) as caught:
        import_files([tmp_path])
    assert f"perhaps --reward {tmp_path / 's.csv'}" in caught.value.problems[0].hint
    assert import_files([tmp_path], reward=str(tmp_path / "s.csv")).table.reward.sum() == 6


def test_a_table_of_rewards_replaces_a_damaged_one(tmp_path: Path):
    rows = [{"id": "s", "task": "t", "messages": chat(KEYS[0]), "reward": "n/a"}]
    path = dump(tmp_path / "a.json", rows)
    dump_csv(tmp_path / "s.csv", [{"session": "s", "reward": 3}])
    with pytest.raises(TableError, match="must be a number"):
        import_files([path])
    assert import_files([path], reward=str(tmp_path / "s.csv")).table.reward.sum() == 3


def test_a_table_without_tasks_is_read_as_the_error_says(tmp_path: Path):
    rows = [
        {"trajectory": f"{n}", "step": 0, "state": "s", "action": "a", "score": n} for n in (0, 1)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with command_line(), pytest.raises(TableError) as caught:
        import_files([tmp_path / "a.parquet"])
    assert caught.value.problems[0].hint.endswith("a.parquet --format rows")
    imported = import_files([tmp_path / "a.parquet"], form="rows")
    assert [*returns(imported).values()] == [[0.0, 1.0]]


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


def test_steps_of_one_session_are_no_sessions(tmp_path: Path) -> None:
    """Lists of texts, one for each step, with nothing that says what they belong to."""
    steps = {"actions": [["move", "n"], ["take", "lamp"]], "observations": ["a hall", "taken"]}
    table = import_files([dump(tmp_path / "s.json", steps | {"rewards": [0, 1]})]).table
    assert (table.trajectory.values.size, len(table)) == (1, 2)


def test_a_text_of_thoughts_is_kept_whole(tmp_path: Path) -> None:
    text = "Thought: a\nThought: b\nAction: go\nObservation: 1\nObservation: 2\nThought: it is 42"
    rows = [{"task_id": "t", "id": n, "success": n > 0, "trajectory": text} for n in range(2)]
    table = import_files([dump(tmp_path / "s.json", rows)]).table
    said = " ".join([*table.state.values, *table.action.values])
    assert (len(table), "42" in said, "1\n2" in said) == (4, True, True)


def test_rows_are_ordered_by_numbers_written_as_text(tmp_path: Path) -> None:
    def rows(kind: Callable[[int], Any]) -> list[dict[str, Any]]:
        own = {"session_id": "a", "role": "assistant", "reward": 1}
        return [own | {"step": kind(n), "content": f"x{n}"} for n in (10, 2, 11, 3)]

    own, other = (
        import_files([dump_lines(tmp_path / f"{kind.__name__}.jsonl", rows(kind))]).table
        for kind in (int, str)
    )
    assert [own.action.texts()[row] for row in np.argsort(own.step)] == ["x2", "x3", "x10", "x11"]
    assert own.action.texts() == other.action.texts()
    huge = [
        {"session_id": "a", "step": 10**n, "role": "assistant", "content": "x", "reward": 1}
        for n in (400, 1)
    ]
    assert len(import_files([dump_lines(tmp_path / "huge.jsonl", huge)]).table) == 2


def test_a_table_of_pandas_keeps_rows_after_a_filter(tmp_path: Path) -> None:
    columns = {
        "messages": {str(n): chat(key) for n, key in zip((3, 7, 9, 12), KEYS, strict=True)},
        "success": {str(n): REWARDS[key] > 0 for n, key in zip((3, 7, 9, 12), KEYS, strict=True)},
    }
    table = import_files([dump(tmp_path / "s.json", columns)]).table
    assert (table.trajectory.values.size, sum(table.reward)) == (4, 2.0)


def test_entries_of_one_number_are_not_overwritten(tmp_path: Path) -> None:
    steps = {name: {"action": name} for name in ("step_1", "step_01", "step_2")}
    with pytest.raises(TableError):
        import_files([dump(tmp_path / "s.json", [{"id": 0, "reward": 0, "steps": steps}])])
