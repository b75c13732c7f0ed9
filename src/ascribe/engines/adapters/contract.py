"""The contract of adapters: what must hold for every one, with the trainer's own objects.

The adapter makes batches from small episodes. Their credit is compared with that of the same
episodes as plain token sequences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ascribe.engines.adapters import Adapter, ExampleEpisode
from ascribe.engines.crediting import credit_steps
from ascribe.estimators import recipe
from ascribe.sessions import from_sequences
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable

RECIPES = {name: recipe(name) for name in ("grpo", "dr_grpo", "gigpo")}
RECIPES["sbc"] = recipe("sbc", states="exact")  # no note that there are no fingerprints
TOLERANCE = 1e-5
"""Trainers hold advantages in single precision."""

START, DOOR, KEY, WALL = (1, 2), (3,), (4, 5, 6), (7, 8)
LEFT, RIGHT, LOOK = (11,), (12, 13), (14, 15, 16)


Turn: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


def _episode(group: str, reward: float, *turns: Turn) -> ExampleEpisode:
    return ExampleEpisode(group=group, turns=turns, reward=reward)


EPISODES: tuple[ExampleEpisode, ...] = (
    _episode("maze", 1.0, (START, LEFT), (DOOR, RIGHT), (KEY, LOOK)),
    _episode("maze", 0.0, (START, LEFT), (DOOR, LEFT)),
    _episode("maze", 0.5, (START, RIGHT), (WALL, LOOK), (WALL, LEFT), (DOOR, RIGHT)),
    _episode("maze", 0.0, (START, RIGHT), (WALL, LOOK)),
    _episode("cave", 0.0, (START, LOOK)),
    _episode("cave", 2.0, (START, LEFT), (KEY, LOOK)),
    _episode("cave", 1.0, (START, LOOK), (KEY, RIGHT)),
)
"""Two groups, one to four turns, responses of one to three tokens, states that recur."""


@dataclass(frozen=True)
class CheckResult:
    """One part of the contract: whether it is kept, and what was found if it is not."""

    name: str
    kept: bool
    detail: str = ""


class _BrokenError(Exception):
    """A part of the contract is broken; the message says how."""


def check_adapter(adapter: Adapter) -> list[CheckResult]:
    """Run every part of the contract on an adapter."""
    results = []
    for name, part in PARTS.items():
        try:
            part(adapter)
        except Exception as error:
            kind = "" if isinstance(error, _BrokenError) else f"{type(error).__name__}: "
            results.append(CheckResult(name, False, f"{kind}{error}"))
        else:
            results.append(CheckResult(name, True))
    return results


def _rows(
    adapter: Adapter, episodes: Sequence[ExampleEpisode]
) -> tuple[StepTable, list[list[int]]]:
    """The table, and the rows of the turns of each episode that did not fail.

    Each row's number is its advantage, so that the tokens tell which row they are of.
    """
    batch = adapter.example(episodes)
    table, places = adapter.steps(batch)
    numbers = np.arange(1.0, len(table) + 1)
    marked = adapter.advantages(adapter.put(batch, places, numbers))
    played = [episode for episode in episodes if not episode.failed]
    if len(marked) == len(episodes) != len(played):
        if any(any(values) for values, e in zip(marked, episodes, strict=True) if e.failed):
            raise _BrokenError("a failed episode has advantages")
        marked = [values for values, e in zip(marked, episodes, strict=True) if not e.failed]
    if len(marked) != len(played):
        raise _BrokenError(f"advantages gives {len(marked)} lists for {len(played)} episodes")
    rows = []
    for number, (episode, values) in enumerate(zip(played, marked, strict=True)):
        nonzero = [round(float(value)) for value in values if value != 0]
        own = list(dict.fromkeys(nonzero))
        sizes = [len(response) for _, response in episode.turns]
        if len(own) != len(sizes):
            raise _BrokenError(f"episode {number} has {len(sizes)} turns and {len(own)} steps")
        if nonzero != [row for row, size in zip(own, sizes, strict=True) for _ in range(size)]:
            raise _BrokenError(f"the advantages of episode {number} are not on its responses")
        rows.append([row - 1 for row in own])
    return table, rows


def _expected(episodes: Sequence[ExampleEpisode], name: str) -> list[Floats]:
    """The advantage of each turn of each episode that did not fail, from plain sequences."""
    played = [episode for episode in episodes if not episode.failed]
    table, spans = from_sequences(
        [e.tokens for e in played],
        [e.mask for e in played],
        group=[e.group for e in played],
        reward=[e.reward for e in played],
        truncated=[e.truncated for e in played],
    )
    advantage = credit_steps(table, RECIPES[name]).advantage
    return [advantage[spans.sequence == number] for number in range(len(played))]


def _credited(adapter: Adapter, episodes: Sequence[ExampleEpisode], name: str) -> list[Floats]:
    """The same, from the trainer's batch."""
    table, rows = _rows(adapter, episodes)
    advantage = credit_steps(table, RECIPES[name]).advantage
    return [advantage[own] for own in rows]


def _compare(name: str, found: Sequence[Floats], expected: Sequence[Floats]) -> None:
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one.shape != other.shape or not np.allclose(one, other, rtol=0, atol=TOLERANCE):
            raise _BrokenError(
                f"{name} credits the turns of episode {number} with {one.round(4).tolist()}, "
                f"not {other.round(4).tolist()}"
            )


def _turns(adapter: Adapter) -> None:
    table, rows = _rows(adapter, EPISODES)
    if len(table) != sum(map(len, rows)):
        raise _BrokenError(f"{len(table)} steps for {sum(map(len, rows))} turns")
    for number, own in enumerate(rows):
        if len(set(table.trajectory.codes[own])) != 1 or (np.diff(table.step[own]) != 1).any():
            raise _BrokenError(f"the turns of episode {number} are not the steps of a trajectory")


def _rewards(adapter: Adapter) -> None:
    table, rows = _rows(adapter, EPISODES)
    for number, (own, episode) in enumerate(zip(rows, EPISODES, strict=True)):
        total = float(table.reward[own].sum())
        if abs(total - episode.reward) > TOLERANCE:
            raise _BrokenError(f"episode {number} has the return {total:g}, not {episode.reward:g}")


def _masks(adapter: Adapter) -> None:
    batch = adapter.example(EPISODES)
    table, places = adapter.steps(batch)
    values = adapter.advantages(adapter.put(batch, places, np.ones(len(table))))
    for number, (found, episode) in enumerate(zip(values, EPISODES, strict=True)):
        written = sum(len(response) for _, response in episode.turns)
        if sum(map(float, found)) != written:
            raise _BrokenError(
                f"{sum(map(float, found)):g} tokens of episode {number} have an advantage; the "
                f"model wrote {written}"
            )


def _recipes(adapter: Adapter) -> None:
    for name in RECIPES:
        _compare(name, _credited(adapter, EPISODES, name), _expected(EPISODES, name))


def _order(adapter: Adapter) -> None:
    found = _credited(adapter, EPISODES[::-1], "gigpo")[::-1]
    _compare("in reverse order, gigpo", found, _expected(EPISODES, "gigpo"))


def _padding(adapter: Adapter) -> None:
    long = _episode("long", 1.0, *[(START, LOOK), (WALL * 9, LEFT * 20)] * 3)
    found = _credited(adapter, [*EPISODES, long, replace(long, reward=0.0)], "gigpo")
    expected = _expected(EPISODES, "gigpo")
    _compare("beside longer episodes, gigpo", found[: len(EPISODES)], expected)


def _groups(adapter: Adapter) -> None:
    changed = [replace(e, reward=e.reward + 5) if e.group == "cave" else e for e in EPISODES]
    found, expected = _credited(adapter, changed, "dr_grpo"), _expected(EPISODES, "dr_grpo")
    _compare("with other rewards in the other group, dr_grpo", found, expected)


def _truncated(adapter: Adapter) -> None:
    episodes = [replace(EPISODES[0], truncated=True), *EPISODES[1:]]
    table, rows = _rows(adapter, episodes)
    _compare("gigpo", _credited(adapter, episodes, "gigpo"), _expected(episodes, "gigpo"))
    if table.truncated is None or not table.truncated[rows[0][-1]]:
        raise _BrokenError("the last step of an episode that a limit ended is not truncated")
    if table.truncated.sum() != 1 or table.flag("terminated", default=False)[rows[0]].any():
        raise _BrokenError("steps are truncated that no limit ended, or terminated that one did")


def _failed(adapter: Adapter) -> None:
    failed = replace(EPISODES[0], failed=True)
    episodes = [EPISODES[0], failed, *EPISODES[1:]]
    found, expected = _credited(adapter, episodes, "gigpo"), _expected(EPISODES, "gigpo")
    _compare("beside a failed episode, gigpo", found, expected)


PARTS: dict[str, Callable[[Adapter], None]] = {
    "each turn is a step": _turns,
    "returns are the rewards": _rewards,
    "credit is on responses alone": _masks,
    "credit is the library's": _recipes,
    "order does not matter": _order,
    "padding does not matter": _padding,
    "groups are separate": _groups,
    "a truncated episode counts, and says so": _truncated,
    "a failed episode does not count": _failed,
}
"""The parts of the contract."""
