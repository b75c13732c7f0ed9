"""A game whose action values are known: one way is worth a half, the other nothing."""

import secrets
from dataclasses import dataclass

import numpy as np

from ascribe_lab.envs.protocol import Outcome, Start, TextEnvironment


@dataclass
class Walk:
    """Where the walker is."""

    place: str = "fork"


class Fork(TextEnvironment[Walk]):
    """Left leads to two doors, of which one pays; right leads to two that do not.

    If it ``forgets`` its seed, it may begin at another fork the next time. If it ``hides`` the way,
    both lead to what looks the same.
    """

    def __init__(
        self,
        *,
        horizon: int = 4,
        expert: bool = False,
        forgets: bool = False,
        hides: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        self.forgets, self.hides = forgets, hides

    def begin(self, task: int, generator: np.random.Generator) -> Start[Walk]:
        place = f"fork {secrets.randbelow(2)}" if self.forgets else "fork"
        return Start(Walk(place), "A fork.", "walk", "walk")

    def act(self, episode: Walk, action: str) -> Outcome:
        if episode.place.startswith("fork"):
            episode.place = action
            return Outcome("Two doors." if self.hides else f"You went {action}.")
        won = (episode.place, action) == ("left", "red")
        return Outcome("The end.", float(won), terminated=True, won=won)

    def admissible(self, episode: Walk) -> list[str]:
        return ["left", "right"] if episode.place.startswith("fork") else ["red", "blue"]

    def state_key(self, episode: Walk, observation: str) -> str:
        return f"{episode.place} {observation}"
