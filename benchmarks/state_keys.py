"""What a canonical key of states is worth: Ascribe's own environments, and the example's.

A random policy plays every environment. ``shown`` groups by the observation, ``proposed`` by the
key that ``ascribe.groups.keys.propose`` finds in these observations, ``own`` by the environment's
key, which is the truth here. ``alone`` is the share of rows that are alone in their state;
``purity`` the share of pairs of rows in one state whose true states are equal; ``found`` the share
of pairs of rows in one true state that are in one state. ``left`` is 1 if ``propose`` still finds
something to remove or to sort in the environment's own key. ``example`` is the world of
``examples/bipace_in_one_file.py``, whose inventory comes in any order; its truth is the inventory.
"""

import sys
from collections.abc import Iterator
from contextlib import closing

from common import ROOT, Figures

from ascribe import StepTable
from ascribe.groups.keys import StateKey, measure, propose
from ascribe.steps.table import Coded
from ascribe_lab.rollout import Model, Plan, Setup, rollout, table

sys.path.append(str(ROOT / "examples"))
import bipace_in_one_file as one_file

CASES = {
    "textcraft": {"depth": [1, 2], "inventory": True},
    "sokoban": {"size": 5, "boxes": [1]},
    "ezpoints": {},
    "webshop": {},
    "search_qa": {},
}


def main() -> None:
    """Play and measure."""
    with Figures("state_keys") as figures:
        for case, shown, own in played(4 if figures.quick else 16):
            key, truth = propose(shown), own.state
            keys = {"shown": StateKey(), "proposed": key}
            for name, quality in {
                **{name: measure(shown, each, truth) for name, each in keys.items()},
                "own": measure(own, truth=truth),
            }.items():
                place = f"{case}, {name}"
                figures.emit(place, "states", quality.states, "1", "lower")
                figures.emit(place, "alone", quality.alone, "share", "lower")
                for metric in ("purity", "found"):
                    figures.emit(place, metric, getattr(quality, metric), "share", "higher")
            figures.emit(case, "left", float(propose(own) != StateKey()), "1", "lower", 0.0)


def played(size: int) -> Iterator[tuple[str, StepTable, StepTable]]:
    """Each environment, with observations and with its own keys as states."""
    for name, options in CASES.items():
        setup = Setup(name, options, "plain", "serial")
        plan = Plan(groups=4, size=size, max_turns=10, seed=5)
        with closing(Model("random").open(setup.agent)) as policy, setup.open_pool(8) as pool:
            done = rollout(plan, pool, setup.agent, policy)
        yield name, table(done, "observation"), table(done)
    yield "example", *example(size)


def example(size: int) -> tuple[StepTable, StepTable]:
    """Clumsy demonstrations in the world of the example."""
    true: dict[tuple[str, int], str] = {}

    def choose(rows: list[one_file.Step], worlds: dict[str, one_file.TextCraft]) -> None:
        for row in rows:
            world = worlds[row.trajectory]
            fetch = f"get {world.rng.randint(1, 2)} {world.rng.choice(world.fetched)}"
            row.action = fetch if world.rng.random() < 0.5 else world.expert()
            carried = sorted(item for item in world.has.items() if item[1])
            true[row.trajectory, row.step] = str(carried)

    rows = one_file.play(choose, size, "state keys")
    names = ("group", "trajectory", "step", "state", "action", "reward")
    shown = StepTable.from_columns({name: [getattr(r, name) for r in rows] for name in names})
    keys = Coded.encode([true[row.trajectory, row.step] for row in rows])
    columns = shown.columns() | {"state": keys}
    return shown, StepTable(**columns)


if __name__ == "__main__":
    main()
