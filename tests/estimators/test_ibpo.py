"""The recipe ``ibpo``: against its slow, obvious version, and what must hold of it besides.

Code: src/ascribe/estimators/ibpo.py. Page: docs/estimators/ibpo.md.
"""

from collections.abc import Sequence
from dataclasses import asdict
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe import Reason, StepTable, assign, recipe
from ascribe.estimators import GRPO, IBPO
from tests.estimators import reference_ibpo as slow
from tests.estimators.against_reference import same_partition
from tests.strategies import STATES, padding_rows

seeds = st.integers(0, 2**32 - 1)
Row = dict[str, Any]


def row(trajectory: str, reward: float, corrects: str | None = None, **others: Any) -> Row:
    """A trajectory of one step; its name begins with its group's."""
    group = trajectory.rpartition("/")[0]
    told = {"group": group, "trajectory": trajectory, "step": 0, "state": group, "action": "a"}
    return told | {"reward": reward, "corrects": corrects} | others


def credit(rows: Sequence[Row], **parameters: Any) -> dict[str, tuple[float, str]]:
    """Advantage and reason of each trajectory."""
    found = recipe("ibpo", **parameters)(StepTable.from_dicts(rows))
    told = [Reason(code).label for code in found.reason]
    values = zip(found.advantage.round(4).tolist(), told, strict=True)
    return {one["trajectory"]: value for one, value in zip(rows, values, strict=True)}


@st.composite
def tables(draw: st.DrawFn, padding: bool = True) -> list[Row]:
    """Answers of one or more steps to a few tasks, and corrections of some of them."""
    random = Random(draw(seeds))
    rows: list[Row] = []
    answers = []
    for number in range(draw(st.integers(1, 14))):
        task = f"task {random.randint(0, 3)}"
        answers.append((task, f"{random.randint(0, 9)}/{number}"))
        rows += _episode(random, *answers[-1], None)
    for number in range(draw(st.integers(0, 14))):
        task, name = random.choice([*answers, ("gone", "gone")])
        group = random.choice((f"{task}/corrects/{name}", task))
        rows += _episode(random, group, f"{random.randint(0, 9)}/c{number}", name)
    if padding:
        rows += padding_rows(rows, random, random.choice((0, 2)))
        for one in rows:
            one.setdefault("padding", False)
    random.shuffle(rows)
    return rows


def _episode(random: Random, group: str, name: str, corrects: str | None) -> list[Row]:
    length = random.choice((1, 1, 2, 3))
    cut = random.random() < 0.2
    return [
        {
            "group": group,
            "trajectory": name,
            "step": t,
            "state": random.choice((*STATES, None)),
            "action": "a",
            "reward": random.choice((0.0, 1.0, 0.5, -0.25)),
            "valid": random.random() < 0.8,
            "terminated": t == length - 1 and not cut,
            "truncated": t == length - 1 and cut,
            "corrects": corrects,
        }
        for t in range(length)
    ]


choices = st.fixed_dictionaries(
    {
        "weight": st.sampled_from((0.6, 0.0, 1.0)),
        "beta": st.sampled_from((0.5, 0.25, 2.0)),
        "right": st.sampled_from((1.0, 0.5, 0.0, 2.0)),
        "baseline": st.sampled_from(("task", "prompt")),
        "mean": st.sampled_from(("prompt", "row")),
        "joint": st.booleans(),
        "compare": st.sampled_from(("correction", "consistency")),
        "truncation": st.sampled_from(("end", "exclude")),
        "invalid_penalty": st.sampled_from((0.0, 0.125)),
    }
)


@pytest.mark.slow
@given(rows=tables(), parameters=choices)
def test_it_equals_the_obvious_version(rows: list[Row], parameters: Row) -> None:
    made = IBPO(**parameters)
    values, reasons, keys = slow.recipe(rows, asdict(made))
    found = made(StepTable.from_dicts(rows))
    assert [Reason(code).label for code in found.reason] == reasons
    np.testing.assert_allclose(found.advantage, values, rtol=1e-6, atol=1e-6)
    assert same_partition(found.terms["episode"].labels, keys)


@pytest.mark.slow
@given(rows=tables(), parameters=choices, seed=seeds)
def test_row_order_and_padding_count_for_nothing(
    rows: list[Row], parameters: Row, seed: int
) -> None:
    made, order = IBPO(**parameters), Random(seed).sample(range(len(rows)), len(rows))
    found = made(StepTable.from_dicts(rows))
    shuffled = made(StepTable.from_dicts(rows[i] for i in order))
    np.testing.assert_array_equal(shuffled.advantage, found.advantage[order])
    np.testing.assert_array_equal(shuffled.reason, found.reason[order])
    assert shuffled.metrics == found.metrics
    real = np.array([not one["padding"] for one in rows])
    alone = made(StepTable.from_dicts(one for one in rows if not one["padding"]))
    np.testing.assert_array_equal(alone.advantage, found.advantage[real])
    np.testing.assert_array_equal(alone.reason, found.reason[real])
    assert alone.metrics == found.metrics


@pytest.mark.slow
@given(rows=tables(padding=False), parameters=choices)
def test_tasks_can_be_credited_apart(rows: list[Row], parameters: Row) -> None:
    made = IBPO(**parameters)
    whole = made(StepTable.from_dicts(rows))
    task_of = {one["trajectory"]: one["group"] for one in rows if one["corrects"] is None}
    task = [task_of.get(one["corrects"] or one["trajectory"]) for one in rows]
    for name in sorted(set(task_of.values())):
        mine = [i for i, each in enumerate(task) if each == name]
        apart = made(StepTable.from_dicts(rows[i] for i in mine))
        np.testing.assert_array_equal(apart.advantage, whole.advantage[mine])
        np.testing.assert_array_equal(apart.reason, whole.reason[mine])


@pytest.mark.slow
@given(rows=tables(padding=False))
def test_without_a_bonus_answers_are_credited_as_by_grpo(rows: list[Row]) -> None:
    answers = [one for one in rows if one["corrects"] is None]
    assume(answers)
    table = StepTable.from_dicts(answers)
    ours, theirs = IBPO(weight=0.0)(table), GRPO(std="population", std_epsilon=1e-8)(table)
    np.testing.assert_array_equal(ours.advantage, theirs.advantage)
    np.testing.assert_array_equal(ours.reason, theirs.reason)


TASK = [row("g/0", 1.0), row("g/1", 0.0), row("g/2", 0.0), row("g/3", 0.0)]
MENDED = [row("g/c/1/4", 1.0, "g/1"), row("g/c/2/5", 0.0, "g/2"), row("g/c/2/6", 1.0, "g/2")]


def test_shares_of_right_corrections_order_the_wrong_answers() -> None:
    found = credit([*TASK, *MENDED], baseline="task", mean="row")
    shaped = np.array([1.0, 0.3, 0.15, 0.0])
    wanted = (shaped - shaped.mean()) / (shaped.std() + 1e-8)
    assert [found[f"g/{n}"][0] for n in range(4)] == pytest.approx(wanted, abs=1e-4)
    # Two of three corrections are right.
    assert found["g/c/1/4"] == found["g/c/2/6"] == (0.7071, "credited")
    assert found["g/c/2/5"] == (-1.4142, "credited")


def test_a_correction_is_compared_with_those_of_its_prompt() -> None:
    """Eq. 24: with one correction of an answer there is nothing to compare it with."""
    found = credit([*TASK, *MENDED], mean="row")
    assert found["g/c/1/4"] == (0.0, "group_of_one")
    assert found["g/c/2/5"] == (-1.0, "credited")
    assert found["g/1"] == credit([*TASK, *MENDED], baseline="task")["g/1"]


def test_every_prompt_counts_the_same() -> None:
    """1/G in Eq. 24: two corrections weigh together as much as the four answers."""
    found = credit([*TASK, *MENDED])
    assert found["g/c/2/5"] == (-2.0, "credited")
    assert found["g/c/2/6"] == (2.0, "credited")
    four = [row(f"g/c/2/{n}", float(n > 5), "g/2") for n in range(4, 8)]
    assert credit([*TASK, *four]) == credit([*TASK, *four], mean="row")


def test_shaping_alone_does_not_learn_from_corrections() -> None:
    """Table 2, Shaping Only: corrections set the bonus, and are not learned from."""
    found = credit([*TASK, *MENDED], joint=False)
    assert {found[name] for name in ("g/c/1/4", "g/c/2/5", "g/c/2/6")} == {(0.0, "counterfactual")}
    assert [found[f"g/{n}"] for n in range(4)] == [
        credit([*TASK, *MENDED])[f"g/{n}"] for n in range(4)
    ]


def test_a_task_that_nobody_solved_wakes_up() -> None:
    rows = [row("g/0", 0.0), row("g/1", 0.0), row("g/c/0/2", 1.0, "g/0")]
    assert credit(rows)["g/0"] == (1.0, "credited")
    assert credit(rows[:2])["g/0"] == (0.0, "zero_variance")


def test_a_wrong_answer_that_nobody_corrected_keeps_its_reward() -> None:
    rows = [*TASK, *MENDED]
    told = dict(recipe("ibpo")(StepTable.from_dicts(rows)).metrics)
    assert told.pop("weight_limit") > 0.6, "at this λ the variance still falls"
    assert told == {
        "bonus_mean": pytest.approx(0.45 / 4),
        "overtakes": 0.0,
        "unjudged": 1.0,
        "corrections": 3.0,
        "corrections_right": pytest.approx(2 / 3),
    }
    assert credit(rows)["g/3"] == credit([*rows, row("g/c/3/7", 0.0, "g/3")])["g/3"]


def test_a_bonus_that_passes_a_right_answer_is_counted() -> None:
    rows = [row("g/0", 1.0), row("g/1", 0.8), row("g/c/1/2", 1.0, "g/1")]
    assert recipe("ibpo")(StepTable.from_dicts(rows)).metrics["overtakes"] == 1.0


def test_right_is_what_was_paid_without_penalties() -> None:
    rows = [row("g/0", 1.0), row("g/1", 0.0), row("g/c/0/2", 1.0, "g/0")]
    rows = [one | {"valid": number > 0} for number, one in enumerate(rows)]
    told = recipe("ibpo", invalid_penalty=0.5)(StepTable.from_dicts(rows)).metrics
    assert told["bonus_mean"] == 0.0, "the right answer gets no bonus, whatever it was fined"


def test_rounding_does_not_make_a_right_answer_wrong() -> None:
    steps = [row("g/0", 0.1, step=t) for t in range(10)]
    assert np.cumsum([one["reward"] for one in steps])[-1] < 1.0  # sum() is exact since 3.12
    rows = [*steps, row("g/1", 0.0), row("g/c/0/2", 1.0, "g/0")]
    assert recipe("ibpo")(StepTable.from_dicts(rows)).metrics["bonus_mean"] == 0.0


def test_a_correction_without_its_answer_has_no_target() -> None:
    found = credit([*TASK, row("x/c/1/9", 1.0, "x/1"), row("x/c/1/8", 0.0, "x/1")])
    assert found["x/c/1/9"] == found["x/c/1/8"] == (0.0, "no_target")


def test_a_group_is_dropped_with_its_corrections() -> None:
    broken = [row("b/0", 1.0), row("b/1", float("nan")), row("b/c/1/2", 1.0, "b/1")]
    table = StepTable.from_dicts([*TASK, *MENDED, *broken])
    found = assign(table, IBPO(), "drop")
    told = [Reason(code).label for code in found.credit.reason[-3:]]
    assert told == ["group_of_one", "dropped", "dropped"]  # the first has its reward


def test_without_corrections_it_says_what_it_needs() -> None:
    bare = [{name: value for name, value in one.items() if name != "corrects"} for one in TASK]
    with pytest.raises(ValueError, match="needs the column corrects"):
        credit(bare)
    assert credit(bare, compare="consistency")["g/0"][1] == "credited"
    # Where all are right there is nothing to correct.
    assert credit([one | {"reward": 1.0} for one in bare])["g/0"] == (0.0, "zero_variance")


def test_what_makes_no_sense_is_refused() -> None:
    twice = [row("g/c/1/4", 0.0, "g/1"), row("g/c/1/4", 1.0, "g/2", step=1)]
    with pytest.raises(ValueError, match="name two that it corrects"):
        credit([*TASK, *twice])
    with pytest.raises(ValueError, match="is a correction itself"):
        credit([*TASK, *MENDED, row("g/c/9/9", 1.0, "g/c/2/5")])
    with pytest.raises(ValueError, match="beta is -1"):
        IBPO(beta=-1)
