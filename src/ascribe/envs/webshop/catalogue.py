"""The products of a shop and what customers want, read from the files of WebShop.

Three files: ``items_shuffle*.json`` (a list of products), ``items_ins_v2*.json`` (by product: its
attributes and a written instruction) and ``items_human_ins.json`` (by product: instructions that
people wrote). They are other people's text: what is not of the expected type is refused, and
characters that could break a terminal or a file are replaced.
"""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

NO_PRICE = 100.0
SMALL = ("items_shuffle_1000.json", "items_ins_v2_1000.json")
WHOLE = ("items_shuffle.json", "items_ins_v2.json")
HUMAN = "items_human_ins.json"
LONGEST_ASIN = 10
UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
SURROGATE = re.compile(r"[\ud800-\udfff]")

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """What somebody wrote about a product that they want."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Product:
    """Something to buy."""

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
    """What it costs. A product that is sold in a range costs a drawn price in it."""
    price_tag: str
    synthetic: Written | None
    human: tuple[Written, ...]

    @property
    def document(self) -> str:
        """What the search engine reads of a product."""
        options = ", and ".join(f"{name}: {', '.join(of)}" for name, of in self.options.items())
        return f"{self.title} {self.description} {''.join(self.features[:1])} {options}".lower()


def load(folder: str | Path, *, small: bool = True) -> tuple[Product, ...]:
    """Read the products from a folder that holds the official files.

    Args:
        folder: where the files are.
        small: the 1,000 products that most training uses, or all of them.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a file is not what it should be.
    """
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
            raise ValueError(f"product {number} is not an object")
        asin = clean(record.get("asin"))
        if asin in {"", "nan"} or len(asin) > LONGEST_ASIN or asin in seen:
            continue
        try:
            seen[asin] = _product(asin, record, attributes.get(asin), human.get(asin), prices)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ValueError(f"product {number} ({asin}) cannot be read: {error}") from error
    return tuple(seen.values())


def clean(text: object) -> str:
    """Text that can be shown and stored anywhere; nothing for nothing.

    Control characters and line breaks become spaces, lone surrogates U+FFFD.
    """
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ValueError(f"text was expected, not {type(text).__name__}")
    return SURROGATE.sub("\ufffd", UNSAFE.sub(" ", text)).strip()


def _product(
    asin: str, record: Record, written: Any, instructions: Any, prices: random.Random
) -> Product:
    features = record.get("small_description")
    amounts = _amounts(clean(record.get("pricing")))
    written = {} if written is None else written
    synthetic = None
    if written.get("instruction") and written.get("instruction_attributes"):
        synthetic = _written(written)
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
        synthetic=synthetic,
        human=tuple(_written(each) for each in instructions or []),
    )


def _written(record: Record) -> Written:
    return Written(
        text=clean(record["instruction"]),
        attributes=_texts(record.get("instruction_attributes")),
        options=_texts(record.get("instruction_options")),
    )


def _options(record: Record | None) -> dict[str, tuple[str, ...]]:
    """The choices by name, in lower case. A slash would split an address, so it is ``|`` here."""
    options = {}
    for name, choices in (record or {}).items():
        if choices is None:
            continue
        options[clean(name).lower()] = tuple(
            clean(choice["value"]).replace("/", " | ").lower() for choice in choices
        )
    return options


def _amounts(pricing: str) -> list[float]:
    """The first two amounts of a text such as ``$12.99 to $1,249.00``."""
    digits = (re.sub(r"[^\d.]", "", part) for part in pricing.split("$")[1:3])
    amounts = [float(amount) for amount in digits if amount]
    if not all(isfinite(amount) for amount in amounts):
        raise ValueError("a price is too large")
    return amounts or [NO_PRICE]


def _texts(texts: Any) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise ValueError("a list of texts was expected")
    return tuple(clean(text) for text in texts or [])


def _json(path: Path, kind: type) -> Any:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            content = json.load(file)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(content, kind):
        raise ValueError(f"{path.name} must hold a JSON {'list' if kind is list else 'object'}")
    return content
