"""Game files of ALFWorld: which are found, in which order, and what is missing. Needs no extra."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ascribe_lab.envs import MissingExtraError, make
from ascribe_lab.envs.alfworld import FAMILIES, GameFile, GameFileError, cache_folder, find_games
from ascribe_lab.envs.alfworld.games import chosen_families, evaluate, parse

CONTENT = {"pddl_domain": "d", "pddl_problem": "p", "grammar": "g"}


def write(folder: Path, name: str, **content: object) -> Path:
    path = folder / name / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**CONTENT, **content}))
    return path


def test_games_are_sorted_by_their_path(tmp_path: Path) -> None:
    names = [
        "train/pick_two_obj_and_place-Mug-None-Shelf-1/trial_b",
        "train/look_at_obj_in_light-Mug-None-DeskLamp-2/trial_a",
        "train/pick_two_obj_and_place-Mug-None-Shelf-1/trial_a",
        "pick_and_place_simple-Mug-None-Shelf-10/trial_c",
    ]
    paths = [write(tmp_path, name) for name in names]
    found = find_games(tmp_path)
    assert [game.path for game in found] == [paths[3], paths[1], paths[2], paths[0]]
    assert [game.family for game in found] == [
        "pick_and_place_simple",
        "look_at_obj_in_light",
        "pick_two_obj_and_place",
        "pick_two_obj_and_place",
    ]


def test_what_alfworld_leaves_out_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "pick_and_place_with_movable_recep-Mug-Pan-Shelf-1/trial_a")
    write(tmp_path, "pick_and_place_simple-AppleSliced-None-Shelf-1/trial_a")
    write(tmp_path, "pick_and_place_simple-Apple-None-Shelf-1/trial_a", solvable=False)
    write(tmp_path, "no_such_family-Apple-None-Shelf-1/trial_a")
    good = write(
        tmp_path,
        "pick_and_place_simple-Apple-None-Shelf-1/trial_b",
        solvable=True,
        grammar='a text that says "solvable": false',
    )
    assert [game.path for game in find_games(tmp_path)] == [good]


def test_families_can_be_chosen(tmp_path: Path) -> None:
    for family in FAMILIES:
        write(tmp_path, f"{family}-Mug-None-Shelf-1/trial_a")
    assert len(find_games(tmp_path)) == 6
    chosen = find_games(tmp_path, ["pick_two_obj_and_place", "look_at_obj_in_light"])
    assert [game.family for game in chosen] == ["look_at_obj_in_light", "pick_two_obj_and_place"]


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(ValueError, match="no family pick; there are: pick_and_place_simple"):
        chosen_families(["pick"])


def test_a_game_knows_whether_it_was_generated(tmp_path: Path) -> None:
    own = write(tmp_path, "a/b")
    made = write(tmp_path, "c/d", generator="ascribe")
    assert not GameFile(own, FAMILIES[0]).read().generated
    assert GameFile(made, FAMILIES[0]).read().generated


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"pddl_domain": 1}', "[" * 100_000, '{"pddl_domain": "d", "grammar": "g"}'],
    ids=["empty", "list", "cut", "number", "deep", "lacking"],
)
def test_a_file_that_is_no_game_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_text(content)
    with pytest.raises(GameFileError, match=r"game\.tw-pddl"):
        GameFile(path, FAMILIES[0]).read()


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(GameFileError, match="cannot be read"):
        GameFile(path, FAMILIES[0]).read()


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("o.name", "mug 1"),
        (" o.name ", "mug 1"),
        ("o.indefinite + ' ' + o.name", "a mug 1"),
        ("r.name or r.id", "shelf|1"),
        ("o.name or o.id", "mug 1"),
        ("r.name or r.noun", ""),
        ("'a' + 'b' + 'c'", "abc"),
    ],
)
def test_expressions_of_a_grammar_say_what_python_would(expression: str, says: str) -> None:
    mug = SimpleNamespace(name="mug 1", indefinite="a", id="mug|1")
    shelf = SimpleNamespace(name="", noun="", id="shelf|1")
    things = {"o": mug, "r": shelf}
    assert evaluate(parse(expression), things) == says == eval(expression.strip(), {}, things)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "open('x')",
        "__import__('os')",
        "o.__class__",
        "o.name.format",
        "o.name * 9",
        "o.name and o.id",
        "o[0]",
        "1 + 1",
        "f'{o}'",
        "lambda: 0",
        "(x := 1)",
        "o.name; o.id",
        "o." * 50_000 + "name",
        "(" * 5_000 + "o" + ")" * 5_000,
        "o\x00",
    ],
)
def test_code_in_a_grammar_is_refused(code: str) -> None:
    with pytest.raises(GameFileError, match="holds code"):
        parse(code)


def test_an_expression_about_something_that_is_not_there() -> None:
    with pytest.raises(GameFileError, match="names 'x'"):
        evaluate(parse("x.name"), {})


def test_generated_games_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/cache")
    assert cache_folder() == Path("/some/cache/ascribe/alfworld")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "ascribe" / "alfworld"


@pytest.mark.parametrize("package", ["alfworld", "textworld", "fast_downward"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for name in ("engine",):
        monkeypatch.delitem(sys.modules, f"ascribe_lab.envs.alfworld.{name}", raising=False)
    with pytest.raises(MissingExtraError, match=r"\[alfworld\]") as caught:
        make("alfworld")
    assert caught.value.extra == "alfworld"


def test_the_environment_is_found_by_its_name_without_its_packages() -> None:
    # The class can be named and documented where the extra is not installed.
    from ascribe_lab.envs import ENVIRONMENTS

    module, _, name = ENVIRONMENTS["alfworld"].partition(":")
    assert hasattr(sys.modules[module], name)
