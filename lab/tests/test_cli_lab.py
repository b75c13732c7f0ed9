"""The commands that the laboratory adds to ``ascribe``."""

from pathlib import Path

import pytest

from ascribe.cli import LABORATORY, load_command
from ascribe_lab.cli import COMMANDS
from tests.test_cli import check_examples, every_command
from tests.test_cli import (
    test_a_call_imports_only_what_it_needs as check_imports,
)
from tests.test_cli import (
    test_help_speaks_no_python_and_no_markup as check_help,
)
from tests.test_cli import (
    test_the_shell_completes as check_completion,
)

pytestmark = pytest.mark.unit


def test_the_library_knows_their_names() -> None:
    assert sorted(COMMANDS) == sorted(LABORATORY)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_shows_the_first_sentence(name: str) -> None:
    first = load_command(name).help.partition("\n\n")[0]
    assert COMMANDS[name][1] == " ".join(first.split())
    check_help(name)


def test_a_call_imports_only_what_it_needs() -> None:
    check_imports("env --help", {"ascribe_lab.envs"})


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("ascribe rollout --env soko", ["sokoban"]),
        ("ascribe env op", ["options"]),
        ("ascribe env check soko", ["sokoban"]),
    ],
)
def test_the_shell_completes(words: str, completions: list[str]) -> None:
    check_completion(words, completions)


@pytest.mark.slow
@pytest.mark.parametrize("words", [*every_command(COMMANDS)], ids=" ".join)
def test_the_examples_of_a_help_are_true(tmp_path: Path, words: tuple[str, ...]) -> None:
    check_examples(tmp_path, *words)
