"""Two credits side by side, against plain counting."""

import numpy as np
import pytest

from ascribe.estimators import GRPO, GiGPO
from ascribe.reports.crediting import two_recipes
from tests.report.toys import credited, sound


def test_signs_are_counted() -> None:
    rows = sound(length=7)
    for row in rows:
        if row["group"] == "task 0":
            row["reward"] = 0.0
    one, other = credited(rows), credited(rows, GRPO())
    found = two_recipes(one, other)
    signs = np.sign(one.credit.advantage), np.sign(other.credit.advantage)
    names = {-1: "negative", 0: "no credit", 1: "positive"}
    for each in found.signs:
        same = [
            (a, b)
            for a, b in zip(*signs, strict=True)
            if (names[int(a)], names[int(b)]) == (each["first"], each["second"])
        ]
        assert each["steps"] == len(same)
    changed = np.mean(signs[0] * signs[1] < 0)
    assert found.sentence().startswith(f"Of {len(rows):,} steps, {changed:.1%} change sign")
    assert sum(each["share"] for each in found.signs) == pytest.approx(1.0)


def test_the_largest_changes_come_first_and_say_where() -> None:
    rows = sound()
    # A success that does the wrong thing in one room: right for the episode, wrong for the step.
    for row in rows:
        if row["step"] == 4:
            row["reward"] = {"0": 5.0, "1": 4.0, "2": 0.0, "3": 0.0}[row["trajectory"][-1]]
        if row["step"] == 0 and row["trajectory"][-1] == "1":
            row["reward"] = -3.0
    one, other = credited(rows, GiGPO(weight=3.0)), credited(rows, GRPO())
    found = two_recipes(one, other)
    changes = [abs(each["change"]) for each in found.changed]
    assert changes == sorted(changes, reverse=True)
    assert changes
    for each in found.changed:
        assert each["first"] * each["second"] < 0
        place = next(
            number
            for number, row in enumerate(rows)
            if (row["trajectory"], row["step"]) == (each["trajectory"], each["step"])
        )
        assert one.credit.advantage[place] == pytest.approx(each["first"], rel=1e-3)
        assert rows[place]["action"] == each["action"]


def test_a_recipe_agrees_with_itself() -> None:
    one = credited(sound())
    found = two_recipes(one, one)
    assert "0.0% gain a credit and 0.0% lose theirs" in found.sentence()
    assert found.changed == []


def test_two_settings_of_a_recipe_are_told_apart() -> None:
    found = two_recipes(credited(sound()), credited(sound(), GiGPO(gamma=1.0)))
    assert (found.first, found.second) == ("gigpo", "gigpo with gamma=1.0")


def test_a_long_name_is_nowhere_cut() -> None:
    found = two_recipes(credited(sound()), credited(sound(), GiGPO.preset("verl-agent")))
    settings = "invalid_penalty=0.1, penalty_timing=after, baseline_unit=step, group_of_one=raw"
    assert found.second == f"gigpo with {settings}"
    assert settings in found.sentence()


def test_a_credit_without_signal_changes_nothing() -> None:
    rows = [row | {"reward": 0.0} for row in sound()]
    found = two_recipes(credited(rows), credited(rows, GRPO()))
    assert found.sentence().startswith("Of 120 steps, 0.0% change sign")
