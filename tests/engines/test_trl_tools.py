"""Ascribe's environments as TRL takes them; without TRL."""

from ascribe.engines.trl import environment_factory, tool_tasks
from ascribe.engines.trl.tools import OVER
from ascribe.envs import make


def test_an_episode_by_tool_calls() -> None:
    environment = environment_factory("ezpoints")()
    (row,) = tool_tasks(1, seed=5)
    first = environment.reset(**row)
    bare = make("ezpoints")
    observation, info = bare.reset(seed=row["seed"])
    assert info["task"] in first
    assert observation in first
    total, over = 0.0, False
    while not over:
        action = info["admissible_actions"][0]
        observation, reward, terminated, truncated, info = bare.step(action)
        assert environment.act(action).startswith(observation)
        total, over = total + reward, terminated or truncated
    assert environment.get_reward() == total
    assert environment.act("1") == OVER
    assert environment.get_reward() == total


def test_members_of_a_group_begin_the_same_episode() -> None:
    factory = environment_factory("sokoban")
    rows = tool_tasks(3, tasks=[4, 7])
    assert [row["task"] for row in rows[:2]] in ([4, 7], [7, 4])
    assert factory().reset(**rows[0]) == factory().reset(**rows[0]) != factory().reset(**rows[1])
    assert tool_tasks(3) == tool_tasks(4)[:3] != tool_tasks(3, seed=1)
