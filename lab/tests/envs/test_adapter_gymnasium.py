"""Gymnasium's environments as text; FrozenLake is the real one."""

from functools import partial
from typing import Any

import pytest

from ascribe_lab.envs import EpisodeOverError
from ascribe_lab.envs.adapters.gymnasium import GymnasiumEnvironment
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.faults import Fault
from lab.tests.envs.pages import assert_example_prints_what_the_page_shows

gymnasium = pytest.importorskip("gymnasium", reason="needs the extra gymnasium")
pytestmark = pytest.mark.engine

MOVES = ["left", "down", "right", "up"]


def where(observation: int, env: Any) -> str:
    return f"You stand on field {observation} of {env.desc.size}."


def frozen_lake(**options: Any) -> GymnasiumEnvironment:
    make = partial(gymnasium.make, "FrozenLake-v1", **{"is_slippery": True, **options})
    return GymnasiumEnvironment(
        make, render=where, actions=MOVES, task="reach the gift", family="frozen lake", horizon=40
    )


class Parrot(gymnasium.Env[str, str]):
    """Says what it hears; a text space."""

    action_space = gymnasium.spaces.Text(8, charset="abc")
    observation_space = gymnasium.spaces.Text(8, charset="abc")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word = "abc"[int(self.np_random.integers(3))]
        return (options or {}).get("greeting", self.word), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return action, float(action == self.word), action == self.word, False, {}


def parrot(**options: Any) -> GymnasiumEnvironment:
    def said(observation: str, _: Any) -> str:
        return observation

    return GymnasiumEnvironment(
        Parrot, render=said, actions=None, task="say it", horizon=5, **options
    )


def test_frozen_lake_keeps_the_contract() -> None:
    report = check_environment(frozen_lake, seeds=4)
    assert {finding.fault for finding in report.findings} == {
        Fault.SEEDS_ALL_ALIKE,  # every lake begins at the same field; the ice slips by the seed
    }
    assert report.kept
    assert report.steps_per_second > 0


def test_a_text_space_keeps_the_contract() -> None:
    report = check_environment(partial(parrot, example_actions=["a", "b", "c"]))
    assert not report.findings


def test_the_way_to_the_gift_is_won() -> None:
    env = frozen_lake(is_slippery=False)
    observation, info = env.reset(seed=0)
    assert observation == "You stand on field 0 of 16."
    assert info["admissible_actions"] == MOVES
    assert info["task"] == "reach the gift"
    for action in ("down", "down", "right", "right", "down"):
        observation, reward, terminated, _, info = env.step(action)
        assert (reward, terminated, info["won"]) == (0.0, False, False)
    observation, reward, terminated, truncated, info = env.step("right")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["won"] is True
    assert info["admissible_actions"] == []
    assert info["state"] == "You stand on field 15 of 16."
    with pytest.raises(EpisodeOverError):
        env.step("left")
    env.close()


def test_what_is_no_action_changes_nothing_but_the_count() -> None:
    env = frozen_lake()
    before, _ = env.reset(seed=0)
    for step in range(40):
        observation, reward, terminated, truncated, info = env.step("dance")
        assert (observation, reward, terminated, info["valid"]) == (before, 0.0, False, False)
        assert truncated == (step == 39)


def test_actions_of_the_moment() -> None:
    """A function may name only what is possible now."""

    def inside(env: Any) -> dict[str, int]:
        row, column = divmod(int(env.s), env.ncol)
        sides = {"left": column > 0, "down": row < 3, "right": column < 3, "up": row > 0}
        return {name: MOVES.index(name) for name, possible in sides.items() if possible}

    env = GymnasiumEnvironment(
        partial(gymnasium.make, "FrozenLake-v1", is_slippery=False),
        render=where,
        actions=inside,
        state=lambda observation, _: f"field {observation}",
        task="reach the gift",
        horizon=10,
    )
    _, info = env.reset(seed=0)
    assert info["admissible_actions"] == ["down", "right"]
    assert info["state"] == "field 0"
    assert info["task_family"] == "gymnasium"
    assert env.step("up")[4]["valid"] is False
    assert env.step("down")[4]["admissible_actions"] == ["down", "right", "up"]


def test_the_time_limit_of_gymnasium_is_a_truncation() -> None:
    env = frozen_lake(max_episode_steps=2)
    env.reset(seed=0)
    env.step("left")
    assert env.step("left")[2:4] == (False, True)


def test_options_of_reset_go_through() -> None:
    env = parrot()
    assert env.reset(seed=0, options={"greeting": "cab"})[0] == "cab"
    assert env.step("xyz")[4]["valid"] is False


@pytest.mark.parametrize("actions", [None, MOVES[:3]])
def test_actions_that_do_not_fit_the_space_are_refused(actions: Any) -> None:
    with pytest.raises(ValueError, match="space"):
        GymnasiumEnvironment("FrozenLake-v1", render=where, actions=actions, task="", horizon=9)


def test_the_example_of_the_page() -> None:
    assert_example_prints_what_the_page_shows("Gymnasium")
