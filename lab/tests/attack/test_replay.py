"""Point 7: an episode is continued only if its replay gives the same in every respect.

The first build compared observations alone: an episode that was interrupted could be continued in a
world with other states, rewards or ends, and its trajectory was stitched from two worlds. These
tests failed there, and have passed since replays compare all of it.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.rollout import Model, Plan, Rollout, Setup, play
from lab.tests.envs.toys import Corridor

HERE = __name__
PLAN = Plan(groups=1, size=1, max_turns=12, name="replay")


class TwoWorlds(Corridor):
    """Every process is a world of its own; what differs is not to be seen in observations.

    Args:
        folder: every process leaves a file in it when it crashes, at the third step.
        differs: what is different in every world: ``state``, ``reward``, ``won``, ``valid``.
    """

    def __init__(self, folder: str, differs: str) -> None:
        super().__init__()
        self.folder, self.differs = Path(folder), differs
        self.world = len(list(self.folder.iterdir()))

    def step(self, action: str) -> Any:
        if self._steps == 2 and self.world == 0:
            (self.folder / "crashed").touch()
            os._exit(1)
        observation, reward, terminated, truncated, info = super().step(action)
        changes: dict[str, Any] = {
            "state": f"{info['state']} of world {self.world}",
            "won": self.world == 1,
            "valid": self.world == 0,
        }
        if self.differs == "reward":
            reward = float(self.world)
        elif self.differs != "nothing":
            info = info | {self.differs: changes[self.differs]}
        return observation, reward, terminated, truncated, info


def rollout(folder: Path, differs: str) -> Rollout:
    options = {"folder": str(folder), "differs": differs}
    setup = Setup(f"{HERE}:TwoWorlds", options, pool="processes", workers=1)
    return play(setup, Model("random"), PLAN)


@pytest.mark.parametrize("differs", ["state", "reward", "won", "valid"])
def test_a_trajectory_is_not_stitched_from_two_worlds(tmp_path: Path, differs: str) -> None:
    played = rollout(tmp_path, differs)
    assert (tmp_path / "crashed").exists()
    assert played.retries == 2, "one for the crash, one because the replay differed"
    (trajectory,) = played.trajectories
    values = {
        "state": {step.state.rpartition("of world ")[2] for step in trajectory.steps[1:]},
        "reward": {step.reward for step in trajectory.steps},
        "won": {step.won for step in trajectory.steps},
        "valid": {step.valid for step in trajectory.steps},
    }[differs]
    assert values == {{"state": "1", "reward": 1.0, "won": True, "valid": False}[differs]}


def test_a_world_that_repeats_itself_is_continued(tmp_path: Path) -> None:
    assert rollout(tmp_path, "nothing").retries == 1
