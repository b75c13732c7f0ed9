"""Sokoban: moves and rewards by hand, rooms that can be solved, and the solver."""

import random
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe_lab.envs import make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.sokoban import (
    MOVES,
    Position,
    Room,
    Sokoban,
    SokobanEpisode,
    make_room,
    solve,
)
from tests.hostile import HOSTILE, LONG, hostile_texts


def drawn(*rows: str) -> SokobanEpisode:
    """The room that a picture shows."""
    cells = dict(enumerate("".join(rows)))
    on_target = {cell for cell, sign in cells.items() if sign in "O√S"}
    boxes = {cell for cell, sign in cells.items() if sign in "X√"}
    floor = {cell for cell, sign in cells.items() if sign != "#"}
    player = next(cell for cell, sign in cells.items() if sign in "PS")
    room = Room(len(rows), frozenset(floor), frozenset(on_target))
    return SokobanEpisode(room, (player, frozenset(boxes)))


@cache
def begun() -> Sokoban:
    """Some episode: making rooms takes longer than playing in them."""
    environment = Sokoban()
    environment.reset(seed=0)
    return environment


def playing(*rows: str, **options: Any) -> Sokoban:
    """An episode in the room that a picture shows."""
    environment = Sokoban(**options)
    environment.__dict__ |= {name: vars(begun())[name] for name in ("_over", "_steps", "_task")}
    environment.episode = drawn(*rows)
    return environment


CORRIDOR = ("#####", "#PXO#", "#___#", "#___#", "#####")


def test_a_picture_is_what_is_shown() -> None:
    rows = ("#####", "#S√O#", "#_X_#", "#___#", "#####")
    game = drawn(*rows)
    assert game.room.shown(game.position) == "\n".join(rows)


def test_the_last_push_pays_for_the_box_and_the_end() -> None:
    observation, reward, terminated, truncated, info = playing(*CORRIDOR).step("right")
    assert observation.split("\n")[1] == "#_P√#"
    assert reward == pytest.approx(-0.1 + 1 + 10)
    assert (terminated, truncated, info["won"], info["valid"]) == (True, False, True, True)


def test_a_box_on_and_off_a_target() -> None:
    environment = playing("######", "#PXO_#", "#____#", "#_X_O#", "#____#", "######")
    assert environment.step("right")[1] == pytest.approx(-0.1 + 1)
    assert environment.step("right")[1] == pytest.approx(-0.1 - 1)
    assert environment.step("left")[1] == pytest.approx(-0.1)


@pytest.mark.parametrize("move", ["up", "left", "dance", ""])
def test_what_cannot_be_done_changes_nothing_and_costs_the_step(move: str) -> None:
    environment = playing(*CORRIDOR)
    observation, reward, terminated, _, info = environment.step(move)
    assert observation == "\n".join(CORRIDOR)
    assert (reward, terminated, info["valid"]) == (pytest.approx(-0.1), False, False)


def test_two_boxes_in_a_row_do_not_move_and_boxes_are_not_pulled() -> None:
    environment = playing("######", "#PXX_#", "#OO__#", "#____#", "#____#", "######")
    assert not environment.step("right")[4]["valid"]
    assert environment.step("down")[0].split("\n")[1] == "#_XX_#"


def test_case_and_space_do_not_matter() -> None:
    assert playing(*CORRIDOR).step(" Down\n")[4]["valid"]


def test_admissible_are_the_moves_that_change_something() -> None:
    info = playing(*CORRIDOR).step("up")[4]
    assert info["admissible_actions"] == ["down", "right"]


def test_the_key_is_the_room() -> None:
    environment = playing(*CORRIDOR)
    first = environment.step("down")[4]["state"]
    environment.step("right")
    observation, _, _, _, info = environment.step("left")
    assert info["state"] == first == observation


# The solver.


@pytest.mark.parametrize(
    ("rows", "moves"),
    [
        (CORRIDOR, ("right",)),
        (("#####", "#P__#", "#_X_#", "#_O_#", "#####"), ("right", "down")),
        (("#####", "#XP_#", "#_O_#", "#___#", "#####"), None),
    ],
)
def test_solutions_by_hand(rows: tuple[str, ...], moves: tuple[str, ...] | None) -> None:
    game = drawn(*rows)
    assert solve(game.room, game.position) == moves


def fewest(room: Room, start: Position) -> int | None:
    """The obvious search, layer by layer."""
    layer, seen, count = {start}, {start}, 0
    while layer:
        if any(boxes == room.targets for _, boxes in layer):
            return count
        nexts = {room.after(position, step) for position in layer for step in room.steps.values()}
        layer = {position for position in nexts if position is not None} - seen
        seen |= layer
        count += 1
    return None


@pytest.mark.parametrize("seed", range(25))
def test_rooms_can_be_solved_in_half_the_horizon_and_the_solver_is_shortest(seed: int) -> None:
    game = make_room(6, 1 + seed % 2, 15, np.random.default_rng(seed))
    moves = solve(game.room, game.position)
    assert moves is not None
    assert len(moves) == fewest(game.room, game.position)
    assert 3 <= len(moves) <= 15
    position: Position | None = game.position
    for move in moves:
        assert position is not None
        position = game.room.after(position, game.room.steps[move])
    assert position is not None
    assert position[1] == game.room.targets


@pytest.mark.parametrize("seed", range(15))
def test_stepping_back_undoes_a_step(seed: int) -> None:
    room, position = (game := make_room(6, 2, 15, np.random.default_rng(seed))).room, game.position
    for step in room.steps.values():
        after = room.after(position, step)
        if after is not None:
            assert position in list(room.before(after, step))
        for earlier in room.before(position, step):
            assert room.after(earlier, step) == position


def test_the_expert_solves_every_room() -> None:
    environment = Sokoban(expert=True)
    families = set()
    for task in range(80):
        _, info = environment.reset(seed=0, options={"task": task})
        families.add(info["task_family"])
        steps = 0
        terminated = False
        while not terminated:
            _, _, terminated, _, info = environment.step(info["expert_action"])
            steps += 1
        assert info["won"]
        assert steps <= environment.horizon // 2
    assert families == {"1 box", "2 boxes"}


@pytest.mark.parametrize("task", range(5))
def test_larger_rooms_with_more_boxes(task: int) -> None:
    environment = Sokoban(size=8, boxes=[3], horizon=40, expert=True)
    observation, info = environment.reset(seed=0, options={"task": task})
    assert info["task_family"] == "3 boxes"
    assert observation.count("X") == 3
    assert [len(row) for row in observation.split("\n")] == [8] * 8
    terminated = False
    while not terminated:
        _, _, terminated, _, info = environment.step(info["expert_action"])
    assert info["won"]


def test_there_is_no_advice_in_a_dead_end() -> None:
    environment = playing("#####", "#_XP#", "#_O_#", "#___#", "#####", expert=True)
    info = environment.step("left")[4]
    assert info["expert_action"] is None
    assert info["admissible_actions"]


@pytest.mark.parametrize(
    "options", [{"size": 4}, {"size": 21}, {"boxes": []}, {"boxes": [0]}, {"boxes": [4]}]
)
def test_rooms_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must lie|hold 1 to"):
        Sokoban(**options)


def test_a_task_is_a_room_and_a_seed_picks_one() -> None:
    assert len({Sokoban().reset(seed=s, options={"task": 3})[0] for s in (1, 2, None)}) == 1
    assert len({Sokoban().reset(seed=seed)[0] for seed in range(20)}) == 20


def test_random_play_keeps_boxes_and_bounds() -> None:
    environment, wins = Sokoban(), 0
    for seed in range(100):
        chooser = random.Random(seed)
        observation, info = environment.reset(seed=seed)
        boxes = observation.count("X")
        over = False
        while not over:
            action = chooser.choice(info["admissible_actions"])
            observation, reward, terminated, truncated, info = environment.step(action)
            assert observation.count("X") + observation.count("√") == boxes
            assert observation.count("P") + observation.count("S") == 1
            assert -1.2 < reward < 11
            assert info["valid"]
            over = terminated or truncated
        wins += info["won"]
    assert 0 < wins < 100


def test_the_contract_is_kept() -> None:
    assert not check_environment(partial(make, "sokoban", expert=True), seeds=8).findings


@pytest.mark.parametrize("text", [*HOSTILE.values(), *LONG.values()], ids=[*HOSTILE, *LONG])
def test_hostile_text_moves_nothing(text: str) -> None:
    observation, reward, _, _, info = playing(*CORRIDOR).step(text)
    assert observation == "\n".join(CORRIDOR)
    assert (reward, info["valid"]) == (pytest.approx(-0.1), False)


@given(st.lists(st.sampled_from(MOVES) | hostile_texts("up"), max_size=20))
def test_the_player_stays_on_the_floor(said: list[str]) -> None:
    environment = playing("#####", "#P__#", "#_X_#", "#__O#", "#####", horizon=1_000)
    for action in said:
        _, _, terminated, _, info = environment.step(action)
        assert environment.episode is not None
        player, boxes = environment.episode.position
        room = environment.episode.room
        assert player in room.floor
        assert boxes <= room.floor
        assert player not in boxes
        if terminated:
            assert info["won"]
            return
