"""The verdict names the fault that was planted, first, and none where nothing is wrong."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ascribe import Recipe, StepTable, recipe
from ascribe.estimators import GRPO, BiGPO, GiGPO
from ascribe.reports import verdict as verdict_module
from ascribe.reports.verdict import Finding, Level, ReportVerdict, _adding_up, percent
from ascribe.steps.hints import command_line
from tests.report.toys import Row, credited, facts, sound, verdict

Change = Callable[[Row], dict[str, Any]]


def changed(rows: list[Row], change: Change) -> list[Row]:
    return [row | change(row) for row in rows]


@dataclass(frozen=True)
class Fault:
    """Rows with a fault, and what the verdict must say about it."""

    rows: list[Row]
    finding: str
    message: str
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
        "For 95 % of the steps no other step is in the same state",
        "clocks, counters",
    ),
    "one giant state": Fault(
        changed(sound(), lambda row: {"state": "You are in a room."}),
        "giant_state",
        "In 100 % of the groups nearly all steps have the same state",
        "column state",
    ),
    "one giant cluster": Fault(
        changed(sound(), lambda row: {"fingerprint": [1.0, 0.001 * row["step"]]}),
        "giant_state",
        "In 100 % of the groups nearly all steps have the same state",
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
        "In 100 % of the groups the trajectories differ only by penalties",
        "sometimes succeed",
        Level.WARNING,
        first=False,
    ),
    "everything fails": Fault(
        changed(sound(), lambda row: {"reward": 0.0}),
        "constant_returns",
        "Every trajectory of every task earned 0",
        "won at times",
    ),
    "everything succeeds": Fault(
        changed(sound(), lambda row: {"reward": float(row["step"] == 4)}),
        "constant_returns",
        "Every trajectory of every task earned 1",
        "lost at times",
    ),
    "only costs": Fault(
        changed(sound(), lambda row: {"reward": -0.1 * (row["action"] == "left")}),
        "nothing_succeeds",
        "No episode of any task succeeds",
        "won at times",
    ),
    "every task is too easy": Fault(
        changed(
            sound(), lambda row: {"reward": float(row["step"] == 4) * (1 + int(row["group"][-1]))}
        ),
        "equal_returns",
        "In 100 % of the groups all trajectories have the same return (always failing: 0, always "
        "succeeding: 6)",
        "lost at times",
    ),
    "a name for each trajectory": Fault(
        changed(sound(), lambda row: {"group": row["trajectory"]}),
        "groups_of_one",
        "100 % of the groups have a single trajectory",
        "the same group name",
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
        "did not understand 80 % of the actions",
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
        "70 % of the steps come back to a state of their own trajectory",
        "make no progress",
        Level.WARNING,
    ),
    "another recipe was trained": Fault(
        changed(sound(), lambda row: {"trained": 7.0}),
        "trained_differently",
        "100 % of the steps were trained with another advantage",
        "with recipe",
        Level.NOTE,
    ),
    "a discount that forgets": Fault(
        sound(length=100),
        "small_discount",
        "With discount 0.95, a step gets 0.0059 of a reward 100 steps later (the median length). ",
        "gamma=0.9933",
        Level.WARNING,
    ),
    "a lost step": Fault(
        [row for row in sound() if (row["trajectory"], row["step"]) != ("task 0/1", 2)],
        "dropped",
        "1 group (19 rows) could not be credited",
        "write every step",
    ),
    "states that never recur": Fault(
        changed(sound(), lambda row: {"state": f"{row['state']} of {row['trajectory']}"}),
        "no_recurrence",
        "No state recurs, so gigpo gives what grpo gives.",
        "ascribe states toy.jsonl --out keyed.parquet",
        first=False,
    ),
    "two rows": Fault(
        sound(groups=1, size=2, length=1),
        "few_trajectories",
        "Too few trajectories for a verdict: 2.",
        "8 trajectories or more",
    ),
    "a judge that prefers the worse action": Fault(
        changed(sound(size=8), lambda row: {"step_score": float(row["action"] == "right")}),
        "opposite_credit",
        "12 of 30 certain decisions have more credit on the worse side than on the better one",
        "would teach the worse action",
        Level.WARNING,
        by="judged",
    ),
    "rows written twice": Fault(copies(), "dropped", "duplicate_row", "set padding to true"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str) -> None:
    fault = FAULTS[name]
    found = verdict(fault.rows, fault.by)
    finding = next(each for each in found.findings if each.name == fault.finding)
    assert fault.message in finding.message
    assert fault.advice in finding.advice
    assert finding.level is fault.level
    if fault.first:
        assert found.findings[0] is finding


EARLY_AND_LATE = [
    row | {"trajectory": f"{row['trajectory']}, {length}", "reward": float(row["terminated"])}
    for length in (3, 5)
    for row in sound(length=length)
]
"""Every trajectory earns 1, some after three steps and some after five."""

SOUND = "Every step is compared with other steps in the same state."

SITUATIONS: dict[str, tuple[list[Row], str, str]] = {
    "sound rollouts": (sound(), SOUND, ""),
    "groups of one": (
        FAULTS["a name for each trajectory"].rows,
        "100 % of the groups have a single trajectory, which cannot be compared with any other.",
        "Give all trajectories of a task the same group name",
    ),
    "groups of one that earn nothing by invalid actions": (
        changed(
            FAULTS["a name for each trajectory"].rows, lambda row: {"reward": 0.0, "valid": False}
        ),
        "100 % of the groups have a single trajectory, which cannot be compared with any other.",
        "Give all trajectories of a task the same group name",
    ),
    "all actions invalid": (
        changed(sound(), lambda row: {"valid": False, "reward": 0.0}),
        "The environment did not understand 100 % of the actions.",
        "Check the prompt and the parser",
    ),
    "nearly all actions invalid": (
        FAULTS["a broken parser"].rows,
        "The environment did not understand 80 % of the actions.",
        "Check the prompt and the parser",
    ),
    "all rewards 0": (
        FAULTS["everything fails"].rows,
        "Every trajectory of every task earned 0, so nothing shows which decisions were good.",
        "If some of them succeeded and others failed, check what is written to the column reward.",
    ),
    "all rewards 1": (
        FAULTS["everything succeeds"].rows,
        "Every trajectory of every task earned 1, so nothing shows which decisions were good.",
        "If some of them succeeded and others failed, check what is written to the column reward.",
    ),
    "a constant state": (
        FAULTS["one giant state"].rows,
        "In 100 % of the groups nearly all steps have the same state, so credit cannot tell "
        "situations apart.",
        "Check that the column state holds what the agent saw",
    ),
    "all rewards 1, after different numbers of steps": (
        EARLY_AND_LATE,
        "Every trajectory of every task earned 1, so credit comes only from differences inside "
        "them.",
        "If some of them succeeded and others failed, check what is written to the column reward.",
    ),
    "states that never recur": (
        FAULTS["states that never recur"].rows,
        "No state recurs, so gigpo gives what grpo gives.",
        "Remove from the state what never repeats",
    ),
    "two rows": (
        FAULTS["two rows"].rows,
        "Too few trajectories for a verdict: 2.",
        "Give 8 trajectories or more, several of each task.",
    ),
    "no states": (
        FAULTS["no states"].rows,
        "All steps are credited by the outcome of their trajectory alone, because the file has no "
        "state.",
        "Write what the agent saw before each action",
    ),
    "states that hold a clock": (
        FAULTS["all singletons"].rows,
        "95 % of the steps are credited by the outcome of their trajectory alone, because no other "
        "step is in the same state.",
        "Remove from the state what never repeats (clocks, counters, identifiers)",
    ),
    "half of the tasks always fail": (
        [row | {"reward": 0.0} if row["family"] == "hard" else row for row in sound()],
        "50 % of the steps have no credit, because all steps in the same state have the same "
        "return.",
        "Most of these steps belong to tasks that always fail",
    ),
    "two steps alone in their state": (
        [row | {"state": f"{n}"} if n in (3, 7) else row for n, row in enumerate(sound())],
        "2 % of the steps are credited by the outcome of their trajectory alone, because no other "
        "step is in the same state.",
        "",
    ),
}
"""Rows, the headline that they must get, and how its advice begins: the root cause before what
follows from it, and no advice about a few steps."""


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_headline_names_the_root_cause(situation: str) -> None:
    rows, said, advice = SITUATIONS[situation]
    found = verdict(rows)
    assert found.headline == said
    assert found.advice.startswith(advice)
    assert bool(found.advice) == bool(advice)


DOORS = {
    "hall": {"l": "kitchen", "r": "garden"},
    "kitchen": {"l": "cellar", "r": "hall"},
    "garden": {"l": "hall", "r": "attic"},
    "cellar": {"l": "cellar", "r": "kitchen"},
    "attic": {"l": "garden", "r": "attic"},
}
WALKS = (
    ("lrlll", "rllll", "rrlll", "rlrrl"),
    ("lrrrl", "rrrlr", "rllll", "lrlrl"),
    ("rrllr", "lrrrl", "lllll", "lrlrr"),
)


def by_hand() -> list[Row]:
    """60 steps: three tasks, four walks of five doors; one that ends in cellar or attic earns 1."""
    rows = []
    for task, walks in enumerate(WALKS):
        for number, walk in enumerate(walks):
            room = "hall"
            for step, door in enumerate(walk):
                row = {"group": f"task {task}", "trajectory": f"task {task}/{number}", "step": step}
                after = DOORS[room][door]
                reward = float(step == 4 and after in {"cellar", "attic"})
                rows.append(row | {"state": room, "action": door, "reward": reward})
                room = after
    return rows


@pytest.mark.parametrize("by", [recipe("grpo"), recipe("gigpo"), recipe("sbc", states="exact")])
def test_the_share_of_opposite_credit_is_counted(by: Recipe) -> None:
    rows = by_hand()
    advantage = by(StepTable.from_dicts(rows)).advantage
    opposite = [
        any(
            all(row[name] == other[name] for name in ("group", "state", "action")) and a * b < 0
            for other, b in zip(rows, advantage, strict=True)
        )
        for row, a in zip(rows, advantage, strict=True)
    ]
    share = sum(opposite) / len(rows)
    assert facts(rows, by).diagnosis.opposite_share == pytest.approx(share)
    assert share > 0
    # It grows with the attempts at a task, as the credit becomes better: a metric, no fault.
    assert [found.name for found in verdict(rows, by).findings] == ["nothing_wrong"]


def test_groups_of_one_get_no_credit_where_nothing_compares_them() -> None:
    rows = FAULTS["a name for each trajectory"].rows
    assert facts(rows).diagnosis.signal_share == 0
    assert not any("episode-level credit" in each.message for each in verdict(rows).findings)
    rows = changed(rows, lambda row: {"state": f"{row['group']}, {row['step'] % 3}"})
    assert verdict(rows).headline == SITUATIONS["groups of one"][1], "revisits are no others"


@pytest.mark.parametrize(
    "by", [recipe("reinforce_pp"), recipe("gigpo", preset="trinity", scope="group")]
)
def test_groups_of_one_that_a_recipe_compares_are_no_fault(by: Recipe) -> None:
    rows = FAULTS["a name for each trajectory"].rows
    assert facts(rows, by).diagnosis.signal_share == 1
    assert "groups_of_one" not in [each.name for each in verdict(rows, by).findings]


def test_the_headline_agrees_with_the_share_of_steps_with_a_signal() -> None:
    """Two steps of 40 are alone in their states; then one task of two always fails."""
    rows = [row | {"state": f"{n}"} if n in (3, 7) else row for n, row in enumerate(sound(2))]
    said = verdict(rows).headline
    assert said == (
        "5 % of the steps are credited by the outcome of their trajectory alone, because no other "
        "step is in the same state."
    )
    rows = changed(rows, lambda row: {"reward": 0.0} if row["group"] == "task 1" else {})
    assert verdict(rows).headline == (
        "50 % of the steps have no credit, and 5 % are credited by the outcome of their trajectory "
        "alone: for 50 % all steps in the same state have the same return and for 5 % no other "
        "step is in the same state."
    )
    assert facts(rows).diagnosis.signal_share == 0.5


def test_what_a_recipe_becomes_where_no_state_recurs_is_the_headline() -> None:
    rows = FAULTS["states that never recur"].rows
    for by in (recipe("sbc", preset="exact"), recipe("hgpo")):
        found = verdict(rows, by)
        assert found.headline == f"No state recurs, so {by.without_recurrence()}."
        assert "ascribe states toy.jsonl" in found.advice
    assert "no_recurrence" not in [each.name for each in verdict(rows, "grpo").findings]


def test_nothing_is_said_where_nothing_is_wrong() -> None:
    found = verdict(sound())
    assert [each.name for each in found.findings] == ["nothing_wrong"]
    assert found.headline == SOUND


@pytest.mark.parametrize("name", ["grpo", "rloo", "dr_grpo", "reinforce_pp", "hgpo", "sbc"])
def test_sound_rows_are_sound_for_every_recipe(name: str) -> None:
    by = recipe(name, preset="exact") if name == "sbc" else recipe(name)
    assert [each.name for each in verdict(sound(), by).findings] == ["nothing_wrong"]


OF_CONVERSATIONS = {"cut_responses", "fewer_turns"}
"""Findings that ``test_report_conversations.py`` plants the faults of."""


def test_every_finding_has_a_fault() -> None:
    code = Path(verdict_module.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'(?:Finding\(\s*|^\s+|share, )"([a-z_]+)",', code, re.MULTILINE))
    planted = {fault.finding for fault in FAULTS.values()} | OF_CONVERSATIONS
    assert names == planted | {"nothing_wrong"}


def test_every_finding_is_on_the_page_about_reports() -> None:
    page = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")
    section = page.split("\n## The verdict\n")[1].split("\n## ")[0]
    listed = re.findall(r"`(\w+)`", section)
    planted = {fault.finding for fault in FAULTS.values()} | OF_CONVERSATIONS
    assert sorted(listed) == sorted(planted | {"nothing_wrong"})


FINED = FAULTS["only penalties differ"].rows


def finding(rows: list[Row], by: Recipe | str, name: str) -> Finding:
    return next(each for each in verdict(rows, by).findings if each.name == name)


class ThirdParty(GRPO):
    name = "from another package"


def test_a_recipe_from_another_package_is_judged_by_its_terms() -> None:
    found = finding(FINED, ThirdParty(), "only_penalties")
    assert found == finding(FINED, "grpo", "only_penalties")


SETTING = re.compile(r"--set (\w+)=([\w.]+)")


@pytest.mark.parametrize("name", ["gigpo", "hgpo", "bigpo", "bipace_q", "bipace_diff", "grpo"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_setting_that_is_advised_is_taken(name: str, fault: str) -> None:
    given = {"fingerprint": "identity", "radius": 0.0} if name.startswith("bi") else {}
    with command_line():
        findings = verdict(FAULTS[fault].rows, recipe(name, **given)).findings
    for each in findings:
        for parameter, value in SETTING.findall(each.advice):
            default = getattr(recipe(name, **given), parameter)
            changed = recipe(name, **given, **{parameter: type(default)(value)})
            assert getattr(changed, parameter) != default


def test_states_of_many_tasks_are_no_giant_state() -> None:
    rows = changed(sound(groups=5, length=4), lambda row: {"state": f"room {row['step']}"})
    names = [each.name for each in verdict(rows, GiGPO(scope="batch")).findings]
    assert "giant_state" not in names


def test_a_critic_values_what_a_limit_cut() -> None:
    rows = changed(FAULTS["a limit that is too low"].rows, lambda _: {"value": 0.5, "entropy": 1.0})
    for by in (recipe("gae"), recipe("entropy", wraps="gae")):
        found = verdict(rows, by)
        (cut,) = [each for each in found.findings if each.name == "cut_by_limit"]
        assert cut.message.endswith("is unknown: the critic's value stands for it.")
        assert cut.advice.startswith("Allow more turns")
        assert found.headline == "Every step is credited."


def test_copies_count_as_padding_too() -> None:
    names = [each.name for each in verdict(copies()).findings]
    assert "padding_in_statistics" in names


def headline(found: ReportVerdict) -> tuple[str, str]:
    return found.headline, found.advice


def test_the_headline_adds_up() -> None:
    rows = changed(
        sound(), lambda row: {"state": f"once {row['trajectory']}"} if row["step"] == 3 else {}
    )
    rows = changed(rows, lambda row: {"reward": 0.0} if row["group"] == "task 0" else {})
    said, advice = headline(verdict(rows))
    assert said == (
        "17 % of the steps have no credit, and 17 % are credited by the outcome of their "
        "trajectory alone: for 20 % no other step is in the same state and for 13 % all steps "
        "in the same state have the same return."
    )
    assert advice.startswith("Remove from the state what never repeats")


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


def test_equal_returns_with_a_credit_from_scores() -> None:
    rows = changed(
        sound(), lambda row: {"reward": 0.0, "score": row["step"] / 4 * (row["action"] == "left")}
    )
    found = verdict(rows, "progress")
    (finding,) = [each for each in found.findings if each.name == "constant_returns"]
    assert finding.level is Level.WARNING
    assert finding.message.endswith("credit comes only from differences inside them.")
    assert found.headline == "Every step is credited."


def test_the_headline_of_a_recipe_without_a_step_term() -> None:
    rows = changed(sound(), lambda row: {"reward": 0.0} if row["group"] == "task 0" else {})
    said, advice = headline(verdict(rows, "grpo"))
    assert said == (
        "17 % of the steps have no credit, because the steps they are compared with have the "
        "same return."
    )
    assert "always fail" in advice


def test_the_headline_says_all_where_the_parts_are_all() -> None:
    """Two steps alone, seven among equals and one without a state: 0.7 + 0.2 + 0.1 is not 1."""
    states = ["hall"] * 7 + ["attic", "cellar", None]
    rows = [
        {"group": "g", "trajectory": f"t{n}", "step": 0, "action": "go", "state": s}
        | {"reward": float(s == "attic")}
        for n, s in enumerate(states)
    ]
    said, _ = headline(verdict(rows))
    assert said == (
        "All steps are credited by the outcome of their trajectory alone: for 70 % all steps in "
        "the same state have the same return, for 20 % no other step is in the same state and for "
        "10 % the file has no state."
    )


def outcomes(fail: int, win: int) -> list[Row]:
    """Short tasks that always succeed, long ones that always fail, and one of each kind of end."""
    short = changed(sound(groups=win, length=2), lambda row: {"reward": float(row["step"] == 1)})
    short = changed(short, lambda row: {name: f"won {row[name]}" for name in NAMED})
    long = changed(sound(groups=fail, length=20), lambda row: {"reward": 0.0})
    long = changed(long, lambda row: {name: f"lost {row[name]}" for name in NAMED})
    return short + long + sound(groups=1)


NAMED = ("group", "trajectory")


@pytest.mark.parametrize("by", ["grpo", GiGPO(gamma=1.0)], ids=["grpo", "gigpo"])
def test_the_headline_counts_steps_and_the_finding_groups(by: Recipe | str) -> None:
    """Three tasks that always succeed have 24 steps, two that always fail 160."""
    found = verdict(outcomes(fail=2, win=3), by)
    assert found.advice.startswith("Most of these steps belong to tasks that always fail: replace")
    (equal,) = (each for each in found.findings if each.name == "equal_returns")
    assert equal.advice.startswith(
        "Most of these tasks always succeed: replace them by tasks that are lost"
    )


def test_the_headline_knows_steps_of_tasks_that_are_mixed() -> None:
    """Good and bad runs part at once, so that those who meet again fared alike."""
    ends = {"0": "good", "1": "bad", "2": "good", "3": "bad"}
    rows = changed(
        sound(),
        lambda row: (
            {"state": f"{row['state']} {ends[row['trajectory'][-1]]}"} if row["step"] else {}
        ),
    )
    found = verdict(rows, GiGPO(gamma=1.0))
    assert (
        "80 % of the steps are credited by the outcome of their trajectory alone" in found.headline
    )
    assert "all that came to the same state ended alike" in found.advice


def test_no_outcome_is_told_of_most_where_none_has_most() -> None:
    found = verdict(outcomes(fail=1, win=10), "grpo")
    assert found.advice == "Choose tasks that sometimes succeed and sometimes fail."


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
