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


def test_a_recipe_agrees_with_itself() -> None:
    one = credited(sound())
    found = two_recipes(one, one)
    assert "0.0% gain a credit and 0.0% lose theirs" in found.sentence()


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
