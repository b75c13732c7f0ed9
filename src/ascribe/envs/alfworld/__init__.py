"""ALFWorld: household tasks told in text, on the TextWorld engine that ALFWorld itself uses.

Protocol (Shridhar et al. 2021; rewards and limits as in GiGPO). The first observation lists the
receptacles of a room and the task. Commands are those of ALFWorld 0.4: ``go to``, ``open``,
``close``, ``take X from Y``, ``move X to Y``, ``heat``, ``cool``, ``clean``, ``slice``, ``use``,
``examine``, ``look``, ``inventory``, ``help``. A command that is not admissible changes nothing:
the observation is ``Nothing happens.`` and ``info["valid"]`` is False. Reward 10 for success, which
ends the episode, and 0 otherwise. 50 actions at most.

``info["state"]`` is what the agent could see from where it stands: the receptacles here and whether
they are closed, what lies in the open ones, what is carried, and how these things are (clean, hot,
...). It does not hold the last observation, so ``look`` or a refused command does not lead
to another state.

Games are the user's own download of ALFWorld, or generated (``generate``). **Generated games are
not ALFRED games**; ``info["generated"]`` marks them.

Needs the extra ``alfworld``. Nothing of it is imported before an environment is made. TextWorld and
ALFWorld are MIT. The planner that TextWorld keeps its state in (``fast_downward_textworld``) and
``jericho``, which TextWorld imports, are GPL.
"""

from ascribe.envs.alfworld.environment import AlfWorld, cache_folder
from ascribe.envs.alfworld.games import FAMILIES, GameFile, GameFileError, find_games
from ascribe.envs.alfworld.generate import generate_games

__all__ = [
    "FAMILIES",
    "AlfWorld",
    "GameFile",
    "GameFileError",
    "cache_folder",
    "find_games",
    "generate_games",
]
