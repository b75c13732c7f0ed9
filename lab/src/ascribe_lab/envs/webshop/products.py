"""The products of a shop and what customers want, read from the files of WebShop.

Three files: ``items_shuffle*.json`` (a list of products), ``items_ins_v2*.json`` (by product: its
attributes and a written instruction) and ``items_human_ins.json`` (by product: instructions that
people wrote). Others wrote them: values of another type are refused, and characters that could
break a terminal or a file are replaced.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite, prod
from pathlib import Path
from typing import Any

from ascribe.steps.errors import InputError
from ascribe_lab.envs import texts
from ascribe_lab.envs.protocol import one_of

NO_PRICE = 100.0
SMALL = ("items_shuffle_1000.json", "items_ins_v2_1000.json")
WHOLE = ("items_shuffle.json", "items_ins_v2.json")
HUMAN = "items_human_ins.json"
LONGEST_ASIN = 10

SHUFFLE = 233
"""The seed of WebShop's shuffle of its goals."""

BOUNDS = [10.0 * tens for tens in range(1, 100)]
NO_BOUND = 1_000_000.0
MOST_GOALS = 2_000_000

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Instruction:
    """A written wish for a product."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Product:
    """A product of the shop."""

    asin: str
    title: str
    category: str
    query: str
    """The search that led to the product when the catalogue was collected."""
    path: str
    """The shop's categories from wide to narrow, separated by ``›``."""
    description: str
    features: tuple[str, ...]
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    price: float
    """For a product that is sold in a range, a price drawn from it."""
    price_tag: str
    synthetic: Instruction | None
    human: tuple[Instruction, ...]

    @property
    def document(self) -> str:
        """What the search engine indexes."""
        options = ", and ".join(f"{name}: {', '.join(of)}" for name, of in self.options.items())
        return f"{self.title} {self.description} {''.join(self.features[:1])} {options}".lower()


@dataclass(frozen=True)
class ShoppingGoal:
    """A task: what the agent is asked to buy."""

    product: int
    """The product that the instruction was written about, by its place in the catalogue."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """The values of options that are asked for, without the options' names."""
    price_bound: float


def load(folder: str | Path, *, small: bool = True) -> tuple[Product, ...]:
    """Read the products from a folder that holds the official files; see ``WebShop``."""
    products, attributes = SMALL if small else WHOLE
    return read(
        _json(Path(folder) / products, list),
        _json(Path(folder) / attributes, dict),
        _json(Path(folder) / HUMAN, dict),
    )


def read(products: list[Any], attributes: Record, human: Record) -> tuple[Product, ...]:
    """The products of the three files' contents, in their order, each asin once."""
    prices = random.Random(233)
    seen: dict[str, Product] = {}
    for number, record in enumerate(products):
        if not isinstance(record, Mapping):
            raise InputError(f"product {number} is not an object")
        asin = clean(record.get("asin"))
        if asin in {"", "nan"} or len(asin) > LONGEST_ASIN or asin in seen:
            continue
        try:
            seen[asin] = _product(asin, record, attributes.get(asin), human.get(asin), prices)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise InputError(f"product {number} ({asin}) cannot be read: {error}") from error
    return tuple(seen.values())


def goals(products: Sequence[Product], kind: str) -> list[ShoppingGoal]:
    """All goals, in the order in which WebShop numbers them.

    ``synthetic``: one for each combination of a product's options. ``human``: one for each
    instruction that a person wrote. The bound on the price is the larger of two that are drawn from
    the next four multiples of ten above the price.
    """
    one_of("goals", kind, ("synthetic", "human"))
    draws = random.Random(SHUFFLE)
    if kind == "human":
        numbered = list(_human_goals(products, draws))
    else:
        combinations = sum(prod(map(len, item.options.values())) for item in products)
        if combinations > MOST_GOALS:
            raise InputError(
                f"{combinations} combinations of options", hint=f"{MOST_GOALS} are the most"
            )
        numbered = list(_synthetic_goals(products, draws))
    random.Random(SHUFFLE).shuffle(numbered)
    return numbered


def _synthetic_goals(products: Sequence[Product], draws: random.Random) -> Iterator[ShoppingGoal]:
    for number, item in enumerate(products):
        if item.synthetic is None:
            continue
        bound, price = _bound(item, draws)
        names = sorted(item.options)
        for values in product(*(item.options[name] for name in names)):
            pairs = (f"{name}: {value}" for name, value in zip(names, values, strict=True))
            options = ", and ".join(pairs)
            wish = item.synthetic.text + (f" with {options}" if options else "") + price
            yield ShoppingGoal(number, wish, item.synthetic.attributes, values, bound)


def _human_goals(products: Sequence[Product], draws: random.Random) -> Iterator[ShoppingGoal]:
    for number, item in enumerate(products):
        for written in item.human:
            if written.attributes:
                bound, price = _bound(item, draws)
                wish = written.text.strip(".") + price
                yield ShoppingGoal(number, wish, written.attributes, written.options, bound)


def _bound(item: Product, draws: random.Random) -> tuple[float, str]:
    """The bound on the price, and its words in the instruction."""
    above = [bound for bound in BOUNDS if bound > item.price][:4]
    if len(above) < 2:
        return NO_BOUND, ""
    bound = max(draws.sample(above, 2))
    return bound, f", and price lower than {bound:.2f} dollars"


def clean(text: object) -> str:
    """Text on one line without control characters; an empty text for None."""
    return "" if text is None else texts.clean(text, one_line=True).strip()


def _product(
    asin: str, record: Record, written: Any, instructions: Any, prices: random.Random
) -> Product:
    features = record.get("small_description")
    amounts = _amounts(clean(record.get("pricing")))
    written = {} if written is None else written
    has_wish = written.get("instruction") and written.get("instruction_attributes")
    return Product(
        asin=asin,
        title=clean(record.get("name")),
        category=clean(record.get("category")),
        query=clean(record.get("query")).lower(),
        path=clean(record.get("product_category")),
        description=clean(record.get("full_description")),
        features=_texts(features if isinstance(features, list) else [features]),
        attributes=_texts(written.get("attributes")),
        options=_options(record.get("customization_options")),
        price=prices.uniform(*amounts) if len(amounts) > 1 else amounts[0],
        price_tag=" to ".join(f"${amount}" for amount in amounts),
        synthetic=_instruction(written) if has_wish else None,
        human=tuple(_instruction(each) for each in instructions or []),
    )


def _instruction(record: Record) -> Instruction:
    return Instruction(
        text=clean(record["instruction"]),
        attributes=_texts(record.get("instruction_attributes")),
        options=_texts(record.get("instruction_options")),
    )


def _options(record: Record | None) -> dict[str, tuple[str, ...]]:
    """The choices by name, in lower case. A slash would split an address, so it is ``|`` here."""
    return {
        clean(name).lower(): tuple(
            clean(choice["value"]).replace("/", " | ").lower() for choice in choices
        )
        for name, choices in (record or {}).items()
        if choices is not None
    }


def _amounts(pricing: str) -> list[float]:
    """The first two amounts of a text such as ``$12.99 to $1,249.00``."""
    digits = (re.sub(r"[^\d.]", "", part) for part in pricing.split("$")[1:3])
    amounts = [float(amount) for amount in digits if amount]
    if not all(isfinite(amount) for amount in amounts):
        raise InputError("a price is too large")
    return amounts or [NO_PRICE]


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise InputError("a list of texts was expected")
    return tuple(clean(text) for text in values or [])


def _json(path: Path, kind: type) -> Any:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            content = json.load(file)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(content, kind):
        raise InputError(f"{path.name} must hold a JSON {'list' if kind is list else 'object'}")
    return content
