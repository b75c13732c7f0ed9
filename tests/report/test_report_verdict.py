"""The verdict names the fault that was planted, first, and none where nothing is wrong."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ascribe import Recipe, recipe
from ascribe.recipes import BiGPO, GiGPO
from ascribe.report.verdict import RULES, Level, Verdict, _adding_up, percent
from tests.report.toys import Row, credited, sound, verdict

Change = Callable[[Row], dict[str, Any]]


def changed(rows: list[Row], change: Change) -> list[Row]:
    return [row | change(row) for row in rows]


@dataclass(frozen=True)
class Fault:
    """Rows with a fault, and what the verdict must say about it."""

    rows: list[Row]
    finding: str
    said: str
    advice: str
    level: Level = Level.BAD
    by: Recipe | str = "gigpo"
    first: bool = True
    """Whether it is the worst that is said."""


def blank_steps() -> list[Row]:
    """A batch in which short trajectories were filled up with empty steps."""
    rows = changed(sound(), lambda row: {"terminated": False})
    filler = {"step": 5, "state": "", "action": "", "reward": 0.0}
    return rows + [
        row | filler for row in rows if row["step"] == 4 and row["trajectory"][-1] != "0"
    ]


def long_failures() -> list[Row]:
    """One failure in four goes on for a hundred steps."""
    rows = [row for row in sound() if row["trajectory"][-1] != "3"]
    long = [row for row in sound(length=100) if row["trajectory"][-1] == "3"]
    return rows + long


def copies() -> list[Row]:
    rows = sound()
    return rows + rows[:7]


FAULTS = {
    "all singletons": Fault(
        changed(
            sound(length=20),
            lambda row: {"state": f"{row['state']} of {row['trajectory']}"} if row["step"] else {},
        ),
        "singletons",
        "95 % of the steps are alone in their state",
        "clocks, counters",
    ),
    "one giant state": Fault(
        changed(sound(), lambda row: {"state": "You are in a room."}),
        "giant_state",
        "In 100 % of the groups one state holds nearly all steps",
        "column state",
    ),
    "one giant cluster": Fault(
        changed(sound(), lambda row: {"fingerprint": [1.0, 0.001 * row["step"]]}),
        "giant_state",
        "In 100 % of the groups one state holds nearly all steps",
        "ascribe calibrate",
        by=BiGPO(on_collapse="keep"),
    ),
    "padding in the statistics": Fault(
        blank_steps(),
        "padding_in_statistics",
        "18 steps (13 %) have neither a state nor an action",
        "column padding",
    ),
    "only penalties differ": Fault(
        changed(
            sound(),
            lambda row: {
                "valid": not (row["step"] == 1 and row["trajectory"][-1] in "13"),
                "reward": float(row["step"] == 4)
                - 0.1 * (row["step"] == 1 and row["trajectory"][-1] in "13"),
            },
        ),
        "only_penalties",
        "In 100 % of the groups the trajectories differ by penalties",
        "normalise=mean",
    ),
    "penalties of the recipe": Fault(
        changed(
            sound(),
            lambda row: {
                "valid": not (row["step"] == 1 and row["trajectory"][-1] in "13"),
                "reward": float(row["step"] == 4),
            },
        ),
        "only_penalties",
        "In 100 % of the groups the trajectories differ by penalties",
        "std_floor",
        by=GiGPO(invalid_penalty=0.1),
    ),
    "a family that never succeeds": Fault(
        changed(sound(), lambda row: {"reward": 0.0} if row["family"] == "hard" else {}),
        "family_never_succeeds",
        "“hard” (3 tasks)",
        "warm up",
        Level.WARNING,
        first=False,
    ),
    "everything fails": Fault(
        changed(sound(), lambda row: {"reward": 0.0}),
        "nothing_succeeds",
        "No episode of any task succeeds",
        "easier tasks",
    ),
    "everything succeeds": Fault(
        changed(sound(), lambda row: {"reward": float(row["step"] == 4)}),
        "equal_returns",
        "In 100 % of the groups all trajectories earned the same (0 always fail, 6 always succeed)",
        "harder ones",
    ),
    "a name for each trajectory": Fault(
        changed(sound(), lambda row: {"group": row["trajectory"]}),
        "groups_of_one",
        "100 % of the groups have one trajectory",
        "one group name",
    ),
    "different starts": Fault(
        changed(
            sound(), lambda row: {"state": f"door {row['trajectory']}"} if row["step"] == 0 else {}
        ),
        "different_starts",
        "In 100 % of the groups the trajectories start in different states",
        "Seed the environments",
    ),
    "no states": Fault(
        changed(sound(), lambda row: {"state": None}),
        "missing_states",
        "100 % of the steps have no state",
        "column state",
    ),
    "a broken parser": Fault(
        changed(sound(), lambda row: {"valid": row["step"] == 4}),
        "invalid_actions",
        "80 % of the actions were not understood",
        "parser",
    ),
    "a limit that is too low": Fault(
        changed(
            sound(),
            lambda row: {
                "truncated": row["terminated"] and row["trajectory"][-1] in "123",
                "terminated": row["terminated"] and row["trajectory"][-1] == "0",
            },
        ),
        "cut_by_limit",
        "75 % of the trajectories were cut",
        "more turns",
        Level.WARNING,
    ),
    "running in circles": Fault(
        changed(sound(length=10), lambda row: {"state": f"{row['group']}, {row['step'] % 3}"}),
        "loops",
        "70 % of the steps come back",
        "revisits=average",
        Level.WARNING,
    ),
    "a policy that does not explore": Fault(
        changed(sound(), lambda row: {"action": "left"}),
        "same_actions",
        "100 % of the steps that meet another trajectory",
        "temperature",
        Level.WARNING,
    ),
    "tasks that merge": Fault(
        changed(sound(), lambda row: {"state": f"room {row['step']}"}),
        "merged_tasks",
        "5 state groups hold steps of several tasks",
        "scope=group",
        Level.WARNING,
        by=GiGPO(scope="batch"),
    ),
    "long failures": Fault(
        long_failures(),
        "long_trajectories",
        "The longest quarter of the trajectories makes",
        "by its length",
        Level.WARNING,
        first=False,
    ),
    "a step term in name only": Fault(
        sound(),
        "small_step_term",
        "The step term makes 1 % of the credit",
        "weight",
        Level.NOTE,
        by=GiGPO(weight=0.01),
    ),
    "another recipe was trained": Fault(
        changed(sound(), lambda row: {"trained": 7.0}),
        "trained_differently",
        "100 % of the steps were trained with another advantage",
        "--recipe",
        Level.NOTE,
    ),
    "a lost step": Fault(
        [row for row in sound() if (row["trajectory"], row["step"]) != ("task 0/1", 2)],
        "dropped",
        "1 groups (19 rows) could not be credited",
        "write every step",
    ),
    "rows written twice": Fault(copies(), "dropped", "duplicate_row", "set padding to true"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    fault = FAULTS[name]
    found = verdict(fault.rows, fault.by)
    finding = next(each for each in found.findings if each.name == fault.finding)
    assert fault.said in finding.said
    assert fault.advice in finding.advice
    assert finding.level is fault.level
    if fault.first:
        assert found.findings[0] is finding


def test_nothing_is_said_where_nothing_is_wrong() -> None:
    found = verdict(sound())
    assert [each.name for each in found.findings] == ["nothing_wrong"]
    assert found.headline == "All of your steps carry a step-level signal."


@pytest.mark.parametrize("name", ["grpo", "rloo", "dr_grpo", "reinforce_pp", "hgpo", "sbc"])
def test_sound_rows_are_sound_for_every_recipe(name: str) -> None:
    by = recipe(name, preset="exact") if name == "sbc" else recipe(name)
    assert [each.name for each in verdict(sound(), by).findings] == ["nothing_wrong"]


def test_every_rule_has_a_fault() -> None:
    named = {fault.finding for fault in FAULTS.values()}
    found = {
        finding.name
        for fault in FAULTS.values()
        for finding in verdict(fault.rows, fault.by).findings
    }
    assert found - {"nothing_wrong"} <= named
    assert len(named) == len(RULES) + 1  # one rule has two findings: one family, and all of them


def test_every_finding_is_on_the_page_about_reports() -> None:
    page = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(
        {fault.finding for fault in FAULTS.values()} | {"nothing_wrong"}
    )


def test_copies_count_as_padding_too() -> None:
    names = [each.name for each in verdict(copies()).findings]
    assert "padding_in_statistics" in names


def headline(found: Verdict) -> tuple[str, str]:
    return found.headline, found.advice


def test_the_headline_adds_up() -> None:
    rows = changed(
        sound(), lambda row: {"state": f"once {row['trajectory']}"} if row["step"] == 3 else {}
    )
    rows = changed(rows, lambda row: {"reward": 0.0} if row["group"] == "task 0" else {})
    said, advice = headline(verdict(rows))
    assert said == (
        "33 % of your steps carry no step-level signal: 20 % are alone in their state and 13 % sit "
        "in groups with equal outcomes."
    )
    assert "--recipe bigpo --preset ngram" in advice


@pytest.mark.parametrize(
    ("shares", "shown"),
    [
        ([0.0744, 0.0646], [0.07, 0.07]),
        ([0.2, 0.1333], [0.2, 0.13]),
        ([0.5], [0.5]),
        ([0.335, 0.335, 0.33], [0.34, 0.33, 0.33]),
        ([0.99, 0.001], [0.99, 0.001]),
    ],
)
def test_parts_add_up_to_the_sum_that_is_shown(shares: list[float], shown: list[float]) -> None:
    assert _adding_up(shares) == shown


def test_the_headline_of_a_recipe_without_a_step_term() -> None:
    rows = changed(sound(), lambda row: {"reward": 0.0} if row["group"] == "task 0" else {})
    said, advice = headline(verdict(rows, "grpo"))
    assert said == ("17 % of your steps carry no signal: they sit in groups with equal outcomes.")
    assert "always fail" in advice


def test_a_column_that_says_who_won_is_believed() -> None:
    rows = changed(sound(), lambda row: {"won": False})
    assert "nothing_succeeds" in [each.name for each in verdict(rows).findings]


def test_the_same_rows_in_another_order_give_the_same_verdict() -> None:
    fault = FAULTS["padding in the statistics"]
    assert verdict(fault.rows[::-1]) == verdict(fault.rows)


def test_shares_are_never_rounded_to_all_or_nothing() -> None:
    assert percent(0.001) == "under 1 %"
    assert percent(0.999) == "over 99 %"
    assert percent(0.0) == "0 %"
    assert percent(1.0) == "100 %"
    assert percent(0.344) == "34 %"


def test_rows_that_are_left_out_enter_no_number() -> None:
    rows = [row for row in sound() if (row["trajectory"], row["step"]) != ("task 0/1", 2)]
    kept = credited(rows)
    assert len(kept.table) == len(rows) - 19
    assert kept.dropped_groups == 1
