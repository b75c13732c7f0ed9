"""Reading the official files, and the generated catalogue in their schema."""

import json
import random
from collections import Counter

import pytest

from ascribe_lab.envs.webshop.generate import generate
from ascribe_lab.envs.webshop.products import (
    HUMAN,
    NO_BOUND,
    SHUFFLE,
    SMALL,
    WHOLE,
    clean,
    goals,
    load,
    read,
)

PRODUCT = {
    "asin": "B07XYZ1234",
    "name": "Orico Cotton Shirt",
    "category": "fashion",
    "query": " Men's Shirts ",
    "product_category": "Clothing › Men › Shirts",
    "full_description": "A shirt.\nNice.",
    "small_description": ["Soft", "Warm"],
    "pricing": "$12.99 to $1,249.00",
    "images": [""],
    "customization_options": {
        "Color": [{"value": "Red/Blue", "image": None}, {"value": " Black ", "image": None}],
        "Size": [{"value": "S"}, {"value": "M"}, {"value": "L"}],
        "Fit": None,
    },
}
ATTRIBUTES = {
    "B07XYZ1234": {
        "attributes": ["cotton", "slim fit"],
        "instruction": "Find me a cotton shirt",
        "instruction_attributes": ["cotton"],
    }
}
PERSON = {
    "instruction": "i want a red shirt.",
    "instruction_attributes": ["cotton"],
    "instruction_options": ["red"],
}


def only(**changes):
    (product,) = read([{**PRODUCT, **changes}], ATTRIBUTES, {})
    return product


def test_a_product_is_read():
    product = only()
    assert product.title == "Orico Cotton Shirt"
    assert product.query == "men's shirts"
    assert product.description == "A shirt. Nice."
    assert product.features == ("Soft", "Warm")
    assert product.attributes == ("cotton", "slim fit")
    assert product.options == {"color": ("red | blue", "black"), "size": ("s", "m", "l")}
    assert product.document == (
        "orico cotton shirt a shirt. nice. soft color: red | blue, black, and size: s, m, l"
    )


@pytest.mark.parametrize(
    ("pricing", "tag", "low", "high"),
    [
        ("$12.99", "$12.99", 12.99, 12.99),
        ("$12.99 to $1,249.00", "$12.99 to $1249.0", 12.99, 1249.0),
        ("$5 $9 $20", "$5.0 to $9.0", 5, 9),
        (None, "$100.0", 100, 100),
        ("", "$100.0", 100, 100),
        ("ask us", "$100.0", 100, 100),
    ],
)
def test_prices(pricing, tag, low, high):
    product = only(pricing=pricing)
    assert product.price_tag == tag
    assert low <= product.price <= high


def test_texts_may_be_missing_or_alone():
    product = only(small_description="One", full_description=None, customization_options="")
    assert product.features == ("One",)
    assert product.description == ""
    assert product.options == {}
    (bare,) = read([PRODUCT], {}, {})
    assert bare.attributes == ()
    assert bare.synthetic is None


def test_products_without_an_own_number_are_left_out():
    records = [PRODUCT, {**PRODUCT, "name": "Again"}]
    records += [{**PRODUCT, "asin": asin} for asin in ("nan", "", None, "B0123456789")]
    assert [product.title for product in read(records, {}, {})] == ["Orico Cotton Shirt"]


@pytest.mark.parametrize(
    "record",
    [
        "text",
        {**PRODUCT, "name": 7},
        {**PRODUCT, "pricing": "$1.2.3"},
        {**PRODUCT, "pricing": "$" + "9" * 400},
        {**PRODUCT, "customization_options": ["color"]},
        {**PRODUCT, "customization_options": {"color": [{"image": None}]}},
        {**PRODUCT, "customization_options": {"color": "red"}},
        {**PRODUCT, "small_description": [["nested"]]},
    ],
)
def test_what_cannot_be_read_is_refused_by_name(record):
    with pytest.raises(ValueError, match="product 0"):
        read([record], {}, {})


@pytest.mark.parametrize(
    ("attributes", "human"),
    [
        ({"B07XYZ1234": "cotton"}, {}),
        ({"B07XYZ1234": {"attributes": "cotton"}}, {}),
        ({}, {"B07XYZ1234": [{"instruction_attributes": []}]}),
        ({}, {"B07XYZ1234": ["i want"]}),
    ],
)
def test_wrong_instructions_are_refused_by_name(attributes, human):
    with pytest.raises(ValueError, match="B07XYZ1234"):
        read([PRODUCT], attributes, human)


def test_text_is_made_safe_but_not_changed_otherwise():
    assert (
        clean(" <script>alert('x')</script> [SEP]  {0} ")
        == "<script>alert('x')</script> [SEP]  {0}"
    )
    assert clean("a\x1b[2J\x00b\r\nc\u2028d\x9be") == "a [2J b  c d e"
    assert clean("half \ud800 pair") == "half \ufffd pair"
    assert clean("x" * 1_000_000) == "x" * 1_000_000


def test_synthetic_goals_are_all_combinations_in_the_order_of_the_original():
    products = read([PRODUCT], ATTRIBUTES, {})
    made = goals(products, "synthetic")
    bound = made[0].price_bound
    texts = [
        f"Find me a cotton shirt with color: {color}, and size: {size}, "
        f"and price lower than {bound:.2f} dollars"
        for color in ("red | blue", "black")
        for size in ("s", "m", "l")
    ]
    random.Random(SHUFFLE).shuffle(texts)
    if bound == NO_BOUND:
        texts = [text.rpartition(", and price")[0] for text in texts]
    assert [goal.instruction for goal in made] == texts
    assert Counter(len(goal.options) for goal in made) == {2: 6}


def test_human_goals_need_attributes():
    wishes = [PERSON, {**PERSON, "instruction_attributes": []}]
    products = read([{**PRODUCT, "pricing": "$15"}], {}, {"B07XYZ1234": wishes})
    (goal,) = goals(products, "human")
    assert goal.instruction == (
        f"i want a red shirt, and price lower than {goal.price_bound:.2f} dollars"
    )
    assert goal.price_bound in {30.0, 40.0, 50.0}
    assert goal.options == ("red",)


def test_a_dear_product_has_no_bound():
    products = read([{**PRODUCT, "pricing": "$985"}], {}, {"B07XYZ1234": [PERSON]})
    (goal,) = goals(products, "human")
    assert goal.price_bound == NO_BOUND
    assert goal.instruction == "i want a red shirt"


def test_goals_without_end_are_refused_at_once():
    options = {str(name): [{"value": str(value)} for value in range(100)] for name in range(9)}
    products = read([{**PRODUCT, "customization_options": options}], ATTRIBUTES, {})
    with pytest.raises(ValueError, match="combinations"):
        goals(products, "synthetic")


def test_there_are_two_kinds_of_goals():
    with pytest.raises(ValueError, match="synthetic, human"):
        goals([], "real")


@pytest.mark.parametrize("small", [True, False])
def test_files_are_read_as_they_were_written(tmp_path, small):
    contents = generate(count=50)
    names = (*(SMALL if small else WHOLE), HUMAN)
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    assert load(tmp_path, small=small) == read(*contents)


def test_missing_and_wrong_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=SMALL[0]):
        load(tmp_path)
    (tmp_path / SMALL[0]).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="must hold a JSON list"):
        load(tmp_path)
    (tmp_path / SMALL[0]).write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ValueError, match="is not JSON"):
        load(tmp_path)


def test_the_generated_catalogue_is_large_and_various():
    products = read(*generate())
    assert len(products) >= 1_000
    assert len({product.title for product in products}) == len(products)
    assert len({product.category for product in products}) == 5
    assert len({product.query for product in products}) == 25
    assert len(goals(products, "synthetic")) > 5_000
    assert len(goals(products, "human")) == len(products)


def test_the_generated_catalogue_depends_on_the_seed_alone():
    assert generate(200) == generate(200)
    assert generate(200, seed=1) != generate(200)
    assert generate(100)[0] == generate(200)[0][:100]


def test_the_generated_catalogue_has_the_schema_of_the_original():
    products, attributes, human = generate(100)
    for product in products:
        assert PRODUCT.keys() <= product.keys()
        assert ATTRIBUTES["B07XYZ1234"].keys() == attributes[product["asin"]].keys()
        assert PERSON.keys() <= human[product["asin"]][0].keys()
