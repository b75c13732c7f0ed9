"""Which goals there are, what the player of a goal is shown, and what that suggests to do."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from typing import Literal, get_args

import numpy as np

from ascribe.envs.textcraft.planner import Planner
from ascribe.envs.textcraft.recipes import Ingredients, craft_command, recipe_book, spaced

Split = Literal["all", "adapt", "train", "eval"]

ADAPT_GOALS, EVAL_GOALS, TRAIN_GOALS = 200, 100, 374
DISTRACTORS = 10
LONGEST_PLAN = 40
"""ADaPT's limit. A goal for which the planner needs more commands is none: nobody could win it."""


def goals(split: Split = "all", depth: int | Sequence[int] | None = None) -> tuple[str, ...]:
    """The goals of a split that have this depth or one of these, in an order that never changes.

    - ``all``: every item that can be crafted in 40 commands, shallow ones first, then by name.
    - ``adapt``: the first 200 of those of depth 2 or more, deepest first, then by name.
    - ``eval`` and ``train``: all goals are sorted by the SHA-256 of their names; the first 100 are
      for evaluation, the next 374 for training, and the rest is in neither. Each in the order of
      ``all``.
    """
    depths = recipe_book().depths
    possible = (goal for goal in depths if planner().from_nothing(goal).commands <= LONGEST_PLAN)
    every = sorted(possible, key=lambda goal: (depths[goal], goal))
    drawn = sorted(every, key=lambda goal: sha256(goal.encode()).digest())
    if split == "all":
        found = every
    elif split == "adapt":
        deep = (goal for goal in every if depths[goal] >= 2)
        found = sorted(deep, key=lambda goal: -depths[goal])[:ADAPT_GOALS]
    elif split == "eval":
        found = sorted(drawn[:EVAL_GOALS], key=every.index)
    elif split == "train":
        found = sorted(drawn[EVAL_GOALS : EVAL_GOALS + TRAIN_GOALS], key=every.index)
    else:
        raise ValueError(f"there is no split {split!r}; there are: {', '.join(get_args(Split))}")
    wanted = {depth} if isinstance(depth, int) else depth
    return tuple(goal for goal in found if wanted is None or depths[goal] in wanted)


def show(goal: str, generator: np.random.Generator) -> tuple[int, ...]:
    """The recipes of the goal's tree and up to ten others with a common ingredient, shuffled."""
    tree, others = _related(goal)
    drawn = generator.choice(others, size=min(DISTRACTORS, len(others)), replace=False)
    return tuple(generator.permutation([*tree, *drawn]).tolist())


@cache
def _related(goal: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    book = recipe_book()
    tree = book.tree(goal)
    names = {name for number in tree for name, _ in book.recipes[number].ingredients}
    others = {number for name in names for number in book.uses[name]}
    return tuple(tree), tuple(sorted(others.difference(tree)))


@cache
def planner() -> Planner:
    """One planner for the whole process: it remembers what recipes cost."""
    return Planner(recipe_book())


@dataclass(frozen=True)
class Moves:
    """What the shown recipes suggest.

    Attributes:
        counts: in which numbers to fetch an ingredient that no recipe makes, rising: as a shown
            recipe takes it, or as it takes to make the output of a shown recipe from nothing.
        gets: the commands that fetch so many.
        crafts: every way to follow a shown recipe, by its first ingredient.
    """

    counts: Mapping[str, tuple[int, ...]]
    gets: tuple[str, ...]
    crafts: Mapping[str, tuple[tuple[str, Ingredients], ...]]


@lru_cache(maxsize=4096)
def moves(shown: tuple[int, ...]) -> Moves:
    """What these recipes suggest."""
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
    gets = [f"get {n} {spaced(item)}" for item in sorted(counts) for n in sorted(counts[item])]
    return Moves(
        {item: tuple(sorted(numbers)) for item, numbers in counts.items()},
        tuple(gets),
        {item: tuple(ways) for item, ways in crafts.items()},
    )
