"""The chores that every environment shares: seeds, ends and info."""

from importlib import import_module
from inspect import signature

import pytest

from ascribe_lab.envs import (
    ENVIRONMENTS,
    INFO_KEYS,
    NEED_FILE,
    Environment,
    EpisodeOverError,
    MissingExtraError,
    make,
)
from ascribe_lab.extras import install
from lab.tests.envs.toys import Corridor


def play(env: Environment, actions: list[str]) -> list[object]:
    """Everything that the environment says to these actions."""
    return [env.step(action) for action in actions]


def test_one_seed_is_one_start_in_every_instance() -> None:
    one, other = Corridor(), Corridor()
    for seed in range(50):
        assert one.reset(seed=seed) == other.reset(seed=seed)
        actions = ["left", "dance", "left", "left"]
        while not one._over and actions:
            action = actions.pop()
            assert one.step(action) == other.step(action)


def test_seeds_differ() -> None:
    env = Corridor()
    assert len({env.reset(seed=seed)[1]["state"] for seed in range(50)}) > 10


def test_a_task_can_be_picked_by_number() -> None:
    env = Corridor()
    families = [env.reset(seed=0, options={"task": task})[1]["task_family"] for task in range(8)]
    assert families == ["near"] * 4 + ["far"] * 4


@pytest.mark.parametrize("options", [{"task": 8}, {"task": -1}, {"level": 1}])
def test_a_task_that_is_not_there_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"no task|unknown options"):
        Corridor().reset(seed=0, options=options)


def test_info_carries_every_key() -> None:
    env = Corridor()
    _, info = env.reset(seed=3)
    assert set(info) == set(INFO_KEYS)
    assert info["won"] is False
    assert info["valid"] is True
    assert env.step("sing")[4]["valid"] is False


def test_the_expert_is_in_info_only_if_asked_for() -> None:
    env = Corridor(expert=True)
    _, info = env.reset(seed=3)
    while True:
        _, reward, terminated, truncated, info = env.step(info["expert_action"])
        if terminated:
            break
        assert not truncated
    assert (reward, info["won"], info["expert_action"], info["admissible_actions"]) == (
        1.0,
        True,
        None,
        [],
    )


def test_the_horizon_truncates_once() -> None:
    env = Corridor(horizon=3)
    env.reset(seed=0)
    ends = [env.step("sing")[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    with pytest.raises(EpisodeOverError, match="reset"):
        env.step("left")


def test_an_end_on_the_last_step_is_no_truncation() -> None:
    env = Corridor(horizon=1, expert=True)
    _, info = env.reset(seed=0, options={"task": 0})
    if info["expert_action"] == "left":  # the goal is on the other side of the wrap
        pytest.skip("this seed begins at the end of the corridor")
    assert env.step("right")[2:4] == (True, False)


def test_a_step_before_reset_is_refused() -> None:
    with pytest.raises(EpisodeOverError):
        Corridor().step("left")


def test_an_action_must_be_text() -> None:
    env = Corridor()
    env.reset(seed=0)
    with pytest.raises(TypeError, match="an action is text, not int"):
        env.step(3)  # type: ignore[arg-type]


def test_a_horizon_must_be_positive() -> None:
    with pytest.raises(ValueError, match="horizon must be at least 1"):
        Corridor(horizon=0)


def test_make_finds_a_users_own() -> None:
    assert isinstance(make("lab.tests.envs.toys:Corridor", horizon=4), Corridor)


def test_make_names_what_there_is() -> None:
    with pytest.raises(ValueError, match="there are: textcraft"):
        make("tetris")


def test_a_missing_extra_says_what_to_do() -> None:
    assert str(MissingExtraError("minecraft-data", "textcraft")) == (
        f"minecraft-data is not installed; run: {install('textcraft')}"
    )


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_which_environments_need_a_file(name: str) -> None:
    module, kind = ENVIRONMENTS[name].split(":")
    parameters = signature(getattr(import_module(module), kind)).parameters
    required = [each.name for each in parameters.values() if each.default is each.empty]
    assert (name in NEED_FILE) == (required == ["file"] or name == "team")
