"""The goals, the recipes that the player of a goal is shown, and the planner that can win."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from math import ceil
from typing import Literal, get_args

import numpy as np

from ascribe_lab.envs.protocol import one_of
from ascribe_lab.envs.textcraft.recipes import (
    Book,
    CraftingRecipe,
    Ingredients,
    craft_command,
    recipe_book,
    spaced,
)

Split = Literal["all", "adapt", "train", "eval"]

ADAPT_GOALS, EVAL_GOALS, TRAIN_GOALS = 200, 100, 374
DISTRACTORS = 10
LONGEST_PLAN = 40
"""ADaPT's limit. A goal for which the planner needs more commands is left out: none could win."""


def goals(split: Split = "all", depth: int | Sequence[int] | None = None) -> tuple[str, ...]:
    """The goals of a split that have this depth or one of these, in an order that never changes.

    - ``all``: every item that can be crafted in 40 commands, shallow ones first, then by name.
    - ``adapt``: the first 200 of those of depth 2 or more, deepest first, then by name.
    - ``eval`` and ``train``: all goals are sorted by the SHA-256 of their names; the first 100 are
      for evaluation, the next 374 for training, and the rest is in neither. Each in the order of
      ``all``.
    """
    one_of("split", split, get_args(Split))
    depths = recipe_book().depths
    possible = (goal for goal in depths if planner().from_nothing(goal).commands <= LONGEST_PLAN)
    selected = every = sorted(possible, key=lambda goal: (depths[goal], goal))
    if split == "adapt":
        deep = (goal for goal in every if depths[goal] >= 2)
        selected = sorted(deep, key=lambda goal: -depths[goal])[:ADAPT_GOALS]
    elif split != "all":
        drawn = sorted(every, key=lambda goal: sha256(goal.encode()).digest())
        first, count = (0, EVAL_GOALS) if split == "eval" else (EVAL_GOALS, TRAIN_GOALS)
        selected = sorted(drawn[first : first + count], key=every.index)
    wanted = {depth} if isinstance(depth, int) else depth
    return tuple(goal for goal in selected if wanted is None or depths[goal] in wanted)


def show(goal: str, generator: np.random.Generator) -> tuple[int, ...]:
    """The recipes of the goal's tree and up to ten others with a common ingredient, shuffled."""
    tree, others = _related(goal)
    drawn = generator.choice(others, size=min(DISTRACTORS, len(others)), replace=False)
    return tuple(generator.permutation([*tree, *drawn]).tolist())


@cache
def _related(goal: str) -> tuple[list[int], list[int]]:
    book = recipe_book()
    tree = book.tree(goal)
    names = {name for number in tree for name, _ in book.recipes[number].ingredients}
    others = {number for name in names for number in book.uses[name]}
    return tree, sorted(others.difference(tree))


@dataclass(frozen=True)
class Suggestions:
    """The useful commands, given the shown recipes.

    Attributes:
        counts: in which numbers to fetch an ingredient that no recipe makes, rising: as a shown
            recipe takes it, or as it takes to make the output of a shown recipe from nothing.
        gets: the commands that fetch so many.
        crafts: every way to follow a shown recipe, by its first ingredient.
    """

    counts: Mapping[str, list[int]]
    gets: list[str]
    crafts: Mapping[str, list[tuple[str, Ingredients]]]


@lru_cache(maxsize=4096)
def suggest(shown: tuple[int, ...]) -> Suggestions:
    """The useful commands, given these recipes."""
    book = recipe_book()
    counts: dict[str, set[int]] = defaultdict(set)
    crafts: dict[str, list[tuple[str, Ingredients]]] = defaultdict(list)
    recipes = [book.recipes[number] for number in shown]
    for recipe in recipes:
        for ingredients in book.spelled_out(recipe):
            command = craft_command(recipe.output, recipe.count, ingredients)
            crafts[ingredients[0][0]].append((command, ingredients))
            for item, count in ingredients:
                if item in book.raw:
                    counts[item].add(count)
    for recipe in recipes:
        for item, count in planner().from_nothing(recipe.output).fetch.items():
            if item in counts:
                counts[item].add(count)
    rising = {item: sorted(counts[item]) for item in sorted(counts)}
    gets = [f"get {n} {spaced(item)}" for item, numbers in rising.items() for n in numbers]
    return Suggestions(rising, gets, dict(crafts))


@dataclass
class CraftingPlan:
    """What to fetch, all of an item at once, and then what to craft, in order."""

    fetch: dict[str, int] = field(default_factory=dict)
    crafts: list[str] = field(default_factory=list)

    @property
    def commands(self) -> int:
        """How many commands it takes."""
        return len(self.fetch) + len(self.crafts)


class Planner:
    """Plans the commands that lead from an inventory to a goal.

    Of several recipes the planner takes one for which everything is at hand, else the one with the
    fewest commands from nothing. So plans are short, but not always the shortest.
    """

    def __init__(self, book: Book) -> None:
        self.book = book
        self._cost = cache(self._count_commands)
        self.from_nothing = cache(lambda goal: self.plan(goal, {}))

    def plan(self, goal: str, inventory: Mapping[str, int]) -> CraftingPlan:
        """The commands that craft the goal once; the last craft makes it."""
        stock, plan = dict(inventory), CraftingPlan()
        self._craft(goal, stock.get(goal, 0) + 1, stock, plan)
        return plan

    def _craft(self, item: str, count: int, stock: dict[str, int], plan: CraftingPlan) -> None:
        """Craft until there are ``count`` of an item."""
        while (missing := count - stock.get(item, 0)) > 0:
            recipe = self._choose(item, missing, stock)
            used: list[tuple[str, int]] = []
            for name, needed in recipe.ingredients:
                part = min(
                    self.book.members(name),
                    key=lambda member: self._cost(member, needed - stock.get(member, 0)),
                )
                if part in self.book.numbers:
                    self._craft(part, needed, stock, plan)
                elif (lacking := needed - stock.get(part, 0)) > 0:
                    plan.fetch[part] = plan.fetch.get(part, 0) + lacking
                    stock[part] = needed
                # Set aside, or the next ingredient might be made from it.
                stock[part] -= needed
                used.append((part, needed))
            plan.crafts.append(craft_command(item, recipe.count, tuple(used)))
            stock[item] = stock.get(item, 0) + recipe.count

    def _choose(self, item: str, missing: int, stock: Mapping[str, int]) -> CraftingRecipe:
        def at_hand(name: str, count: int) -> bool:
            return any(stock.get(member, 0) >= count for member in self.book.members(name))

        recipes = self.book.made_by(item)
        ready = [one for one in recipes if all(at_hand(*part) for part in one.ingredients)]
        return min(ready or recipes, key=lambda recipe: self._recipe_cost(recipe, missing))

    def _count_commands(self, name: str, count: int) -> int:
        """Commands that make so many from nothing, if no two recipes share what they take."""
        if count <= 0:
            return 0
        if name in self.book.families:
            return min(self._cost(member, count) for member in self.book.families[name])
        recipes = self.book.made_by(name)
        return min((self._recipe_cost(recipe, count) for recipe in recipes), default=1)

    def _recipe_cost(self, recipe: CraftingRecipe, count: int) -> int:
        batches = ceil(count / recipe.count)
        return batches * (1 + sum(self._cost(name, number) for name, number in recipe.ingredients))


@cache
def planner() -> Planner:
    """One planner for the whole process: it caches what recipes cost."""
    return Planner(recipe_book())
