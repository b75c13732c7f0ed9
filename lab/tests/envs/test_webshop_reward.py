"""The score of a purchase, part by part, with values computed by hand."""

import sys
from dataclasses import replace

import pytest

pytest.importorskip("rapidfuzz", reason="needs the extra webshop")

from ascribe_lab.envs import MissingExtraError
from ascribe_lab.envs.webshop.products import NO_BOUND, Product, ShoppingGoal
from ascribe_lab.envs.webshop.reward import (
    COLOURS,
    alike,
    attribute_hits,
    colour,
    option_hits,
    score,
    title_agreement,
    title_words,
    type_score,
)

SHAMPOO = Product(
    asin="B000000001",
    title="Rosalta Tea Tree Shampoo",
    category="beauty",
    query="shampoo",
    path="Beauty › Hair Care › Shampoo",
    description="Made with natural ingredients",
    features=("Smells like lemons", "Sulfate free"),
    attributes=("tea tree", "essential oil"),
    options={"color": ("grey", "black"), "size": ("8 ounce", "16 ounce")},
    price=35.0,
    price_tag="$35.0",
    synthetic=None,
    human=(),
)
GOAL = ShoppingGoal(
    product=0,
    instruction="",
    attributes=("tea tree", "essential oils", "natural ingredients"),
    options=("grey", "16 ounce"),
    price_bound=40.0,
)
RIGHT = {"color": "grey", "size": "16 ounce"}


def total(choices=RIGHT, *, bought=SHAMPOO, goal=GOAL):
    return score(bought, choices, goal, SHAMPOO)


def test_everything_right_is_exactly_one():
    assert total() == 1.0


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({}, 4 / 6),
        ({"color": "grey"}, 5 / 6),
        ({"color": "black", "size": "16 ounce"}, 5 / 6),
        ({"color": "grey", "size": "8 ounce"}, 5 / 6),
    ],
)
def test_each_missing_option_costs_its_share(choices, expected):
    assert total(choices) == pytest.approx(expected)


def test_each_missing_attribute_costs_its_share():
    assert total(bought=replace(SHAMPOO, attributes=("tea tree",))) == pytest.approx(5 / 6)
    assert total(bought=replace(SHAMPOO, description="")) == pytest.approx(5 / 6)


def test_attributes_may_be_told_anywhere_on_the_pages():
    for place in ({"title": "Shampoo Sulfate Free"}, {"description": "sulfate free"}):
        bought = replace(SHAMPOO, attributes=(), features=(), **place)
        assert attribute_hits(bought, ("sulfate free",)) == 1
    assert attribute_hits(SHAMPOO, ("sulfate free",)) == 1


def test_the_price_must_not_pass_the_bound():
    assert total(bought=replace(SHAMPOO, price=40.0)) == 1.0
    assert total(bought=replace(SHAMPOO, price=40.01)) == pytest.approx(5 / 6)
    assert (
        total(bought=replace(SHAMPOO, price=9e5), goal=replace(GOAL, price_bound=NO_BOUND)) == 1.0
    )


def test_the_type_scales_everything():
    bought = replace(SHAMPOO, title="Shampoo bar", query="soap", path="Soap")
    wanted = replace(SHAMPOO, title="Red Tea Tree Oil Shampoo")
    assert type_score(bought, wanted) == 0.5
    assert score(bought, RIGHT, GOAL, wanted) == 0.5


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1.0),
        ({"query": "soap", "path": "x"}, 1.0),
        ({"title": "Shampoo", "query": "soap"}, 1.0),
        ({"title": "Steel Tweezers"}, 0.0),
    ],
)
def test_kinds_of_things(changes, expected):
    assert type_score(replace(SHAMPOO, **changes), SHAMPOO) == expected


def test_a_tenth_of_the_title_is_too_little_whatever_the_query():
    wanted = replace(SHAMPOO, title="Shampoo one two three four five six seven eight nine ten")
    assert type_score(replace(SHAMPOO, title="Shampoo"), wanted) == 0.1


@pytest.mark.parametrize(
    ("wanted", "bought", "expected"),
    [
        ("Orico Basketball Shoe", "Orico Tennis Shoe 2", 2 / 3),
        ("Shoe for a Shoe Box", "shoe", 1 / 3),
        ("Velida 4K Cable, 2 Pack", "VELIDA HDMI-Cable of 3.1 meters", 2 / 3),
        ("Kitchen Knob", "Steel Tweezers (Silver)", 0.0),
        ("Knob and Handle for the Kitchen", "Lamp and Shade for the Garden", 0.0),
    ],
)
def test_agreement_of_titles(wanted, bought, expected):
    assert title_agreement(bought, wanted) == pytest.approx(expected)


def test_words_of_a_title():
    title = "The D.o.n. 2-Pack of 4K <b>Cable</b> for Men's TV"
    assert title_words(title) == ["d.o.n", "pack", "b", "cable", "b", "men's", "tv"]
    assert title_agreement("Cable", "2 of 4") == 0.2


def test_sizes_agree_exactly_and_other_options_nearly():
    assert option_hits(SHAMPOO, {"size": "16 ounces"}, ("16 ounce",)) == 0
    assert option_hits(SHAMPOO, {"flavor": "16 ounces"}, ("16 ounce",)) == 1
    assert option_hits(SHAMPOO, {"style": "powder snow"}, ("cool powder snow",)) == 1


def test_colours_are_reduced_to_the_first_known():
    assert [colour(text) for text in ("navy blue", "dark red", "sky", "leopard")] == [
        "blue",
        "red",
        "sky",
        "leopard",
    ]
    assert option_hits(SHAMPOO, {"color": "sky blue"}, ("navy blue",)) == 1
    assert list(COLOURS) == sorted(COLOURS)


def test_an_option_that_the_text_tells_counts():
    assert option_hits(SHAMPOO, {"style": "sulfate free"}, ("grey",)) == 1


def test_more_hits_than_were_asked_for_pass_one():
    choices = {**RIGHT, "style": "smells like lemons"}
    assert total(choices) == pytest.approx(7 / 6)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("essential oil", "essential oils", True),
        ("Machine-Wash", "wash machine", True),
        ("tea bag", "tea tree", False),
        ("", "", False),
        ("tea", "", False),
        ("café", "caf", True),
    ],
)
def test_alike(first, second, expected):
    assert alike(first, second) is expected


def test_without_rapidfuzz_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz.fuzz", None)
    with pytest.raises(MissingExtraError, match=r"\[webshop\]"):
        alike("a", "b")
