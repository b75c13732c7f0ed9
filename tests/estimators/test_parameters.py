"""What a recipe accepts, and what it says when it does not."""

from dataclasses import FrozenInstanceError, asdict, fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascribe import RECIPES, Recipe, StepTable, TableError, recipe
from ascribe.estimators import GRPO, HGPO, GiGPO
from tests.estimators import reference
from tests.strategies import CHOICES, recipes

pytestmark = pytest.mark.unit

NAMES = list(reference.RECIPES)


def parameters_of(kind, sample):
    """The names of a recipe's parameters whose default is like ``sample``."""
    return [(kind.name, f.name) for f in fields(kind) if type(f.default) is type(sample)]


LITERALS = [
    pair
    for name in NAMES
    for pair in parameters_of(RECIPES[name], "")
    if pair[1] in (*CHOICES, "penalty_timing")
]
NUMBERS = [pair for name in NAMES for pair in parameters_of(RECIPES[name], 0.0)]


@pytest.mark.parametrize(("name", "parameter"), LITERALS)
@pytest.mark.parametrize("value", ["", "nonsense", None, 1, "STD"])
def test_wrong_choices_are_told_the_right_ones(name, parameter, value):
    with pytest.raises(ValueError, match=f"{name}: {parameter} is .*must be one of") as caught:
        recipe(name, **{parameter: value})
    known = CHOICES.get(parameter, ("before", "after"))
    for choice in known:
        assert choice in str(caught.value)


@pytest.mark.parametrize(("name", "parameter"), NUMBERS)
@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), "0.5", None, True, [0.5]]
)
def test_numbers_must_be_finite(name, parameter, value):
    with pytest.raises(ValueError, match=f"{name}: {parameter} is .*must be a finite float"):
        recipe(name, **{parameter: value})


@pytest.mark.parametrize(
    ("parameter", "value", "between"),
    [
        ("gamma", -0.1, "0.0 and 1.0"),
        ("gamma", 1.0000001, "0.0 and 1.0"),
        ("similarity", -1e-9, "0.0 and 1.0"),
        ("similarity", 90, "0.0 and 1.0"),
        ("std_epsilon", -1e-6, r"0.0 and 1e\+100"),
        ("std_floor", -1.0, r"0.0 and 1e\+100"),
    ],
)
def test_numbers_must_lie_in_their_range(parameter, value, between):
    with pytest.raises(ValueError, match=f"gigpo: {parameter} is .*must lie between {between}"):
        recipe("gigpo", **{parameter: value})


@pytest.mark.parametrize("value", [-1, 1.0, 2.5, "2", None, True, float("nan")])
def test_a_length_must_be_a_whole_number(value):
    with pytest.raises(ValueError, match="hgpo: history_length is"):
        HGPO(history_length=value)


@pytest.mark.parametrize("parameter", ["episode", "drop_zeros"])
@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_a_switch_must_be_true_or_false(parameter, value):
    with pytest.raises(ValueError, match=f"hgpo: {parameter} is .* bool"):
        recipe("hgpo", **{parameter: value})


@pytest.mark.parametrize("name", ["GRPOO", "gigpo ", "", "ppo"])
def test_unknown_recipes_are_told_the_known_ones(name):
    with pytest.raises(ValueError, match="no recipe") as caught:
        recipe(name)
    for known in RECIPES:
        assert known in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_parameters_are_told_the_known_ones(name):
    with pytest.raises(ValueError, match=f"{name} has no parameter 'gama'") as caught:
        recipe(name, gama=0.9)
    for field in fields(RECIPES[name]):
        assert field.name in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_presets_are_told_the_known_ones(name):
    with pytest.raises(ValueError, match=f"{name} has no preset 'verl'") as caught:
        recipe(name, preset="verl")
    for preset in RECIPES[name].presets or ["none"]:
        assert preset in str(caught.value)


def test_an_empty_preset_name_is_unknown():
    with pytest.raises(ValueError, match="no preset ''"):
        recipe("gigpo", preset="")


@pytest.mark.parametrize("name", ["grpo", "rloo", "dr_grpo", "reinforce_pp"])
def test_a_penalty_that_would_be_lost_is_refused(name):
    with pytest.raises(ValueError, match="would lose the penalty"):
        recipe(name, penalty_timing="after", invalid_penalty=0.1)


def test_an_integer_beyond_floating_point_is_refused():
    with pytest.raises(ValueError, match="gigpo: weight is"):
        recipe("gigpo", weight=10**400)


@pytest.mark.parametrize("name", NAMES)
def test_presets_are_recipes_and_can_be_changed(name):
    for preset, values in RECIPES[name].presets.items():
        built = recipe(name, preset=preset)
        assert {key: asdict(built)[key] for key in values} == values
        changed = recipe(name, preset=preset, truncation="exclude")
        assert asdict(changed) == asdict(built) | {"truncation": "exclude"}


def test_a_change_goes_before_a_preset():
    assert recipe("gigpo", preset="verl-agent", invalid_penalty=0.01) == GiGPO(
        baseline_unit="step",
        group_of_one="raw",
        penalty_timing="after",
        invalid_penalty=0.01,
    )


def test_whole_numbers_are_numbers():
    assert recipe("gigpo", gamma=1, weight=2) == GiGPO(gamma=1.0, weight=2.0)


def test_defaults_are_the_papers():
    assert asdict(GRPO()) == {
        "invalid_penalty": 0.0,
        "penalty_timing": "before",
        "truncation": "end",
        "std": "sample",
        "std_epsilon": 1e-6,
        "std_floor": 0.0,
    }
    assert asdict(GiGPO()) == asdict(GRPO()) | {
        "gamma": 0.95,
        "weight": 1.0,
        "episode_weight": 1.0,
        "scale": "paper",
        "normalise": "std",
        "grouping": "exact",
        "similarity": 0.9,
        "scope": "group",
        "baseline_unit": "trajectory",
        "group_of_one": "no_credit",
        "revisits": "each",
    }
    assert asdict(HGPO()) == asdict(GRPO()) | {
        "std": "population",
        "gamma": 0.95,
        "history_length": 2,
        "alpha": 1.0,
        "normalise": "std",
        "episode": False,
        "drop_zeros": False,
        "group_of_one": "no_credit",
        "scale": "paper",
    }


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100)
@given(data=st.data())
def test_the_repr_makes_the_same_recipe(name, data):
    built = data.draw(recipes(name))
    assert eval(repr(built), {type(built).__name__: type(built)}) == built
    assert recipe(name, **asdict(built)) == built


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_a_name_a_paper_and_cannot_be_changed(name):
    built = recipe(name)
    assert isinstance(built, Recipe)
    assert built.name == name
    assert built.paper
    with pytest.raises(FrozenInstanceError):
        built.truncation = "exclude"


@pytest.mark.parametrize("name", NAMES)
def test_a_table_that_leaves_no_right_answer_is_refused(name):
    row = {"group": "g", "trajectory": "t", "state": "s", "action": "a", "reward": 0.0}
    with pytest.raises(TableError, match="late_start"):
        recipe(name)(StepTable.from_dicts([row | {"step": 1}]))
    with pytest.raises(TableError, match="empty_table"):
        recipe(name)(StepTable.from_dicts([row | {"step": 0, "padding": True}]))


@pytest.mark.parametrize("name", NAMES)
def test_an_input_that_a_recipe_does_not_take_is_refused(name):
    row = {"group": "g", "trajectory": "t", "state": "s", "action": "a", "reward": 0.0}
    takes = "history" if name == "returns" else "none"
    with pytest.raises(TypeError, match=f"{name} takes no input 'radius'; it takes: {takes}"):
        recipe(name)(StepTable.from_dicts([row | {"step": 0}]), radius=0.1)


def test_papers_are_found_by_their_names():
    assert type(recipe("BiPACE-Q")) is type(recipe("bipace_q"))
    assert type(recipe("GiGPO")) is type(recipe("gigpo"))
    assert type(recipe("CCPO")) is type(recipe("ccpo"))
    assert type(recipe("IBPO")) is type(recipe("ibpo"))
    with pytest.raises(ValueError, match=r"BiPACE is three recipes.*bipace_q"):
        recipe("bipace")
    with pytest.raises(ValueError, match="ascribe pivots"):
        recipe("PivotRL")
    with pytest.raises(ValueError, match="PivotRL chooses turns"):
        recipe("pivots")
