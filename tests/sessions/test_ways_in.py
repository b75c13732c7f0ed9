"""Sessions and rewards of odd files, compared with what was written into them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ascribe.sessions.formats import import_files, import_parts
from tests.sessions.test_formats import lines
from tests.sessions.test_left_out import ASK, chat, returns

pytestmark = pytest.mark.unit


def call(session: str, number: int, reward: Any, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": f"a{number}"}
    made = {"session_id": session, "messages": [ASK], "response_message": said, "reward": reward}
    return {**made, "trace_id": f"{session}-{number}", **more}


@pytest.mark.parametrize("bad", [0, 1])
def test_a_session_with_a_bad_reward_is_left_out_and_said(tmp_path: Path, bad: int) -> None:
    """Its other records do not wait for one that was never counted."""
    rows = [call(f"t:{n}", k, 0.5 * k) for n in range(3) for k in range(2)]
    rows[2 + bad]["reward"] = "abc"
    imported = import_files([lines(tmp_path, *rows)], skip_bad=True)
    assert returns(imported) == {"t/t:0": 0.5, "t/t:2": 0.5}
    assert imported.balance.reasons("record") == {"not as its format": 2}


def asked(path: Path, question: str, task: str = "0", attempts: int = 3) -> Path:
    """A file of attempts at a task with this name, each of one step."""
    path.parent.mkdir(exist_ok=True)
    rows = [
        chat(f"a{n}", question=question, task=task, id=str(n), reward=1.0) for n in range(attempts)
    ]
    return lines(path.parent, *rows, name=path.name)


def test_tasks_of_files_with_one_name_are_told_apart(tmp_path: Path) -> None:
    """Three folders, each with a file of the same name: the second and the third differ, too."""
    paths = [asked(tmp_path / name / "log.jsonl", f"question {name}") for name in "xyz"]
    imported = import_files(paths)
    assert set(imported.table.group.values) == {"0", "0 (log)", "0 (log, 2)"}
    assert "Task 0 has different questions, and counts as 3." in list(imported.balance.details())
    results = []
    for name in "xyz":
        told = {"task": {"instruction": f"do {name}"}}
        rows = [
            {"task_id": 0, "reward": 1.0, "trial": n, "info": told, "traj": [ASK]} for n in (0, 1)
        ]
        results.append(tmp_path / name / "results.json")
        results[-1].write_text(json.dumps(rows))
    assert import_files(results).table.group.values.size == 3


def test_no_task_gets_the_name_of_another(tmp_path: Path) -> None:
    first = asked(tmp_path / "a.jsonl", "question a")
    second = asked(tmp_path / "b.jsonl", "question b")
    third = asked(tmp_path / "c.jsonl", "question c", "0 (b)")
    found = import_files([first, second, third]).table.group.values
    assert set(found) == {"0", "0 (b)", "0 (b, 2)"}


@pytest.mark.parametrize("most_steps", [2, 3, 4])
def test_tasks_are_told_apart_over_parts(tmp_path: Path, most_steps: int) -> None:
    paths = [asked(tmp_path / f"{name}.jsonl", f"question {name}") for name in "ab"]
    names: Counter[str] = Counter()
    for part in import_parts(paths, most_steps=most_steps):
        names.update(part.table.group.texts())
    assert names == {"0": 3, "0 (b)": 3}
