"""The pages of the shop: what is visible on each, and what can be clicked."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ascribe.envs.webshop.catalogue import Product
from ascribe.envs.webshop.goals import Goal
from ascribe.envs.webshop.shop import Shop

SEPARATOR = " [SEP] "
PER_PAGE = 10
BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"

Part = tuple[str, bool]
"""A visible text, and whether it can be clicked."""


@dataclass
class Visit:
    """Everything that changes while a customer is in the shop."""

    goal: int
    place: str = "search"
    """``search``, ``results``, ``item``, ``done``, or a detail of the item in lower case."""
    hits: tuple[int, ...] = ()
    page: int = 0
    """Which ten of the hits are shown, counted from 0."""
    product: int | None = None
    choices: dict[str, str] = field(default_factory=dict)
    score: float = 0.0

    def go(self, place: str, hits: tuple[int, ...] = ()) -> None:
        """Go to the search page or to new results; all but the goal is left behind."""
        self.place, self.hits, self.page = place, hits, 0
        self.product, self.choices = None, {}

    @property
    def shown(self) -> tuple[int, ...]:
        """The hits on the present page."""
        return self.hits[self.page * PER_PAGE : (self.page + 1) * PER_PAGE]


@dataclass(frozen=True)
class Page:
    """A page as the customer sees it."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All visible texts."""
        return SEPARATOR.join(text for text, _ in self.parts)

    @property
    def links(self) -> list[str]:
        """What can be clicked, in lower case, each once, in the order of the page."""
        names = (text.lower() for text, clickable in self.parts if clickable)
        return list(dict.fromkeys(name for name in names if name))


def details(attributes: bool) -> tuple[str, ...]:
    """The further pages of a product."""
    return ("Description", "Features", "Reviews", *(["Attributes"] if attributes else []))


def page(shop: Shop, visit: Visit, *, attributes: bool = False) -> Page:
    """The page on which a customer is.

    Args:
        shop: the shop.
        visit: where the customer is.
        attributes: whether products have a page with their attributes.
    """
    goal = shop.goals[visit.goal]
    if visit.place == "done":
        return Page(tuple(_done(visit)))
    if visit.place == "search":
        return Page((("WebShop", False), *_heading(goal), ("Search", False)))
    if visit.place == "results":
        return Page((*_heading(goal), (BACK, True), *_results(shop, visit)))
    assert visit.product is not None
    product = shop.products[visit.product]
    body = _item(product, attributes) if visit.place == "item" else _detail(product, visit.place)
    return Page((*_heading(goal), (BACK, True), (PREVIOUS, True), *body))


def _heading(goal: Goal) -> Iterator[Part]:
    yield "Instruction:", False
    yield goal.instruction, False


def _results(shop: Shop, visit: Visit) -> Iterator[Part]:
    yield f"Page {visit.page + 1} (Total results: {len(visit.hits)})", False
    if visit.page > 0:
        yield PREVIOUS, True
    if (visit.page + 1) * PER_PAGE < len(visit.hits):
        yield NEXT, True
    for number in visit.shown:
        product = shop.products[number]
        yield product.asin, True
        yield product.title, False
        yield product.price_tag, False


def _item(product: Product, attributes: bool) -> Iterator[Part]:
    for name, values in product.options.items():
        yield name, False
        for value in values:
            yield value, True
    yield product.title, False
    yield f"Price: {product.price_tag}", False
    yield "Rating: N.A.", False
    for detail in details(attributes):
        yield detail, True
    yield BUY, True


def _detail(product: Product, place: str) -> Iterator[Part]:
    texts = {
        "description": (product.description,),
        "features": product.features,
        "reviews": (),
        "attributes": (*product.attributes, product.category, product.query, product.path),
    }[place]
    for text in texts:
        yield text, False


def _done(visit: Visit) -> Iterator[Part]:
    yield "You have bought it.", False
    yield f"Score: {visit.score}", False
