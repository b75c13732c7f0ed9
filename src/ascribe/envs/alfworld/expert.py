"""ALFWorld's hand-coded expert, with dice of its own. Imports TextWorld: import this late."""

import random
from pathlib import Path

from alfworld.agents.expert import (
    HandCodedAgentFailed,
    HandCodedAgentTimeout,
    HandCodedTWAgent,
)

from ascribe.envs.alfworld.engine import Engine
from ascribe.envs.alfworld.games import PARAMETERS_FILE, GameFileError

LOST = (HandCodedAgentFailed, HandCodedAgentTimeout, IndexError, KeyError)
"""What the expert raises when it does not know what to do."""

FACTS = (
    ("holds", "agent", "object"),
    ("inreceptacle", "object", "receptacle"),
    ("wasinreceptacle", "object", "receptacle"),
    ("isclean", "object"),
    ("iscool", "object"),
    ("ishot", "object"),
)
"""The facts that the expert reads."""


class Expert:
    """Says what to do next, from what was done and seen so far.

    It draws from a state of its own, so that it neither moves the generator of the process nor
    depends on it. It can be copied and pickled.

    Args:
        game: the path of the game file; the task is read from the file beside it.
        seed: for the choices between things of one kind.
    """

    def __init__(self, game: Path, seed: int) -> None:
        if not game.with_name(PARAMETERS_FILE).is_file():
            raise GameFileError(f"the expert needs a {PARAMETERS_FILE} beside {game}")
        self._agent = HandCodedTWAgent(max_steps=200)
        self._agent.reset(str(game))
        self._dice = random.Random(seed).getstate()

    def begin(self, observation: str) -> str:
        """Look at the first observation."""
        self._agent.observe(observation)
        return "look"

    def advise(self, engine: Engine, observation: str, command: str) -> str | None:
        """What to do after a command that led to an observation; None if the expert is lost."""
        commands = engine.commands
        state = {
            "feedback": observation,
            "admissible_commands": commands,
            "facts": engine.facts(*FACTS),
        }
        outside = random.getstate()
        random.setstate(self._dice)
        try:
            advice = self._agent.act(state, 0, engine.won, _as_put(command))
        except LOST:
            return None
        finally:
            self._dice = random.getstate()
            random.setstate(outside)
        return advice if advice in commands else "look"


def _as_put(command: str) -> str:
    """``move X to Y`` as ``put X in/on Y``.

    The expert of 0.4.2 says ``move`` but still waits for ``put`` to note that its hands are empty.
    """
    verb, _, rest = command.partition(" ")
    thing, to, place = rest.partition(" to ")
    return f"put {thing} in/on {place}" if verb == "move" and to else command
