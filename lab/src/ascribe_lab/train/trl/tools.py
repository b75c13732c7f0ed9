"""``environment_factory``: Ascribe's environments for TRL's own loop, where actions are tool calls.

::

    trainer = AscribeTrainer(
        model,
        args=GRPOConfig(...),
        train_dataset=Dataset.from_list(tool_tasks(64)),
        environment_factory=environment_factory("textcraft", depth=2),
        recipe="sbc",
        state="tool",
    )
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ascribe_lab.envs import make
from ascribe_lab.train.episodes import task_rows

OVER = "The episode is over."


def environment_factory(name: str, /, **options: Any) -> "Callable[[], ToolEnvironment]":
    """A factory of environments by name, as ``ascribe_lab.envs.make`` takes it.

    They run in the trainer's process, without the time limits of a pool.
    """
    return partial(ToolEnvironment, name, options)


def tool_tasks(
    count: int, seed: int = 0, tasks: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Rows of a dataset: one for each group, whose members all begin the same episode.

    Args:
        count: how many groups.
        seed: the same seed gives the same tasks.
        tasks: numbers of tasks; None: the group's seed draws the task.
    """
    rows = task_rows(count, seed, "train", tasks)
    return [{**row, "prompt": [{"role": "user", "content": ""}]} for row in rows]


class ToolEnvironment:
    """An environment whose one tool is ``act``."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._environment = make(name, **options)
        self._return, self._over = 0.0, True

    def reset(self, seed: int = 0, task: int | None = None, **_: Any) -> str:
        """Begin the episode of a row; returns the task and the first observation."""
        options = None if task is None else {"task": task}
        observation, info = self._environment.reset(seed=seed, options=options)
        self._return, self._over = 0.0, False
        return f"{info['task']}\n\n{_shown(observation, info)}"

    def act(self, action: str) -> str:
        """Take an action in the environment, and see what happens.

        Args:
            action: the action, in the words of the environment.
        """
        if self._over:
            return OVER
        observation, reward, terminated, truncated, info = self._environment.step(str(action))
        self._return += reward
        self._over = terminated or truncated
        return f"{observation}\n{OVER}" if self._over else _shown(observation, info)

    def get_reward(self) -> float:
        """The sum of all rewards."""
        return self._return


def _shown(observation: str, info: dict[str, Any]) -> str:
    """The observation, and the possible actions if the environment lists them."""
    actions = info["admissible_actions"]
    if not actions:
        return observation
    return f"{observation}\nPossible actions: {', '.join(actions)}"
