"""ALFWorld on TextWorld's engine: the expert wins, nothing is said that TextWorld would not say."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fast_downward", reason="needs the extra alfworld")
pytest.importorskip("textworld", reason="needs the extra alfworld")
pytest.importorskip("alfworld", reason="needs the extra alfworld")

from ascribe_lab.envs.alfworld import FAMILIES, AlfWorld, GameFileError, find_games
from ascribe_lab.envs.alfworld.games import GameFile
from ascribe_lab.envs.alfworld.generate import generate_games, make_games
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.protocol import EpisodeOverError, TextEnvironment
from tests.hostile import HOSTILE, LONG

pytestmark = pytest.mark.engine

COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen generated games, two of each family."""
    return generate_games(tmp_path_factory.mktemp("alfworld"), COUNT)


@pytest.fixture(scope="module")
def expert(folder: Path) -> Iterator[AlfWorld]:
    environment = AlfWorld(games=folder, expert=True)
    yield environment
    environment.close()


@pytest.fixture(scope="module")
def real() -> Path:
    """A folder with one of ALFWorld's own games."""
    data = os.environ.get("ASCRIBE_TEST_DATA")
    if data is None or not (Path(data) / "alfworld").is_dir():
        pytest.skip("ASCRIBE_TEST_DATA names no folder with a game of ALFWorld")
    return Path(data) / "alfworld"


def follow_expert(environment: AlfWorld, task: int) -> tuple[bool, int, float]:
    """Whether the expert won, in how many steps, and the sum of rewards."""
    _, info = environment.reset(seed=0, options={"task": task})
    total, steps, over = 0.0, 0, False
    while not over and info["expert_action"] is not None:
        _, reward, terminated, truncated, info = environment.step(info["expert_action"])
        total, steps, over = total + reward, steps + 1, terminated or truncated
    return info["won"], steps, total


def transcript(environment: TextEnvironment[Any], seed: int, steps: int) -> list[Any]:
    """Everything that random play sees."""
    chooser = random.Random(seed)
    seen: list[Any] = [environment.reset(seed=seed)]
    for _ in range(steps):
        answer = environment.step(chooser.choice(seen[-1][-1]["admissible_actions"]))
        seen.append(answer)
        if answer[2] or answer[3]:
            break
    return seen


def walkthrough(game: GameFile) -> list[str]:
    """The way to win that a generated game carries."""
    way: list[str] = json.loads(game.path.read_text())["walkthrough"]
    return way


# Generated games.


def test_every_family_is_generated_in_turn() -> None:
    made = list(make_games(12, seed=0))
    assert [game.parameters["task_type"] for game in made] == [*FAMILIES, *FAMILIES]
    assert len({game.folder for game in made}) == 12


def test_games_depend_on_the_seed_and_their_number_alone() -> None:
    some = list(make_games(3, seed=5))
    assert some == list(make_games(5, seed=5))[:3]
    assert some != list(make_games(3, seed=6))


def test_generated_games_stay_what_they_are() -> None:
    # Rollouts name games by number and seed. If this changes, change the folder's name as well.
    made = repr([(game.folder, game.game, game.parameters) for game in make_games(12, seed=0)])
    assert sha256(made.encode()).hexdigest()[:16] == "7d3d25a498602149"


def test_generated_games_are_written_once(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) == 2 * COUNT
    times = [path.stat().st_mtime_ns for path in files]
    assert generate_games(folder.parent, COUNT) == folder
    assert [path.stat().st_mtime_ns for path in files] == times
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.slow
def test_several_processes_may_generate_the_same_games(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from ascribe_lab.envs.alfworld.generate import *"
    code += "; generate_games(Path(sys.argv[1]), 6, seed=3)"
    command = [sys.executable, "-c", code, str(tmp_path)]
    for process in [subprocess.Popen(command) for _ in range(2)]:
        assert process.wait(timeout=120) == 0
    assert len(list(tmp_path.iterdir())) == 1
    assert len(find_games(next(tmp_path.iterdir()))) == 6


@pytest.mark.parametrize("arguments", [{"count": 0}, {"families": []}, {"families": ["pick"]}])
def test_wrong_arguments_of_the_generator(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"count|famil"):
        generate_games(tmp_path, **arguments)


@pytest.mark.slow
def test_every_generated_game_is_won_by_its_walkthrough_and_not_before(folder: Path) -> None:
    environment = AlfWorld(games=folder)
    for task, game in enumerate(environment.games):
        way = walkthrough(game)
        _, info = environment.reset(seed=0, options={"task": task})
        for number, action in enumerate(way, start=1):
            assert not info["won"]
            _, reward, terminated, _, info = environment.step(action)
            assert info["valid"], (game, action)
            assert (reward, terminated) == ((10.0, True) if number == len(way) else (0.0, False))
    environment.close()


# The expert.


def test_the_expert_wins_a_game_of_alfworld(real: Path) -> None:
    environment = AlfWorld(games=real, expert=True)
    _, info = environment.reset(seed=0)
    assert info["task"] == "heat some potato and put it in sinkbasin"
    assert info["task_family"] == "pick_heat_then_place_in_recep"
    assert info["generated"] is False
    assert follow_expert(environment, 0) == (True, 16, 10.0)
    environment.close()


def test_what_a_win_pays_is_an_option(real: Path) -> None:
    """GiGPO pays 10 (E.1), BiPACE says 1 (B.1)."""
    environment = AlfWorld(games=real, expert=True, win_reward=1.0)
    environment.reset(seed=0)
    assert follow_expert(environment, 0) == (True, 16, 1.0)
    environment.close()


@pytest.mark.slow
def test_the_expert_wins_most_generated_games(expert: AlfWorld) -> None:
    wins = Counter(
        expert.games[task].family for task in range(COUNT) if follow_expert(expert, task)[0]
    )
    # It is a set of rules of thumb; in two games it still searches when the steps are used up.
    assert sum(wins.values()) == 10
    assert set(wins) == set(FAMILIES)


def test_the_expert_leaves_the_generators_of_the_process_alone(expert: AlfWorld) -> None:
    before = random.getstate()
    follow_expert(expert, 0)
    assert random.getstate() == before


def test_the_expert_does_not_depend_on_the_generator_of_the_process(expert: AlfWorld) -> None:
    two = []
    for seed in (1, 2):
        random.seed(seed)
        two.append(follow_expert(expert, 5))
    assert two[0] == two[1]


def test_the_expert_needs_the_parameters_of_the_game(folder: Path, tmp_path: Path) -> None:
    game = find_games(folder)[0].path
    copy = tmp_path / game.parent.parent.name / "trial" / game.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(game.read_bytes())
    AlfWorld(games=tmp_path).reset(seed=0)
    with pytest.raises(GameFileError, match=r"traj_data\.json"):
        AlfWorld(games=tmp_path, expert=True).reset(seed=0)


# The environment.


def test_what_info_says(folder: Path) -> None:
    environment = AlfWorld(games=folder, families=["pick_heat_then_place_in_recep"])
    assert environment.tasks == 2
    observation, info = environment.reset(seed=1)
    assert observation.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle")
    assert observation.endswith(f"Your task is to: {info['task']}.")
    assert info["task_family"] == "pick_heat_then_place_in_recep"
    assert info["generated"] is True
    assert info["admissible_actions"] == sorted(info["admissible_actions"])
    assert {"look", "inventory", "go to microwave 1"} <= set(info["admissible_actions"])
    assert "expert_action" not in info
    environment.close()


def test_a_refused_command_changes_nothing(folder: Path) -> None:
    environment = AlfWorld(games=folder)
    _, before = environment.reset(seed=0)
    for action in ("go to the moon", "GO TO FRIDGE 1", "take mug 1 from nowhere"):
        observation, reward, terminated, truncated, info = environment.step(action)
        assert observation == "Nothing happens."
        assert (reward, terminated, truncated, info["valid"]) == (0.0, False, False, False)
        assert info["admissible_actions"] == before["admissible_actions"]
        assert info["state"] == before["state"]
    assert environment.step("  look\n")[4]["valid"]
    environment.close()


def test_strange_actions_are_refused(folder: Path) -> None:
    strange = [*HOSTILE.values(), *LONG.values()]
    environment = AlfWorld(games=folder, horizon=len(strange))
    environment.reset(seed=0)
    for action in strange:
        assert environment.step(action)[0] == "Nothing happens."
    environment.close()


def test_the_state_is_what_can_be_seen_from_here(folder: Path) -> None:
    environment = AlfWorld(games=folder, families=["pick_cool_then_place_in_recep"])
    _, info = environment.reset(seed=0)
    assert info["state"] == "carried: nothing"
    environment.reset(seed=0, options={"task": 0})
    states = {}
    for action in walkthrough(environment.games[0])[:-1]:
        *_, info = environment.step(action)
        states[action.split()[0]] = info["state"]
        for idle in ("look", "inventory", "no such thing"):
            assert environment.step(idle)[4]["state"] == info["state"]
    assert "carried: nothing" not in states["take"]
    assert "carried: cool" in states["cool"]
    environment.close()


@pytest.mark.slow
def test_it_keeps_the_contract(folder: Path) -> None:
    factory = partial(AlfWorld, games=folder, families=FAMILIES[:2], horizon=25, expert=True)
    report = check_environment(factory, seeds=2, max_steps=25, another_process=True)
    assert not report.findings, "\n".join(map(str, report.findings))


def test_one_seed_one_transcript(folder: Path) -> None:
    one, two = AlfWorld(games=folder), AlfWorld(games=folder)
    for seed in (3, 4):
        assert transcript(one, seed, 20) == transcript(two, seed, 20)
    one.close()
    two.close()


@pytest.mark.slow
def test_random_play_wins_little(folder: Path) -> None:
    environment = AlfWorld(games=folder)
    wins = sum(transcript(environment, seed, 50)[-1][-1]["won"] for seed in range(6))
    assert wins <= 2
    environment.close()


def test_a_folder_without_games(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match="there is no game in"):
        AlfWorld(games=tmp_path)
    few = tmp_path / "few"
    game = find_games(folder, FAMILIES[:1])[0].path.parent.parent
    few.mkdir()
    (few / game.name).symlink_to(game)
    with pytest.raises(ValueError, match="no game of look_at_obj_in_light in"):
        AlfWorld(games=few, families=["look_at_obj_in_light"])


def test_games_are_generated_into_the_named_cache(tmp_path: Path) -> None:
    family = "look_at_obj_in_light"
    environment = AlfWorld(cache=tmp_path, count=2, games_seed=9, families=[family])
    assert [game.family for game in environment.games] == [family, family]
    assert all(game.path.is_relative_to(tmp_path) for game in environment.games)
    environment.close()


def test_engines_are_handed_on(folder: Path) -> None:
    from ascribe_lab.envs.alfworld.engine import _free

    first = AlfWorld(games=folder)
    before = transcript(first, 0, 5)
    first.close()
    free = len(_free)
    second = AlfWorld(games=folder)
    assert len(_free) == free - 1
    assert transcript(second, 0, 5) == before
    second.close()


def test_a_closed_environment_says_so(folder: Path) -> None:
    environment = AlfWorld(games=folder)
    environment.reset(seed=0)
    environment.close()
    environment.close()
    with pytest.raises(RuntimeError):
        environment.step("look")
    with pytest.raises(RuntimeError, match="closed"):
        environment.reset(seed=0)


# Game files are other people's.


def write_game(folder: Path, source: GameFile, **changes: str) -> Path:
    content = json.loads(source.path.read_text())
    for key, text in changes.items():
        assert key in content
        content[key] = text
    path = folder / source.path.parent.parent.name / "trial" / source.path.name
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('true')",
        "open('x')",
        "r.__class__",
        "r.name.format",
        "(lambda: r)()",
        "r.name * 10",
        "r.name if r else r",
        "r.name == r.name",
    ],
)
def test_a_game_file_that_carries_code_is_refused(folder: Path, tmp_path: Path, code: str) -> None:
    source = find_games(folder)[0]
    grammar = source.read().grammar.replace("You close the {r.name}.", f"You {{{code}}} it.")
    assert grammar != source.read().grammar
    environment = AlfWorld(games=write_game(tmp_path, source, grammar=grammar))
    with pytest.raises(GameFileError, match=r"holds code|cannot load"):
        environment.reset(seed=0)
    environment.close()


@pytest.mark.parametrize("key", ["pddl_domain", "pddl_problem", "grammar"])
@pytest.mark.parametrize("text", ["", "nonsense", "((((", "\x00"])
def test_a_broken_game_file_is_refused(folder: Path, tmp_path: Path, key: str, text: str) -> None:
    source = find_games(folder)[0]
    environment = AlfWorld(games=write_game(tmp_path, source, **{key: text}))
    with pytest.raises(GameFileError, match=r"game\.tw-pddl"):
        environment.reset(seed=0)
    environment.close()


def test_no_episode_goes_on_after_a_reset_that_failed(folder: Path, tmp_path: Path) -> None:
    source = find_games(folder, FAMILIES[:1])[0]
    write_game(tmp_path / "a", source)
    write_game(tmp_path / "b", source, pddl_problem="nonsense")
    environment = AlfWorld(games=tmp_path)
    environment.reset(seed=0, options={"task": 0})
    with pytest.raises(GameFileError):
        environment.reset(seed=0, options={"task": 1})
    with pytest.raises(EpisodeOverError):
        environment.step("look")
    environment.close()


def test_loading_a_game_leaves_the_arguments_of_the_process_alone(folder: Path) -> None:
    before = list(sys.argv)
    environment = AlfWorld(games=folder)
    environment.reset(seed=0)
    assert sys.argv == before
    environment.close()


# The same words as TextWorld's, sooner.

needs_stock = pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="TextWorld 1.7 itself cannot play these games on 3.13"
)


def stock(game: GameFile) -> Any:
    """TextWorld's own environment, with names as ALFWorld gives them."""
    import textworld
    from alfworld.agents.utils.misc import Demangler
    from textworld.envs import PddlEnv

    environment = PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))
    environment.load(json.loads(game.path.read_text()))
    names = Demangler(game_infos=environment._entity_infos)
    for info in environment._entity_infos.values():
        info.name = names.demangle_alfred_name(info.id)
    return environment


def same_words(game: GameFile, steps: int, seed: int) -> tuple[float, float]:
    """Play a game on both engines. Returns the processor seconds of the steps of each."""
    from ascribe_lab.envs.alfworld.engine import Engine

    argv = sys.argv
    theirs, ours = stock(game), Engine()
    sys.argv = argv
    said = theirs.reset()
    sys.argv = argv
    assert ours.start(game.read()) == said.feedback
    chooser = random.Random(seed)
    seconds = [0.0, 0.0]
    for _ in range(steps):
        assert ours.commands == said.admissible_commands
        command = chooser.choice(ours.commands)
        began = time.process_time()
        said, _, _ = theirs.step(command)
        between = time.process_time()
        told = ours.do(command)
        ours.view()
        seconds = [seconds[0] + between - began, seconds[1] + time.process_time() - between]
        assert told == said.feedback
        assert ours.won == said["won"]
    ours.close()
    return seconds[0], seconds[1]


@needs_stock
@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [0, 2, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(4, COUNT, 2))]
)
def test_generated_games_read_as_on_textworld(folder: Path, number: int) -> None:
    theirs, ours = same_words(find_games(folder)[number], steps=25, seed=number)
    assert theirs > 4 * ours


@needs_stock
@pytest.mark.slow
def test_a_game_of_alfworld_reads_as_on_textworld(real: Path) -> None:
    theirs, ours = same_words(find_games(real)[0], steps=40, seed=0)
    assert theirs > 4 * ours


def test_textworld_is_as_it_was_when_nothing_is_played(folder: Path) -> None:
    from ascribe_lab.envs.alfworld.engine import REPLACED, faster

    originals = [vars(place)[name] for place, name, _ in REPLACED]
    assert all(old is not new for old, (*_, new) in zip(originals, REPLACED, strict=True))
    environment = AlfWorld(games=folder)
    environment.reset(seed=0)
    environment.step("look")
    assert [vars(place)[name] for place, name, _ in REPLACED] == originals
    with faster(), faster():
        assert all(vars(place)[name] is new for place, name, new in REPLACED)
    assert [vars(place)[name] for place, name, _ in REPLACED] == originals
    environment.close()


def test_old_facts_are_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mementos.core import _memento_cache

    from ascribe_lab.envs.alfworld import engine

    environment = AlfWorld(games=folder)
    before = transcript(environment, 0, 10)
    transcript(environment, 1, 1)
    monkeypatch.setattr(engine, "FACTS_KEPT", 0)
    assert transcript(environment, 0, 10) == before
    assert len(_memento_cache) < 10_000
    environment.close()
