"""TextCraft: craft an item of Minecraft, given the crafting commands and a few that do not help.

``docs/environments/games.md`` has the protocol (ADaPT, Prasad et al. 2024; also a part of
AgentGym) and what differs from the original. Actions are ``get N item`` (an item that no recipe
makes), ``craft N item using N item, N item`` (exactly the counts of a recipe; the first number is
not read) and ``inventory``. Reward: 1 when the goal is crafted, which ends the episode, else 0.

The recipes are Minecraft 1.16's, out of the package ``minecraft-data`` (extra ``textcraft``);
``recipes`` says how TextCraft's are made from them.
"""

from ascribe_lab.envs.textcraft.game import Crafting, TextCraft
from ascribe_lab.envs.textcraft.recipes import Book, CraftingRecipe, recipe_book
from ascribe_lab.envs.textcraft.tasks import goals

__all__ = ["Book", "Crafting", "CraftingRecipe", "TextCraft", "goals", "recipe_book"]
