"""A shop: its products, the goals of its customers and its search engine. It never changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ascribe.envs.bm25 import BM25
from ascribe.envs.webshop.catalogue import Product, load, read
from ascribe.envs.webshop.generate import generate
from ascribe.envs.webshop.goals import Goal, goals

HITS = 50
"""How many products a search finds at most."""


@dataclass(frozen=True)
class Shop:
    """What all customers share."""

    products: Sequence[Product]
    goals: Sequence[Goal]
    index: BM25

    def search(self, query: str) -> tuple[int, ...]:
        """The products that fit a query best, best first."""
        return tuple(number for number, _ in self.index.search(query, HITS))

    def wanted(self, goal: Goal) -> Product:
        """The product that a goal was written about."""
        return self.products[goal.product]


@lru_cache(maxsize=4)
def open_shop(folder: str | None, small: bool, kind: str) -> Shop:
    """The shop of the official files in a folder, or the generated one.

    Every environment of a process that asks for the same shop gets the same one.
    """
    products = read(*generate()) if folder is None else load(folder, small=small)
    index = BM25(product.document for product in products)
    return Shop(products, goals(products, kind), index)
