"""``WebShop``: the environment. Actions are ``search[words]`` and ``click[a link]``."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.envs.bm25 import BM25, words
from ascribe_lab.envs.protocol import Info, Outcome, Start, TextEnvironment, one_of
from ascribe_lab.envs.texts import bracketed
from ascribe_lab.envs.webshop.generate import generate
from ascribe_lab.envs.webshop.products import Product, ShoppingGoal, goals, load, read
from ascribe_lab.envs.webshop.reward import alike, score

TEST = 500
"""verl-agent tests on the first so many goals and trains on the others."""

HITS = 50
"""How many products a search finds at most."""

PER_PAGE = 10
SEPARATOR = " [SEP] "
BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"

Part = tuple[str, bool]
"""A visible text, and whether it can be clicked."""


@dataclass(frozen=True)
class Shop:
    """Products, goals and the search engine; shared by all environments of a process."""

    products: Sequence[Product]
    goals: Sequence[ShoppingGoal]
    index: BM25

    def search(self, query: str) -> tuple[int, ...]:
        """The products that match a query best, best first."""
        return tuple(number for number, _ in self.index.search(query, HITS))

    def wanted(self, goal: ShoppingGoal) -> Product:
        """The product that a goal was written about."""
        return self.products[goal.product]


@lru_cache(maxsize=4)
def open_shop(folder: str | None, small: bool, kind: str) -> Shop:
    """The shop of the official files in a folder, or the generated one."""
    products = read(*generate()) if folder is None else load(folder, small=small)
    index = BM25(product.document for product in products)
    return Shop(products, goals(products, kind), index)


@dataclass
class Visit:
    """An episode: everything that changes while a customer is in the shop."""

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
        """Go to the search page or to new results; all but the goal is forgotten."""
        self.place, self.hits, self.page = place, hits, 0
        self.product, self.choices = None, {}

    @property
    def shown(self) -> tuple[int, ...]:
        """The hits on the present page."""
        return self.hits[self.page * PER_PAGE : (self.page + 1) * PER_PAGE]


class WebShop(TextEnvironment[Visit]):
    """Buy what an instruction describes.

    Args:
        folder: folder with the official product files; None for the generated catalogue.
        small: whether to load only the 1,000 products that most training uses.
        goals: kind of instructions: ``synthetic`` or ``human``.
        split: ``test`` (the first 500 goals), ``train`` (the others) or ``all``.
        reward: ``win`` pays ``win_reward`` for a purchase with score 1 and nothing else; ``score``
            pays the score itself.
        win_reward: reward of a purchase with score 1 (GiGPO, E.1: 10; BiPACE, B.1: 1).
        show_attributes: whether products have a page with their attributes.
        horizon: number of actions after which an episode is truncated.
        expert: whether info has ``expert_action``.

    ``info["task_score"]`` is the score of the purchase; 0 before there is one.

    Raises:
        ValueError: if an option or a file is malformed, or the split has no goals.
        FileNotFoundError: if the folder lacks a file.
        MissingExtraError: without the packages of the extra ``webshop``.
    """

    file_options = frozenset(
        {"goals", "split", "reward", "win_reward", "show_attributes", "horizon", "expert"}
    )

    def __init__(
        self,
        *,
        folder: str | Path | None = None,
        small: bool = True,
        goals: str = "synthetic",
        split: str = "train",
        reward: str = "win",
        win_reward: float = 10.0,
        show_attributes: bool = False,
        horizon: int = 15,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        self.reward = one_of("reward", reward, ("win", "score"))
        self.win_reward = float(win_reward)
        one_of("split", split, ("train", "test", "all"))
        alike("", "")  # A missing package is noticed now, not at the first purchase.
        self.shop = open_shop(None if folder is None else str(folder), small, goals)
        more = ["Attributes"] if show_attributes else []
        self._details = ("Description", "Features", "Reviews", *more)
        numbers = range(len(self.shop.goals))
        self._numbers = {"test": numbers[:TEST], "train": numbers[TEST:], "all": numbers}[split]
        if not self._numbers:
            raise InputError(f"there are {len(numbers)} {goals} goals, so none for split {split!r}")
        self.tasks = len(self._numbers)

    def begin(self, task: int, generator: np.random.Generator) -> Start[Visit]:  # noqa: ARG002
        visit = Visit(self._numbers[task])
        goal = self.shop.goals[visit.goal]
        family = self.shop.wanted(goal).category or "product"
        return Start(visit, self._text(visit), goal.instruction, family)

    def act(self, episode: Visit, action: str) -> Outcome:
        kind, argument = bracketed(action.lower())
        if kind == "search":
            episode.go("results", self.shop.search(argument))
        elif kind == "click" and argument in self._links(episode):
            self._click(episode, argument)
        else:
            return Outcome(self._text(episode), valid=False)
        if episode.place != "done":
            return Outcome(self._text(episode))
        won = episode.score == 1.0
        reward = episode.score if self.reward == "score" else self.win_reward * won
        return Outcome(self._text(episode), reward, terminated=True, won=won)

    def _click(self, visit: Visit, link: str) -> None:
        """Follow a link of the present page."""
        if link == BACK.lower():
            visit.go("search")
        elif visit.place == "results":
            if link in (NEXT.lower(), PREVIOUS.lower()):
                visit.page += 1 if link == NEXT.lower() else -1
            else:
                asins = {self.shop.products[number].asin.lower(): number for number in visit.shown}
                visit.place, visit.product = "item", asins[link]
        elif link == PREVIOUS.lower() and visit.place == "item":
            visit.place, visit.product, visit.choices = "results", None, {}
        elif link == PREVIOUS.lower():
            visit.place = "item"
        elif link.title() in self._details:
            visit.place = link
        else:
            assert visit.product is not None
            product = self.shop.products[visit.product]
            if link == BUY.lower():
                goal = self.shop.goals[visit.goal]
                visit.score = score(product, visit.choices, goal, self.shop.wanted(goal))
                visit.place = "done"
            else:  # If two options have the same value, the later one is meant.
                options = product.options
                name = next(name for name in reversed(options) if link in options[name])
                visit.choices[name] = link

    def _text(self, visit: Visit) -> str:
        """The present page as the agent reads it."""
        return SEPARATOR.join(text for text, _ in self._page(visit))

    def _links(self, visit: Visit) -> list[str]:
        """What can be clicked, in lower case, each once, in the order of the page."""
        names = (text.lower() for text, clickable in self._page(visit) if clickable)
        return list(dict.fromkeys(name for name in names if name))

    def _page(self, visit: Visit) -> Iterator[Part]:
        """The parts of the present page."""
        if visit.place == "done":
            yield "You have bought it.", False
            yield f"Score: {visit.score}", False
            return
        if visit.place == "search":
            yield "WebShop", False
        yield "Instruction:", False
        yield self.shop.goals[visit.goal].instruction, False
        if visit.place == "search":
            yield "Search", False
            return
        yield BACK, True
        if visit.place == "results":
            yield from self._results(visit)
            return
        yield PREVIOUS, True
        assert visit.product is not None
        product = self.shop.products[visit.product]
        if visit.place == "item":
            yield from self._item(product)
            return
        details = {
            "description": (product.description,),
            "features": product.features,
            "reviews": (),
            "attributes": (*product.attributes, product.category, product.query, product.path),
        }
        for text in details[visit.place]:
            yield text, False

    def _results(self, visit: Visit) -> Iterator[Part]:
        yield f"Page {visit.page + 1} (Total results: {len(visit.hits)})", False
        if visit.page > 0:
            yield PREVIOUS, True
        if (visit.page + 1) * PER_PAGE < len(visit.hits):
            yield NEXT, True
        for number in visit.shown:
            product = self.shop.products[number]
            yield product.asin, True
            yield product.title, False
            yield product.price_tag, False

    def _item(self, product: Product) -> Iterator[Part]:
        for name, values in product.options.items():
            yield name, False
            for value in values:
                yield value, True
        yield product.title, False
        yield f"Price: {product.price_tag}", False
        yield "Rating: N.A.", False
        for link in (*self._details, BUY):
            yield link, True

    def admissible(self, episode: Visit) -> list[str]:
        """The links of the page; on the search page one query, the words of the instruction."""
        if episode.place == "search":
            return [f"search[{keywords(self.shop.goals[episode.goal].instruction)}]"]
        return [f"click[{link}]" for link in self._links(episode)]

    def state_key(self, episode: Visit, observation: str) -> str:  # noqa: ARG002
        """The page and the choices. Two queries with the same hits lead to the same state."""
        products = self.shop.products
        where: list[object] = [episode.goal, episode.place]
        if episode.product is None:
            asins = [products[number].asin for number in episode.shown]
            where += [episode.page, len(episode.hits), asins]
        else:
            where += [products[episode.product].asin, sorted(episode.choices.items())]
        return json.dumps(where)

    def expert_action(self, episode: Visit) -> str | None:
        return next_action(self.shop, episode)

    def more_info(self, episode: Visit) -> Info:
        return {"task_score": episode.score}


# The expert: it knows which product the goal was written about.


def keywords(instruction: str) -> str:
    """What an instruction asks for as a query: its words but for the price and function words."""
    wish, _, _ = instruction.rpartition(", and price lower than ")
    return " ".join(words(wish or instruction)) or "anything"


def next_action(shop: Shop, visit: Visit) -> str | None:
    """The expert's next action; None if none of its searches finds the product."""
    goal = shop.goals[visit.goal]
    product = shop.wanted(goal)
    if visit.place == "search":
        # The words of the instruction if they find the product, else its title.
        queries = (keywords(goal.instruction), " ".join(words(product.title)))
        finds = (query for query in queries if goal.product in shop.search(query))
        return next((f"search[{query}]" for query in finds), None)
    if visit.place == "results" and goal.product in visit.hits:
        if goal.product in visit.shown:
            return f"click[{product.asin.lower()}]"
        earlier = visit.hits.index(goal.product) < visit.hits.index(visit.shown[0])
        return "click[< prev]" if earlier else "click[next >]"
    if visit.product != goal.product:
        return "click[back to search]"
    choices = choices_for(goal, product)
    # A choice that was not asked for is forgotten on the way back to the results.
    if visit.place != "item" or visit.choices.keys() - choices.keys():
        return "click[< prev]"
    missing = (value for name, value in choices.items() if visit.choices.get(name) != value)
    return f"click[{next(missing, 'buy now')}]"


def choices_for(goal: ShoppingGoal, product: Product) -> dict[str, str]:
    """The product's own option for each that the goal asks for: the same text, else one alike."""
    choices: dict[str, str] = {}
    for asked in goal.options:
        names = [name for name in sorted(product.options) if name not in choices]
        free = [(name, value) for name in names for value in product.options[name]]
        same = [(name, value) for name, value in free if value == asked.lower()]
        near = same or [(name, value) for name, value in free if alike(value, asked)]
        if near:
            choices[near[0][0]] = near[0][1]
    return choices
