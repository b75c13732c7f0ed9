"""The 120 rooms of ALFRED, as far as the package ``alfworld`` carries them.

For each room it has the kinds of things in it, and the places of most receptacles (where things can
be put). Receptacles without a place are given one. Which things were there, how many and where, is
in ALFRED's own files, which the package does not have.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

COPIES = {"CounterTop": 2, "StoveBurner": 4, "Shelf": 3, "SideTable": 2, "Drawer": 4, "Cabinet": 4}
"""How many of a receptacle stand in a room that does not tell their places; one of others."""

INSIDE = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}
"""Receptacles that are named as a part: ``Sink|+01.10|+00.91|-01.60|SinkBasin``."""


@dataclass(frozen=True)
class Receptacle:
    """Something in or on which things can be put."""

    name: str
    kind: str
    location: str
    """Where one stands to use it. Receptacles can share a location."""


@dataclass(frozen=True)
class Scene:
    """A room."""

    number: int
    receptacles: tuple[Receptacle, ...]
    kinds: tuple[str, ...]
    """The kinds of things in the room, sorted."""


@dataclass(frozen=True)
class Lore:
    """What ALFWorld knows about kinds of things, with every set sorted."""

    holds: Mapping[str, tuple[str, ...]]
    """The kinds that each kind of receptacle can hold."""
    openable: tuple[str, ...]
    movable: tuple[str, ...]
    """Receptacles that can be carried. They are treated as things."""
    can: Mapping[str, tuple[str, ...]]
    """Kinds by what can be done with them: ``Heatable``, ``Coolable``, ``Cleanable``, ..."""
    rooms: Mapping[str, tuple[int, ...]]
    """The numbers of the rooms where each family of tasks belongs."""


@lru_cache
def lore() -> Lore:
    """The tables of ``alfworld.gen.constants``."""
    from alfworld.gen import constants

    def ordered(sets: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
        return {key: tuple(sorted(sets[key])) for key in sorted(sets)}

    return Lore(
        holds=ordered(constants.VAL_RECEPTACLE_OBJECTS),
        openable=tuple(sorted(constants.OPENABLE_CLASS_SET)),
        movable=tuple(sorted(constants.MOVABLE_RECEPTACLES_SET)),
        can=ordered(constants.VAL_ACTION_OBJECTS),
        rooms={
            family: tuple(sorted(n for kind in kinds for n in constants.SCENE_TYPE[kind]))
            for family, kinds in sorted(constants.GOALS_VALID.items())
        },
    )


@lru_cache(maxsize=128)
def scene(number: int) -> Scene:
    """One of the rooms by its number."""
    import alfworld

    layouts = Path(alfworld.__file__).parent / "gen" / "layouts"
    kinds = sorted(json.loads((layouts / f"FloorPlan{number}-objects.json").read_text()))
    places = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text())
    told = [
        Receptacle(name, name.split("|")[-1 if name.endswith("Basin") else 0], _location(at))
        for name, at in sorted(places.items())
    ]
    receptacles = [one for one in told if _is_fixed(one.kind)]
    have = Counter(one.kind for one in receptacles)
    for row, kind in enumerate(kind for kind in kinds if _is_fixed(kind) and not have[kind]):
        for copy in range(COPIES.get(kind, 1)):
            place = f"+{row:02d}.00|+00.90|+{copy:02d}.00"
            name = f"{INSIDE[kind]}|{place}|{kind}" if kind in INSIDE else f"{kind}|{place}"
            # No measured location has a height of 90 degrees, so these are shared with none.
            receptacles.append(Receptacle(name, kind, f"loc|{row}|{copy}|0|90"))
    return Scene(number, tuple(receptacles), tuple(kinds))


def _is_fixed(kind: str) -> bool:
    known = lore()
    return kind in known.holds and kind not in known.movable


def _location(at: list[float]) -> str:
    """ALFRED's name of a location: quarter metres, quarter turns, and the height of the view."""
    x, z, turn, view = at
    return f"loc|{round(x * 4)}|{round(z * 4)}|{round(turn / 90)}|{round(view)}"
