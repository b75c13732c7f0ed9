"""``WebShop``: the environment. Actions are ``search[words]`` and ``click[a link]``."""

import json
from pathlib import Path

import numpy as np

from ascribe.envs.protocol import Info, Outcome, Start, TextEnvironment
from ascribe.envs.webshop.expert import keywords, next_action
from ascribe.envs.webshop.goals import TEST
from ascribe.envs.webshop.pages import BACK, BUY, NEXT, PREVIOUS, Visit, details, page
from ascribe.envs.webshop.reward import alike, score
from ascribe.envs.webshop.shop import open_shop

REWARDS = ("verl-agent", "score")
SPLITS = ("train", "test", "all")
WIN = 10.0
"""What a purchase with score 1 is worth in verl-agent."""


class WebShop(TextEnvironment[Visit]):
    """Buy what an instruction describes.

    Args:
        folder: where the official product files are; None for the generated catalogue.
        small: the 1,000 products that most training uses, or all of them.
        goals: ``synthetic`` or ``human`` instructions.
        split: ``test`` (the first 500 goals), ``train`` (the others) or ``all``.
        reward: ``verl-agent`` pays 10 for a purchase with score 1 and nothing else; ``score`` pays
            the score itself.
        show_attributes: whether products have a page with their attributes.
        horizon: an episode is truncated after so many actions.
        expert: whether info carries ``expert_action``.

    ``info["task_score"]`` is the score of the purchase; 0 before there is one.

    Raises:
        ValueError: if an option or a file is not what it should be, or the split has no goals.
        FileNotFoundError: if the folder lacks a file.
        MissingExtraError: without the packages of the extra ``webshop``.
    """

    def __init__(
        self,
        *,
        folder: str | Path | None = None,
        small: bool = True,
        goals: str = "synthetic",
        split: str = "train",
        reward: str = "verl-agent",
        show_attributes: bool = False,
        horizon: int = 15,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        if reward not in REWARDS:
            raise ValueError(f"reward must be one of {', '.join(REWARDS)}, not {reward!r}")
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
        alike("", "")  # A missing package shows now, not at the first purchase.
        self.shop = open_shop(None if folder is None else str(folder), small, goals)
        self.reward = reward
        self.show_attributes = show_attributes
        numbers = range(len(self.shop.goals))
        self._numbers = {"test": numbers[:TEST], "train": numbers[TEST:], "all": numbers}[split]
        if not self._numbers:
            raise ValueError(f"there are {len(numbers)} {goals} goals, so none for split {split!r}")
        self.tasks = len(self._numbers)

    def _begin(self, task: int, generator: np.random.Generator) -> Start[Visit]:  # noqa: ARG002
        visit = Visit(self._numbers[task])
        goal = self.shop.goals[visit.goal]
        family = self.shop.wanted(goal).category or "product"
        return Start(visit, self._text(visit), goal.instruction, family)

    def _act(self, episode: Visit, action: str) -> Outcome:
        kind, bracket, rest = action.strip().partition("[")
        argument = rest[:-1].strip().lower()
        if not bracket or not rest.endswith("]") or not argument:
            return Outcome(self._text(episode), valid=False)
        if kind.lower() == "search":
            episode.go("results", self.shop.search(argument))
        elif kind.lower() == "click" and argument in self._links(episode):
            self._click(episode, argument)
        else:
            return Outcome(self._text(episode), valid=False)
        if episode.place != "done":
            return Outcome(self._text(episode))
        won = episode.score == 1.0
        reward = episode.score if self.reward == "score" else WIN * won
        return Outcome(self._text(episode), reward, terminated=True, won=won)

    def _click(self, visit: Visit, link: str) -> None:
        """Follow a link of the present page."""
        if link == BACK.lower():
            visit.go("search")
        elif visit.place == "results":
            self._click_result(visit, link)
        elif link == PREVIOUS.lower() and visit.place == "item":
            visit.place, visit.product, visit.choices = "results", None, {}
        elif link == PREVIOUS.lower():
            visit.place = "item"
        elif link == BUY.lower():
            self._buy(visit)
        elif link.title() in details(self.show_attributes):
            visit.place = link
        else:
            self._choose(visit, link)

    def _click_result(self, visit: Visit, link: str) -> None:
        if link == NEXT.lower():
            visit.page += 1
        elif link == PREVIOUS.lower():
            visit.page -= 1
        else:
            asins = {self.shop.products[number].asin.lower(): number for number in visit.shown}
            visit.place, visit.product = "item", asins[link]

    def _choose(self, visit: Visit, value: str) -> None:
        """Choose an option. If two options have the same value, the later one is meant."""
        assert visit.product is not None
        options = self.shop.products[visit.product].options
        name = next(name for name in reversed(options) if value in options[name])
        visit.choices[name] = value

    def _buy(self, visit: Visit) -> None:
        assert visit.product is not None
        goal = self.shop.goals[visit.goal]
        bought = self.shop.products[visit.product]
        visit.score = score(bought, visit.choices, goal, self.shop.wanted(goal)).total
        visit.place = "done"

    def _text(self, visit: Visit) -> str:
        return page(self.shop, visit, attributes=self.show_attributes).text

    def _links(self, visit: Visit) -> list[str]:
        return page(self.shop, visit, attributes=self.show_attributes).links

    def _admissible(self, episode: Visit) -> list[str]:
        """The links of the page; on the search page one query, the words of the instruction."""
        if episode.place == "search":
            return [f"search[{keywords(self.shop.goals[episode.goal].instruction)}]"]
        return [f"click[{link}]" for link in self._links(episode)]

    def _state(self, episode: Visit, observation: str) -> str:  # noqa: ARG002
        """The page and the choices. Two queries with the same hits lead to the same state."""
        asins = [self.shop.products[number].asin for number in episode.shown]
        product = None if episode.product is None else self.shop.products[episode.product].asin
        where: list[object] = [episode.goal, episode.place]
        if product is None:
            where += [episode.page, len(episode.hits), asins]
        else:
            where += [product, sorted(episode.choices.items())]
        return json.dumps(where)

    def _expert(self, episode: Visit) -> str | None:
        return next_action(self.shop, episode)

    def _more_info(self, episode: Visit) -> Info:
        return {"task_score": episode.score}
