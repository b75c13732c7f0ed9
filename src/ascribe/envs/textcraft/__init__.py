"""TextCraft: craft an item of Minecraft, given the crafting commands and a few that do not help.

Protocol (ADaPT, Prasad et al. 2024; also a part of AgentGym). The first observation lists crafting
commands, those of the goal's tree and up to ten distractors, shuffled, and then the goal. Actions:

- ``get N item`` fetches an item that no recipe makes.
- ``craft N item using N item, N item`` crafts once. The ingredients must be those of a recipe, in
  exactly its counts; where the recipe names a family (``planks``), one member of it. The number
  before the output is not read: a recipe makes what it makes.
- ``inventory`` lists what is carried.

Reward: 1 when the goal is crafted, which ends the episode, else 0. Limit: 40 commands, as in ADaPT.
Commands of more than 1,000 characters and counts of more than nine digits are not read.

The recipes are Minecraft 1.16's, out of the package ``minecraft-data`` (MIT; extra ``textcraft``).
``recipes`` says how TextCraft's are made from them. ADaPT and AgentGym are MIT as well; no code of
theirs is used.
"""

from ascribe.envs.textcraft.game import Crafting, TextCraft
from ascribe.envs.textcraft.recipes import Book, CraftingRecipe, recipe_book
from ascribe.envs.textcraft.tasks import goals

__all__ = ["Book", "Crafting", "CraftingRecipe", "TextCraft", "goals", "recipe_book"]
