"""Somebody who can craft: the commands that lead from an inventory to a goal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil

from ascribe.envs.textcraft.recipes import Book, Ingredients, Recipe, craft_command


@dataclass
class Plan:
    """What to fetch, all of an item at once, and then what to craft, in order."""

    fetch: dict[str, int] = field(default_factory=dict)
    crafts: list[str] = field(default_factory=list)

    @property
    def commands(self) -> int:
        """How many commands it takes."""
        return len(self.fetch) + len(self.crafts)


class Planner:
    """Plans with one book.

    Of several recipes the planner takes one for which everything is at hand, else the one with the
    fewest commands from nothing. So plans are short, but not always the shortest.
    """

    def __init__(self, book: Book) -> None:
        self.book = book
        self._cost = cache(self._count_commands)
        self.from_nothing = cache(lambda goal: self.plan(goal, {}))

    def plan(self, goal: str, inventory: Mapping[str, int]) -> Plan:
        """A way to craft the goal once; the last craft makes it."""
        stock, plan = dict(inventory), Plan()
        self._craft(goal, stock.get(goal, 0) + 1, stock, plan)
        return plan

    def _gather(self, item: str, count: int, stock: dict[str, int], plan: Plan) -> None:
        missing = count - stock.get(item, 0)
        if missing <= 0:
            return
        if item in self.book.numbers:
            self._craft(item, count, stock, plan)
        else:
            plan.fetch[item] = plan.fetch.get(item, 0) + missing
            stock[item] = count

    def _craft(self, item: str, count: int, stock: dict[str, int], plan: Plan) -> None:
        while (missing := count - stock.get(item, 0)) > 0:
            recipe = self._choose(item, missing, stock)
            used: list[tuple[str, int]] = []
            for name, needed in recipe.ingredients:
                part = self._member(name, needed, stock)
                self._gather(part, needed, stock, plan)
                # Set aside, or the next ingredient might be made from it.
                stock[part] -= needed
                used.append((part, needed))
            plan.crafts.append(craft_command(item, recipe.count, tuple(used)))
            stock[item] = stock.get(item, 0) + recipe.count

    def _choose(self, item: str, missing: int, stock: Mapping[str, int]) -> Recipe:
        recipes = self._recipes(item)
        at_hand = [recipe for recipe in recipes if self._has(recipe.ingredients, stock)]
        return min(at_hand or recipes, key=lambda recipe: self._recipe_cost(recipe, missing))

    def _has(self, ingredients: Ingredients, stock: Mapping[str, int]) -> bool:
        return all(
            any(stock.get(member, 0) >= count for member in self.book.members(name))
            for name, count in ingredients
        )

    def _member(self, name: str, count: int, stock: Mapping[str, int]) -> str:
        members = self.book.members(name)
        return min(members, key=lambda member: self._cost(member, count - stock.get(member, 0)))

    def _count_commands(self, name: str, count: int) -> int:
        """Commands that make so many from nothing, if no two recipes share what they take."""
        if count <= 0:
            return 0
        if name in self.book.families:
            return min(self._cost(member, count) for member in self.book.families[name])
        return min((self._recipe_cost(recipe, count) for recipe in self._recipes(name)), default=1)

    def _recipe_cost(self, recipe: Recipe, count: int) -> int:
        batches = ceil(count / recipe.count)
        return batches * (1 + sum(self._cost(name, number) for name, number in recipe.ingredients))

    def _recipes(self, item: str) -> list[Recipe]:
        return [self.book.recipes[number] for number in self.book.numbers.get(item, ())]
