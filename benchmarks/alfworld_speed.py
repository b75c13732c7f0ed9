"""ALFWorld: what remembering TextWorld's parsing gains, on generated games.

The same random commands are given to TextWorld's own environment and to Ascribe's engine in one
run, and what both say is compared. ``steps_per_second`` is in processor time; ``speedup`` is the
ratio of the two. Needs an environment made by ``scripts/make_env.sh FOLDER alfworld``.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import textworld
from alfworld.agents.utils.misc import Demangler
from textworld.envs import PddlEnv

from ascribe_lab.envs.alfworld.engine import Engine
from ascribe_lab.envs.alfworld.games import GameFile, find_games
from ascribe_lab.envs.alfworld.generate import generate_games

common.PACKAGES = ("ascribe-rl", "numpy", "alfworld", "textworld")


def main() -> None:
    """Measure and print."""
    with common.Figures("alfworld_speed") as figures, tempfile.TemporaryDirectory() as folder:
        count, steps = (2, 15) if figures.quick else (6, 50)
        games = find_games(generate_games(Path(folder), count))
        theirs, ours = 0.0, 0.0
        for seed, game in enumerate(games):
            spent = play(game, steps, seed)
            theirs, ours = theirs + spent[0], ours + spent[1]
        total, case = count * steps, f"{count} generated games"
        figures.emit(case, "steps_per_second_textworld", total / theirs, "1/s", "higher")
        figures.emit(case, "steps_per_second_ascribe", total / ours, "1/s", "higher", 20)
        figures.emit(case, "speedup", theirs / ours, "ratio", "higher", 4)


def play(game: GameFile, steps: int, seed: int) -> tuple[float, float]:
    """The processor seconds of the same steps on both engines."""
    arguments = sys.argv
    theirs, ours = textworlds_own(game), Engine()
    said = theirs.reset()
    told = ours.start(game.read())
    sys.argv = arguments  # the planner changes them
    chooser, spent = random.Random(seed), [0.0, 0.0]
    for _ in range(steps):
        if told != said.feedback or ours.commands != said.admissible_commands:
            raise AssertionError(f"{game.path.name}: the two engines differ")
        command = chooser.choice(ours.commands)
        began = time.process_time()
        said, _, _ = theirs.step(command)
        between = time.process_time()
        told = ours.do(command)
        ours.view()
        spent[0] += between - began
        spent[1] += time.process_time() - between
    ours.close()
    return spent[0], spent[1]


def textworlds_own(game: GameFile) -> Any:
    """TextWorld's environment, with names as ALFWorld gives them."""
    environment = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
    environment.load(json.loads(game.path.read_text()))
    names = Demangler(game_infos=environment._entity_infos)
    for info in environment._entity_infos.values():
        info.name = names.demangle_alfred_name(info.id)
    return environment


if __name__ == "__main__":
    main()
