"""Small environments that do what a test needs."""

from dataclasses import dataclass

import numpy as np

from ascribe_lab.envs import Outcome, Start, TextEnvironment


@dataclass
class Walk:
    """Where the walker is."""

    place: int
    goal: int


class Corridor(TextEnvironment[Walk]):
    """Walk to a place in a corridor of ten; the seed says where it is."""

    tasks = 8

    def __init__(self, *, horizon: int = 12, expert: bool = False) -> None:
        super().__init__(horizon=horizon, expert=expert)

    def begin(self, task: int, generator: np.random.Generator) -> Start[Walk]:
        place = int(generator.integers(10))
        goal = (place + 1 + task) % 10
        family = "near" if task < 4 else "far"
        return Start(Walk(place, goal), f"You are at {place}.", f"go to {goal}", family)

    def act(self, episode: Walk, action: str) -> Outcome:
        step = {"left": -1, "right": 1}.get(action)
        if step is None:
            return Outcome("Nothing happens.", valid=False)
        episode.place = min(9, max(0, episode.place + step))
        won = episode.place == episode.goal
        return Outcome(f"You are at {episode.place}.", float(won), terminated=won, won=won)

    def admissible(self, episode: Walk) -> list[str]:
        return ["left", "right"]

    def state_key(self, episode: Walk, observation: str) -> str:
        return f"at {episode.place}, goal {episode.goal}"

    def expert_action(self, episode: Walk) -> str:
        return "right" if episode.place < episode.goal else "left"
