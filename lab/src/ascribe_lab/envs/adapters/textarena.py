"""TextArena games: alone, or against opponents that are functions.

TextArena's games seed and draw from the global generators of ``random`` and numpy: here each
instance has generator states of its own, which are swapped in for the length of a call. And its
observation wrappers keep what was seen in earlier episodes: here every episode has a new game.
"""

import hashlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Unpack

import numpy as np

from ascribe_lab.envs.adapters.wrapped import AdapterOptions, WrappedEnvironment, clean
from ascribe_lab.envs.protocol import MissingExtraError, Outcome

MOST_MOVES = 1_000
"""Opponents may move so often in a row before it is called a fault of the game."""

_global_generators = threading.RLock()


class TextArenaEnvironment(WrappedEnvironment):
    """A TextArena game from one seat.

    Observations are what is new since the last one, without the echo of the agent's own words.
    Rewards come at the end, for the seat.

    Args:
        game: a name that ``textarena.make`` knows, such as ``TowerOfHanoi-v0``.
        settings: what the game takes when it is made.
        players: how many play.
        seat: which of them is the agent.
        opponent: what the others say, given all that they have seen. It must be a function of that
            alone: a model behind it makes one seed many episodes.
        actions: the actions that can be taken now, given the game; None where they are not known.
        state: a key of the situation, given the game; by default all that was seen and said.
        task: the task in words; by default the game's own prompt.
        options: see ``WrappedEnvironment``; the family is by default the name of the game.
    """

    def __init__(
        self,
        game: str,
        *,
        settings: Mapping[str, Any] | None = None,
        players: int = 1,
        seat: int = 0,
        opponent: Callable[[str], str] | None = None,
        actions: Callable[[Any], list[str]] | None = None,
        state: Callable[[Any], str] | None = None,
        task: str | None = None,
        **options: Unpack[AdapterOptions],
    ) -> None:
        if not 0 <= seat < players:
            raise ValueError(f"there is no seat {seat} at a table of {players}")
        if players > 1 and opponent is None:
            raise ValueError(f"a game of {players} needs an opponent")
        super().__init__(game, task=task or "", **options)
        self.name = game
        self.settings = dict(settings or {})
        self.players = players
        self.seat = seat
        self.opponent = opponent
        self.actions = actions
        self.state = state
        self._own_task = task is None
        self._generators = _seeded(0)
        self.game: Any = None
        self._seen: dict[int, list[str]] = {}
        self._new_game()  # so that a wrong name is known at once

    def _new_game(self) -> Any:
        try:
            import textarena
        except ImportError as error:
            raise MissingExtraError("TextArena", "textarena") from error
        with self._own_generators():
            return textarena.make(self.name, **self.settings)

    @contextmanager
    def _own_generators(self) -> Iterator[None]:
        with _global_generators:
            others = _swap(self._generators)
            try:
                yield
            finally:
                self._generators = _swap(others)

    def begin(self, seed: int, options: dict[str, Any]) -> str:
        if options:
            raise ValueError(f"unknown options of reset: {', '.join(sorted(options))}")
        self._generators = _seeded(seed)
        self.game = self._new_game()
        self._seen = {player: [] for player in range(self.players)}
        with self._own_generators():
            self.game.reset(num_players=self.players, seed=seed)
            prompt = self._prompt()
            if self._others_move():
                raise RuntimeError(f"{self.name} with seed {seed} ends before the agent's turn")
        if self._own_task:
            self.task = prompt
        return self._unseen(self.seat)

    def act(self, action: str) -> Outcome:
        self._seen[self.seat].append(f"> {action}")
        with self._own_generators():
            done, _ = self.game.step(action=action)
            valid = not self._refused()
            done = done or self._others_move()
        if not done:
            return Outcome(self._unseen(self.seat), valid=valid)
        rewards, results = self.game.close()
        reason = str((results or {}).get(self.seat, {}).get("reason") or "")
        reward = float((rewards or {}).get(self.seat, 0.0))
        news = "\n".join(part for part in (self._unseen(self.seat), clean(reason)) if part)
        return Outcome(news, reward, terminated=True, valid=valid)

    def _others_move(self) -> bool:
        """Let the others play until it is the agent's turn: whether the game ended."""
        for _ in range(MOST_MOVES):
            player = self.game.state.current_player_id
            if player == self.seat:
                return False
            assert self.opponent is not None
            self._unseen(player)
            done, _ = self.game.step(action=self.opponent("\n".join(self._seen[player])))
            if done:
                return True
        raise RuntimeError(f"{self.name} did not come back to the agent in {MOST_MOVES} moves")

    def _refused(self) -> bool:
        """Whether the game refused the agent's last action."""
        state = self.game.state
        ended_by_it = state.game_info.get(self.seat, {}).get("invalid_move", False)
        return bool(ended_by_it) or getattr(state, "error_count", 0) > 0

    def _prompt(self) -> str:
        from textarena import ObservationType

        messages = self.game.state.observations[self.seat]
        return "\n".join(text for _, text, kind in messages if kind is ObservationType.PROMPT)

    def _unseen(self, player: int) -> str:
        """What a player has not seen yet; it counts as seen from now on."""
        from textarena import ObservationType

        state = self.game.state
        unseen = [
            clean(text if sender < 0 else f"[Player {sender}] {text}")
            for sender, text, kind in state.observations[player]
            # Some games echo an action in their own name.
            if kind is not ObservationType.PLAYER_ACTION or sender not in (player, -1)
        ]
        state.observations[player] = []
        self._seen[player] += unseen
        return "\n".join(unseen)

    def admissible(self) -> list[str] | None:
        return None if self.actions is None else self.actions(self.game)

    def state_key(self, observation: str) -> str:  # noqa: ARG002 (it shows only what is new)
        if self.state is not None:
            return self.state(self.game)
        return hashlib.sha256("\n".join(self._seen[self.seat]).encode()).hexdigest()

    def close(self) -> None:
        """Forget the game, which holds nothing else."""
        self.game = None
        self._over = True


def _seeded(seed: int) -> tuple[Any, Any]:
    """States of the two generators, for one seed."""
    return random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()


def _swap(states: tuple[Any, Any]) -> tuple[Any, Any]:
    """Put these states in the place of the global ones, and return those."""
    others = (random.getstate(), np.random.get_state())  # noqa: NPY002 (theirs, not ours)
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    return others
