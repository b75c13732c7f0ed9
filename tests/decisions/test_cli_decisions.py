"""``ascribe decisions``: what it prints, when it fails, and that hostile text is made safe."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from ascribe.steps.files import write_table
from ascribe.steps.table import StepTable
from tests.decisions.test_decisions import sessions
from tests.decisions.test_versions import version
from tests.test_cli import flat, run, strict_json

pytestmark = pytest.mark.unit


def written(path: Path, table: StepTable) -> Path:
    write_table(table, path)
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return written(tmp_path / "old.parquet", sessions(*version(16)))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return written(tmp_path / "new.parquet", sessions(*version(4)))


def test_prints_the_sentence_first(old: Path) -> None:
    result = run("decisions", old)
    assert result.exit_code == 0
    assert result.stdout.startswith("Maze, at “hall”: `left` won 100 % of 16, `right` 0 % of 4")
    assert "Prefer `left`." in result.stdout


def test_json_is_strict(old: Path, new: Path) -> None:
    found = strict_json(run("decisions", old, "--json").stdout)
    assert found["decisions"][0]["certain"] is True
    assert found["failed"] is False
    assert strict_json(run("decisions", old, new, "--json").stdout)["changes"][0]["drop"] > 0.5


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("success < 0.9", 1),
        ("success < 0.5", 0),
        ("difference > 0.9 and q < 0.1", 1),
        ("difference > 0.9 and sessions > 1000", 0),
        ("nonsense < 1", 2),
        ("success = 1", 2),
        ("__import__('os') > 1", 2),
    ],
)
def test_fails_if_asked_to(old: Path, condition: str, code: int) -> None:
    assert run("decisions", old, "--fail-if", condition).exit_code == code


def test_two_versions(old: Path, new: Path) -> None:
    failed = run("decisions", old, new, "--fail-if", "drop > 0.1 and q < 0.1")
    assert failed.exit_code == 1
    assert failed.stdout.startswith(
        "Over 1 task of both versions: won 80 % of 20 before, 20 % of 20 now"
    )
    assert "failed: drop > 0.1 and q < 0.1" in failed.stderr
    assert run("decisions", new, old, "--fail-if", "drop > 0.1").exit_code == 0
    assert run("decisions", old, new, old).exit_code == 2
    refused = run("decisions", old, new, "--outcome", "won")
    assert refused.exit_code == 2
    assert "are for one file" in flat(refused.stderr)


def test_a_failure_names_what_was_compared(old: Path) -> None:
    assert "certain > 0: certain 1" in flat(
        run("decisions", old, "--fail-if", "certain > 0").stderr
    )


def test_states_by_key_and_by_cluster(tmp_path: Path) -> None:
    rows = []
    for n in range(20):
        hall = (f"12:00:{n:02d} you are in the hall", "left" if n % 2 else "right")
        garden = (f"12:01:{n:02d} grass and a large tree all around", "stay")
        rows.append(("t", [hall, garden], float(n % 2)))
    file = written(tmp_path / "clock.parquet", sessions(*rows))
    for by, forks in (("text", 0), ("key", 1), ("cluster", 1)):
        found = json.loads(run("decisions", file, "--by", by, "--json").stdout)["decisions"]
        assert sum(each["kind"] == "fork" for each in found) == forks, by


def test_broken_groups_are_left_out_and_said(tmp_path: Path) -> None:
    columns = sessions(*version(16)).columns()
    table = pa.table(
        {
            name: pa.array(column.texts() if hasattr(column, "texts") else column)
            for name, column in columns.items()
        }
    )
    broken = (
        table.slice(0, 1)
        .set_column(table.column_names.index("reward"), "reward", pa.array([float("inf")]))
        .set_column(table.column_names.index("group"), "group", pa.array(["other"]))
        .set_column(table.column_names.index("trajectory"), "trajectory", pa.array(["other"]))
    )
    import pyarrow.parquet as pq

    pq.write_table(pa.concat_tables([table, broken]), tmp_path / "broken.parquet")
    result = run("decisions", tmp_path / "broken.parquet")
    assert result.exit_code == 0
    assert "Left out: 1 group with broken rows" in result.stdout


def test_hostile_text_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    evil = "\x1b[2J[bold]go\u202e"
    rows = [("t", [("s\x1b]0;x\x07", evil if n < 8 else "b")], float(n < 8)) for n in range(16)]
    shown = run("decisions", written(tmp_path / "evil.parquet", sessions(*rows)))
    assert "\x1b" not in shown.stdout
    assert "\u202e" not in shown.stdout
    assert "[bold]" in flat(shown.stdout)


@pytest.mark.parametrize("won", ["true", "1"])
def test_won_may_be_given_at_the_last_step_only(tmp_path: Path, won: str) -> None:
    lines = []
    for n in range(12):
        row = f'{{"group": "t", "trajectory": "{n}", "reward": 0, "action": "{n % 2}", '
        lines.append(row + '"step": 0, "state": "a"}')
        lines.append(row + f'"step": 1, "state": "b", "won": {won if n % 2 else "null"}}}')
    (tmp_path / "won.jsonl").write_text("\n".join(lines), encoding="utf-8")
    shown = run("decisions", tmp_path / "won.jsonl", "--outcome", "won")
    assert "`1` won 100 % of 6, `0` 0 % of 6: certain" in flat(shown.stdout)


# The gate.


def released(folder: Path, name: str, tasks: dict[str, float | None], question: str = "q") -> Path:
    """Ten sessions of each task, which all earned this; None for sessions without a reward."""
    lines = [
        json.dumps(
            {"group": task, "trajectory": f"{task}/{number}", "step": 0, "action": "a"}
            | {"state": f"{question} {task}", "reward": reward}
        )
        for task, reward in tasks.items()
        for number in range(10)
    ]
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


GATE = ("--fail-if", "drop > 0.1")


def test_tasks_that_the_new_version_lacks_stop_the_gate(tmp_path: Path) -> None:
    """A version that crashes in most tasks must not pass for what is left of it."""
    old = released(tmp_path, "old", dict.fromkeys("abcde", 1.0))
    for name, tasks in (
        ("absent", {"e": 1.0}),
        ("unlabelled", {"a": None, "b": None, "c": None, "d": None, "e": 1.0}),
    ):
        new = released(tmp_path, name, tasks)
        stopped = run("decisions", old, new, *GATE)
        assert stopped.exit_code == 2
        assert "4 tasks cannot be compared" in flat(stopped.stderr)
        assert all(f" {task} (" in flat(stopped.stderr) for task in "abcd")
        assert "--allow-missing 4" in flat(stopped.stderr)
        assert run("decisions", old, new, *GATE, "--allow-missing", 3).exit_code == 2
        assert run("decisions", old, new, *GATE, "--allow-missing", 4).exit_code == 0
        told = strict_json(run("decisions", old, new, *GATE, "--json").stdout)
        assert list(told["missing"]) == [*"abcd"]
        assert told["failed"] is False
        assert run("decisions", old, new).exit_code == 0  # without a gate they are noted
        assert "Not compared: 4 tasks, " in flat(run("decisions", old, new).stdout)
    lost = released(tmp_path, "lost", dict.fromkeys("ae", 0.0))
    assert run("decisions", old, lost, *GATE).exit_code == 1  # what is known is bad enough
    assert run("decisions", old, old, *GATE).exit_code == 0


def test_tasks_of_which_most_sessions_have_no_reward_stop_the_gate(tmp_path: Path) -> None:
    old = released(tmp_path, "old", dict.fromkeys("ab", 1.0))
    new = released(tmp_path, "new", dict.fromkeys("ab", 1.0))
    rows = [json.loads(line) for line in new.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows):
        row["reward"] = None if row["group"] == "a" and number % 10 < 6 else row["reward"]
    new.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    stopped = run("decisions", old, new, *GATE)
    assert stopped.exit_code == 2
    assert "1 task cannot be compared" in flat(stopped.stderr)
    assert "a (most sessions of the new version have no reward)" in flat(stopped.stderr)
    assert run("decisions", old, new, *GATE, "--allow-missing", 1).exit_code == 0


def test_a_task_that_begins_otherwise_is_missing_too(tmp_path: Path) -> None:
    old = released(tmp_path, "old", {"a": 1.0, "b": 1.0})
    new = released(tmp_path, "new", {"a": 1.0})
    other = released(tmp_path, "other", {"b": 1.0}, question="something else entirely")
    new.write_text(f"{new.read_text()}\n{other.read_text()}", encoding="utf-8")
    stopped = run("decisions", old, new, *GATE)
    assert stopped.exit_code == 2
    assert "b (the attempts begin in different states)" in flat(stopped.stderr)
    assert run("decisions", old, other, *GATE).exit_code == 2  # nothing to compare


def test_a_gate_that_cannot_judge_ends_with_code_2(tmp_path: Path, old: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"group": "a"', encoding="utf-8")
    unlabelled = released(tmp_path, "unlabelled", {"a": None})
    half = released(tmp_path, "half", {"a": None, "b": 1.0})
    alone = released(tmp_path, "alone", {"b": 1.0})
    for file in (broken, unlabelled, tmp_path / "absent.jsonl"):
        assert run("decisions", file, "--fail-if", "success < 2").exit_code == 2
        assert run("decisions", old, file, *GATE).exit_code == 2
        assert run("decisions", file).exit_code in (1, 2)
    # One file: a task without any reward may be one that was lost.
    stopped = run("decisions", half, "--fail-if", "success < 0.5")
    assert stopped.exit_code == 2
    assert "a (no session of it counts)" in flat(stopped.stderr)
    assert run("decisions", half, "--fail-if", "success < 0.5", "--allow-missing", 1).exit_code == 0
    # Nothing was compared, so there is no answer to a question about decisions.
    assert run("decisions", alone, "--fail-if", "difference > 0.1").exit_code == 2
    assert run("decisions", alone, "--fail-if", "success < 0.1").exit_code == 0
    assert run("decisions", alone, "--fail-if", "success > 0.1").exit_code == 1


def test_an_error_in_a_gate_is_no_verdict(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ascribe.cli.decisions.find_decisions", fail)
    assert run("decisions", old, "--fail-if", "success < 2").exit_code == 2


def test_few_states_are_printed_for_two_versions(tmp_path: Path) -> None:
    rows = [
        ("maze", [(f"room {n}", f"{(n + session) % 2}") for n in range(40)], float(session % 3 > 0))
        for session in range(12)
    ]
    file = written(tmp_path / "long.parquet", sessions(*rows))
    shown = run("decisions", file, file).stdout
    assert len(shown.splitlines()) <= 40
    assert "more states" in shown
    assert len(strict_json(run("decisions", file, file, "--json").stdout)["changes"]) > 30
