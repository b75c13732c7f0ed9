"""What the agent is asked to buy: goals made from the instructions about products."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ascribe.envs.webshop.catalogue import Product

SHUFFLE = 233
"""The seed with which WebShop shuffles its goals."""

TEST = 500
"""verl-agent tests on the first so many goals and trains on the others."""

KINDS = ("synthetic", "human")
BOUNDS = [10.0 * tens for tens in range(1, 100)]
NO_BOUND = 1_000_000.0
MOST_GOALS = 2_000_000


@dataclass(frozen=True)
class Goal:
    """A task."""

    product: int
    """The product that the instruction was written about, by its place in the catalogue."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """The choices that are asked for; their names are not told."""
    price_bound: float


def goals(products: Sequence[Product], kind: str) -> list[Goal]:
    """All goals, in the order in which WebShop numbers them.

    ``synthetic``: one for each combination of a product's options. ``human``: one for each
    instruction that a person wrote. The bound on the price is the larger of two that are drawn from
    the next four multiples of ten above the price.

    Raises:
        ValueError: if there is no such kind, or there are too many goals.
    """
    if kind not in KINDS:
        raise ValueError(f"goals must be one of {', '.join(KINDS)}, not {kind!r}")
    if kind == "human":
        made = list(_human(products, random.Random(SHUFFLE)))
    else:
        combinations = sum(prod(map(len, item.options.values())) for item in products)
        if combinations > MOST_GOALS:
            raise ValueError(f"{combinations} combinations of options; {MOST_GOALS} are the most")
        made = list(_synthetic(products, random.Random(SHUFFLE)))
    random.Random(SHUFFLE).shuffle(made)
    return made


def _synthetic(products: Sequence[Product], draws: random.Random) -> Iterator[Goal]:
    for number, item in enumerate(products):
        if item.synthetic is None:
            continue
        bound, price = _bound(item, draws)
        names = sorted(item.options)
        for values in product(*(item.options[name] for name in names)):
            pairs = (f"{name}: {value}" for name, value in zip(names, values, strict=True))
            options = ", and ".join(pairs)
            wish = item.synthetic.text + (f" with {options}" if options else "") + price
            yield Goal(number, wish, item.synthetic.attributes, values, bound)


def _human(products: Sequence[Product], draws: random.Random) -> Iterator[Goal]:
    for number, item in enumerate(products):
        for written in item.human:
            if written.attributes:
                bound, price = _bound(item, draws)
                wish = written.text.strip(".") + price
                yield Goal(number, wish, written.attributes, written.options, bound)


def _bound(item: Product, draws: random.Random) -> tuple[float, str]:
    """The bound on the price, and how the instruction says it."""
    above = [bound for bound in BOUNDS if bound > item.price][:4]
    if len(above) < 2:
        return NO_BOUND, ""
    bound = max(draws.sample(above, 2))
    return bound, f", and price lower than {bound:.2f} dollars"
