"""What all adapters share, with an environment that needs no package."""

import sys
from importlib import import_module
from typing import Any

import pytest

from ascribe_lab.envs import ADAPTERS, EpisodeOverError, MissingExtraError, Outcome
from ascribe_lab.envs.adapters.wrapped import LONGEST_ACTION, WrappedEnvironment
from ascribe_lab.envs.contract import check_environment


class Repeat(WrappedEnvironment):
    """Pays what it is told to pay."""

    def __init__(self, **options: Any) -> None:
        super().__init__("repeat", **{"task": "say \ud800", "horizon": 4, **options})
        self.seed: int | None = None

    def begin(self, seed: int, options: dict[str, Any]) -> str:
        self.seed = seed
        return f"seed {seed}"

    def act(self, action: str) -> Outcome:
        reward = {"pay 0": 0.0, "pay 1": 1.0, "pay badly": float("nan")}.get(action)
        told = f"{action} \udfff"
        if reward is None:
            return Outcome(told, valid=False)
        return Outcome(told, reward, terminated=reward > 0)

    def state_key(self, observation: str) -> str:
        return observation

    def close(self) -> None:
        self._over = True


def test_it_keeps_the_contract() -> None:
    report = check_environment(lambda: Repeat(example_actions=["pay 0", "pay 1"]))
    assert not report.findings


def test_text_is_clean_in_both_directions() -> None:
    env = Repeat()
    assert env.reset(seed=0)[1]["task"] == "say ?"
    observation, _, _, _, info = env.step("\ud83d")
    assert observation == info["state"] == "? ?"


def test_a_long_action_is_not_passed_on() -> None:
    env = Repeat()
    env.reset(seed=0)
    observation, reward, terminated, _, info = env.step("x" * (LONGEST_ACTION + 1))
    assert (observation, reward, terminated) == (
        "The action is longer than 200,000 characters.",
        0.0,
        False,
    )
    assert info["valid"] is False
    assert env.step("x" * LONGEST_ACTION)[0].startswith("xxx")


@pytest.mark.parametrize(("won_at", "won"), [(1.0, True), (2.0, False)])
def test_won_is_an_end_with_enough_reward(won_at: float, won: bool) -> None:
    env = Repeat(won_at=won_at)
    env.reset(seed=0)
    assert env.step("pay 0")[4]["won"] is False
    assert env.step("pay 1")[4]["won"] is won


def test_the_limit_counts_what_is_not_understood() -> None:
    env = Repeat()
    env.reset(seed=0)
    assert [env.step("hum")[3] for _ in range(4)] == [False, False, False, True]
    with pytest.raises(EpisodeOverError):
        env.step("hum")


def test_without_a_seed_one_is_drawn() -> None:
    env = Repeat()
    seeds = []
    for _ in range(5):
        env.reset()
        seeds.append(env.seed)
    assert len(set(seeds)) > 1


def test_a_reward_that_is_no_number_is_refused() -> None:
    env = Repeat()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="paid nan"):
        env.step("pay badly")
    with pytest.raises(TypeError, match="an action is text"):
        env.step(5)  # type: ignore[arg-type]


ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gymnasium": ("FrozenLake-v1", {"render": repr, "actions": None, "task": ""}),
    "openenv": ("http://127.0.0.1:9", {"render": repr, "act": repr, "task": ""}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_package_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [name, *(one for one in sys.modules if one.startswith(f"{name}."))]:
        monkeypatch.setitem(sys.modules, loaded, None)
    module, kind = ADAPTERS[name].split(":")
    first, others = ARGUMENTS[name]
    with pytest.raises(MissingExtraError, match=rf"pip install .*\[{name}\]'"):
        getattr(import_module(module), kind)(first, horizon=3, **others).reset(seed=0)


def test_every_adapter_leads_somewhere() -> None:
    for path in ADAPTERS.values():
        module, kind = path.split(":")
        assert issubclass(getattr(import_module(module), kind), WrappedEnvironment)
