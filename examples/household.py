"""Rollouts of a noisy agent in a small text household, in the manner of ALFWorld.

    python examples/household.py --out rollouts.parquet --groups 48 --size 8 --seed 0

Each group is one house with one task, of six families: pick, look, clean, heat, cool, pick2. The
house is simulated: things lie in places, places open and close, things are carried, cleaned, heated
and cooled. The agent searches, follows a plan, and makes errors: useless actions, impossible ones,
and sometimes a response without an action. Observations vary in their wording, so that the same
state often reads the same and sometimes does not.

Besides the columns of the format, the file carries:

- ``family``: the family of the group's task;
- ``prompt``: the prompt of a policy: task, last two steps, observation, possible actions;
- ``world``: the true state of the house, which no agent sees; two rows are in the same state if
  and only if it is equal.

The seed determines everything, group by group: the first groups of a longer file are the same.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ascribe import StepTable
from ascribe.steps.files import table_to_arrow, write

FAMILIES = ("pick", "look", "clean", "heat", "cool", "pick2")

PLACES = {
    "sinkbasin 1": ("kitchen", False),
    "fridge 1": ("kitchen", True),
    "microwave 1": ("kitchen", True),
    "desk 1": ("bedroom", False),
    "countertop 1": ("kitchen", False),
    "cabinet 1": ("kitchen", True),
    "cabinet 2": ("kitchen", True),
    "diningtable 1": ("living room", False),
    "coffeetable 1": ("living room", False),
    "sofa 1": ("living room", False),
    "drawer 1": ("bedroom", True),
    "drawer 2": ("bedroom", True),
    "shelf 1": ("bedroom", False),
    "sidetable 1": ("bedroom", False),
}
"""The room of each place, and whether it can be opened."""

FIXED = 4
"""The first places are in every house: tasks need them."""

OTHERS = 3
"""How many of the other places a house has."""

APPLIANCES = {"clean": "sinkbasin 1", "heat": "microwave 1", "cool": "fridge 1"}
RESULTS = {"clean": "clean", "heat": "hot", "cool": "cold"}
LAMP = "desk 1"

FOOD = ("apple", "bread", "egg", "potato", "tomato")
DISHES = ("bowl", "cup", "mug", "pan", "plate")
SMALL = ("book", "candle", "cellphone", "creditcard", "keychain", "newspaper", "pen", "vase")
KINDS = {
    "pick": SMALL + DISHES,
    "look": SMALL,
    "clean": (*DISHES, "apple", "tomato"),
    "heat": (*FOOD, "cup", "mug"),
    "cool": (*FOOD, "bowl", "pan"),
    "pick2": SMALL + DISHES,
}
"""What a task of each family may be about."""

DISTRACTORS = 3
"""Things in a house that its task is not about."""

LIMIT = 20
"""Steps after which an episode is truncated."""

STYLES = (0.80, 0.12, 0.08)
"""How often the house is described in the usual words, in others, and in yet others."""

ADDITION = 0.01
"""How often a sentence that does not matter is added."""

WANDERING = 0.85
"""Share of an agent's idle actions that just lead it elsewhere."""

ERRORS = (0.2, 0.6)
"""Error rates of the best and of the worst agent."""

MEMORY = 2
"""How many searched places an agent remembers."""

AMBIENT = ("A clock ticks somewhere.", "It is quiet in the house.")

Option = TypeVar("Option")


def pick(random: np.random.Generator, options: Sequence[Option]) -> Option:
    """One of the options."""
    return options[int(random.integers(len(options)))]


# The house.


@dataclass(frozen=True)
class Task:
    """What is to be done: the family, the kind of thing, and where it shall end up."""

    family: str
    kind: str
    target: str

    def __str__(self) -> str:
        if self.family == "look":
            return f"look at {article(self.kind)} {self.kind} under the desklamp"
        if self.family == "pick2":
            return f"put two {self.kind}s {preposition(self.target)} {self.target}"
        changed = RESULTS.get(self.family, "")
        thing = f"{changed} {self.kind}".strip()
        return f"put {article(thing)} {thing} {preposition(self.target)} {self.target}"


@dataclass
class House:
    """Where everything is. ``do`` changes it; ``key`` names its state.

    A door that was opened falls shut as soon as one goes elsewhere.
    """

    where: dict[str, str]
    places: tuple[str, ...]
    at: str = ""
    held: str = ""
    open: bool = False
    changed: set[tuple[str, str]] = field(default_factory=set)
    lit: bool = False

    def key(self) -> str:
        """The true state of the house as text."""
        things = ",".join(f"{thing}@{place}" for thing, place in sorted(self.where.items()))
        changed = ",".join(f"{thing}={result}" for thing, result in sorted(self.changed))
        door = "open" if self.open else "shut"
        return f"at {self.at} {door}|holds {self.held}|{things}|{changed}|lamp {self.lit}"

    def reachable(self, place: str) -> bool:
        """Whether one can see and reach what is there."""
        return self.at == place and (self.open or not PLACES[place][1])

    def things(self, place: str) -> list[str]:
        """What is in or on a place."""
        return sorted(thing for thing, there in self.where.items() if there == place)

    def possible(self) -> list[str]:
        """The actions that do something here, in order."""
        actions = [f"go to {place}" for place in self.places if place != self.at]
        here = self.at
        if here and PLACES[here][1]:
            actions.append(f"close {here}" if self.open else f"open {here}")
        if here and self.held:
            if self.reachable(here):
                actions.append(f"put {self.held} {preposition(here)} {here}")
            for verb, place in APPLIANCES.items():
                if here == place:
                    actions.append(f"{verb} {self.held} with {place}")
            actions.append(f"examine {self.held}")
        elif here and self.reachable(here):
            actions += [f"take {thing} from {here}" for thing in self.things(here)]
        if here == LAMP:
            actions.append("use desklamp 1")
        return [*actions, "look"]

    def do(self, action: str) -> bool:
        """Carry out an action; false if it is not possible here, and then nothing changes."""
        if action not in self.possible():
            return False
        verb, _, rest = action.partition(" ")
        if verb == "go":
            self.at, self.open = rest.removeprefix("to "), False
        elif verb in ("open", "close"):
            self.open = verb == "open"
        elif verb == "take":
            self.held = rest.partition(" from ")[0]
            self.where[self.held] = "hand"
        elif verb == "put":
            self.where[self.held], self.held = self.at, ""
        elif verb in RESULTS:
            opposite = {"heat": "cold", "cool": "hot"}.get(verb, "")
            self.changed.discard((self.held, opposite))
            self.changed.add((self.held, RESULTS[verb]))
        elif verb == "use":
            self.lit = True
        return True

    def done(self, task: Task) -> bool:
        """Whether the task is fulfilled."""
        if task.family == "look":
            return self.lit and self.at == LAMP and kind_of(self.held) == task.kind
        there = [thing for thing in self.things(task.target) if kind_of(thing) == task.kind]
        if task.family == "pick2":
            return len(there) >= 2
        result = RESULTS.get(task.family)
        return any(result is None or (thing, result) in self.changed for thing in there)


def kind_of(thing: str) -> str:
    """``mug 2`` is a mug."""
    return thing.partition(" ")[0]


def article(noun: str) -> str:
    """An apple, a mug."""
    return "an" if noun[0] in "aeiou" else "a"


def preposition(place: str) -> str:
    """Things lie in what opens, and on the rest; a sink is the exception."""
    return "in" if PLACES[place][1] or place.startswith("sink") else "on"


def new_house(task_family: str, random: np.random.Generator) -> tuple[House, Task]:
    """A house with things in it, and a task of the family that is not done yet."""
    others = list(PLACES)[FIXED:]
    chosen = set(random.choice(len(others), OTHERS, replace=False).tolist())
    places = tuple(place for n, place in enumerate(PLACES) if n < FIXED or n - FIXED in chosen)
    kind = pick(random, KINDS[task_family])
    targets = [place for place in places if place not in APPLIANCES.values()]
    task = Task(task_family, kind, pick(random, targets))
    distractors = [other for other in FOOD + DISHES + SMALL if other != kind]
    kinds = [kind, kind, *(pick(random, distractors) for _ in range(DISTRACTORS))]
    where: dict[str, str] = {}
    for name in kinds:
        number = 1 + sum(kind_of(thing) == name for thing in where)
        allowed = [place for place in places if name != kind or place != task.target]
        where[f"{name} {number}"] = pick(random, allowed)
    return House(where, places), task


# What is seen.


@dataclass
class Narrator:
    """Puts into words what happened, in a style of its own: 0 is the usual one."""

    random: np.random.Generator
    style: int

    def welcome(self, house: House) -> str:
        """What is seen first: the same words for every trajectory of a group."""
        places = ", ".join(f"{place} ({PLACES[place][0]})" for place in house.places)
        return f"You are in the hall. In the house there are: {places}."

    def describe(self, house: House, action: str, possible: bool) -> str:
        """What is seen after an action."""
        verb, _, rest = action.partition(" ")
        if not possible:
            text = self._styled(
                "Nothing happens.", "That does nothing.", "You cannot do that here."
            )
        elif verb in ("go", "look", "open"):
            text = self._sight(house, verb)
        elif verb == "take":
            text = self._styled(
                f"You pick up {house.held} from {house.at}.",
                f"You take {house.held}, which was {preposition(house.at)} {house.at}.",
                f"{house.held.capitalize()} is in your hand now.",
            )
        elif verb == "put":
            thing = rest.partition(f" {preposition(house.at)} ")[0]
            text = self._styled(
                f"You put {thing} {preposition(house.at)} {house.at}.",
                f"{thing.capitalize()} is now {preposition(house.at)} {house.at}.",
                f"You leave {thing} {preposition(house.at)} {house.at}.",
            )
        else:
            text = self._change(house, verb)
        if self.random.random() < ADDITION:
            text = f"{text} {pick(self.random, AMBIENT)}"
        return text

    def _change(self, house: House, verb: str) -> str:
        if verb == "close":
            return self._styled(f"You close {house.at}.", f"{house.at.capitalize()} is closed now.")
        if verb == "use":
            return self._styled(
                "You switch on desklamp 1.", "Desklamp 1 is on and lights up the desk."
            )
        if verb == "examine":
            results = [how for thing, how in sorted(house.changed) if thing == house.held]
            how = " and ".join(results) or "as usual"
            return self._styled(
                f"{house.held.capitalize()} is {how}.", f"You see that {house.held} is {how}."
            )
        return self._styled(
            f"You {verb} {house.held} with {house.at}.",
            f"With {house.at} you {verb} {house.held}.",
            f"{house.held.capitalize()} is {RESULTS[verb]} now, thanks to {house.at}.",
        )

    def _sight(self, house: House, verb: str) -> str:
        if not house.at:
            return "You are in the hall."
        at, room = house.at, PLACES[house.at][0]
        if verb == "open":
            begin = self._styled(f"You open {at}.", f"{at.capitalize()} is open now.")
        else:
            begin = self._styled(
                f"You are at {at} in the {room}.",
                f"Here in the {room} is {at}.",
                f"In front of you: {at}.",
            )
        if not house.reachable(at):
            return f"{begin} {self._styled('It is closed.', 'Its door is shut.')}"
        things = house.things(at)
        if self.style:
            things.reverse()
        listed = ", ".join(things + ["desklamp 1"] * (at == LAMP)) or "nothing"
        where = preposition(at)
        return f"{begin} " + self._styled(
            f"{where.capitalize()} it you see {listed}.",
            f"You see {listed} {where} it.",
            f"There is {listed}.",
        )

    def _styled(self, *ways: str) -> str:
        return ways[min(self.style, len(ways) - 1)]


def prompt_of(
    task: Task, history: Sequence[tuple[str, str]], seen: str, possible: Sequence[str]
) -> str:
    """What a policy reads before it acts: task, last two steps, observation, possible actions."""
    lines = [f"You are an agent in a house. Your task: {task}."]
    if history:
        lines.append(f"Steps taken so far: {len(history)}. The last ones:")
        lines += [f"- You saw: {before} You did: {did}" for before, did in history[-2:]]
    lines += [
        f"Now you see: {seen}",
        f"You can: {'; '.join(possible)}.",
        "Think in <think> tags, then give one action in <action> tags.",
    ]
    return "\n".join(lines)


# The agent.


@dataclass
class Agent:
    """Searches for what the task needs, uses it as required, and errs at its own rate."""

    task: Task
    error_rate: float
    random: np.random.Generator
    order: list[str]
    searched: list[str] = field(default_factory=list)

    def respond(self, house: House) -> tuple[str, str]:
        """The response in full, and the action in it."""
        action = self._plan(house)
        thought = self._thought(action)
        chance = self.random.random()
        if chance < 0.25 * self.error_rate:
            thing = pick(self.random, sorted(house.where))
            action = f"take {thing} from {pick(self.random, house.places)}"
            thought = f"There should be {thing}."
        elif chance < self.error_rate:
            ways = [way for way in house.possible() if way.startswith("go")]
            wander = self.random.random() < WANDERING
            action = pick(self.random, ways if wander else house.possible())
            thought = "Let me try something else."
        if self.random.random() < 0.01:
            return f"<think>{thought}</think> I will {action}.", ""
        return f"<think>{thought}</think><action>{action}</action>", action

    def _thought(self, action: str) -> str:
        return pick(
            self.random,
            (
                f"I have to {self.task}. Next: {action}.",
                f"To {self.task}, I should {action}.",
                f"I will {action}.",
            ),
        )

    def _plan(self, house: House) -> str:
        if not house.held:
            return self._search(house)
        if kind_of(house.held) != self.task.kind:
            return self._at(house, house.at, "put")
        if self.task.family == "look":
            return "use desklamp 1" if house.at == LAMP else f"go to {LAMP}"
        result = RESULTS.get(self.task.family)
        if result and (house.held, result) not in house.changed:
            return self._at(house, APPLIANCES[self.task.family], self.task.family)
        return self._at(house, self.task.target, "put")

    def _search(self, house: House) -> str:
        here = house.at
        if house.at and house.reachable(here):
            self.searched = [*(place for place in self.searched if place != here), here][-MEMORY:]
            wanted = [thing for thing in house.things(here) if kind_of(thing) == self.task.kind]
            if wanted and here != self.task.target:
                return f"take {wanted[0]} from {here}"
        elif here and here not in self.searched:
            return f"open {here}"
        return f"go to {next(place for place in self.order if place not in (*self.searched, here))}"

    def _at(self, house: House, place: str, verb: str) -> str:
        """The next step to do something with what is held at a place."""
        if house.at != place:
            return f"go to {place}"
        if verb != "put":
            return f"{verb} {house.held} with {place}"
        if not house.reachable(place):
            return f"open {place}"
        return f"put {house.held} {preposition(place)} {place}"


def search_order(house: House, task: Task, random: np.random.Generator) -> list[str]:
    """Where an agent looks first: with luck where a thing is, else somewhere; never at the goal."""
    luck = {place: random.random() for place in house.places if place != task.target}
    for thing, place in house.where.items():
        if kind_of(thing) == task.kind and place in luck:
            luck[place] *= 0.4
    return sorted(luck, key=luck.__getitem__)


# Rollouts.


def episode(group: str, number: int, family: str, seed: Sequence[int]) -> list[dict[str, Any]]:
    """The rows of one trajectory; its house follows from the seed alone."""
    house, task = new_house(family, np.random.default_rng(seed))
    random = np.random.default_rng([*seed, number + 1])
    narrator = Narrator(random, int(random.choice(len(STYLES), p=STYLES)))
    agent = Agent(task, random.uniform(*ERRORS), random, search_order(house, task, random))
    seen, history, rows = narrator.welcome(house), [], []
    for step in range(LIMIT):
        row = {"group": group, "trajectory": f"{group}/{number}", "step": step, "state": seen}
        row |= {"family": family, "world": house.key()}
        row["prompt"] = prompt_of(task, history, seen, house.possible())
        row["action"], action = agent.respond(house)
        row["valid"] = house.do(action)
        done = house.done(task)
        row |= {"reward": float(done), "terminated": done}
        row["truncated"] = not done and step == LIMIT - 1
        rows.append(row)
        if done:
            break
        history.append((seen, action or "(no action)"))
        seen = narrator.describe(house, action, row["valid"])
    return rows


def rollouts(groups: int = 48, size: int = 8, seed: int = 0) -> pa.Table:
    """Rollouts in the format of Ascribe, with the columns that it carries along.

    Args:
        groups: houses with a task; the families take turns.
        size: trajectories of each.
        seed: of all random draws.
    """
    rows: list[dict[str, Any]] = []
    for number in range(groups):
        family = FAMILIES[number % len(FAMILIES)]
        for trajectory in range(size):
            rows += episode(f"{family}-{number:03}", trajectory, family, [seed, number])
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    table = table_to_arrow(StepTable.from_columns(columns))
    for name, values in columns.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array(values).dictionary_encode())
    return table


def main() -> None:
    """Write a file of rollouts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help=".parquet, .jsonl or .jsonl.gz")
    parser.add_argument("--groups", type=int, default=48, help="houses with a task")
    parser.add_argument("--size", type=int, default=8, help="trajectories of each")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.groups < 1 or options.size < 1:
        parser.error("there must be a group and a trajectory at least")
    table = rollouts(options.groups, options.size, options.seed)
    write(table, options.out)
    print(f"{options.out}: {table.num_rows:,} rows, {options.groups * options.size:,} trajectories")


if __name__ == "__main__":
    main()
