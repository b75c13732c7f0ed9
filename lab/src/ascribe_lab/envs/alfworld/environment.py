"""The environment: games from a folder, one in each episode."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.envs.alfworld.games import NOTHING, GameFileError, find_games
from ascribe_lab.envs.protocol import (
    Info,
    MissingExtraError,
    Outcome,
    Start,
    TextEnvironment,
)

if TYPE_CHECKING:
    from ascribe_lab.envs.alfworld.engine import Engine, Expert

TASK = re.compile(r"Your task is to: (.*?)\.?\s*$", re.DOTALL)


@dataclass
class AlfWorldEpisode:
    """What can be done and seen now, and the expert's advice."""

    generated: bool
    admissible: list[str]
    view: str
    expert: "Expert | None" = None
    advice: str | None = None


class AlfWorld(TextEnvironment[AlfWorldEpisode]):
    """ALFWorld in text, on TextWorld's engine. See ``docs/environments/external.md``.

    Args:
        games: folder to search for ``game.tw-pddl``; None for generated games, which are **not
            ALFRED games**.
        families: only games of these families (``FAMILIES``).
        count: number of games to generate, of each family in turn.
        games_seed: seed of the generated games.
        cache: folder for generated games; by default ``ascribe/alfworld`` in the user's folder for
            caches.
        win_reward: reward of a success (GiGPO, E.1: 10; BiPACE, B.1: 1). The recipe subtracts a
            penalty for invalid actions.
        horizon: number of actions after which an episode is truncated.
        expert: whether info has ``expert_action``, from ALFWorld's hand-coded expert.

    Raises:
        MissingExtraError: without the packages ``alfworld``, ``textworld`` and
            ``fast_downward_textworld``.
        ValueError: if there is no game of these families in the folder.
    """

    file_options = frozenset({"families", "win_reward", "horizon", "expert"})

    def __init__(
        self,
        *,
        games: str | Path | None = None,
        families: Iterable[str] | None = None,
        count: int = 60,
        games_seed: int = 0,
        cache: str | Path | None = None,
        win_reward: float = 10.0,
        horizon: int = 50,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        self.win_reward = float(win_reward)
        try:
            from ascribe_lab.envs.alfworld.engine import Engine
            from ascribe_lab.envs.alfworld.generate import generate_games
        except ImportError as error:
            raise MissingExtraError(error.name or "alfworld", "alfworld") from error
        wanted = None if families is None else sorted(set(families))
        if games is None:
            folder = generate_games(Path(cache or cache_folder()), count, games_seed, wanted)
        else:
            folder = Path(games)
        self.games = find_games(folder, wanted)
        if not self.games:
            of = f" of {', '.join(wanted)}" if wanted is not None else ""
            raise InputError(f"there is no game{of} in {folder}")
        self.tasks = len(self.games)
        self._engine: Engine | None = Engine()

    def close(self) -> None:
        """Release the engine. Nothing can be played after that."""
        if self._engine is not None:
            self._engine.close()
        self._engine, self.episode, self._over = None, None, True

    def begin(self, task: int, generator: np.random.Generator) -> Start[AlfWorldEpisode]:
        engine, game = self._running(), self.games[task]
        self._over = True  # should the game not load, the episode before is lost
        rules = game.read()
        try:
            observation = engine.start(rules)
        except GameFileError as error:
            raise GameFileError(f"{game.path}: {error}") from error
        wording = TASK.search(observation)
        if wording is None:
            raise GameFileError(f"{game.path}: the first observation names no task")
        play = AlfWorldEpisode(rules.generated, engine.commands, engine.view())
        if self.expert:
            from ascribe_lab.envs.alfworld.engine import Expert

            play.expert = Expert(game.path, int(generator.integers(2**32)), observation)
            play.advice = "look"
        return Start(play, observation, task=wording[1], family=game.family)

    def act(self, episode: AlfWorldEpisode, action: str) -> Outcome:
        engine, command = self._running(), action.strip()
        valid = command in episode.admissible
        observation = engine.do(command) if valid else NOTHING
        if valid:
            episode.admissible, episode.view = engine.commands, engine.view()
        if episode.expert is not None:
            episode.advice = episode.expert.advise(engine, observation, command)
        won = engine.won
        return Outcome(observation, self.win_reward * won, terminated=won, won=won, valid=valid)

    def admissible(self, episode: AlfWorldEpisode) -> list[str]:
        return list(episode.admissible)

    def state_key(self, episode: AlfWorldEpisode, observation: str) -> str:  # noqa: ARG002
        # The last observation is left out: "examine" and "look" change nothing but that.
        return episode.view

    def expert_action(self, episode: AlfWorldEpisode) -> str | None:
        return episode.advice

    def more_info(self, episode: AlfWorldEpisode) -> Info:
        return {"generated": episode.generated}

    def _running(self) -> "Engine":
        if self._engine is None:
            raise RuntimeError("the environment is closed")
        return self._engine


def cache_folder() -> Path:
    """Where generated games are kept unless another folder is named."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "ascribe" / "alfworld"
