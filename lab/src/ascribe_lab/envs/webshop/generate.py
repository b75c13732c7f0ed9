"""An invented catalogue in the schema of WebShop's files, for tests and for trying things out.

Say so when you report a result on it. ``kinds.json`` lists the kinds of products with their
attributes and options.
"""

import json
import random
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

COUNT = 1_000
STARTS = "Al Bel Cor Dar El Fen Gal Hal Ip Jor Kel Lum Mar Nor Or Pel Quin Ros Sel Tor Um Vel Zan"
ENDS = "adine alto arra ando easy enta esta iana ico ida ilo ima ino ista ola ona oria ova ura yx"
DIGITS = "0123456789ABCDEFGHJKLMNPQRSTVWXYZ"
OPENINGS = ("i am looking for", "i need", "can you get me", "i would like to buy")

Kind = Mapping[str, Any]
Files = tuple[list[dict[str, Any]], dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]


def generate(count: int = COUNT, seed: int = 0) -> Files:
    """The contents of the three files: products, attributes, and instructions as people write."""
    draws = random.Random(seed)
    brands = [start + end for start in STARTS.split() for end in ENDS.split()]
    draws.shuffle(brands)
    table = json.loads(files(__package__).joinpath("kinds.json").read_text(encoding="utf-8"))
    products, attributes, human = [], {}, {}
    for number in range(count):
        kind = table["kinds"][number % len(table["kinds"])]
        asin = "B0" + "".join(draws.choices(DIGITS, k=4)) + f"{number:04d}"
        own = draws.sample(kind["attributes"], 5)
        asked = draws.sample(own, draws.randint(2, 4))
        options = _options(kind, table["choices"], draws)
        products.append(
            {
                "asin": asin,
                "category": kind["category"],
                "query": kind["query"],
                "product_category": kind["path"],
                "pricing": _pricing(kind, draws),
                "images": [""],
                "customization_options": {
                    name: [{"value": value, "image": None} for value in values]
                    for name, values in options.items()
                },
                **_texts(kind["noun"], brands[number % len(brands)], own),
            }
        )
        *most, last = asked
        attributes[asin] = {
            "attributes": [*own, kind["noun"]],
            "instruction": f"Find me {', '.join(most)} {kind['query']} with {last}",
            "instruction_attributes": asked,
        }
        name = draws.choice(list(options))
        value = draws.choice(options[name])
        wish = f"{draws.choice(OPENINGS)} a {kind['noun']} that is {' and '.join(asked)}"
        human[asin] = [
            {
                "asin": asin,
                "instruction": f"{wish}, {name} {value}.",
                "instruction_attributes": list(asked),
                "instruction_options": [value],
                "options": [f"{name}: {value}"],
            }
        ]
    return products, attributes, human


def _texts(noun: str, brand: str, own: Sequence[str]) -> dict[str, Any]:
    """The texts of the pages: two attributes in the title, one or two on each other page."""
    first, second, third, fourth, fifth = own
    return {
        "name": f"{brand} {first.title()} {noun.title()} with {second.title()}",
        "full_description": f"{brand} made this {noun} for every day. It is known for {third}.",
        "small_description": [
            f"What you get: one {noun} by {brand}, {fourth}",
            f"Good to know: {fifth}",
            "Questions? Write to us and we answer within a day",
        ],
    }


def _pricing(kind: Kind, draws: random.Random) -> str | None:
    """One price for half of the products; a range, or none, for a quarter each."""
    low = draws.randint(*kind["prices"]) + 0.99
    single, span = f"${low:.2f}", f"${low:.2f} to ${low + 7.5:.2f}"
    return draws.choice([single, single, span, None])


def _options(kind: Kind, choices: Mapping[str, Any], draws: random.Random) -> dict[str, list[str]]:
    """Two to four values of each option, in their natural order."""
    options = {}
    for name in kind["options"]:
        values = choices[name]["values"]
        kept = sorted(draws.sample(range(len(values)), draws.randint(2, 4)))
        options[choices[name]["shown_as"]] = [values[place] for place in kept]
    return options
