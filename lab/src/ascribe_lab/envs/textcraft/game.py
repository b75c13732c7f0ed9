"""The game: what commands do."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ascribe.steps.errors import InputError
from ascribe.steps.problems import printable
from ascribe_lab.envs.protocol import Outcome, Start, TextEnvironment
from ascribe_lab.envs.textcraft.recipes import recipe_book, spaced
from ascribe_lab.envs.textcraft.tasks import Split, goals, planner, show, suggest

LONGEST_COMMAND = 1_000
LONGEST_ECHO = 100

GET = re.compile(r"get ([0-9]{1,9}) (.+)")
CRAFT = re.compile(r"craft (?:[0-9]{1,9} )?(.+?) using (.+)")
COUNTED = re.compile(r"([0-9]{1,9}) (.+)")


@dataclass
class Crafting:
    """An episode: what is to be made, which recipes are shown, and what is carried."""

    goal: str
    shown: tuple[int, ...]
    inventory: dict[str, int] = field(default_factory=dict)


class TextCraft(TextEnvironment[Crafting]):
    """TextCraft. See ``docs/environments/games.md``.

    Args:
        split: ``all`` goals; ``adapt``, 200 of depth 2 or more, deepest first; ``train`` and
            ``eval``, 374 and 100 goals that do not overlap.
        depth: only goals of this depth, or of one of these.
        inventory: whether every observation ends with the inventory. In the original the player has
            to ask for it.
        horizon: number of commands after which an episode is truncated.
        expert: whether info has ``expert_action``.

    Raises:
        MissingExtraError: without the package ``minecraft-data``.
    """

    file_options = frozenset({"split", "depth", "inventory", "horizon", "expert"})

    def __init__(
        self,
        *,
        split: Split = "all",
        depth: int | Sequence[int] | None = None,
        inventory: bool = False,
        horizon: int = 40,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        self.book = recipe_book()
        self.inventory = inventory
        self.goals = goals(split, depth)
        self.tasks = len(self.goals)
        if not self.goals:
            raise InputError(f"the split {split!r} has no goals of depth {depth}")

    def begin(self, task: int, generator: np.random.Generator) -> Start[Crafting]:
        goal = self.goals[task]
        shown = show(goal, generator)
        commands = "\n".join(self.book.recipes[number].command for number in shown)
        text = f"Crafting commands:\n{commands}\n\nGoal: craft {spaced(goal)}."
        # The commands are shown once; an agent that forgets old turns needs them in its task.
        family = f"depth {self.book.depths[goal]}"
        return Start(Crafting(goal, shown), observation=text, task=text, family=family)

    def act(self, episode: Crafting, action: str) -> Outcome:
        command = action.strip()
        outcome = self._carry_out(episode, command)
        if not self.inventory or command == "inventory":
            return outcome
        text = f"{outcome.observation}\nInventory: {_listed(episode.inventory)}"
        return replace(outcome, observation=text)

    def _carry_out(self, episode: Crafting, command: str) -> Outcome:
        if command == "inventory":
            return Outcome(f"Inventory: {_listed(episode.inventory)}")
        if len(command) <= LONGEST_COMMAND:
            if match := GET.fullmatch(command):
                return self._get(episode, int(match[1]), match[2])
            if match := CRAFT.fullmatch(command):
                return self._craft(episode, match[1], match[2])
        return _failed(f"Could not execute {_echo(command)}")

    def _get(self, episode: Crafting, count: int, name: str) -> Outcome:
        item = name.replace(" ", "_")
        if item not in self.book.raw or count < 1:
            return _failed(f"Could not find {_echo(name)}")
        episode.inventory[item] = episode.inventory.get(item, 0) + count
        return Outcome(f"Got {count} {spaced(item)}")

    def _craft(self, episode: Crafting, name: str, using: str) -> Outcome:
        parts = [COUNTED.fullmatch(part.strip()) for part in using.split(",")]
        used = [(match[2].replace(" ", "_"), int(match[1])) for match in parts if match]
        if len(used) < len(parts):
            return _failed(f"Wrong item format: {_echo(using)}")
        output, inventory = name.replace(" ", "_"), episode.inventory
        if any(inventory.get(item, 0) < count for item, count in used):
            return _failed(f"Could not find enough items to craft minecraft:{_echo(output)}")
        ingredients = frozenset(used)
        recipe = self.book.makes.get((output, ingredients))
        if recipe is None or len(ingredients) < len(used):
            return _failed(f"Could not find a valid recipe for minecraft:{_echo(output)}")
        for item, count in ingredients:
            inventory[item] -= count
            if not inventory[item]:
                del inventory[item]
        inventory[output] = inventory.get(output, 0) + recipe.count
        won = output == episode.goal
        observation = f"Crafted {recipe.count} minecraft:{output}"
        return Outcome(observation, reward=float(won), terminated=won, won=won)

    def admissible(self, episode: Crafting) -> list[str]:
        suggested, inventory = suggest(episode.shown), episode.inventory
        crafts = [
            command
            for item in inventory
            for command, ingredients in suggested.crafts.get(item, ())
            if all(inventory.get(part, 0) >= count for part, count in ingredients)
        ]
        return [*sorted(crafts), *suggested.gets, "inventory"]

    def state_key(self, episode: Crafting, observation: str) -> str:  # noqa: ARG002
        # The last observation is left out: after an error the situation is what it was.
        carried = ", ".join(f"{count} {item}" for item, count in sorted(episode.inventory.items()))
        return f"goal: {episode.goal}; carried: {carried}"

    def expert_action(self, episode: Crafting) -> str:
        plan = planner().plan(episode.goal, episode.inventory)
        if not plan.fetch:
            return plan.crafts[0]
        item = min(plan.fetch)
        counts = suggest(episode.shown).counts[item]
        enough = next((count for count in counts if count >= plan.fetch[item]), counts[-1])
        return f"get {enough} {spaced(item)}"


def _listed(inventory: dict[str, int]) -> str:
    if not inventory:
        return "You are not carrying anything."
    return " ".join(f"[{spaced(item)}] ({count})" for item, count in inventory.items())


def _failed(observation: str) -> Outcome:
    return Outcome(observation, valid=False)


def _echo(text: str) -> str:
    """Text of an action, cut short and on one line: it comes back in the next prompt."""
    return printable(text[:LONGEST_ECHO]) + ("..." if len(text) > LONGEST_ECHO else "")
