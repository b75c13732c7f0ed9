"""TextCraft: the recipe book, the splits, what commands do, and a planner that wins."""

import pickle
import random
from collections import Counter
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.envs import MissingExtraError, make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.textcraft import TextCraft, goals, recipe_book, recipes, tasks
from ascribe_lab.envs.textcraft.recipes import Book, build_book
from ascribe_lab.envs.textcraft.tasks import Planner
from tests.hostile import HOSTILE, LONG, hostile_texts

needs_recipes = pytest.mark.skipif(
    find_spec("minecraft_data") is None, reason="needs the extra textcraft"
)

WOODS = ["oak", "birch", "acacia", "dark_oak"]


def small_book(**outputs: list[tuple[int, list[str]]]) -> Book:
    """A book from ``output=[(count, ingredients), ...]``, in the package's own form."""
    names = {name for ways in outputs.values() for _, parts in ways for name in parts} | set(
        outputs
    )
    ids = {name: number for number, name in enumerate(sorted(names), start=1)}
    table: dict[str, list[dict[str, Any]]] = {
        str(ids[output]): [
            {"ingredients": [ids[part] for part in parts], "result": {"count": count}}
            for count, parts in ways
        ]
        for output, ways in outputs.items()
    }
    return build_book(table, {number: name for name, number in ids.items()})


def commands(book: Book) -> list[str]:
    return [recipe.command for recipe in book.recipes]


# The book.


def test_a_shaped_recipe_counts_its_cells() -> None:
    entry = {"inShape": [[1, 1, None], [None, 2, None]], "result": {"count": 3}}
    book = build_book({"7": [entry]}, {1: "oak_log", 2: "stick", 7: "ladder"})
    assert commands(book) == ["craft 3 ladder using 2 oak log, 1 stick"]


def test_four_alternatives_with_one_last_word_become_a_family() -> None:
    book = small_book(chest=[(1, [f"{wood}_planks"] * 8) for wood in WOODS])
    assert commands(book) == ["craft 1 chest using 8 planks"]
    assert book.families == {"planks": tuple(sorted(f"{wood}_planks" for wood in WOODS))}
    assert len(book.makes) == 4


def test_two_families_in_one_recipe_are_both_found() -> None:
    ways = [(1, [f"{a}_planks"] * 6 + [f"{b}_slab"] * 2) for a in WOODS for b in WOODS]
    book = small_book(barrel=ways)
    assert commands(book) == ["craft 1 barrel using 6 planks, 2 wooden slabs"]
    assert len(book.makes) == 16


def test_four_alternatives_without_a_common_word_are_shown_as_the_first() -> None:
    names = ["oak_log", "oak_wood", "stripped_log", "stripped_wood"]
    book = small_book(oak_planks=[(4, [name]) for name in names])
    assert commands(book) == ["craft 4 oak planks using 1 oak log"]
    assert not book.families


def test_fewer_than_four_alternatives_stay_recipes_of_their_own() -> None:
    book = small_book(tnt=[(1, ["gunpowder", "sand"]), (1, ["gunpowder", "red_sand"])])
    assert len(book.recipes) == 2


def test_taking_a_block_apart_is_left_out() -> None:
    assert not small_book(coal=[(9, ["coal_block"])]).recipes
    assert small_book(slab=[(6, ["coal_block", "stick"])]).recipes


def test_the_recipe_that_closes_a_circle_is_left_out_whatever_the_order_of_the_file() -> None:
    ways = {"ingot": [(1, ["nugget"] * 9)], "nugget": [(9, ["ingot"])], "ring": [(1, ["ingot"])]}
    for order in (["ingot", "nugget", "ring"], ["ring", "nugget", "ingot"]):
        book = small_book(**{name: ways[name] for name in order})
        assert [recipe.output for recipe in book.recipes] == ["ingot", "ring"]
        assert book.depths == {"ingot": 1, "ring": 2}
        assert book.raw == {"nugget"}


def test_a_longer_circle_and_one_through_a_family_are_found() -> None:
    book = small_book(a=[(1, ["b"])], b=[(1, ["c"])], c=[(1, ["a"])])
    assert [recipe.output for recipe in book.recipes] == ["a", "b"]
    planks = {f"{wood}_planks": [(4, ["stick"])] for wood in WOODS}
    book = small_book(**planks, stick=[(4, [f"{wood}_planks"] * 2) for wood in WOODS])
    assert "stick" not in book.numbers


def test_depth_is_that_of_the_simplest_way() -> None:
    book = small_book(
        planks=[(4, ["log"])],
        stick=[(4, ["planks"] * 2), (1, ["bamboo"] * 2)],
        axe=[(1, ["planks", "stick"])],
    )
    assert book.depths == {"axe": 2, "planks": 1, "stick": 1}


def test_a_planner_uses_what_is_there_and_what_is_left_over() -> None:
    book = small_book(
        planks=[(4, ["log"])],
        stick=[(4, ["planks"] * 2)],
        axe=[(1, ["planks"] * 3 + ["stick"] * 2)],
    )
    plan = Planner(book).plan("axe", {})
    assert plan.fetch == {"log": 2}
    assert plan.crafts == [
        "craft 4 planks using 1 log",
        "craft 4 planks using 1 log",
        "craft 4 stick using 2 planks",
        "craft 1 axe using 3 planks, 2 stick",
    ]
    plan = Planner(book).plan("axe", {"planks": 3, "stick": 2})
    assert (plan.fetch, len(plan.crafts)) == ({}, 1)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "find_spec", lambda name: None)
    recipe_book.cache_clear()
    with pytest.raises(MissingExtraError, match=r"\[textcraft\]"):
        make("textcraft")
    monkeypatch.undo()


# The real book.


@needs_recipes
def test_goals_by_depth_are_near_the_original() -> None:
    depths = Counter(recipe_book().depths[goal] for goal in goals())
    assert depths == {1: 124, 2: 293, 3: 118, 4: 11}
    for depth, original in {1: 125, 2: 291, 3: 117, 4: 11}.items():
        assert abs(depths[depth] - original) <= 2


@needs_recipes
def test_the_families_are_those_of_the_game() -> None:
    families = recipe_book().families
    assert {name: len(members) for name, members in families.items()} == {
        "planks": 8,
        "wooden_slabs": 8,
        "wool": 16,
    }
    assert "craft 1 barrel using 6 planks, 2 wooden slabs" in commands(recipe_book())
    assert "craft 4 oak planks using 1 oak log" in commands(recipe_book())


@needs_recipes
def test_splits_are_stable_and_train_and_eval_do_not_overlap() -> None:
    depths, every = recipe_book().depths, goals()
    assert len(every) == len(set(every)) == 546
    adapt, train, held_out = goals("adapt"), goals("train"), goals("eval")
    assert (len(adapt), len(train), len(held_out)) == (200, 374, 100)
    assert not set(train) & set(held_out)
    assert [depths[goal] for goal in adapt] == [4] * 11 + [3] * 118 + [2] * 71
    assert Counter(depths[goal] for goal in held_out) == {1: 23, 2: 53, 3: 23, 4: 1}
    assert held_out[:3] == ("birch_planks", "brewing_stand", "clay")


@needs_recipes
def test_depth_narrows_a_split() -> None:
    environment = make("textcraft", split="adapt", depth=4)
    assert environment.tasks == 11
    assert environment.reset(seed=1)[1]["task_family"] == "depth 4"
    assert make("textcraft", depth=[1, 4]).tasks == 124 + 11
    with pytest.raises(ValueError, match="no goals of depth 9"):
        make("textcraft", depth=9)
    with pytest.raises(ValueError, match=r"split must be one of .*, not 'dev'"):
        make("textcraft", split="dev")


# What commands do.


def begun(goal: str, **options: Any) -> TextCraft:
    environment = TextCraft(**options)
    environment.reset(seed=0, options={"task": environment.goals.index(goal)})
    return environment


@needs_recipes
def test_the_words_of_the_original() -> None:
    environment = begun("oak_stairs")
    for command, answer, valid in [
        ("inventory", "Inventory: You are not carrying anything.", True),
        ("get 2 oak log", "Got 2 oak log", True),
        ("get 2 oak planks", "Could not find oak planks", False),
        ("get 2 planks", "Could not find planks", False),
        ("get 2 unicorn", "Could not find unicorn", False),
        ("get 0 oak log", "Could not find oak log", False),
        ("inventory", "Inventory: [oak log] (2)", True),
        (
            "craft 4 oak planks using 3 oak log",
            "Could not find enough items to craft minecraft:oak_planks",
            False,
        ),
        (
            "craft 4 oak planks using 2 oak log",
            "Could not find a valid recipe for minecraft:oak_planks",
            False,
        ),
        (
            "craft 8 oak planks using 1 oak log, 1 oak log",
            "Could not find a valid recipe for minecraft:oak_planks",
            False,
        ),
        ("craft 4 oak planks using oak log", "Wrong item format: oak log", False),
        ("craft 4 oak planks using 1 oak log", "Crafted 4 minecraft:oak_planks", True),
        ("craft oak planks using 1 oak log", "Crafted 4 minecraft:oak_planks", True),
        ("inventory", "Inventory: [oak planks] (8)", True),
        ("dance", "Could not execute dance", False),
        ("  get 1 stick  ", "Could not find stick", False),
    ]:
        observation, reward, terminated, _, info = environment.step(command)
        assert (observation, info["valid"]) == (answer, valid)
        assert (reward, terminated) == (0.0, False)
    observation, reward, terminated, truncated, info = environment.step(
        "craft 4 oak stairs using 6 oak planks"
    )
    assert observation == "Crafted 4 minecraft:oak_stairs"
    assert (reward, terminated, truncated, info["won"]) == (1.0, True, False, True)


@needs_recipes
@pytest.mark.parametrize("wood", ["oak", "dark_oak"])
def test_any_member_of_a_family_will_do_but_not_a_mixture(wood: str) -> None:
    environment = begun("chest")
    for log in ("oak log", "dark oak log"):
        environment.step(f"get 2 {log}")
        for _ in range(2):
            environment.step(f"craft 4 {log[:-4]} planks using 1 {log}")
    mixed = "craft 1 chest using 4 oak planks, 4 dark oak planks"
    assert not environment.step(mixed)[4]["valid"]
    assert not environment.step("craft 1 chest using 8 planks")[4]["valid"]
    assert environment.step(f"craft 1 chest using 8 {wood.replace('_', ' ')} planks")[4]["won"]


@needs_recipes
def test_the_first_observation_shows_the_tree_and_ten_distractors() -> None:
    environment = begun("piston")
    observation, info = environment.reset(
        seed=5, options={"task": environment.goals.index("piston")}
    )
    head, *shown, blank, goal = observation.split("\n")
    assert (head, blank, goal) == ("Crafting commands:", "", "Goal: craft piston.")
    book = environment.book
    tree = {book.recipes[number].command for number in book.tree("piston")}
    assert tree <= set(shown)
    assert len(set(shown)) == len(shown) == len(tree) + tasks.DISTRACTORS
    assert info["task"] == observation
    again, _ = environment.reset(seed=6, options={"task": environment.goals.index("piston")})
    assert again != observation


@needs_recipes
def test_equal_situations_have_equal_keys_however_they_came_about() -> None:
    environment, other = begun("oak_stairs"), begun("oak_stairs")
    environment.step("get 1 oak log")
    first = environment.step("get 1 coal")[4]["state"]
    other.step("get 1 coal")
    other.step("nonsense")
    second = other.step("get 1 oak log")[4]["state"]
    assert first == second == "goal: oak_stairs; carried: 1 coal, 1 oak_log"


@needs_recipes
def test_admissible_actions_are_what_the_recipes_suggest() -> None:
    environment = begun("oak_stairs")
    before = environment.step("inventory")[4]["admissible_actions"]
    assert {"get 1 oak log", "get 2 oak log", "inventory"} <= set(before)
    assert not [action for action in before if action.startswith("craft")]
    after = environment.step("get 1 oak log")[4]["admissible_actions"]
    assert after[0] == "craft 4 oak planks using 1 oak log"
    assert after[1:] == before


@needs_recipes
def test_observations_can_end_with_the_inventory() -> None:
    environment = TextCraft(inventory=True)
    environment.reset(seed=0, options={"task": 0})
    assert environment.step("get 2 oak log")[0] == "Got 2 oak log\nInventory: [oak log] (2)"
    assert environment.step("inventory")[0] == "Inventory: [oak log] (2)"
    assert environment.step("dance")[0] == "Could not execute dance\nInventory: [oak log] (2)"


# Policies.


@needs_recipes
def test_the_expert_wins_every_goal() -> None:
    environment = TextCraft(expert=True)
    for task in range(environment.tasks):
        _, info = environment.reset(seed=task, options={"task": task})
        terminated = truncated = False
        while not (terminated or truncated):
            assert info["expert_action"] in info["admissible_actions"]
            _, _, terminated, truncated, info = environment.step(info["expert_action"])
            assert info["valid"]
        assert info["won"]


@needs_recipes
def test_a_goal_that_nobody_could_win_is_left_out() -> None:
    left_out = set(recipe_book().depths) - set(tasks.goals())
    # Nine ingots of four gold ingots each: 36 + 9 + 1 crafts, and two things to fetch.
    assert left_out == {"netherite_block"}
    assert tasks.planner().from_nothing("netherite_block").commands == 48


@needs_recipes
def test_the_expert_wins_from_wherever_a_random_player_got() -> None:
    environment = TextCraft(expert=True, horizon=200)
    for seed in range(60):
        chooser = random.Random(seed)
        _, info = environment.reset(seed=seed)
        over = False
        for _ in range(20):
            if not over:
                _, _, over, _, info = environment.step(chooser.choice(info["admissible_actions"]))
        while not over:
            _, _, over, truncated, info = environment.step(info["expert_action"])
            assert not truncated
        assert info["won"]


@needs_recipes
def test_random_play_wins_sometimes_and_never_carries_less_than_one() -> None:
    environment = TextCraft()
    wins = 0
    for seed in range(100):
        chooser = random.Random(seed)
        _, info = environment.reset(seed=seed)
        over = False
        while not over:
            action = chooser.choice(info["admissible_actions"])
            _, reward, terminated, truncated, info = environment.step(action)
            assert info["valid"]
            assert environment.episode is not None
            assert all(count >= 1 for count in environment.episode.inventory.values())
            over = terminated or truncated
            wins += reward == 1.0
    assert 0 < wins < 100


@needs_recipes
@pytest.mark.parametrize("options", [{}, {"split": "eval", "expert": True}])
def test_the_contract_is_kept(options: dict[str, Any]) -> None:
    report = check_environment(partial(make, "textcraft", **options), seeds=8)
    assert not report.findings


@needs_recipes
def test_an_environment_travels() -> None:
    environment = begun("oak_stairs", expert=True)
    environment.step("get 1 oak log")
    moved = pickle.loads(pickle.dumps(environment))
    action = "craft 4 oak planks using 1 oak log"
    assert moved.step(action) == environment.step(action)


# Hostile text.


@needs_recipes
@pytest.mark.parametrize("text", [*HOSTILE.values(), *LONG.values()], ids=[*HOSTILE, *LONG])
@pytest.mark.parametrize(
    "form", ["{}", "get 1 {}", "craft 1 {} using 1 oak log", "craft 1 x using {}"]
)
def test_hostile_commands_change_nothing_and_come_back_short_and_printable(
    text: str, form: str
) -> None:
    environment = begun("oak_stairs")
    observation, reward, terminated, _, info = environment.step(form.replace("{}", text))
    assert not info["valid"]
    assert (reward, terminated) == (0.0, False)
    # A character that does not print takes up to ten.
    assert len(observation) < 12 * 100
    assert observation.isprintable()
    assert info["state"] == "goal: oak_stairs; carried: "


@needs_recipes
def test_huge_counts_are_no_commands() -> None:
    environment = begun("oak_stairs")
    assert environment.step("get 999999999 oak log")[4]["valid"]
    assert not environment.step("get 1000000000 oak log")[4]["valid"]
    assert not environment.step(f"get {'9' * 900} oak log")[4]["valid"]
    assert not environment.step("get ² oak log")[4]["valid"]


PIECES = [
    "get",
    "craft",
    "using",
    "inventory",
    ",",
    " ",
    "1",
    "2",
    "oak log",
    "oak planks",
    "planks",
]


@needs_recipes
@given(st.lists(hostile_texts(*PIECES) | st.sampled_from(PIECES), max_size=8))
def test_no_command_raises_and_nothing_is_ever_owed(said: list[str]) -> None:
    environment = begun("oak_stairs", horizon=1_000)
    environment.step("get 3 oak log")
    for command in (*said, " ".join(said)):
        _, _, terminated, _, info = environment.step(command)
        assert environment.episode is not None
        assert all(count >= 1 for count in environment.episode.inventory.values())
        if terminated:
            assert info["won"]
            return


@needs_recipes
@given(st.integers(0, 545), st.integers(0, 2**32))
def test_what_is_shown_depends_on_goal_and_seed_alone(task: int, seed: int) -> None:
    goal = goals()[task]
    shown = tasks.show(goal, np.random.default_rng(seed))
    assert shown == tasks.show(goal, np.random.default_rng(seed))
    assert set(recipe_book().tree(goal)) <= set(shown)
