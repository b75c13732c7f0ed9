"""Small worlds whose texts hide a situation, or show more than it, for the choice of a state key.

``WRONG`` worlds have a part that a rule would remove and that decides what follows; in ``RIGHT``
ones it decides nothing. An agent acts at random.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from ascribe import StepTable
from ascribe.steps.table import Coded

State = Any


@dataclass(frozen=True)
class Planted:
    """A world with one rule in question.

    Attributes:
        rule: that merges its states.
        begin: the first state of an episode, from the number of the task.
        act: the next state and the reward of an action; None at the end.
        show: the text of a state; the last argument is random for each episode.
        actions: which there are.
    """

    rule: str
    begin: Callable[[int], State]
    act: Callable[[State, str, Random], tuple[State, float]]
    show: Callable[[State, Random, int], str]
    actions: tuple[str, ...]


def played(world: Planted, tasks: int, size: int, seed: int) -> tuple[StepTable, Coded]:
    """Episodes of at most ten steps, and the true state of each row."""
    random, rows, true = Random(seed), list[dict[str, Any]](), list[str]()
    for task in range(tasks):
        for number in range(size):
            state, episode = world.begin(task), random.getrandbits(62)
            for step in range(10):
                action = random.choice(world.actions)
                rows.append(
                    {"group": f"task {task}", "trajectory": f"{task}/{number}", "step": step}
                    | {"state": world.show(state, random, episode), "action": action}
                )
                true.append(str(state))
                state, rows[-1]["reward"] = world.act(state, action, random)
                if state is None:
                    rows[-1]["terminated"] = True
                    break
    names = ("group", "trajectory", "step", "state", "action", "reward")
    columns = {name: [row[name] for row in rows] for name in names}
    columns["terminated"] = [row.get("terminated", False) for row in rows]
    return StepTable.from_columns(columns), Coded.encode(true)


# What a rule would remove, and what decides.


def _spend(state: State, action: str, random: Random) -> tuple[State, float]:
    day, money = state
    money -= {"cheap": 1, "fair": 2, "dear": 3}[action]
    if day < 5:
        return (day + 1, money), 0.0
    return None, float(money >= 9)


def _drive(state: State, action: str, random: Random) -> tuple[State, float]:
    place, fuel = state
    place, fuel = (place + 1, fuel - 2) if action == "hill" else (place, fuel - 1)
    if action == "wait" and random.random() < 0.5:
        place += 1
    if fuel < 0:
        return None, 0.0
    return (None, 1.0) if place == 3 else ((place, fuel), 0.0)


def _pop(state: State, action: str, random: Random) -> tuple[State, float]:
    if action == "turn":
        return (*state[1:], state[0]), 0.0
    if action == "swap":
        return (state[1], state[0], *state[2:]), 0.0
    return None, float(state[0] == "gold")


ACCOUNTS = [str(f"{0x5F2B9C1E + n:08x}-4c1d-4b7a-9e3f-0a1b2c3d4e5f") for n in range(4)]


def _refund(state: State, action: str, random: Random) -> tuple[State, float]:
    task, account, _ = state
    if action == "next account":
        return (task, (account + 1) % 4, False), 0.0
    if action == "check":
        return (task, account, True), 0.0
    return None, float(account == (task + 2) % 4)


def _bisect(state: State, action: str, random: Random) -> tuple[State, float]:
    if action == "tag release":
        return None, float(state % 3 == 1)
    return (state + (1 if action == "next" else 2)) % 6, 0.0


def _repair(state: State, action: str, random: Random) -> tuple[State, float]:
    """Repairing a function works now and then; the release passes if none is broken."""
    if action == "release":
        return None, float(not state)
    name = action.split()[1]
    if name in state and random.random() < 0.8:
        return tuple(each for each in state if each != name), 0.0
    other = random.choice(("add", "mul", "sub"))
    return tuple(sorted({*state, other})) if random.random() < 0.2 else state, 0.0


def _runner(state: State, random: Random, named: str) -> str:
    lines = [f"{named} {name}" for name in state]
    count = f"{len(state)} failed, {3 - len(state)} passed" if state else "3 passed"
    return "\n".join([*lines, f"{count} in {random.random():.2f}s"])


def _shop(state: State, action: str, random: Random) -> tuple[State, float]:
    page = state
    if action == "buy the first":
        return None, float(page == 2)
    return (page + 1) % 4 if action == "next page" else 0, 0.0


def _edit(state: State, action: str, random: Random) -> tuple[State, float]:
    if action == "save":
        return None, float(state == 1)
    return (state + (1 if action == "next file" else 2)) % 3, 0.0


FIX = ("fix add", "fix mul", "fix sub", "release")
GOODS = ("kettle", "lamp", "phone case", "rug")

WRONG = {
    "an amount of money": Planted(
        "balance # dollars",
        lambda task: (0, 20),
        _spend,
        lambda state, random, _: f"Day {state[0]} at the market. Balance: {state[1]} dollars.",
        ("cheap", "fair", "dear"),
    ),
    "fuel that is left": Planted(
        "left # litres",
        lambda task: (0, 6 + task % 2),
        _drive,
        lambda state, random, _: f"Camp {'ABC'[state[0]]}. Fuel left: {state[1]} litres.",
        ("hill", "wait"),
    ),
    "a stack": Planted(
        "lists",
        lambda task: (
            ("coin", "gold", "bomb", "stone")[task % 3 :]
            + ("coin", "gold", "bomb", "stone")[: task % 3]
        ),
        _pop,
        lambda state, random, _: f"The stack, from the top: {', '.join(state)}.",
        ("turn", "swap", "take"),
    ),
    "an open account": Planted(
        "ids",
        lambda task: (task, task % 3, False),
        _refund,
        lambda state, random, _: (
            f"Account {ACCOUNTS[state[1]]}\nOrder: {'paid twice?' if state[2] else 'unchecked'}"
        ),
        ("next account", "check", "refund"),
    ),
    "a commit": Planted(
        "hashes",
        lambda task: task % 6,
        _bisect,
        lambda state, random, _: f"HEAD is now at {0xA3F2A10 + 7919 * state:07x} work in progress",
        ("next", "skip", "tag release"),
    ),
    "which tests fail": Planted(
        "tests",
        lambda task: (("add", "mul"), ("add", "sub"), ("mul", "sub"))[task % 3],
        _repair,
        lambda state, random, _: _runner(state, random, "broken by the change:"),
        FIX,
    ),
    "pages with one title": Planted(
        "titles",
        lambda task: task % 2,
        _shop,
        lambda state, random, _: (
            f"<html><head><title>Results</title></head><body><ol><li>{GOODS[state]}</ol></body>"
        ),
        ("next page", "back to the start", "buy the first"),
    ),
    "pages with one title and adverts": Planted(
        "titles",
        lambda task: task % 2,
        _shop,
        lambda state, random, _: (
            f"<title>Results</title><li>{GOODS[state]}<p>Only today: {random.getrandbits(40)}"
        ),
        ("next page", "back to the start", "buy the first"),
    ),
    "files of one name": Planted(
        "folders",
        lambda task: 0,
        _edit,
        lambda state, random, _: f"Editing /srv/{('web', 'mail', 'dns')[state]}/config.yaml",
        ("next file", "skip", "save"),
    ),
}

# What a rule removes, and what says nothing.


def _walk(state: State, action: str, random: Random) -> tuple[State, float]:
    room, things = state
    room = (room + {"north": 1, "east": 2, "stay": 0}[action]) % 5
    if room == 4:
        return None, float(len(things) > 1)
    found = ("rope", "lamp", "map", "key")[room]
    return (room, tuple(sorted({*things, found}))), 0.0


def _walking(rule: str, show: Callable[[str, State, Random, int], str]) -> Planted:
    def shown(state: State, random: Random, episode: int) -> str:
        room = f"You are in the {('hall', 'attic', 'yard', 'shed')[state[0]]}."
        return show(room, state, random, episode)

    return Planted(
        rule, lambda task: (task % 3, ("lamp",)), _walk, shown, ("north", "east", "stay")
    )


def _carried(state: State) -> str:
    return f"You carry: {', '.join(state[1])}."


def _shuffled(room: str, state: State, random: Random, _: int) -> str:
    return f"{room} You carry: {', '.join(random.sample(state[1], len(state[1])))}."


def _clock(room: str, state: State, random: Random, _: int) -> str:
    seconds = random.randrange(86400)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"[{time}] {room} {_carried(state)}"


def _traced(state: State, random: Random, _: int) -> str:
    trace = "".join(f"E   assert {random.randrange(10**6)} == 0\n" for _ in state)
    failed = "".join(f"FAILED tests/test_{name}.py::test_{name}\n" for name in state)
    return (
        f"{trace}{failed}" + _runner((), random, "")
        if not state
        else trace
        + failed
        + (f"{len(state)} failed, {3 - len(state)} passed in {random.random():.2f}s")
    )


def _page(state: State, random: Random, _: int) -> str:
    advert = "".join(random.choice("abcdefgh") for _ in range(12))
    return f"<title>{GOODS[state]} - results</title><p>Today only: {advert}</p>"


RIGHT = {
    "a clock": _walking("times", _clock),
    "a shuffled inventory": _walking("lists", _shuffled),
    "a temporary folder": _walking(
        "temporary",
        lambda room, state, _, episode: (
            f"/tmp/tmp{episode % 16**8:08x}/log: {room} {_carried(state)}"
        ),
    ),
    "a hash": _walking(
        "hashes",
        lambda room, state, random, _: (
            f"[main a{random.getrandbits(24):06x}1] {room} {_carried(state)}"
        ),
    ),
    "a request": _walking(
        "ids",
        lambda room, state, random, _: (
            f"{room} {_carried(state)} (req_{random.getrandbits(62):015d}a1)"
        ),
    ),
    "a duration": _walking(
        "durations",
        lambda room, state, random, _: (
            f"{room} {_carried(state)} Done in {random.random() * 9:.3f}s."
        ),
    ),
    "a home folder": _walking(
        "folders",
        lambda room, state, _, episode: (
            f"/home/user{episode % 97}/game/save.txt: {room} {_carried(state)}"
        ),
    ),
    "output of tests": Planted(
        "tests",
        lambda task: (("add", "mul"), ("add", "sub"), ("mul", "sub"))[task % 3],
        _repair,
        _traced,
        FIX,
    ),
    "pages with adverts": Planted(
        "titles",
        lambda task: task % 2,
        _shop,
        _page,
        ("next page", "back to the start", "buy the first"),
    ),
}
