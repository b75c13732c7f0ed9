"""The page about agents says what the source says."""

import re
from pathlib import Path

import pytest

from ascribe_lab.agents import AGENTS, FIELDS, PROBLEMS, ChatPrompt, TextPrompt
from ascribe_lab.agents.prompts import fields

PAGE = (Path(__file__).parents[3] / "docs" / "agents.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of all table rows of a section, heads left out."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| (`.+) \|$", section, re.MULTILINE)
    return [re.split(r" \| ", line) for line in lines]


def test_every_field_is_on_the_page() -> None:
    expected = [
        [f"`{template}`", f"`{name}`", meaning]
        for template, known in FIELDS.items()
        for name, meaning in known.items()
    ]
    assert rows("Templates") == expected


def test_every_problem_is_on_the_page() -> None:
    shown = [row for row in rows("Parsers") if len(row) == 2]
    assert shown == [[f"`{problem}`", meaning] for problem, meaning in PROBLEMS.items()]


def used(prompt: object) -> str:
    if isinstance(prompt, ChatPrompt):
        return "observation, shown as a chat"
    assert isinstance(prompt, TextPrompt)
    return ", ".join(name for name in FIELDS["body"] if name in fields(prompt.body))


@pytest.mark.parametrize("number", range(len(AGENTS)))
def test_every_agent_is_on_the_page(number: int) -> None:
    name, styles = list(AGENTS.items())[number]
    paper, plain = styles["paper"], styles["plain"]
    if "choices" in styles:
        assert styles["choices"].memory == paper.memory
    assert (plain.memory, plain.parser) == (paper.memory, paper.parser)
    assert rows("The agents of the environments")[number] == [
        f"`{name}`",
        f"`{paper.memory}`",
        f"`{type(paper.parser).__name__}`",
        used(paper.prompt),
        used(plain.prompt),
    ]
