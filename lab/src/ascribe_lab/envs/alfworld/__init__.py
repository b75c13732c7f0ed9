"""ALFWorld: household tasks told in text, on the TextWorld engine that ALFWorld itself uses.

``docs/environments/external.md`` has the protocol (Shridhar et al. 2021; rewards and limits as in
GiGPO), the licences and what to install. ``info["state"]`` is what the agent could see from where
it stands. It does not hold the last observation, so ``look`` or a refused command does not lead to
another state.

Games are the user's own download of ALFWorld, or generated (``generate``). **Generated games are
not ALFRED games**; ``info["generated"]`` marks them. Nothing of the extra ``alfworld`` is imported
before an environment is made.
"""

from ascribe_lab.envs.alfworld.environment import AlfWorld, cache_folder
from ascribe_lab.envs.alfworld.games import FAMILIES, GameFile, GameFileError, find_games

__all__ = [
    "FAMILIES",
    "AlfWorld",
    "GameFile",
    "GameFileError",
    "cache_folder",
    "find_games",
]
