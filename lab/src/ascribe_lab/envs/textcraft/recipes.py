"""The recipe book of TextCraft, read from the package ``minecraft-data``.

The package holds Minecraft 1.16's crafting recipes, one by one: eight for a chest, each of another
wood. TextCraft shows one, ``craft 1 chest using 8 planks``, where any planks will do. So recipes of
one item that differ in one ingredient are merged:

- four or more alternatives whose names end in the same word become a family (``planks``, ``wool``,
  ``wooden_slabs``), and every member of it counts;
- four or more alternatives with different last words (logs, stems, wood) are shown as the first
  of them;
- fewer than four stay recipes of their own.

Two kinds of recipes are left out, as in the original: those that only take a block apart, and those
that close a circle (nuggets from an ingot that is made of nuggets). Which recipe closes a circle
depends on the order; ours is by the name of what is made.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from ascribe_lab.envs.protocol import MissingExtraError

ALTERNATIVES = 4
"""From so many alternatives on, an ingredient is shown as one."""

FAMILY_NAMES = {"slab": "wooden_slabs"}
"""Families that go by another name than the last word of their members."""

Ingredients = tuple[tuple[str, int], ...]
"""What a recipe takes: names of items or families, and how many of each."""


@dataclass(frozen=True)
class CraftingRecipe:
    """``count`` of ``output`` from ``ingredients``."""

    output: str
    count: int
    ingredients: Ingredients

    @property
    def command(self) -> str:
        """The command that the player reads."""
        return craft_command(self.output, self.count, self.ingredients)


def craft_command(output: str, count: int, ingredients: Ingredients) -> str:
    """``craft 4 oak planks using 1 oak log``."""
    using = ", ".join(f"{number} {spaced(name)}" for name, number in ingredients)
    return f"craft {count} {spaced(output)} using {using}"


def spaced(name: str) -> str:
    """An item's name in a command."""
    return name.replace("_", " ")


@dataclass(frozen=True)
class Book:
    """Every recipe of the game, in an order that never changes.

    Attributes:
        recipes: sorted by what they make.
        families: the members of every family, sorted.
        parts: what each craftable item is made of, and the members of each family.
    """

    recipes: tuple[CraftingRecipe, ...]
    families: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, Iterable[str]]

    @cached_property
    def numbers(self) -> dict[str, tuple[int, ...]]:
        """The recipes of every item that can be crafted, by their place in ``recipes``."""
        return _grouped((recipe.output, n) for n, recipe in enumerate(self.recipes))

    @cached_property
    def uses(self) -> dict[str, tuple[int, ...]]:
        """The recipes that take an item or family, by their place in ``recipes``."""
        recipes = enumerate(self.recipes)
        return _grouped((name, n) for n, recipe in recipes for name, _ in recipe.ingredients)

    @cached_property
    def raw(self) -> frozenset[str]:
        """The items that are not crafted but fetched."""
        named = {name for recipe in self.recipes for name, _ in recipe.ingredients}
        members = {member for family in self.families.values() for member in family}
        return frozenset((named | members) - self.numbers.keys() - self.families.keys())

    @cached_property
    def depths(self) -> dict[str, int]:
        """How many recipes deep the simplest way to each craftable item is."""
        return {output: self._depth(output) for output in self.numbers}

    def _depth(self, name: str) -> int:
        if name in self.families:
            return min(map(self._depth, self.families[name]))
        depths = (max(self._depth(p) for p, _ in each.ingredients) for each in self.made_by(name))
        return min((1 + depth for depth in depths), default=0)

    def made_by(self, item: str) -> list[CraftingRecipe]:
        """The recipes of an item."""
        return [self.recipes[number] for number in self.numbers.get(item, ())]

    @cached_property
    def makes(self) -> dict[tuple[str, frozenset[tuple[str, int]]], CraftingRecipe]:
        """The recipe for an output and exactly these items, families spelled out."""
        return {
            (recipe.output, frozenset(items)): recipe
            for recipe in self.recipes
            for items in self.spelled_out(recipe)
        }

    def spelled_out(self, recipe: CraftingRecipe) -> Iterable[Ingredients]:
        """The ingredients with every choice of members for the families."""
        names = [self.members(name) for name, _ in recipe.ingredients]
        counts = [count for _, count in recipe.ingredients]
        for chosen in product(*names):
            yield tuple(zip(chosen, counts, strict=True))

    def members(self, name: str) -> tuple[str, ...]:
        """The members of a family; an item is its own only member."""
        return self.families.get(name, (name,))

    def tree(self, goal: str) -> list[int]:
        """Every recipe that may help to make the goal, by its place in ``recipes``, rising."""
        reached = _reachable(goal, self.parts)
        return sorted(number for name in reached for number in self.numbers.get(name, ()))


@cache
def recipe_book() -> Book:
    """The book of Minecraft 1.16.2; read once in a process."""
    package = find_spec("minecraft_data")
    if package is None or not package.submodule_search_locations:
        raise MissingExtraError("minecraft-data", "textcraft")
    folder = Path(package.submodule_search_locations[0], "data", "data", "pc", "1.16.2")
    recipes = json.loads((folder / "recipes.json").read_text(encoding="utf-8"))
    items = json.loads((folder / "items.json").read_text(encoding="utf-8"))
    return build_book(recipes, {item["id"]: item["name"] for item in items})


def build_book(
    entries: Mapping[str, Sequence[Mapping[str, Any]]], names: Mapping[int, str]
) -> Book:
    """The book from the package's two tables: recipes by the id of their output, and item names."""
    families: dict[str, set[str]] = defaultdict(set)
    merged = {
        names[int(output)]: _merge([_alternative(entry, names) for entry in ways], families)
        for output, ways in entries.items()
    }
    sorted_families = {name: tuple(sorted(members)) for name, members in sorted(families.items())}
    recipes, parts = _without_circles(merged, sorted_families)
    return Book(recipes, sorted_families, parts)


Alternative = tuple[int, Ingredients]
"""How many are made, and from what."""


def _alternative(entry: Mapping[str, Any], names: Mapping[int, str]) -> Alternative:
    listed = entry.get("ingredients")
    if listed is None:
        listed = [item for row in entry["inShape"] for item in row]
    counts = Counter(names[item] for item in listed if item is not None)
    return entry["result"]["count"], tuple(counts.items())


def _merge(alternatives: list[Alternative], families: dict[str, set[str]]) -> list[Alternative]:
    """Merge alternatives that differ in one ingredient, the largest set of them first."""
    alternatives = list(dict.fromkeys(alternatives))
    while True:
        slots: dict[object, list[tuple[Alternative, int]]] = defaultdict(list)
        for alternative in alternatives:
            count_made, ingredients = alternative
            for place, (_, count) in enumerate(ingredients):
                others = frozenset(ingredients[:place] + ingredients[place + 1 :])
                slots[count_made, count, others].append((alternative, place))
        largest = max(slots.values(), key=len)
        if len(largest) < ALTERNATIVES:
            return alternatives
        names = [ingredients[place][0] for (_, ingredients), place in largest]
        (made, ingredients), place = largest[0]
        part = (_family(names, families) or names[0], ingredients[place][1])
        merged = (made, (*ingredients[:place], part, *ingredients[place + 1 :]))
        gone = {alternative for alternative, _ in largest[1:]}
        first = (made, ingredients)
        alternatives = [merged if a == first else a for a in alternatives if a not in gone]


def _family(names: list[str], families: dict[str, set[str]]) -> str | None:
    words = {name.rpartition("_")[2] for name in names}
    if len(words) > 1:
        return None
    word = words.pop()
    name = FAMILY_NAMES.get(word, word)
    families[name].update(names)
    return name


def _without_circles(
    merged: Mapping[str, list[Alternative]], families: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[CraftingRecipe, ...], Mapping[str, Iterable[str]]]:
    parts = defaultdict(set, {family: set(members) for family, members in families.items()})
    kept = []
    for output in sorted(merged):
        for made, ingredients in merged[output]:
            names = [name for name, _ in ingredients]
            takes_apart = len(names) == 1 and names[0].endswith("_block")
            if takes_apart or any(output in _reachable(name, parts) for name in names):
                continue
            parts[output].update(names)
            kept.append(CraftingRecipe(output, made, ingredients))
    return tuple(kept), parts


def _reachable(name: str, parts: Mapping[str, Iterable[str]]) -> set[str]:
    """A name, its parts, theirs, and so on."""
    names, reached = [name], set()
    while names:
        if (here := names.pop()) not in reached:
            reached.add(here)
            names.extend(parts.get(here, ()))
    return reached


def _grouped(pairs: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for name, number in pairs:
        groups[name].append(number)
    return {name: tuple(numbers) for name, numbers in groups.items()}
