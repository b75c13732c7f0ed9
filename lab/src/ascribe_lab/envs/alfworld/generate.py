"""Games of all six families, made from the rooms that the package ``alfworld`` carries.

**They are not ALFRED games.** The rooms, what can be put where, the rules, the grammar and the
goals are ALFWorld's. Which things are in a room, how many and where, is drawn at random. Results on
these games say nothing about results on ALFWorld's own, which are a download.

Every game can be won: things lie where they can be reached, and the file carries the way
(``walkthrough``). No game is won at the start.

Imports ALFWorld: import this late.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import alfworld
import numpy as np
from alfworld.agents.utils.misc import Demangler
from alfworld.gen import constants
from alfworld.gen.goal_library import gdict
from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
from alfworld.info import __version__ as version

from ascribe.steps.errors import InputError
from ascribe_lab.envs.alfworld.games import FAMILIES, GAME_FILE, PARAMETERS_FILE, chosen_families

Json = dict[str, object]

LAMP = "DeskLamp"
"""The lamp of ``look_at_obj_in_light``. Floor lamps stand in no receptacle and cannot be used."""

LAMP_PLACES = ("CoffeeTable", "Desk", "DiningTable", "Dresser", "Shelf", "SideTable")

CHANGES = {
    "pick_clean_then_place_in_recep": ("Cleanable", "clean", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "heat", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "cool", "Fridge"),
}
"""What the thing must be, the verb, and the receptacle that does it."""

START = "loc|start"
"""The middle of the room: a location without receptacles."""

COPIES = {"CounterTop": 2, "StoveBurner": 4, "Shelf": 3, "SideTable": 2, "Drawer": 4, "Cabinet": 4}
"""How many of a receptacle stand in a room whose file lacks their places; one of others."""

INSIDE = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}
"""Receptacles that are named as a part: ``Sink|+01.10|+00.91|-01.60|SinkBasin``."""


# The 120 rooms of ALFRED, as far as the package ``alfworld`` carries them: the kinds of things in
# each, and the places of most receptacles. Receptacles without a place are given one. Which things
# were there, how many and where, is in ALFRED's own files, which the package does not have.


class Receptacle(NamedTuple):
    """Something in or on which things can be put."""

    name: str
    kind: str
    location: str
    """Where one stands to use it. Receptacles can share a location."""


class FloorPlan(NamedTuple):
    """A room."""

    number: int
    receptacles: tuple[Receptacle, ...]
    kinds: tuple[str, ...]
    """The kinds of things in the room, sorted."""


@lru_cache(maxsize=128)
def floor_plan(number: int) -> FloorPlan:
    """One of the rooms by its number."""
    layouts = Path(alfworld.__file__).parent / "gen" / "layouts"
    kinds = sorted(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text()))
    places = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text())
    placed = [
        Receptacle(name, name.split("|")[-1 if name.endswith("Basin") else 0], _location(at))
        for name, at in sorted(places.items())
    ]
    receptacles = [one for one in placed if _is_fixed(one.kind)]
    have = Counter(one.kind for one in receptacles)
    for row, kind in enumerate(kind for kind in kinds if _is_fixed(kind) and not have[kind]):
        for copy in range(COPIES.get(kind, 1)):
            place = f"+{row:02d}.00|+00.90|+{copy:02d}.00"
            name = f"{INSIDE[kind]}|{place}|{kind}" if kind in INSIDE else f"{kind}|{place}"
            # No measured location has a height of 90 degrees, so these are shared with none.
            receptacles.append(Receptacle(name, kind, f"loc|{row}|{copy}|0|90"))
    return FloorPlan(number, tuple(receptacles), tuple(kinds))


def _is_fixed(kind: str) -> bool:
    """Whether things can be put there, and it cannot be carried itself."""
    return (
        kind in constants.VAL_RECEPTACLE_OBJECTS and kind not in constants.MOVABLE_RECEPTACLES_SET
    )


def _location(at: list[float]) -> str:
    """ALFRED's name of a location: quarter metres, quarter turns, and the height of the view."""
    x, z, turn, view = at
    return f"loc|{round(x * 4)}|{round(z * 4)}|{round(turn / 90)}|{round(view)}"


# The games.


class Thing(NamedTuple):
    """Something that lies in or on a receptacle."""

    name: str
    kind: str
    at: Receptacle


class HouseholdGoal(NamedTuple):
    """What is to be done."""

    family: str
    kind: str
    """Of the thing, or of each of the two."""
    target: str
    """The kind of receptacle where it must end, or of the lamp."""


class GeneratedGame(NamedTuple):
    """A generated game: the folder it belongs in, and its two files."""

    folder: str
    game: Json
    parameters: Json


def generate_games(
    folder: Path, count: int = 60, seed: int = 0, families: Iterable[str] | None = None
) -> Path:
    """Write ``count`` games, the families in turn, into a folder of their own under ``folder``.

    The games depend on the arguments and the version of ``alfworld`` alone, so those that are there
    already are kept. A larger count begins with the same games.

    Returns:
        The folder with the games.
    """
    if count < 1:
        raise InputError(f"count must be at least 1, not {count}")
    wanted = chosen_families(families)
    if not wanted:
        raise InputError("families is empty")
    which = "all" if len(wanted) == len(FAMILIES) else "-".join(wanted)
    target = folder / f"generated-1-alfworld-{version}-seed-{seed}-count-{count}-{which}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # Written beside and moved into place at once: several processes may want the same games.
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder))
    try:
        for game in make_games(count, seed, wanted):
            place = draft / game.folder
            place.mkdir(parents=True)
            (place / GAME_FILE).write_text(json.dumps(game.game), encoding="utf-8")
            (place / PARAMETERS_FILE).write_text(json.dumps(game.parameters), encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def make_games(
    count: int, seed: int, families: Sequence[str] = FAMILIES
) -> Iterator[GeneratedGame]:
    """The games one by one. Each has a generator of its own, so none depends on the others.

    A room and things are drawn until they allow a goal of the family.
    """
    for number in range(count):
        generator = np.random.default_rng([seed, number])
        family = families[number % len(families)]
        kinds = constants.GOALS_VALID[family]
        rooms = sorted(room for kind in kinds for room in constants.SCENE_TYPE[kind])
        goals: list[HouseholdGoal] = []
        while not goals:
            room = floor_plan(rooms[generator.integers(len(rooms))])
            things = _scatter(room, family, generator)
            goals = _goals(family, room, things)
        goal = goals[generator.integers(len(goals))]
        yield _written(goal, room, things, number, generator)


def _scatter(room: FloorPlan, family: str, generator: np.random.Generator) -> list[Thing]:
    """One or two of every kind that can lie somewhere in the room, each in any place for it."""
    holds = constants.VAL_RECEPTACLE_OBJECTS
    things: list[Thing] = []

    def put(kind: str, places: Sequence[Receptacle]) -> None:
        at = places[int(generator.integers(len(places)))]
        things.append(Thing(f"{kind}|+{len(things):02d}.00|+01.00|+00.00", kind, at))

    for kind in room.kinds:
        places = [one for one in room.receptacles if kind in holds[one.kind]]
        for _ in range(generator.integers(1, 3) if places else 0):
            put(kind, places)
    lit = [one for one in room.receptacles if one.kind in LAMP_PLACES]
    if family == "look_at_obj_in_light" and LAMP in room.kinds and lit:
        put(LAMP, lit)
    return things


def _goals(family: str, room: FloorPlan, things: Sequence[Thing]) -> list[HouseholdGoal]:
    """Every goal of a family that can be reached and is not reached yet."""
    holds = constants.VAL_RECEPTACLE_OBJECTS
    kinds = sorted({thing.kind for thing in things} - {LAMP})
    if family == "look_at_obj_in_light":
        if not any(thing.kind == LAMP for thing in things):
            return []
        movable = constants.MOVABLE_RECEPTACLES_SET
        return [HouseholdGoal(family, kind, LAMP) for kind in kinds if kind not in movable]
    targets = sorted({one.kind for one in room.receptacles})
    need, _, tool = CHANGES.get(family, (None, None, None))
    if need is not None:
        able = constants.VAL_ACTION_OBJECTS[need] if tool in targets else ()
        kinds = [kind for kind in kinds if kind in able]
        ends = [target for target in targets if target != tool]
        return [HouseholdGoal(family, k, t) for k in kinds for t in ends if k in holds[t]]
    least = 2 if family == "pick_two_obj_and_place" else 1
    goals = []
    for kind in kinds:
        lying = [thing.at.kind for thing in things if thing.kind == kind]
        ends = [target for target in targets if kind in holds[target] and target not in lying]
        goals += [HouseholdGoal(family, kind, target) for target in ends if len(lying) >= least]
    return goals


def _written(
    goal: HouseholdGoal,
    room: FloorPlan,
    things: Sequence[Thing],
    number: int,
    generator: np.random.Generator,
) -> GeneratedGame:
    lamp = goal.family == "look_at_obj_in_light"
    library = gdict[goal.family]
    words = {"obj": goal.kind, "recep": goal.target, "toggle": goal.target, "mrecep": ""}
    templates = library["templates"]
    template = templates[generator.integers(len(templates))]
    task = template.format(**{key: word.lower() for key, word in words.items()})
    ends = library["pddl"].replace("#", "-").format(**words)
    grammar = Path(ALFRED_TWL2_PATH).read_text(encoding="utf-8")
    return GeneratedGame(
        folder=f"{goal.family}-{goal.kind}-None-{goal.target}-{room.number}/generated_{number:05d}",
        game={
            "generator": "ascribe",
            "pddl_domain": Path(ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
            "grammar": grammar.replace("UNKNOWN GOAL", task),
            "pddl_problem": _problem(room, things) + ends,
            "walkthrough": _walkthrough(goal, room, things),
            "solvable": True,
        },
        parameters={
            "generator": "ascribe",
            "task_type": goal.family,
            "task_id": f"generated_{number:05d}",
            "pddl_params": {
                "object_target": goal.kind,
                "object_sliced": False,
                "parent_target": "" if lamp else goal.target,
                "toggle_target": goal.target if lamp else "",
                "mrecep_target": "",
            },
            "scene": {"floor_plan": f"FloorPlan{room.number}", "scene_num": room.number},
        },
    )


def _problem(room: FloorPlan, things: Sequence[Thing]) -> str:
    """The start in PDDL, up to the goal, which closes the last bracket."""
    kinds = sorted({thing.kind for thing in things})
    targets = sorted({one.kind for one in room.receptacles})
    locations = sorted({one.location for one in room.receptacles} | {START})
    objects = ["agent1 - agent"]
    objects += [f"{kind}Type - otype" for kind in sorted({*kinds, "Knife", "ButterKnife"})]
    tools = {tool for _, _, tool in CHANGES.values()}
    objects += [f"{kind}Type - rtype" for kind in sorted({*targets, *tools})]
    objects += [f"{_symbol(one.name)} - receptacle" for one in room.receptacles]
    objects += [f"{_symbol(thing.name)} - object" for thing in things]
    objects += [f"{_symbol(location)} - location" for location in locations]
    facts = [f"atLocation agent1 {_symbol(START)}"]
    for target in targets:
        held = constants.VAL_RECEPTACLE_OBJECTS[target]
        facts += [f"canContain {target}Type {kind}Type" for kind in kinds if kind in held]
    for one in room.receptacles:
        name = _symbol(one.name)
        facts.append(f"receptacleType {name} {one.kind}Type")
        facts.append(f"receptacleAtLocation {name} {_symbol(one.location)}")
        facts += [f"openable {name}"] * (one.kind in constants.OPENABLE_CLASS_SET)
    for thing in things:
        name = _symbol(thing.name)
        facts.append(f"objectType {name} {thing.kind}Type")
        facts.append(f"inReceptacle {name} {_symbol(thing.at.name)}")
        facts.append(f"objectAtLocation {name} {_symbol(thing.at.location)}")
        facts += [f"pickupable {name}"] * (thing.kind != LAMP)
        facts += [f"isReceptacleObject {name}"] * (thing.kind in constants.MOVABLE_RECEPTACLES_SET)
        facts += [
            f"{able.lower()} {name}"
            for able, able_kinds in sorted(constants.VAL_ACTION_OBJECTS.items())
            if thing.kind in able_kinds
        ]
    lines = ["(define (problem generated)", "(:domain alfred)", "(:objects", *objects, ")"]
    return "\n".join([*lines, "(:init", *(f"({fact})" for fact in facts), ")"])


def _symbol(name: str) -> str:
    """A name as ALFWorld writes it in PDDL, and reads it back."""
    for mark, word in (("|", "bar"), ("+", "plus"), ("-", "minus"), (".", "dot")):
        name = name.replace(mark, f"_{word}_")
    return name


def _walkthrough(goal: HouseholdGoal, room: FloorPlan, things: Sequence[Thing]) -> list[str]:
    """One way to win, in the words of the game."""
    called = _called(room, things)
    way: list[str] = []

    def go(one: Receptacle) -> str:
        way.append(f"go to {called[one.name]}")
        if one.kind in constants.OPENABLE_CLASS_SET and f"open {called[one.name]}" not in way:
            way.append(f"open {called[one.name]}")
        return called[one.name]

    wanted = [thing for thing in things if thing.kind == goal.kind]
    for thing in wanted[: 2 if goal.family == "pick_two_obj_and_place" else 1]:
        way.append(f"take {called[thing.name]} from {go(thing.at)}")
        if goal.family in CHANGES:
            _, verb, kind = CHANGES[goal.family]
            tool = next(one for one in room.receptacles if one.kind == kind)
            way.append(f"{verb} {called[thing.name]} with {go(tool)}")
        if goal.target == LAMP:
            lamp = next(thing for thing in things if thing.kind == LAMP)
            go(lamp.at)
            way.append(f"use {called[lamp.name]}")
        else:
            target = next(one for one in room.receptacles if one.kind == goal.target)
            way.append(f"move {called[thing.name]} to {go(target)}")
    return way


def _called(room: FloorPlan, things: Sequence[Thing]) -> Mapping[str, str]:
    """What the game calls everything: ``Potato|+03...`` is ``potato 2``."""
    names = [one.name for one in room.receptacles] + [thing.name for thing in things]
    symbols = {name: _symbol(name).lower() for name in names}
    demangler = Demangler(game_infos={s: SimpleNamespace(id=s) for s in symbols.values()})
    return {name: demangler.demangle_alfred_name(symbol) for name, symbol in symbols.items()}
