"""TextArena's games: one alone, one against a function."""

import random
from functools import partial
from typing import Any

import pytest

from ascribe_lab.envs.adapters.textarena import TextArenaEnvironment
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.faults import Fault
from lab.tests.envs.pages import assert_example_prints_what_the_page_shows

pytest.importorskip("textarena", reason="needs the extra textarena")
pytestmark = pytest.mark.engine

PEGS = ["[A B]", "[A C]", "[B A]", "[B C]", "[C A]", "[C B]"]


def board(game: Any) -> str:
    return str(game.state.game_state["towers"])


hanoi = partial(
    TextArenaEnvironment, "TowerOfHanoi-v0", state=board, horizon=30, example_actions=PEGS
)
guess = partial(
    TextArenaEnvironment,
    "GuessTheNumber-v0",
    horizon=20,
    example_actions=[f"[{number}]" for number in range(1, 21)],
)


def first_pile(seen: str) -> str:
    """Take one from the first pile that the last board shows to be left."""
    piles = [line.split() for line in seen.splitlines() if line.startswith("  pile")][-3:]
    return next(f"[{name.rstrip(':')} 1]" for _, name, left in piles if left != "0")


def nim(**options: Any) -> TextArenaEnvironment:
    moves = [f"[{pile} {number}]" for pile in range(3) for number in range(1, 4)]
    return TextArenaEnvironment(
        "Nim-v0", players=2, opponent=first_pile, horizon=30, example_actions=moves, **options
    )


@pytest.mark.parametrize("factory", [hanoi, nim, partial(nim, seat=1)])
def test_the_games_keep_the_contract(factory: Any) -> None:
    report = check_environment(factory)
    # A tower and three piles look the same in every game.
    assert {one.fault for one in report.findings} == {Fault.SEEDS_ALL_ALIKE}
    assert report.kept


def test_a_crash_of_a_game_is_found_and_not_hidden() -> None:
    """This game reads a number of any length, which Python refuses beyond 4,300 digits."""
    report = check_environment(guess)
    assert {one.fault for one in report.findings} == {
        Fault.HOSTILE_TEXT_CRASHES,
        Fault.SEEDS_ALL_ALIKE,  # the number is hidden at the start
    }
    assert "5,000 digits" in report.findings[0].detail


def test_the_tower_is_moved() -> None:
    env = hanoi()
    observation, info = env.reset(seed=0)
    assert "Tower of Hanoi with 3 disks" in info["task"]
    assert "A: [3, 2, 1]" in observation
    assert info["task_family"] == "TowerOfHanoi-v0"
    for action in PEGS[1], PEGS[0], PEGS[5], PEGS[1], PEGS[2], PEGS[3]:
        observation, reward, terminated, _, info = env.step(action)
        assert (reward, terminated, info["valid"]) == (0.0, False, True)
        assert "You moved disk" in observation
        assert action not in observation, "the agent's own words do not come back"
    observation, reward, terminated, truncated, info = env.step("[A C]")
    assert (reward, terminated, truncated, info["won"]) == (1.0, True, False, True)
    assert "Congratulations" in observation


def test_a_move_against_the_rules_is_invalid_and_the_second_ends_the_game() -> None:
    env = hanoi()
    env.reset(seed=0)
    observation, _, terminated, _, info = env.step("[B A]")
    assert (terminated, info["valid"]) == (False, False)
    assert "invalid move" in observation
    _, reward, terminated, _, info = env.step("sing")
    assert (reward, terminated, info["valid"], info["won"]) == (0.0, True, False, False)


def test_the_seed_decides_and_the_global_generator_stays() -> None:
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    secrets = []
    for seed in (1, 2, 3, 1, 2, 3):
        env = guess()
        env.reset(seed=seed)
        secrets.append(env.game.state.game_state["game_number"])
    assert secrets[:3] == secrets[3:]
    assert len(set(secrets)) > 1
    assert [random.random() for _ in range(3)] == expected


def test_without_a_key_the_situation_is_all_that_was_seen_and_said() -> None:
    env = guess()
    states = []
    for actions in (["[1]", "[2]"], ["[2]", "[1]"], ["[1]", "[2]"]):
        env.reset(seed=4)
        states.append([env.step(action)[4]["state"] for action in actions])
    assert states[0] == states[2]
    assert not set(states[0]) & set(states[1])


def test_a_game_of_two_from_both_seats() -> None:
    first, second = nim(), nim(seat=1)
    observation, _ = first.reset(seed=0)
    assert "[Player 1]" not in observation
    observation, _ = second.reset(seed=0)
    assert "Player 0 removes 1 from pile 0" in observation, "the other has moved"
    observation, _, _, _, info = first.step("[2 5]")
    assert info["valid"] is True
    assert "Player 1 removes 1 from pile 0" in observation
    # Piles 2, 4 and 0 are left; 2 and 2 is a won position, whatever the other does.
    first.step("[1 2]")
    first.step("[1 1]")
    _, reward, terminated, _, info = first.step("[1 1]")
    assert (reward, terminated, info["won"]) == (1.0, True, True)


def test_a_lost_game_pays_minus_one() -> None:
    env = nim()
    env.reset(seed=0)
    reward, terminated = 0.0, False
    for action in ("nonsense", "nonsense"):
        _, reward, terminated, _, info = env.step(action)
        assert info["valid"] is False
    assert (reward, terminated, info["won"]) == (-1.0, True, False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"players": 2}, "needs an opponent"),
        ({"seat": 1}, "no seat 1"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_wrong_tables_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TextArenaEnvironment("TowerOfHanoi-v0", **{"horizon": 5, **options})


def test_unknown_games_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match="not found"):
        TextArenaEnvironment("NoSuchGame-v0", horizon=5)
    with pytest.raises(ValueError, match="task"):
        hanoi().reset(seed=0, options={"task": 1})


def test_the_example_of_the_page() -> None:
    assert_example_prints_what_the_page_shows("TextArena")
