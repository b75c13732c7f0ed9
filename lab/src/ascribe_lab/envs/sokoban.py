"""Sokoban: push every box onto a target.

Rules and rewards are those of gym-sokoban (Schrader 2018), whose rooms are not used:
``docs/environments/games.md``. A move that a wall or box stops, and text that is no move, change
nothing and cost as much as any action.

Rooms are generated: floor is carved by a random walk, boxes are set on targets, and the game is
played backwards, pulling. So every room can be solved, and how many moves that takes is known: at
most half the horizon. Boxes may still be pushed into a corner; there is no way to win from there.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from math import inf

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.envs.protocol import Outcome, Start, TextEnvironment

MOVES = ("up", "down", "left", "right")
TURN = 0.35
TRIES = 1_000
SHORTEST = 6
MOST_GENERATED = 20_000
MOST_SEARCHED = 100_000

TASK = (
    "Push every box onto a target. # is a wall, _ is floor, O is a target, X is a box, √ is a box "
    "on a target, P is you, S is you on a target. Say up, down, left or right."
)

Position = tuple[int, frozenset[int]]
"""Where the player stands and where the boxes are. Cells are numbered along the rows."""


@dataclass(frozen=True)
class Room:
    """What does not move."""

    size: int
    floor: frozenset[int]
    targets: frozenset[int]

    @cached_property
    def steps(self) -> dict[str, int]:
        """What each move adds to the number of a cell."""
        return {"up": -self.size, "down": self.size, "left": -1, "right": 1}

    def after(self, position: Position, step: int) -> Position | None:
        """The position after a step of the player, or None if something is in the way."""
        player, boxes = position
        ahead = player + step
        if ahead not in self.floor:
            return None
        if ahead not in boxes:
            return ahead, boxes
        behind = ahead + step
        if behind not in self.floor or behind in boxes:
            return None
        return ahead, boxes - {ahead} | {behind}

    def before(self, position: Position, step: int) -> Iterator[Position]:
        """The positions from which a step leads here: with and without a push."""
        player, boxes = position
        back = player - step
        if back not in self.floor or back in boxes:
            return
        yield back, boxes
        ahead = player + step
        if ahead in boxes:
            yield back, boxes - {ahead} | {player}

    def least_pushes(self, boxes: frozenset[int]) -> int:
        """The distances of all boxes to their nearest targets, added up."""
        size, targets = self.size, self.targets
        return sum(
            min(abs(box // size - t // size) + abs(box % size - t % size) for t in targets)
            for box in boxes
        )

    def shown(self, position: Position) -> str:
        """The room as text, one line for each row."""
        player, boxes = position
        signs = []
        for cell in range(self.size * self.size):
            pair = "PS" if cell == player else "X√" if cell in boxes else "_O"
            signs.append(pair[cell in self.targets] if cell in self.floor else "#")
        rows = (signs[start : start + self.size] for start in range(0, len(signs), self.size))
        return "\n".join(map("".join, rows))


@dataclass
class SokobanEpisode:
    """The room, and where player and boxes are."""

    room: Room
    position: Position


class Sokoban(TextEnvironment[SokobanEpisode]):
    """Sokoban. See ``docs/environments/games.md``.

    Args:
        size: number of rows and columns of a room, with its walls.
        boxes: numbers of boxes; one of them is drawn for each room.
        horizon: number of moves after which an episode is truncated; a room can be solved in half
            as many.
        expert: whether info has ``expert_action``.
    """

    # Rooms of a chosen size with chosen boxes can take minutes to make.
    file_options = frozenset({"horizon", "expert"})

    def __init__(
        self,
        *,
        size: int = 6,
        boxes: Sequence[int] = (1, 2),
        horizon: int = 30,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        if not 5 <= size <= 20:
            raise InputError(f"size must lie between 5 and 20, not {size}")
        if not boxes or not all(1 <= number <= size - 3 for number in boxes):
            raise InputError(f"rooms of size {size} hold 1 to {size - 3} boxes, not {list(boxes)}")
        self.size = size
        self.boxes = tuple(boxes)

    def begin(self, task: int, generator: np.random.Generator) -> Start[SokobanEpisode]:  # noqa: ARG002
        # The room is the task: the same number makes the same room, whatever the seed.
        own = np.random.default_rng(task)
        boxes = int(own.choice(self.boxes))
        game = make_room(self.size, boxes, self.horizon // 2, own)
        family = "1 box" if boxes == 1 else f"{boxes} boxes"
        return Start(game, game.room.shown(game.position), TASK, family)

    def act(self, episode: SokobanEpisode, action: str) -> Outcome:
        room, (_, boxes) = episode.room, episode.position
        step = room.steps.get(action.strip().lower()) if len(action) < 100 else None
        position = None if step is None else room.after(episode.position, step)
        if position is None:
            return Outcome(room.shown(episode.position), reward=-0.1, valid=False)
        episode.position = position
        gained = len(position[1] & room.targets) - len(boxes & room.targets)
        won = position[1] == room.targets
        reward = -0.1 + gained + (10 if won else 0)
        return Outcome(room.shown(position), reward, terminated=won, won=won)

    def admissible(self, episode: SokobanEpisode) -> list[str]:
        steps = episode.room.steps
        return [move for move in MOVES if episode.room.after(episode.position, steps[move])]

    def expert_action(self, episode: SokobanEpisode) -> str | None:
        moves = solve(episode.room, episode.position)
        return moves[0] if moves else None


def make_room(
    size: int, boxes: int, longest: int, generator: np.random.Generator
) -> SokobanEpisode:
    """A room with a solution of at most ``longest`` moves, no box on a target at the start.

    Floor and targets are drawn until some start takes six moves or more (or ``longest``). Of their
    starts, one is drawn from the harder half: those at least half as many moves from the end as the
    hardest.

    Raises:
        ValueError: if no room is found.
    """
    for _ in range(TRIES):
        floor = _carve(size, generator)
        if len(floor) <= 2 * boxes:
            continue
        targets = generator.choice(floor, size=boxes, replace=False)
        room = Room(size, frozenset(floor), frozenset(targets.tolist()))
        moves = _moves_to_the_end(room, longest)
        starts = {p: count for p, count in moves.items() if not p[1] & room.targets}
        hardest = max(starts.values(), default=0)
        if hardest >= min(SHORTEST, longest):
            hard = [position for position, count in starts.items() if 2 * count >= hardest]
            return SokobanEpisode(room, hard[generator.integers(len(hard))])
    raise InputError(f"no room of size {size} with {boxes} boxes takes at most {longest} moves")


def _carve(size: int, generator: np.random.Generator) -> list[int]:
    """The cells of a random walk inside the outer wall, each with a neighbour; sorted."""
    steps = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
    place = generator.integers(1, size - 1, size=2)
    step = steps[generator.integers(4)]
    floor = set()
    for _ in range(3 * size):
        if generator.random() < TURN:
            step = steps[generator.integers(4)]
        place = np.clip(place + step, 1, size - 2)
        beside = np.clip(place + steps[generator.integers(4)], 1, size - 2)
        floor |= {int(row) * size + int(column) for row, column in (place, beside)}
    return sorted(floor)


def _moves_to_the_end(room: Room, longest: int) -> dict[Position, int]:
    """How many moves the end is away, by playing backwards from every solved position."""
    moves: dict[Position, int] = {
        (player, room.targets): 0 for player in sorted(room.floor - room.targets)
    }
    open_positions = deque(moves)
    while open_positions and len(moves) < MOST_GENERATED:
        position = open_positions.popleft()
        if moves[position] == longest:
            break
        for step in room.steps.values():
            for earlier in room.before(position, step):
                if earlier not in moves:
                    moves[earlier] = moves[position] + 1
                    open_positions.append(earlier)
    return moves


@lru_cache(maxsize=1024)
def solve(room: Room, start: Position) -> tuple[str, ...] | None:
    """The fewest moves that solve the room by A*, or None if there are none.

    A box needs at least as many pushes as its nearest target is away. The search stops after
    100,000 positions, which rooms of the default size do not have.
    """
    moves: dict[Position, int] = {start: 0}
    came_from: dict[Position, tuple[Position, str]] = {}
    waiting = [(0, 0, start)]
    number = 0
    while waiting and len(moves) < MOST_SEARCHED:
        _, _, position = heappop(waiting)
        if position[1] == room.targets:
            way = []
            while position in came_from:
                position, move = came_from[position]
                way.append(move)
            return tuple(reversed(way))
        for move, step in room.steps.items():
            after = room.after(position, step)
            if after is None or moves.get(after, inf) <= moves[position] + 1:
                continue
            moves[after] = moves[position] + 1
            came_from[after] = (position, move)
            number += 1
            heappush(waiting, (moves[after] + room.least_pushes(after[1]), number, after))
    return None
