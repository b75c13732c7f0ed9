"""EZPoints: the deal, the rules, and a parser that agrees with arithmetic."""

import random
from functools import partial
from itertools import chain, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.envs import EpisodeOverError, make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.ezpoints import Deal, EZPoints, value
from tests.hostile import HOSTILE, LONG, hostile_texts


def dealt(first: str, second: str, **options: Any) -> EZPoints:
    """An episode with these two cards."""
    environment = EZPoints(**options)
    environment.reset(seed=0)
    environment.episode = Deal((f"{first} of hearts", f"{second} of clubs"), (first, second))
    return environment


def say(environment: EZPoints, symbols: str) -> tuple[float, bool, bool, dict[str, Any]]:
    """Say symbols one by one: the rewards together, and how it ends."""
    total = 0.0
    for symbol in symbols.split():
        _, reward, terminated, truncated, info = environment.step(symbol)
        total += reward
    return total, terminated, truncated, info


@pytest.mark.parametrize(
    ("symbols", "reward", "won"),
    [
        ("2 * 6 =", 10.0, True),
        ("6 * 2 =", 10.0, True),
        ("2 * + 6 =", 10.0, True),
        ("2 + 6 =", -1.0, False),
        ("2 =", -1.0, False),
        ("=", -1.0, False),
        ("2 6 =", -1.0, False),
        ("2 * =", -1.0, False),
        ("2 * * 6 =", -1.0, False),
        ("* 2 6 =", -1.0, False),
        # Illegal numbers cost 1 each and leave a blank, which does no harm to the formula.
        ("7 2 * 6 =", 9.0, True),
        ("2 2 * 6 =", 9.0, True),
        ("2 * 3 6 =", 9.0, True),
    ],
)
def test_equals_ends_the_episode_and_pays(symbols: str, reward: float, won: bool) -> None:
    total, terminated, truncated, info = say(dealt("2", "6"), symbols)
    assert (total, info["won"], terminated, truncated) == (reward, won, True, False)


def test_the_same_number_twice_is_two_cards() -> None:
    environment = dealt("6", "6")
    assert say(environment, "6 + 6 =")[0] == 10.0
    environment = dealt("6", "6")
    assert say(environment, "6 + 6 6")[0] == -1.0


def test_an_illegal_symbol_is_shown_as_a_blank() -> None:
    environment = dealt("2", "10")
    observation, reward, _, _, info = environment.step("3")
    assert observation == "Cards: 2 of hearts, 10 of clubs\nFormula: _"
    assert (reward, info["valid"]) == (-1.0, False)
    assert info["admissible_actions"] == ["2", "10", "+", "*", "="]
    assert environment.step("10")[4]["admissible_actions"] == ["2", "+", "*", "="]


def test_the_seventh_action_is_the_last_whatever_it_is() -> None:
    environment = dealt("2", "6")
    assert say(environment, "+ + + 2 * 6")[:3] == (0.0, False, False)
    _, reward, terminated, truncated, info = environment.step("=")
    assert (reward, terminated, truncated, info["won"]) == (-1.0, False, True, False)
    with pytest.raises(EpisodeOverError):
        environment.step("=")


PAIRS = [("2", "6"), ("3", "4"), ("2", "10"), ("3", "9"), ("4", "8"), ("5", "7"), ("6", "6")]


@pytest.mark.parametrize("pair", PAIRS)
def test_the_parser_agrees_with_python_wherever_that_makes_12(pair: tuple[str, str]) -> None:
    """The original asks Python. Powers and joined digits are no formulas here, and never 12."""
    symbols = [*dict.fromkeys(pair), "+", "*"]
    for formula in chain.from_iterable(product(symbols, repeat=length) for length in range(1, 6)):
        if any(formula.count(number) > pair.count(number) for number in pair):
            continue
        try:
            expected = eval("".join(formula))
        except SyntaxError:
            expected = None
        assert (value(formula) == 12) == (expected == 12)
        if value(formula) is not None:
            assert value(formula) == expected


@given(st.lists(st.sampled_from([*map(str, range(1, 11)), "+", "*", "_"]), max_size=6))
def test_the_parser_never_raises_and_blanks_do_not_count(formula: list[str]) -> None:
    assert value(formula) == value([symbol for symbol in formula if symbol != "_"])


def test_every_deal_can_be_won_and_names_how() -> None:
    families, first_cards = set(), set()
    for task in range(500):
        environment = EZPoints()
        _, info = environment.reset(seed=0, options={"task": task})
        assert environment.episode is not None
        first, second = map(int, environment.episode.numbers)
        makes = {"sum": first + second, "product": first * second}[info["task_family"]]
        assert makes == 12
        families.add(info["task_family"])
        first_cards.add(environment.episode.cards[0].split()[0])
    assert families == {"sum", "product"}
    assert {"jack", "queen", "king", "10", "2"} <= first_cards
    assert "ace" not in first_cards


def test_a_task_is_a_deal_and_a_seed_picks_one() -> None:
    by_number = [EZPoints().reset(seed=s, options={"task": 7})[0] for s in (1, 2, None)]
    assert len(set(by_number)) == 1
    assert len({EZPoints().reset(seed=seed)[0] for seed in range(20)}) > 10


def test_the_expert_wins_every_deal_in_four_symbols() -> None:
    environment = EZPoints(expert=True)
    for task in range(200):
        _, info = environment.reset(seed=0, options={"task": task})
        for _ in range(4):
            _, reward, terminated, _, info = environment.step(info["expert_action"])
        assert (reward, terminated, info["won"]) == (10.0, True, True)


def test_the_expert_mends_what_can_be_mended() -> None:
    assert say(dealt("2", "6", expert=True), "3 2")[3]["expert_action"] == "*"
    assert say(dealt("2", "6", expert=True), "+ + +")[3]["expert_action"] is None
    assert say(dealt("2", "6", expert=True), "*")[3]["expert_action"] is None


def test_random_play_wins_rarely() -> None:
    environment, wins = EZPoints(), 0
    for seed in range(500):
        chooser = random.Random(seed)
        _, info = environment.reset(seed=seed)
        over = False
        while not over:
            action = chooser.choice(info["admissible_actions"])
            _, _, terminated, truncated, info = environment.step(action)
            assert info["valid"]
            over = terminated or truncated
        wins += info["won"]
    assert 0 < wins < 50


def test_the_contract_is_kept() -> None:
    assert not check_environment(partial(make, "ezpoints", expert=True), seeds=20).findings


@pytest.mark.parametrize("text", [*HOSTILE.values(), *LONG.values()], ids=[*HOSTILE, *LONG])
def test_hostile_text_is_an_illegal_symbol(text: str) -> None:
    observation, reward, terminated, _, info = dealt("2", "6").step(text)
    assert observation.endswith("Formula: _")
    assert (reward, terminated, info["valid"]) == (-1.0, False, False)


@given(st.lists(hostile_texts("=", "2", "+") | st.sampled_from(["2", "6", "*", "="]), max_size=7))
def test_rewards_stay_within_their_bounds(said: list[str]) -> None:
    environment = dealt("2", "6")
    for symbol in said:
        _, reward, terminated, truncated, info = environment.step(symbol)
        assert reward in (-1.0, 0.0, 10.0)
        assert (reward == 10.0) == info["won"]
        if terminated or truncated:
            return
