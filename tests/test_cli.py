"""The commands: what they print, how they end, and that hostile text never reaches a terminal."""

import itertools
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import ascribe
from ascribe import RECIPES, StepTable, __version__, assign, cli, recipe
from ascribe.cli import COMMANDS, LABORATORY, PANELS, app, load_command, screen
from ascribe.cli.screen import print_json
from ascribe.steps.check import arrange
from ascribe.steps.files import SUFFIXES, read, read_table, table_to_arrow, write_table
from ascribe.steps.hints import laboratory
from tests.conftest import INPUTS, Row, good_rows, write_jsonl

pytestmark = pytest.mark.unit


def run(*arguments: object) -> Result:
    """The command in this process; no exception but the one that carries the exit code."""
    screen.out.width = screen.err.width = 300  # so that no cell is broken into lines
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def spoilt_file(folder: Path, **values: Any) -> Path:
    """A file whose fifth row, in its first group, holds other values."""
    rows = good_rows()
    rows[4].update(values)
    return write_jsonl(folder / "spoilt.jsonl", rows)


def strict_json(text: str) -> Any:
    """The document; NaN and infinity, which Python would let pass, are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def flat(text: str) -> str:
    """Printed text without the frame and the line ends that a table puts in."""
    return re.sub(r"[\s│┃|]+", " ", text)


# check


def test_check_clean_file(good_file: Path):
    result = run("check", good_file)
    assert result.exit_code == 0
    assert "50 rows, no problems." in flat(result.stdout)
    assert result.stderr == ""
    said = strict_json(run("check", good_file, "--json", "--group-size", 4).stdout)
    for line in said["situation"]:
        assert line in flat(result.stdout)
    assert [line.split(" (")[0] for line in said.pop("situation")] == [
        "Advice: use sbc. States recur",
        "With discount 0.95, a step gets 0.81 of a reward 4 steps later",
    ]
    assert said == {
        "file": str(good_file),
        "refused": False,
        "rows": 50,
        "worst": None,
        "problems": [],
        "balance": said["balance"],
    }
    assert said["balance"]["sentence"] == "12 sessions in 1 file."


@pytest.mark.parametrize(
    ("values", "code", "strict_code"),
    [
        ({"note": "x"}, 0, 0),
        ({"action": ""}, 0, 1),
        ({"reward": None}, 0, 1),
        ({"reward": 1e200}, 1, 1),
        ({"step": "1"}, 1, 1),
    ],
)
def test_check_exit_codes(tmp_path: Path, values: Row, code: int, strict_code: int):
    path = spoilt_file(tmp_path, **values)
    assert run("check", path).exit_code == run("check", path, "--json").exit_code == code
    assert run("check", path, "--strict").exit_code == strict_code
    assert run("check", path, "--strict", "--json").exit_code == strict_code


def test_check_says_what_and_where_and_what_to_do(tmp_path: Path):
    result = run("check", spoilt_file(tmp_path, reward=1e200, action=""))
    assert result.exit_code == 1
    said = flat(result.stdout)
    assert "reward_too_large" in said
    assert "1 rewards are beyond 1e100" in said
    assert "scale the reward" in said
    assert "2 kinds of problem, the worst: fatal." in said


def test_check_group_size(good_file: Path):
    result = run("check", good_file, "--group-size", 5, "--json")
    assert result.exit_code == 1
    assert [p["kind"] for p in strict_json(result.stdout)["problems"]] == ["partial_group"]


def test_refused_file(tmp_path: Path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"not Parquet")
    result = run("check", path)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "unreadable_file" in result.stderr
    assert "refused; nothing was computed" in flat(result.stderr)
    said = strict_json(run("check", path, "--json").stdout)
    assert said["refused"] is True
    assert said["worst"] == "fatal"
    assert [problem["kind"] for problem in said["problems"]] == ["unreadable_file"]


@pytest.mark.parametrize("command", ["check", "show", "credit"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_file_that_cannot_be_opened(tmp_path: Path, command: str, suffix: str):
    more = ["--out", tmp_path / "out.parquet"] if command == "credit" else []
    result = run(command, tmp_path / f"nowhere{suffix}", *more)
    assert result.exit_code == 2
    assert "cannot open" in result.stderr
    assert "No such file or directory" in flat(result.stderr)
    (tmp_path / f"folder{suffix}").mkdir()
    result = run(command, tmp_path / f"folder{suffix}", *more)
    assert result.exit_code == 1
    assert "holds no session" in flat(result.stderr)


# credit


@pytest.mark.parametrize("before", SUFFIXES)
@pytest.mark.parametrize("after", SUFFIXES)
def test_credit(tmp_path: Path, before: str, after: str):
    table = StepTable.from_dicts(good_rows())
    write_table(table, tmp_path / f"in{before}")
    out = tmp_path / f"out{after}"
    result = run("credit", tmp_path / f"in{before}", "--out", out)
    assert result.exit_code == 0
    assert "Wrote" in result.stdout
    assert "sbc, with its default parameters" in flat(result.stdout)
    written = read(out)
    assert written.table.to_dicts() == good_rows()
    credit = recipe("sbc")(table)
    due = [
        float(value) if reason == 0 else None
        for value, reason in zip(credit.advantage, credit.reason, strict=True)
    ]
    columns = written.credit.to_pydict()
    assert list(columns) == [
        "advantage",
        "reason",
        "advantage_own",
        "reason_own",
        "advantage_step",
        "reason_step",
    ]
    assert columns["advantage"] == due
    assert columns["reason"][-2:] == ["padding", "padding"]
    for name in ("advantage", "advantage_own", "advantage_step"):
        reasons = columns[name.replace("advantage", "reason")]
        assert [v is not None for v in columns[name]] == [r == "credited" for r in reasons]


def test_credit_with_intervals(good_file: Path, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    assert run("credit", good_file, "--out", out, "--interval").exit_code == 0
    table, columns = read_table(good_file), read(out).credit.to_pydict()
    low, high = recipe("sbc")(table).interval(table)
    for name, bounds in (("advantage_low", low), ("advantage_high", high)):
        assert columns[name] == [None if math.isnan(bound) else bound for bound in bounds.tolist()]
    result = run("credit", good_file, "--out", out, "--interval", "--ray", "auto")
    assert result.exit_code == 2
    assert "--interval needs a table that fits" in flat(result.stderr)


def test_credit_json(good_file: Path, tmp_path: Path):
    out = tmp_path / "out.parquet"
    result = run("credit", good_file, "--out", out, "--recipe", "grpo", "--json")
    assert result.exit_code == 0
    said = strict_json(result.stdout)
    assert said["file"] == str(good_file)
    assert said["out"] == str(out)
    assert said["recipe"] == "grpo"
    assert recipe("grpo", **said["parameters"]) == recipe("grpo")
    assert said["dropped"] == {"groups": 0, "rows": 0, "because": {}, "columns": []}
    assert said["problems"] == {}
    assert said["diagnosis"]["rows"] == 48
    assert result.stderr == ""


@pytest.mark.parametrize("name", RECIPES)
def test_credit_by_every_recipe(tmp_path: Path, name: str):
    """With fingerprints in the file and without: credit, or a word about what is missing."""
    rows = [row | {"corrects": None, "without": 0.5} | INPUTS for row in good_rows()]
    path, out = write_jsonl(tmp_path / "full.jsonl", rows), tmp_path / "out.parquet"
    result = run("credit", path, "--out", out, "--recipe", name)
    assert result.exit_code == 0, result.stderr
    for row in rows:
        for column in ("fingerprint", "agent", "family", "valid", "corrects", "without", *INPUTS):
            del row[column]
    path = write_jsonl(tmp_path / "bare.jsonl", rows)
    for command in (["credit", path, "--out", out], ["show", path]):
        result = run(*command, "--recipe", name)
        assert result.exit_code in (0, 2)
        assert result.exit_code == 0 or "needs" in flat(result.stderr)


def test_credit_hands_statistics_from_file_to_file(tmp_path: Path):
    rows = [row | {"without": row["step"] / 8} for row in good_rows() if row["step"] < 2]
    rows = [row | {"terminated": False, "truncated": False} for row in rows]
    path, history = write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "history.json"
    out, due = tmp_path / "out.parquet", None
    for _ in range(3):
        given = ["--recipe", "ccpo", "--set", "minimum=1", "--history", history]
        result = run("credit", path, "--out", out, *given)
        assert result.exit_code == 0, result.stderr
        credit = recipe("ccpo", minimum=1)(read_table(path), history=due)
        due = credit.history
        assert json.loads(history.read_text()) == due
        written = pq.read_table(out).column("advantage").fill_null(0).to_pylist()
        assert written == credit.advantage.tolist()
    for text in ("{", "[1]", '{"streams": ["x"], "mean": [0], "variance": [0], "samples": 1}'):
        history.write_text(text)
        assert run("credit", path, "--out", out, *given).exit_code == 2
    other = run("credit", path, "--out", out, "--recipe", "grpo", "--history", history)
    assert "grpo carries no state" in flat(other.stderr)


def test_credit_passes_parameters_on(good_file: Path, tmp_path: Path):
    out = tmp_path / "out.parquet"
    given = [
        "--recipe",
        "gigpo",
        "--preset",
        "verl-agent",
        "--set",
        "gamma=0.5",
        "--set",
        "normalise=mean",
    ]
    assert run("credit", good_file, "--out", out, *given).exit_code == 0
    due = recipe("gigpo", preset="verl-agent", gamma=0.5, normalise="mean")
    credit = due(read_table(good_file))
    written = pq.read_table(out).column("advantage").fill_null(0).to_pylist()
    assert written == credit.advantage.tolist()


def test_credit_carries_unknown_columns_and_replaces_old_credit(tmp_path: Path):
    rows = [
        row | {"seed": i, "advantage": 99.0, "reason": "old", "advantage_old": 1.0}
        for i, row in enumerate(good_rows())
    ]
    path = write_jsonl(tmp_path / "in.jsonl", rows)
    for suffix in SUFFIXES:
        out = tmp_path / f"out{suffix}"
        assert run("credit", path, "--out", out).exit_code == 0
        written = read(out)
        assert written.carried.to_pydict() == {"seed": list(range(50))}
        assert "advantage_old" not in written.credit.column_names
        assert "old" not in written.credit.column("reason").to_pylist()
        # And once more, with a recipe of one term: no column of the first run is left.
        again = tmp_path / f"again{suffix}"
        assert run("credit", out, "--out", again, "--recipe", "grpo").exit_code == 0
        twice = read(again)
        assert twice.table.to_dicts() == good_rows()
        assert twice.carried.to_pydict() == {"seed": list(range(50))}
        assert twice.credit.column_names == [
            "advantage",
            "reason",
            "advantage_episode",
            "reason_episode",
        ]


def test_credit_over_its_own_input(tmp_path: Path):
    path = tmp_path / "a.parquet"
    write_table(StepTable.from_dicts(good_rows()), path)
    assert run("credit", path, "--out", path, "--force").exit_code == 0
    assert run("credit", path, "--out", path, "--force").exit_code == 0
    assert read(path).table.to_dicts() == good_rows()


def test_credit_of_nested_and_empty_objects(tmp_path: Path):
    rows = [row | {"info": {}, "meta": {f"k{i % 2}": i}} for i, row in enumerate(good_rows())]
    path = write_jsonl(tmp_path / "in.jsonl", rows)
    for suffix in SUFFIXES:
        assert run("credit", path, "--out", tmp_path / f"out{suffix}").exit_code == 0
        carried = read(tmp_path / f"out{suffix}").carried.to_pydict()
        assert [json.loads(text) for text in carried["info"]] == [{}] * 50
        assert [json.loads(text) for text in carried["meta"]] == [row["meta"] for row in rows]


def test_credit_of_columns_that_json_lacks(tmp_path: Path):
    arrow = table_to_arrow(StepTable.from_dicts(good_rows()))
    arrow = arrow.append_column("when", pa.array([0] * 50, pa.timestamp("s")))
    pq.write_table(arrow, tmp_path / "in.parquet")
    result = run("credit", tmp_path / "in.parquet", "--out", tmp_path / "out.jsonl")
    assert result.exit_code == 2
    assert "'when' is timestamp" in flat(result.stderr)
    assert "write .parquet instead" in flat(result.stderr)
    assert not (tmp_path / "out.jsonl").exists()
    assert run("credit", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet").exit_code == 0


def test_credit_policies(tmp_path: Path):
    path, out = spoilt_file(tmp_path, reward=1e200), tmp_path / "out.jsonl"
    for policy in ([], ["--policy", "raise"], ["--policy", "keep"]):
        result = run("credit", path, "--out", out, *policy)
        assert result.exit_code == 1
        assert "reward_too_large" in result.stderr
        assert not out.exists()
        assert strict_json(run("credit", path, "--out", out, *policy, "--json").stdout)["refused"]
    result = run("credit", path, "--out", out, "--policy", "drop")
    assert result.exit_code == 0
    assert "Left out: 1 group, 15 rows (reward_too_large 15)." in flat(result.stdout)
    said = strict_json(run("credit", path, "--out", out, "--policy", "drop", "--json").stdout)
    because = {"reward_too_large": 15}
    assert said["dropped"] == {"groups": 1, "rows": 15, "because": because, "columns": []}
    assert said["problems"] == {"reward_too_large": 1}
    reasons = read(out).credit.column("reason").to_pylist()
    assert reasons[:15] == ["dropped"] * 15
    assert "dropped" not in reasons[15:]


def test_credit_leaves_out_a_trajectory_without_a_reward_and_says_so(tmp_path: Path):
    path, out = spoilt_file(tmp_path, reward=None), tmp_path / "out.jsonl"
    for policy in ([], ["--policy", "keep"], ["--policy", "drop"]):
        result = run("credit", path, "--out", out, *policy)
        assert result.exit_code == 0
        assert "Left out: 0 groups, 4 rows (missing_reward 4)." in flat(result.stdout)
        assert read(out).credit.column("reason").to_pylist().count("dropped") == 4


def test_credit_group_size(good_file: Path, tmp_path: Path):
    arguments = ["credit", good_file, "--out", tmp_path / "out.parquet", "--group-size", 5]
    assert run(*arguments).exit_code == 1
    assert run(*arguments, "--policy", "drop").exit_code == 1
    kept = run(*arguments, "--policy", "keep")
    assert kept.exit_code == 0
    assert "partial_group 3" in flat(kept.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--recipe", "gigpoo"],
            "no recipe 'gigpoo' hint: did you mean gigpo? there are: grpo, rloo",
        ),
        (["--preset", "nobody"], "sbc has no preset 'nobody' hint: it has: exact, ngram"),
        (["--set", "gama=1"], "sbc has no parameter 'gama' hint: did you mean gamma? it has:"),
        (["--set", "gamma"], "--set takes name=value, not 'gamma'"),
        (["--set", "gamma=2"], "gamma is 2, but must lie between 0.0 and 1.0"),
        (["--set", "gamma=NaN"], "must be a finite float"),
        (["--set", "gamma=high"], "gamma is 'high', but must be"),
        (["--set", "gamma=" + "9" * 400], "gamma is"),
        (["--set", "scale=max"], "must be one of paper, equal"),
        (["--set", "name=x"], "name"),
        (["--policy", "ignore"], "no policy 'ignore' hint: there are: raise, drop, keep"),
        (["--out", "out.csv"], "cannot tell the format of out.csv"),
        (["--group-size", "0"], "group-size"),
        (["--group-size", "four"], "group-size"),
        (["--no-such-option"], "no-such-option"),
    ],
)
def test_wrong_calls_say_what_would_be_right(
    good_file: Path, tmp_path: Path, arguments: list[str], said: str
):
    out = [] if "--out" in arguments else ["--out", tmp_path / "out.parquet"]
    result = run("credit", good_file, *out, *arguments)
    assert result.exit_code == 2
    assert said in flat(result.stderr)
    assert result.stdout == ""
    assert not (tmp_path / "out.parquet").exists()


def test_credit_cannot_write(good_file: Path, tmp_path: Path):
    for suffix in SUFFIXES:
        result = run("credit", good_file, "--out", tmp_path / "no" / "folder" / f"out{suffix}")
        assert result.exit_code == 2
        assert "cannot write" in result.stderr
        assert "No such file or directory" in flat(result.stderr)


def test_numbers_beyond_json_are_null(capsys: pytest.CaptureFixture[str]):
    print_json({"rms": [math.inf, {"mean": math.nan}], "rows": 3})
    said = strict_json(capsys.readouterr().out)
    assert said == {"rms": [None, {"mean": None}], "rows": 3}


# recipes


def test_recipes():
    result = run("recipes")
    assert result.exit_code == 0
    for name in RECIPES:
        assert name in result.stdout
    said = strict_json(run("recipes", "--json").stdout)
    assert [entry["name"] for entry in said] == list(RECIPES)
    for entry in said:
        kind = RECIPES[entry["name"]]
        assert set(entry) == {"name", "paper", "summary", "parameters", "presets"}
        assert entry["summary"]
        # What is printed is enough to build the recipe with its defaults and its presets.
        assert kind(**entry["parameters"]) == kind()
        for preset, changes in entry["presets"].items():
            assert kind.preset(preset) == kind(**changes)


@pytest.mark.parametrize("name", RECIPES)
def test_one_recipe(name: str):
    result = run("recipes", name)
    assert result.exit_code == 0
    assert "parameter" in result.stdout
    [entry] = strict_json(run("recipes", name, "--json").stdout)
    assert entry["name"] == name


def test_no_such_recipe():
    for paper in ("pivotrl", "pivots"):
        assert (
            "To see how turns are chosen: `ascribe pivots --help`" in run("recipes", paper).stdout
        )
    result = run("recipes", "nothing")
    assert result.exit_code == 2
    assert "no recipe 'nothing' hint: there are: grpo" in flat(result.stderr)


# show


def test_show(good_file: Path):
    result = run("show", good_file)
    assert result.exit_code == 0
    said = flat(result.stdout)
    assert "group tâche 0, trajectory tâche 0/0" in said, "the first that is not padding"
    assert "12 more trajectories" in said
    named = run("show", good_file, "--trajectory", "tâche 1/2")
    assert named.exit_code == 0
    assert "group tâche 1, trajectory tâche 1/2" in flat(named.stdout)
    assert "hall 1" in named.stdout
    assert run("show", good_file, "--trajectory", "filler").exit_code == 0


CONVERSATIONS = Path(__file__).parents[1] / "examples/conversations.jsonl"


def test_show_prints_a_tool_call_as_a_call():
    result = run("show", CONVERSATIONS, "--recipe", "gigpo")
    assert 'list(path="/")' in flat(result.stdout)
    assert "arguments" not in result.stdout
    steps = json.loads(run("show", CONVERSATIONS, "--recipe", "gigpo", "--json").stdout)
    assert steps[0]["action"] == '{"arguments":{"path":"/"},"name":"list"}', "as it is compared"


def test_show_json(good_file: Path):
    result = run("show", good_file, "--trajectory", "tâche 1/2", "--json")
    assert result.exit_code == 0
    steps = strict_json(result.stdout)
    rows = good_rows()
    numbers = [i for i, row in enumerate(rows) if row["trajectory"] == "tâche 1/2"]
    assert [{name: step[name] for name in rows[0]} for step in steps] == [
        rows[number] for number in numbers
    ]
    credit = assign(StepTable.from_dicts(rows)).credit
    assert credit.credited[numbers].all()
    assert [step["advantage"] for step in steps] == credit.advantage[numbers].tolist()


def test_show_takes_the_credit_of_the_file_unless_told_otherwise(tmp_path: Path):
    rows = [row | {"advantage": 0.25, "reason": "credited"} for row in good_rows()]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    assert {s["advantage"] for s in strict_json(run("show", path, "--json").stdout)} == {0.25}
    fresh = strict_json(run("show", path, "--recipe", "grpo", "--json").stdout)
    assert {step["advantage"] for step in fresh} != {0.25}
    assert "advantage_episode" in fresh[0]


def test_show_wrong_calls(good_file: Path, tmp_path: Path):
    result = run("show", good_file, "--trajectory", "nobody")
    assert result.exit_code == 2
    assert "no trajectory 'nobody' hint: there are 13, such as" in flat(result.stderr)
    assert run("show", good_file, "--recipe", "nothing").exit_code == 2
    assert run("show", spoilt_file(tmp_path, reward=1e200)).exit_code == 1
    assert strict_json(run("show", spoilt_file(tmp_path, reward=1e200), "--json").stdout)["refused"]
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert run("show", empty).exit_code == 1


@pytest.mark.parametrize(
    "values",
    [
        [None, None, None],
        [math.nan, math.inf, -math.inf],
        [0.0, 0.0, 0.0],
        ["text", "[red]", "\x1b[31m"],
        [[1.0], [2.0], []],
        [1e308, -1e308, 5e-324],
    ],
)
def test_show_any_credit_of_a_file(tmp_path: Path, values: list[Any]):
    """Anyone may have written the credit in a file: whatever it holds breaks nothing."""
    rows = good_rows()[:3]
    for row, value in zip(rows, values, strict=True):
        row |= {"advantage": value, "reason": None, "reward": math.nan}
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    assert run("show", path).exit_code == 0
    result = run("show", path, "--json")
    assert result.exit_code == 0
    assert [step["reward"] for step in strict_json(result.stdout)] == [None] * 3


def test_show_credited_file_without_trajectories(tmp_path: Path):
    rows = [row | {"trajectory": None, "advantage": 1.0} for row in good_rows()]
    result = run("show", write_jsonl(tmp_path / "a.jsonl", rows))
    assert result.exit_code == 2
    assert "no row names its trajectory" in flat(result.stderr)


def test_show_part_of_a_larger_table(tmp_path: Path):
    """The first trajectory that is there, not the first that ever was."""
    table = StepTable.from_dicts(good_rows())
    part = arrange(table).rows[-4:]
    arrow = table_to_arrow(table).take(part)  # Arrow keeps the whole dictionary
    pq.write_table(arrow, tmp_path / "a.parquet")
    result = run("show", tmp_path / "a.parquet", "--recipe", "grpo", "--json")
    assert len(strict_json(result.stdout)) == 4


def test_show_marks_invalid_actions_and_missing_text(tmp_path: Path):
    rows = good_rows()
    rows[1] |= {"state": None, "action": None}
    assert run("show", write_jsonl(tmp_path / "a.jsonl", rows)).exit_code == 0


# Hostile text.

HOSTILE = "\x1b[31mred\x1b]0;title\x07 [red]x[/red] [/nope] \u202eevil\u2066 \r\n\x00\x9b2J"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""What must not reach a terminal; newlines between lines must."""


def assert_harmless(result: Result) -> None:
    for text in (result.stdout, result.stderr):
        assert not RAW.search(text), repr(text)


def hostile_file(folder: Path, name: str = "a") -> Path:
    rows = good_rows()
    for row in rows:
        for column in ("group", "trajectory", "state", "action", "agent"):
            if row[column]:
                row[column] = HOSTILE + row[column] + HOSTILE
        row[f"column {HOSTILE}"] = HOSTILE
        row[f"advantage_{HOSTILE}"] = 1.0
        row[f"reason_{HOSTILE}"] = HOSTILE
    rows[5]["step"] = 0  # a problem that names its trajectory
    return write_jsonl(folder / f"{name}.jsonl", rows)


def test_hostile_text_is_shown_by_its_numbers(tmp_path: Path):
    path = hostile_file(tmp_path)
    results = [
        run("check", path),
        run("credit", path, "--out", tmp_path / "out.parquet"),
        run("credit", path, "--out", tmp_path / "out.parquet", "--policy", "drop"),
        run("show", path),
        run("show", path, "--recipe", "gigpo"),
        run("show", path, "--trajectory", HOSTILE),
        run("show", path, "--trajectory", f"{HOSTILE}tâche 2/1{HOSTILE}"),
        run("credit", path, "--out", tmp_path / f"{HOSTILE.replace(chr(0), '')}.csv"),
        run("credit", path, "--out", "out.parquet", "--recipe", HOSTILE),
        run("credit", path, "--out", "out.parquet", "--preset", HOSTILE),
        run("credit", path, "--out", "out.parquet", "--policy", HOSTILE),
        run("credit", path, "--out", "out.parquet", "--set", HOSTILE),
        run("credit", path, "--out", "out.parquet", "--set", f"grouping={HOSTILE}"),
        run("recipes", HOSTILE),
    ]
    assert [result.exit_code for result in results] == [1, 1, 0, 0, 1, 2, 0, 2, 2, 2, 2, 2, 2, 2]
    for result in results:
        assert_harmless(result)
    shown = results[3].stdout + results[6].stdout
    assert "\\x1b[31m" in shown
    assert "[red]" in shown


def test_hostile_text_as_json_is_ascii(tmp_path: Path):
    path = hostile_file(tmp_path)
    for arguments in (
        ["check", path],
        ["show", path],
        ["credit", path, "--out", tmp_path / "out.jsonl", "--policy", "drop"],
    ):
        result = run(*arguments, "--json")
        assert result.stdout.isascii()
        assert_harmless(result)
        strict_json(result.stdout)
    steps = strict_json(run("show", path, "--json").stdout)
    assert steps[0]["state"].startswith(HOSTILE)


def test_hostile_names_of_files(tmp_path: Path):
    name = HOSTILE.replace("\x00", "").replace("/", "") + os.fsdecode(b"\xff")
    results = [
        run("check", tmp_path / f"{name}.jsonl"),
        run("check", hostile_file(tmp_path, name)),
        run("check", hostile_file(tmp_path, name), "--json"),
    ]
    (tmp_path / f"{name}.parquet").write_bytes(b"")
    results += [
        run("check", tmp_path / f"{name}.parquet"),
        run("check", tmp_path / f"{name}.parquet", "--json"),
        run(
            "credit",
            hostile_file(tmp_path),
            "--policy",
            "drop",
            "--out",
            tmp_path / f"{name}.jsonl",
        ),
    ]
    assert [result.exit_code for result in results] == [2, 1, 1, 1, 1, 0]
    for result in results:
        assert_harmless(result)


def test_half_surrogates_are_refused_and_named_safely(tmp_path: Path):
    for key, value in (("state", "\ud800"), ("action", "x\udfff"), ("\ud83d", 1)):
        path = spoilt_file(tmp_path, **{key: value})
        for more in ([], ["--json"]):
            result = run("check", path, *more)
            assert result.exit_code == 1
            assert "malformed_text" in result.stdout + result.stderr
            assert_harmless(result)


def test_hostile_types_of_arrow(tmp_path: Path):
    """Names of fields inside a type are text of others, too."""
    arrow = pa.Table.from_pylist(good_rows())
    strange = pa.array([{HOSTILE.replace("\x00", ""): 1}] * len(arrow))
    pq.write_table(arrow.set_column(3, "state", strange), tmp_path / "a.parquet")
    result = run("check", tmp_path / "a.parquet")
    assert result.exit_code == 1
    assert "wrong_type" in result.stderr
    assert_harmless(result)


def test_safe_text():
    assert screen.safe("plain ünïcode 漢字 🧭") == "plain ünïcode 漢字 🧭"
    assert screen.safe("a\nb\x1b[0m\u202e\ud800") == "a\\nb\\x1b[0m\\u202e\\ud800"
    assert screen.safe("x" * 100) == "x" * 79 + "…"
    assert len(screen.safe("\x1b" * 10**6, 40)) == 40
    assert screen.safe(None) == "None"


def test_output_of_any_encoding(tmp_path: Path):
    """A terminal that lacks a character gets its number, not a traceback."""
    path = write_jsonl(tmp_path / "a.jsonl", good_rows())
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", "from ascribe.cli import main; main()", "show", str(path)],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"t\\xe2che 0" in done.stdout
    assert done.stdout.isascii()


# Progress.


def test_progress_bar_appears_when_patience_is_spent(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.setattr(screen, "err", screen.Console(stderr=True, force_terminal=True))
    with screen.progress("reading") as report:
        report(0.5)
    assert capsys.readouterr().err == ""
    with screen.progress("reading a\\[red]b[/red] [/nope]", patience=0) as report:
        report(0.25)
        report(1.0)
    shown = capsys.readouterr().err
    assert "reading a\\[red]b[/red] [/nope]" in shown
    assert "100%" in shown


def test_reading_with_a_progress_bar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path = hostile_file(tmp_path, "[red]x [bold")
    patient = screen.progress
    monkeypatch.setattr(screen, "progress", lambda what: patient(what, patience=0))
    result = run("check", path, "--json")
    assert result.exit_code == 1
    strict_json(result.stdout)


# The program.


def test_program_version_and_help():
    assert run("--version").stdout.strip() == __version__
    for arguments in (["--help"], ["-h"], ["check", "-h"], ["credit", "-h"], ["show", "-h"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "Usage" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", "good.jsonl"], 0),
        (["check", "bad.jsonl"], 1),
        (["check", "nowhere.jsonl"], 2),
        (["frobnicate"], 2),
        (["credit", "good.jsonl"], 2),
        (["credit", "good.jsonl", "--out", "out.parquet"], 0),
        (["credit", "bad.jsonl", "--out", "out.parquet"], 1),
        (["show", "good.jsonl"], 0),
        (["recipes"], 0),
    ],
)
def test_exit_codes_of_the_program(tmp_path: Path, arguments: list[str], code: int):
    write_jsonl(tmp_path / "good.jsonl", good_rows())
    write_jsonl(tmp_path / "bad.jsonl", [row | {"reward": None} for row in good_rows()])
    done = subprocess.run(
        [sys.executable, "-c", "from ascribe.cli import main; main()", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def python(program: str) -> str:
    """What a new Python prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_import_is_light():
    """Modules come when a name is first used, and then neither torch nor pyarrow with them."""
    loaded = set(python("import sys, ascribe; print(*sys.modules)").split())
    assert {name for name in loaded if name.startswith("ascribe")} == {"ascribe"}
    assert "numpy" not in loaded
    every = "import sys; from ascribe import *; print(*sys.modules)"
    heavy = {"torch", "pyarrow", "transformers", "rapidfuzz", "pandas", "rich", "typer"}
    assert not set(python(every).split()) & heavy


def test_every_public_name_is_found():
    for name in ascribe.__all__:
        assert getattr(ascribe, name) is getattr(ascribe, name)
    assert set(ascribe.__all__) <= set(dir(ascribe))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ascribe.nothing


@pytest.mark.slow
@pytest.mark.parametrize("call", [["-c", "import ascribe"], ["-m", "ascribe", "--version"]])
def test_import_and_version_are_quick(call: list[str]):
    """By processor time of the program, which a busy machine stretches less than the clock."""
    spent = []
    for _ in range(12):
        before = os.times()
        subprocess.run([sys.executable, *call], check=True, capture_output=True)
        after = os.times()
        children = (after.children_user, after.children_system)
        spent.append(sum(children) - before.children_user - before.children_system)
    assert min(spent) < 0.25


HEAVY = {
    "pyarrow",
    "ascribe.engines",
    "ascribe.reports",
    "ascribe_lab.pivots",
    "ascribe_lab.envs",
}


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ("--version", set()),
        ("--help", set()),
        ("credit --help", {"ascribe.cli.screen", "ascribe.estimators.assign"}),
    ],
)
def test_a_call_imports_only_what_it_needs(arguments: str, needed: set[str]) -> None:
    program = "import atexit, sys; from ascribe.cli import main\n"
    program += "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments.split()],
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = set(done.stderr.split())
    assert needed <= loaded
    assert not (HEAVY - needed) & loaded
    if not needed:
        assert not loaded & {"numpy", "rich"}
        assert {name for name in loaded if name.startswith("ascribe.cli")} <= {
            "ascribe.cli",
            "ascribe.cli.plain",
        }


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_shows_the_first_sentence_of_a_command(name: str) -> None:
    first = load_command(name).help.partition("\n\n")[0]
    assert COMMANDS[name][1] == " ".join(first.split())


def test_a_command_of_the_laboratory_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "commands", lambda: COMMANDS)
    for name in LABORATORY:
        result = run(name, "--help")
        assert result.exit_code == 2
        assert result.stderr == (
            f"error: {name} is a command of the laboratory, which is not installed\n"
            f"hint: install it with: {laboratory()}\n"
        )


def test_a_package_with_a_broken_command_does_not_break_the_others(tmp_path: Path) -> None:
    """An entry point that cannot be loaded is told; the commands that are there work."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ascribe.commands]\nx = no_such_module:COMMANDS\n")
    done = subprocess.run(
        [sys.executable, "-m", "ascribe", "recipes"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "x = no_such_module:COMMANDS of broken cannot be loaded" in done.stderr
    assert "gigpo" in done.stdout


# The first hour: what a newcomer types.


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_a_plain_file_or_says_what_it_lacks(tmp_path: Path, name: str):
    """No message sends the user to another recipe, or speaks Python in a shell."""
    plain = ("group", "trajectory", "step", "state", "action", "reward")
    rows = [{name: row[name] for name in plain} for row in good_rows() if not row["padding"]]
    file = write_jsonl(tmp_path / "steps.jsonl", rows)
    result = run("credit", file, "--out", tmp_path / "c.jsonl", "--recipe", name)
    lines = result.stderr.splitlines()
    if name in ("ccpo", "ibpo") or RECIPES[name].columns:
        assert result.exit_code == 2
        assert "needs the column" in result.stderr
    else:
        assert result.exit_code == 0, result.stderr
        by_text = ["No row has a fingerprint, so states are compared by their exact text."]
        assert lines == (by_text if name in ("bigpo", "bipace_diff", "bipace_q", "sbc") else [])
    assert not re.search(r"\w='|=ARRAY", result.stderr)
    assert not any(re.search(rf"\b{other}\b", result.stderr) for other in RECIPES if other != name)


def test_the_module_is_the_command(good_file: Path):
    command = [sys.executable, "-m", "ascribe", "check", good_file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no problems" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_speaks_no_python_and_no_markup(name: str):
    helps = [run("--help").stdout, run(name, "--help").stdout]
    group = load_command(name)
    helps += [run(name, one, "--help").stdout for one in getattr(group, "commands", ())]
    for text in helps:
        assert not re.search(r"<\w+(\[\w+\])?>|list\[|``|\[/?(bold|dim|cyan)", text), text
        assert "Usage: root" not in text


def test_help_fills_its_lines():
    assert "and reason, and advantage_TERM and reason_TERM for each term" in flat(
        run("credit", "--help").stdout
    )
    assert max(map(len, run("credit", "--help").stdout.splitlines())) > 75


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("ascribe cr", ["credit"]),
        ("ascribe credit --rec", ["--recipe"]),
        ("ascribe credit --recipe bip", ["bipace_diff", "bipace_q"]),
        ("ascribe recipes gi", ["gigpo"]),
        ("ascribe import --format lang", ["langfuse", "langsmith", "langgraph", "langchain"]),
        ("ascribe check --state ob", ["observation"]),
    ],
)
def test_the_shell_completes(words: str, completions: list[str]):
    line = {"_ASCRIBE_COMPLETE": "complete_bash", "COMP_WORDS": words}
    line["COMP_CWORD"] = str(len(words.split()) - 1)
    result = CliRunner().invoke(app, [], env=line, prog_name="ascribe")
    assert result.stdout.split() == completions


def test_alone_it_says_what_it_does():
    result = run()
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) <= 10
    assert result.stdout.count("Example: ascribe ") == 1
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", result.stdout)


def test_commands_are_listed_in_groups():
    said = run("--help").stdout
    assert said.index("\nFiles:") < said.index("  credit ") < said.index("\nTraining:")
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted({*COMMANDS, *LABORATORY})


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["frobnicate"], ["there is no command frobnicate", "ascribe --help shows how to call it"]),
        (["chek"], ["there is no command chek", "did you mean check?"]),
        (["check"], ["missing SOURCE", "ascribe check --help shows how to call it"]),
        (["check", "x", "--stric"], ["there is no option --stric", "did you mean --strict?"]),
        (["credit", "x"], ["missing option --out", "ascribe credit --help shows how to call it"]),
        (
            ["check", "x", "--group-size", "four"],
            ["--group-size must be a whole number", "ascribe check --help shows how to call it"],
        ),
        (
            ["check", "x", "--group-size", "0"],
            ["--group-size must be at least 1", "ascribe check --help shows how to call it"],
        ),
        (
            ["decisions", "x", "--by", "k"],
            [
                "--by: k is not one of text, key, cluster",
                "ascribe decisions --help shows how to call it",
            ],
        ),
        (["show", "a", "b"], ["unexpected argument b", "ascribe show --help shows how to call it"]),
        (["check", "no.jsonl"], ["cannot open no.jsonl: No such file or directory"]),
        (["show", "x", "--preset"], ["--preset needs a value"]),
        (
            ["credit", "x", "-o", "y.txt"],
            ["cannot tell the format of y.txt", "give it one of the suffixes .parquet, .jsonl or"],
        ),
    ],
)
def test_an_error_is_a_line_and_its_hint_another(arguments: list[str], lines: list[str]):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    said = result.stderr.splitlines()
    assert len(said) == len(lines)
    for line, start in zip(said, zip(("error", "hint"), lines, strict=False), strict=True):
        assert line.startswith(": ".join(start))


def test_a_refused_file_is_told_in_lines(tmp_path: Path):
    path = spoilt_file(tmp_path, reward=1e200)
    result = run("credit", path, "-o", tmp_path / "out.jsonl")
    assert result.stderr.splitlines() == [
        f"error: 1 rewards are beyond 1e100 (reward_too_large), row 4 of {path}",
        "hint: rewards beyond 1e100 overflow in a variance; scale the reward",
        f"{path}: refused; nothing was computed.",
    ]


REPR = re.compile(r"\bNone\b|\w+\(\w+=|[(\[]'|\{'|<class|\bobject at\b")
"""How Python writes objects."""


def test_messages_hold_no_objects_of_python(good_file: Path, tmp_path: Path):
    out = tmp_path / "out.parquet"
    for arguments in (
        ["check", good_file],
        ["states", good_file],
        ["states", CONVERSATIONS, "-o", tmp_path / "keyed.jsonl"],
        ["credit", good_file, "-o", out, "--recipe", "gigpo", "--set", "gamma=1"],
        ["credit", good_file, "-o", "out.csv"],
        ["decisions", good_file],
        ["import", CONVERSATIONS, "-o", out],
        ["recipes"],
        ["recipes", "sbc"],
    ):
        result = run(*arguments)
        assert not REPR.search(result.stderr + result.stdout), arguments


def test_one_file_may_come_and_go_by_the_standard_streams(tmp_path: Path):
    text = CONVERSATIONS.read_bytes()
    command = [sys.executable, "-m", "ascribe"]

    def piped(*arguments: str, data: bytes = text) -> tuple[bytes, str]:
        done = subprocess.run(
            [*command, *arguments], input=data, capture_output=True, check=True, cwd=tmp_path
        )
        return done.stdout, done.stderr.decode()

    credited, said = piped("credit", "-", "-o", "-", "--recipe", "gigpo")
    assert "recipe" in said
    run("credit", CONVERSATIONS, "-o", tmp_path / "file.jsonl", "--recipe", "gigpo")
    assert credited == (tmp_path / "file.jsonl").read_bytes()
    steps, said = piped("import", "-", "-o", "-", "--format", "openai", "--quiet")
    assert said == ""
    assert len(steps.splitlines()) == len(credited.splitlines())
    table = pa.Table.from_pylist(good_rows())
    pq.write_table(table, tmp_path / "a.parquet")
    checked, _ = piped("check", "-", data=(tmp_path / "a.parquet").read_bytes())
    assert b"-: 50 rows, no problems." in checked
    csv = b"group,trajectory,step,state,action,reward\ng,a,0,s,x,1\ng,b,0,s,y,0\n"
    assert b"-: 2 rows" in piped("check", "-", data=csv)[0]


def test_quiet_prints_the_result_alone(tmp_path: Path):
    path = write_jsonl(tmp_path / "a.jsonl", good_rows())
    result = run("credit", path, "-o", tmp_path / "out.jsonl", "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert run("decisions", CONVERSATIONS, "-q").stderr == ""
    assert run("decisions", CONVERSATIONS).stderr != ""


def every_command(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The words of each command, also of those inside groups."""
    for name in names:
        inner = getattr(load_command(name), "commands", {})
        yield (name,)
        yield from ((name, each) for each in inner)


def examples_of(*words: str) -> list[str]:
    """The lines under "Examples" in the help of a command."""
    help_text = run(*words, "--help").stdout
    found = re.search(r"\nExamples:\n((?:  .+\n)+)", help_text)
    assert found is not None, words
    return [line.strip() for line in found[1].splitlines()]


def check_examples(folder: Path, *words: str) -> None:
    """One to three; those that need nothing but ``examples`` are run, the others parsed."""
    lines = examples_of(*words)
    assert 1 <= len(lines) <= 3
    (folder / "examples").symlink_to(CONVERSATIONS.parent)
    for line in lines:
        call = next(part for part in line.split(" | ") if part.startswith("ascribe "))
        arguments = shlex.split(re.sub(r" > \S+\.jsonl$", "", call))[1:]
        if runnable(arguments):
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (line, done.stderr)
        else:
            command, others = load_command(arguments[0]), arguments[1:]
            if hasattr(command, "commands"):
                command = command.commands[others.pop(0)]
            command.make_context(arguments[0], others).close()


def runnable(arguments: list[str]) -> bool:
    """Whether a call needs no file but the examples, no model, and less than a minute."""
    if arguments[0] == "train" and "--dry-run" in arguments:
        return find_spec("yaml") is not None
    if arguments[0] in ("report", "audit", "warmup", "calibrate", "pivots", "train"):
        return False
    outputs = [b for a, b in itertools.pairwise(arguments) if a in ("-o", "--out")]
    files = [each for each in arguments if re.search(r"/$|\.\w+$", each) and each not in outputs]
    own = ("smollm2", "http://localhost:8000", "package.module:factory")
    return all(each.startswith("examples") for each in files) and not {*own} & {*arguments}


@pytest.mark.parametrize("words", [*every_command(COMMANDS)], ids=" ".join)
def test_the_examples_of_a_help_are_true(tmp_path: Path, words: tuple[str, ...]):
    check_examples(tmp_path, *words)


def test_progress_is_told_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    """In a log, such as SLURM's: seldom, and with the time that is left."""
    now = 0.0
    monkeypatch.setattr(screen.time, "monotonic", lambda: now)
    monkeypatch.setattr(screen, "err", screen.Console(stderr=True, width=300))
    with screen.progress("32 episodes") as report:
        for now in range(200):
            report(now / 200)
        now = 201
        report(1.0)
    assert capsys.readouterr().err.splitlines() == [
        "32 episodes: 5% after 10 s, about 3:10 min left",
        "32 episodes: 15% after 30 s, about 2:50 min left",
        "32 episodes: 35% after 1:10 min, about 2:10 min left",
        "32 episodes: 75% after 2:30 min, about 50 s left",
    ]
