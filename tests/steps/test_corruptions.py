"""Every kind of damage is found, in the right rows, in every format that can hold it."""

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from ascribe import Problem, ProblemKind, Severity, StepTable, TableError, check
from ascribe.cli import app
from ascribe.steps.files import read, write_table
from ascribe.steps.hints import command_line
from tests.conftest import Row, good_rows
from tests.steps.corruptions import BOTH, CORRUPTIONS, ROW_CORRUPTIONS, Corruption, write_rows

pytestmark = pytest.mark.unit

in_files = pytest.mark.parametrize("corruption", CORRUPTIONS, ids=str)
in_memory = pytest.mark.parametrize(
    ("corruption", "rows"), ROW_CORRUPTIONS, ids=[str(one) for one, _ in ROW_CORRUPTIONS]
)


def problems_of_file(path: Path, group_size: int | None) -> list[Problem]:
    try:
        rollouts = read(path)
    except TableError as error:
        return list(error.problems)
    return [*check(rollouts.table, group_size=group_size).problems, *rollouts.notes]


def problems_of_rows(rows: list[Row], group_size: int | None) -> list[Problem]:
    try:
        table = StepTable.from_dicts(rows)
    except TableError as error:
        return list(error.problems)
    return list(check(table, group_size=group_size).problems)


def assert_found(corruption: Corruption, problems: list[Problem]) -> None:
    kinds = [problem.kind for problem in problems]
    assert set(kinds) == {corruption.kind, *corruption.also}
    assert len(kinds) == len(set(kinds)), "one problem for each kind"
    [problem] = [problem for problem in problems if problem.kind is corruption.kind]
    rows, count = corruption.found
    assert problem.rows.tolist() == rows
    assert problem.count == count


OF_CONVERSATIONS = {
    *(ProblemKind.BAD_RECORD, ProblemKind.NO_CONVERSATIONS),
    ProblemKind.CUT_RESPONSE,
    *(ProblemKind.OBSERVATION_IN_MASK, ProblemKind.REWARD_OFF_MASK),
    *(ProblemKind.LOST_RESPONSE, ProblemKind.REPEATED_CONVERSATION),
    *(ProblemKind.UNLINKED_CONVERSATION, ProblemKind.BAD_REWARDS, ProblemKind.CUT_OFF),
}
"""Kinds that a table of steps cannot have; they are tested in ``tests/sessions``."""


def test_every_kind_has_a_corruption():
    assert {corruption.kind for corruption in CORRUPTIONS} == set(ProblemKind) - OF_CONVERSATIONS
    assert len({str(corruption) for corruption in CORRUPTIONS}) == len(CORRUPTIONS) >= 25


@pytest.mark.parametrize("suffix", BOTH)
def test_clean_file_has_no_problem(tmp_path: Path, suffix: str):
    assert problems_of_file(write_rows(tmp_path / "a", good_rows(), suffix), 4) == []
    write_table(StepTable.from_dicts(good_rows()), tmp_path / f"b{suffix}")
    assert problems_of_file(tmp_path / f"b{suffix}", 4) == []
    assert problems_of_rows(good_rows(), 4) == []


@in_files
def test_found_in_file(tmp_path: Path, corruption: Corruption):
    path = corruption.write(tmp_path / "spoilt")
    assert_found(corruption, problems_of_file(path, corruption.group_size))


@in_memory
def test_found_in_memory(corruption: Corruption, rows: list[Row]):
    assert_found(corruption, problems_of_rows(rows, corruption.group_size))


@in_memory
def test_found_in_any_row_order(corruption: Corruption, rows: list[Row]):
    order = list(range(len(rows)))
    Random(7).shuffle(order)
    problems = problems_of_rows([rows[number] for number in order], corruption.group_size)
    assert {problem.kind for problem in problems} == {corruption.kind, *corruption.also}
    [problem] = [problem for problem in problems if problem.kind is corruption.kind]
    assert problem.count == corruption.found[1]
    assert problem.rows.tolist() == sorted(problem.rows.tolist())
    if corruption.kind not in (
        ProblemKind.DUPLICATE_ROW,
        ProblemKind.DUPLICATE_STEP,
    ):  # which one is the copy?
        assert sorted(order[row] for row in problem.rows) == corruption.found[0]


@in_files
def test_found_by_command(tmp_path: Path, corruption: Corruption):
    path = corruption.write(tmp_path / "spoilt")
    if "carried" in str(corruption):  # check reads known columns alone; credit carries the others
        out = str(tmp_path / "out.parquet")
        result = CliRunner().invoke(app, ["credit", str(path), "--recipe", "grpo", "--out", out])
        assert result.exit_code == 1
        assert corruption.kind.label in result.output
        return
    size = [f"--group-size={corruption.group_size}"] if corruption.group_size else []
    result = CliRunner().invoke(app, ["check", str(path), "--json", *size])
    said = json.loads(result.stdout)
    worst = max(kind.severity for kind in (corruption.kind, *corruption.also))
    assert result.exit_code == (1 if worst >= Severity.ERROR else 0)
    assert said["worst"] == worst.name.lower()
    [problem] = [p for p in said["problems"] if p["kind"] == corruption.kind.label]
    rows, count = corruption.found
    assert problem["rows"] == rows[:20]
    assert problem["row_count"] == len(rows)
    assert problem["count"] == count
    with command_line():
        if corruption.kind is ProblemKind.MISSING_COLUMN:  # the advice names them
            assert problem["advice"].startswith("add ")
        else:
            assert problem["advice"] == corruption.kind.advice


def test_all_problems_of_all_columns_are_found_at_once():
    rows = good_rows()
    rows[1]["step"], rows[2]["reward"], rows[3]["valid"], rows[4]["group"] = "1", "x", None, 4
    found = problems_of_rows(rows, None)
    assert [(problem.kind, problem.rows.tolist()) for problem in found] == [
        (ProblemKind.MIXED_TYPES, [4]),
        (ProblemKind.WRONG_TYPE, [1]),
        (ProblemKind.WRONG_TYPE, [2]),
        (ProblemKind.PARTIAL_FLAG, [3]),
    ]


def test_problems_come_worst_first_and_say_what_to_do():
    rows = good_rows()
    rows.append(rows[0] | {"padding": True})
    rows[2]["action"], rows[20]["reward"] = "", float("inf")
    found = problems_of_rows(rows, None)
    assert [problem.kind for problem in found] == [
        ProblemKind.NON_FINITE_REWARD,
        ProblemKind.EMPTY_ACTION,
        ProblemKind.PADDING_IN_GROUP,
    ]
    assert str(found[0]) == (
        "fatal non_finite_reward: 1 rewards are not finite numbers (rows 20). "
        "The reward is missing in every trajectory, or infinite; fix the reward function, or drop "
        "the group."
    )


def test_problem_of_hostile_names_prints_on_one_line():
    rows = good_rows()
    for row in rows:
        row["trajectory"] += "\x1b[31m\n[red]\u202e"
    del rows[1]
    [problem] = problems_of_rows(rows, None)
    assert str(problem).isprintable()
    assert str(Problem(ProblemKind.BAD_LINE, "raw \x1b[2J\u202e\n text")).isprintable()


def test_group_problems_are_found_beside_fatal_ones():
    """One bad row must not hide that another group is incomplete."""
    rows = [row for row in good_rows() if row["trajectory"] != "tâche 2/1"]
    rows[0]["reward"] = float("inf")
    found = {problem.kind: problem.rows.tolist() for problem in problems_of_rows(rows, 4)}
    assert set(found) == {ProblemKind.NON_FINITE_REWARD, ProblemKind.PARTIAL_GROUP}
    assert {rows[number]["group"] for number in found[ProblemKind.PARTIAL_GROUP]} == {"tâche 2"}
