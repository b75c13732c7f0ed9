"""Desk: every task can be won, only by what the policy wants, and an episode can be branched."""

import random
from typing import Any

import pytest

from ascribe_lab.envs import make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.desk import CHANGES, TOOLS, Desk, open_actions, right_change


def begun(task: int, seed: int = 0, **options: Any) -> Desk:
    """An episode of a task."""
    environment = Desk(**options)
    environment.reset(seed=seed, options={"task": task})
    return environment


def played(environment: Desk, rng: random.Random) -> tuple[list[str], bool]:
    """What a careful agent does, in any order that is right, and whether it wins."""
    said, over, info = [], False, {"won": False}
    while not over:
        assert environment.episode is not None
        said.append(rng.choice(open_actions(environment.episode)))
        _, _, terminated, truncated, info = environment.step(said[-1])
        assert info["valid"]
        over = terminated or truncated
    return said, bool(info["won"])


def test_it_keeps_the_contract() -> None:
    assert not check_environment(lambda: make("desk", expert=True)).findings


def test_a_careful_agent_wins_every_task_in_any_order() -> None:
    used, ends = set(), set()
    for task in range(40):
        orders = [played(begun(task, seed), random.Random(seed)) for seed in range(4)]
        assert all(won for _, won in orders)
        used |= {action.split()[0] for said, _ in orders for action in said}
        ends |= {said[-1] for said, _ in orders}
    assert used == set(TOOLS)
    assert ends == {"close", "transfer"}


def test_the_expert_wins_within_the_horizon() -> None:
    environment = Desk(expert=True)
    for task in range(40):
        _, info = environment.reset(seed=task, options={"task": task})
        over = False
        while not over:
            _, reward, terminated, truncated, info = environment.step(info["expert_action"])
            over = terminated or truncated
        assert (reward, info["won"]) == (1.0, True)


@pytest.mark.parametrize("task", range(0, 40, 3))
def test_another_change_or_none_loses(task: int) -> None:
    environment = begun(task)
    assert environment.episode is not None
    said, _ = played(environment, random.Random(task))
    for number, action in enumerate(said):
        if action.split()[0] in CHANGES:
            assert not ended_won(begun(task), [*said[:number], "close"])
    others = list(environment.episode.database["orders"])[3:]
    for other in others:
        for wrong in (f"cancel_order {other} mistake", f"change_address {other} oak_street"):
            again = begun(task)
            assert again.episode is not None
            before = str(again.episode.database)
            again.step(wrong)
            if str(again.episode.database) != before:
                assert not ended_won(again, said)
    assert not ended_won(begun(task), [*said[:-1], {"close": "transfer"}.get(said[-1], "close")])


def ended_won(environment: Desk, actions: list[str]) -> bool:
    """Whether these actions win."""
    for action in actions:
        *_, terminated, truncated, info = environment.step(action)
        if terminated or truncated:
            return bool(info["won"])
    return False


def test_the_customer_says_only_what_is_asked() -> None:
    environment = begun(4)
    talk = environment.episode
    assert talk is not None
    first = dict(talk.known)
    assert len(first) == 1
    environment.step("get_order w10")
    environment.step("list_orders c1")
    assert talk.known == first
    environment.step("ask zip")
    assert set(talk.known) == {*first, "zip"}


def test_a_clone_goes_on_by_itself() -> None:
    environment = begun(9, seed=3)
    assert environment.episode is not None
    for _ in range(4):
        environment.step(open_actions(environment.episode)[0])
    before = environment.state_key(environment.episode, "")
    copies = [environment.clone() for _ in range(2)]
    assert [played(copy, random.Random(1)) for copy in copies] == [
        played(environment.clone(), random.Random(1))
    ] * 2
    assert environment.state_key(environment.episode, "") == before
    environment.step("close")


def test_a_key_is_of_the_state_and_not_of_the_order() -> None:
    keys = set()
    for order in (("ask name", "ask zip", "ask wish"), ("ask wish", "ask zip", "ask name")):
        environment = begun(2)
        for action in order:
            info = environment.step(action)[4]
        keys.add(info["state"])
    assert len(keys) == 1


def test_what_a_model_writes_is_only_ever_looked_up() -> None:
    environment = begun(0)
    for action in (
        "",
        "ask __class__",
        "get_order __dict__",
        "get_product w10 x",
        "{0}",
        "close now",
    ):
        observation, reward, terminated, _, info = environment.step(action)
        assert observation.startswith("Error")
        assert (reward, terminated, info["valid"]) == (0.0, False, False)


def test_the_policy_forbids_some_wishes() -> None:
    talks = [begun(task).episode for task in range(40)]
    assert 4 <= sum(talk is not None and talk.human for talk in talks) <= 20
    for talk in talks:
        assert talk is not None
        forbidden = [right_change(talk.database, "c1", wish) is None for wish in talk.wishes]
        assert any(forbidden) == talk.human
