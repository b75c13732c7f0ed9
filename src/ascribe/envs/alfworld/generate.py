"""Games of all six families, made from the rooms that the package ``alfworld`` carries.

**They are not ALFRED games.** The rooms, what can be put where, the rules, the grammar and the
goals are ALFWorld's. Which things are in a room, how many and where, is drawn at random. Results on
these games say nothing about results on ALFWorld's own, which are a download.

Every game can be won: things lie where they can be reached, and the file carries the way
(``walkthrough``). No game is won at the start.
"""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from ascribe.envs.alfworld.games import FAMILIES, GAME_FILE, PARAMETERS_FILE, chosen_families
from ascribe.envs.alfworld.scenes import Receptacle, Scene, lore, scene

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


@dataclass(frozen=True)
class Thing:
    """Something that lies in or on a receptacle."""

    name: str
    kind: str
    at: Receptacle


@dataclass(frozen=True)
class Goal:
    """What is to be done."""

    family: str
    kind: str
    """Of the thing, or of each of the two."""
    target: str
    """The kind of receptacle where it must end, or of the lamp."""


@dataclass(frozen=True)
class Made:
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
    from alfworld.info import __version__ as version

    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    wanted = chosen_families(families)
    if not wanted:
        raise ValueError("families is empty")
    which = "all" if len(wanted) == len(FAMILIES) else "-".join(wanted)
    target = folder / f"generated-1-alfworld-{version}-seed-{seed}-count-{count}-{which}"
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # Written beside and moved into place at once: several processes may want the same games.
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder))
    try:
        for made in make_games(count, seed, wanted):
            place = draft / made.folder
            place.mkdir(parents=True)
            (place / GAME_FILE).write_text(json.dumps(made.game), encoding="utf-8")
            (place / PARAMETERS_FILE).write_text(json.dumps(made.parameters), encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def make_games(count: int, seed: int, families: Sequence[str] = FAMILIES) -> Iterator[Made]:
    """The games one by one. Each has a generator of its own, so none depends on the others."""
    for number in range(count):
        generator = np.random.default_rng([seed, number])
        yield make_game(families[number % len(families)], number, generator)


def make_game(family: str, number: int, generator: np.random.Generator) -> Made:
    """A game of a family: draw a room and things until it has a goal of that family."""
    rooms = lore().rooms[family]
    while True:
        room = scene(rooms[generator.integers(len(rooms))])
        things = _scatter(room, family, generator)
        if goals := _goals(family, room, things):
            goal = goals[generator.integers(len(goals))]
            return _written(goal, room, things, number, generator)


def _scatter(room: Scene, family: str, generator: np.random.Generator) -> list[Thing]:
    """One or two of every kind that can lie somewhere in the room, each in any place for it."""
    holds = lore().holds
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


def _goals(family: str, room: Scene, things: Sequence[Thing]) -> list[Goal]:
    """Every goal of a family that can be reached and is not reached yet."""
    known = lore()
    kinds = sorted({thing.kind for thing in things} - {LAMP})
    if family == "look_at_obj_in_light":
        lamps = [thing for thing in things if thing.kind == LAMP]
        return [Goal(family, kind, LAMP) for kind in kinds if lamps and kind not in known.movable]
    targets = sorted({one.kind for one in room.receptacles})
    need, _, tool = CHANGES.get(family, (None, None, None))
    if need is not None:
        kinds = [kind for kind in kinds if kind in known.can[need] and tool in targets]
        ends = [target for target in targets if target != tool]
        return [Goal(family, k, t) for k in kinds for t in ends if k in known.holds[t]]
    least = 2 if family == "pick_two_obj_and_place" else 1
    goals = []
    for kind in kinds:
        lying = [thing.at.kind for thing in things if thing.kind == kind]
        ends = [target for target in targets if kind in known.holds[target] and target not in lying]
        goals += [Goal(family, kind, target) for target in ends if len(lying) >= least]
    return goals


def _written(
    goal: Goal, room: Scene, things: Sequence[Thing], number: int, generator: np.random.Generator
) -> Made:
    from alfworld.gen.goal_library import gdict
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

    lamp = goal.family == "look_at_obj_in_light"
    library = gdict[goal.family]
    words = {"obj": goal.kind, "recep": goal.target, "toggle": goal.target, "mrecep": ""}
    templates = library["templates"]
    template = templates[generator.integers(len(templates))]
    task = template.format(**{key: word.lower() for key, word in words.items()})
    ends = library["pddl"].replace("#", "-").format(**words)
    grammar = Path(ALFRED_TWL2_PATH).read_text(encoding="utf-8")
    return Made(
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


def _problem(room: Scene, things: Sequence[Thing]) -> str:
    """The start in PDDL, up to the goal, which closes the last bracket."""
    known = lore()
    kinds = sorted({thing.kind for thing in things})
    targets = sorted({one.kind for one in room.receptacles})
    locations = sorted({one.location for one in room.receptacles} | {START})
    objects = ["agent1 - agent"]
    objects += [f"{kind}Type - otype" for kind in sorted({*kinds, "Knife", "ButterKnife"})]
    objects += [f"{kind}Type - rtype" for kind in sorted({*targets, *_tools()})]
    objects += [f"{_symbol(one.name)} - receptacle" for one in room.receptacles]
    objects += [f"{_symbol(thing.name)} - object" for thing in things]
    objects += [f"{_symbol(location)} - location" for location in locations]
    facts = [f"atLocation agent1 {_symbol(START)}"]
    for target in targets:
        facts += [f"canContain {target}Type {k}Type" for k in kinds if k in known.holds[target]]
    for one in room.receptacles:
        name = _symbol(one.name)
        facts.append(f"receptacleType {name} {one.kind}Type")
        facts.append(f"receptacleAtLocation {name} {_symbol(one.location)}")
        facts += [f"openable {name}"] * (one.kind in known.openable)
    for thing in things:
        name = _symbol(thing.name)
        facts.append(f"objectType {name} {thing.kind}Type")
        facts.append(f"inReceptacle {name} {_symbol(thing.at.name)}")
        facts.append(f"objectAtLocation {name} {_symbol(thing.at.location)}")
        facts += [f"pickupable {name}"] * (thing.kind != LAMP)
        facts += [f"isReceptacleObject {name}"] * (thing.kind in known.movable)
        facts += [f"{able.lower()} {name}" for able, of in known.can.items() if thing.kind in of]
    lines = ["(define (problem generated)", "(:domain alfred)", "(:objects", *objects, ")"]
    return "\n".join([*lines, "(:init", *(f"({fact})" for fact in facts), ")"])


def _tools() -> list[str]:
    return [tool for _, _, tool in CHANGES.values()]


def _symbol(name: str) -> str:
    """A name as ALFWorld writes it in PDDL, and reads it back."""
    for mark, word in (("|", "bar"), ("+", "plus"), ("-", "minus"), (".", "dot")):
        name = name.replace(mark, f"_{word}_")
    return name


def _walkthrough(goal: Goal, room: Scene, things: Sequence[Thing]) -> list[str]:
    """One way to win, in the words of the game."""
    known, called = lore(), _called(room, things)
    way: list[str] = []

    def go(one: Receptacle) -> str:
        way.append(f"go to {called[one.name]}")
        if one.kind in known.openable and f"open {called[one.name]}" not in way:
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


def _called(room: Scene, things: Sequence[Thing]) -> Mapping[str, str]:
    """What the game calls everything: ``Potato|+03...`` is ``potato 2``."""
    from alfworld.agents.utils.misc import Demangler

    names = [one.name for one in room.receptacles] + [thing.name for thing in things]
    symbols = {name: _symbol(name).lower() for name in names}
    known = Demangler(game_infos={s: SimpleNamespace(id=s) for s in symbols.values()})
    return {name: known.demangle_alfred_name(symbol) for name, symbol in symbols.items()}
