"""Rewards of sessions from a CSV file."""

from pathlib import Path
from typing import Any

import pytest

from ascribe import ProblemKind, TableError
from ascribe.sessions.reading import import_files, rewards
from tests.sessions.test_cli_import import READING, command
from tests.sessions.test_formats import DATA, chat, lines

pytestmark = pytest.mark.unit


def table_of(folder: Path, text: str, *rows: dict[str, Any]) -> Any:
    (folder / "scores.csv").write_text(text)
    rows = rows or (chat(id="a", task="t"), chat("7", id="b", task="t"))
    return import_files([lines(folder, *rows)], reward=str(folder / "scores.csv")).table


@pytest.mark.parametrize(
    "text",
    [
        "session,reward\na,1\nb,0.5\n",
        "reward,note,session_id\r\n0.5,x,t/b\r\n1e0,y,t/a\r\n",
        "\ufeffid, points ,name\na,true,A\n\nb,0.5,B\n",
        'trajectory,task,reward\n"a",t,1\nb,t,0.5',
    ],
)
def test_rewards_are_joined_by_the_name_of_the_session(tmp_path: Path, text: str):
    assert table_of(tmp_path, text).reward.tolist() == [1.0, 0.5]


def test_a_file_may_name_groups(tmp_path: Path):
    text = "run_id,task,reward\na,one,1\nb,two,0\nb,one,0.5\n"
    rows = (chat(id="a"), chat(id="b", task="one"), chat(id="b", task="two"))
    table = table_of(tmp_path, text, *rows)
    assert table.group.texts() == ["one", "one", "two"]
    assert table.trajectory.texts() == ["one/a", "one/b", "two/b"]
    assert table.reward.tolist() == [1.0, 0.5, 0.0]


def test_rewards_of_the_file_itself_do_not_count(tmp_path: Path):
    rows = (chat(id="a", task="t", reward=7), chat(id="b", task="t", rewards=[3]))
    assert table_of(tmp_path, "session,reward\na,1\nb,0\n", *rows).reward.tolist() == [1.0, 0.0]


def test_a_session_of_several_conversations_has_one_reward(tmp_path: Path):
    plain = import_files([DATA / "traces.jsonl"]).table
    text = "".join(f"{name},{n}\n" for n, name in enumerate(plain.trajectory.values))
    (tmp_path / "scores.csv").write_text(f"session,reward\n{text}")
    table = import_files([DATA / "traces.jsonl"], reward=str(tmp_path / "scores.csv")).table
    assert table.reward.sum() == 0 + 1 + 2 + 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "session,reward\n" + "".join(f"x{n},1\n" for n in range(9)),
            "no session has a row: the file names 'x0', 'x1', 'x2', ..., and sessions are 't/a', ",
        ),
        ("session,reward\n", "no session has a row: the file names nothing, and sessions are"),
        ("session,reward\na,1\nb,0\na,1\n", "lines 2 and 4 name 'a'"),
        ("session,reward\na,nan\nb,1\n", "line 2: the reward 'nan' is not a finite number"),
        ("session,reward\na,1\nb,1e999\n", "line 3: the reward '1e999' is not"),
        ("session,reward\na,1_0\nb,1\n", "line 2: the reward '1_0' is not"),
        ("session,reward\na,\nb,1\n", "line 2: the reward '' is not"),
        ("session,reward\na,1,2\n", "line 2 has 3 values for 2 columns"),
        ("session,reward,reward\n", "a column is there twice"),
        ("name,reward\na,1\n", "no column session. There are: name, reward"),
        ("session,x,y\na,1,2\nb,1,2\n", "no column reward, nor one other column of numbers"),
        ("", "no column session. There are: none"),
        ('session,reward\na,"1\n', "unexpected end of data"),
        (f"session,reward\n{'a' * 200_000},1\n", "field larger than field limit"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, text: str, message: str):
    with pytest.raises(TableError, match=rf"^[^\n]*scores.csv: .*{message}") as caught:
        table_of(tmp_path, text)
    assert caught.value.problems[0].kind is ProblemKind.BAD_REWARDS


def test_a_name_that_two_sessions_have_is_refused(tmp_path: Path):
    rows = chat(id="a", task="t"), chat(id="a", task="u")
    with pytest.raises(TableError, match=r"line 2 names 't/a' and 'u/a'.*Write GROUP/SESSION"):
        table_of(tmp_path, "session,reward\na,1\n", *rows)
    twice = chat(id="a", task="t"), chat(id="a", task="t")
    assert table_of(tmp_path, "session,reward\na,1\n", *twice).trajectory.texts() == ["t/a"]


def test_sessions_without_a_row_and_rows_without_a_session_are_left_out_and_counted(
    tmp_path: Path,
):
    (tmp_path / "scores.csv").write_text("session,reward\na,1\nc,0\n")
    path = lines(tmp_path, *(chat(id=name, task="t") for name in "ab"))
    imported = import_files([path], reward=str(tmp_path / "scores.csv"))
    assert imported.table.trajectory.texts() == ["t/a"]
    assert imported.balance.sentence == (
        "1 session in 1 file; 1 session left out: no reward (1); "
        "1 reward left out: no session has its name (1)."
    )


def test_files_that_are_too_large_or_no_text_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "scores.csv"
    path.write_bytes(b"session,reward\n\xff,1\n")
    with pytest.raises(TableError, match="can't decode"):
        import_files([DATA / "openai.jsonl"], reward=str(path))
    monkeypatch.setattr(rewards, "MAX_SIZE", 10)
    with pytest.raises(TableError, match="more than 10 bytes"):
        import_files([DATA / "openai.jsonl"], reward=str(path))
    with pytest.raises(FileNotFoundError):
        import_files([DATA / "openai.jsonl"], reward=str(tmp_path / "none.csv"))


@pytest.mark.parametrize("name", READING)
def test_every_command_takes_a_file_of_rewards(tmp_path: Path, name: str):
    path = lines(tmp_path, chat(id="a", task="t"), chat("7", id="b", task="t"))
    scores = tmp_path / "scores.csv"
    scores.write_text("session,reward\na,1\nb,0\n")
    command(name, path, "--reward", scores, out=tmp_path)
    scores.write_text("session,reward\na,1\n")
    done = command(name, path, "--reward", scores, out=tmp_path)
    said = done.stderr + done.stdout
    assert "1 session left out: no reward (1)" in " ".join(said.split())
    scores.write_text("session,reward\nx,1\n")
    assert "bad_rewards" in command(name, path, "--reward", scores, out=tmp_path, code=1).stderr
    missing = tmp_path / "none.csv"
    assert "cannot open" in command(name, path, "--reward", missing, out=tmp_path, code=2).stderr
