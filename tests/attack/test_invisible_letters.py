"""Characters that show nothing are escaped, in the terminal and on the page."""

import unicodedata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.reports.text import visible
from ascribe.steps.problems import one_line, printable
from tests.conftest import write_jsonl
from tests.report.toys import sound

IGNORABLE = [
    *(0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810)),
    *(*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164),
    *(*range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4)),
    *(*range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]
"""Unicode's default ignorable code points: without a glyph wherever they stand."""
BLANK = [0x2800, 0x1D159, 0x16FE4, 0x2028, 0x2029, 0x3000, 0x00A0, 0x2007]
"""Others that show nothing, or white space that is not a plain space."""


def test_nothing_ignorable_is_printed_as_it_is() -> None:
    for code in (*IGNORABLE, *BLANK):
        # Conversations keep spaces of any width, and the sign that makes an emoji of a letter.
        kept = code == 0xFE0F or unicodedata.category(chr(code)) == "Zs"
        said = "a" if kept else chr(code)
        for shown in (
            printable(chr(code)),
            one_line(f"a{chr(code)}b"),
            visible(said) + "\\" * kept,
        ):
            assert chr(code) not in shown, hex(code)
            assert "\\" in shown, hex(code)


def test_letters_of_all_languages_stay() -> None:
    text = "tâche עברית العربية ไทย हिन्दी 日本語 e\u0301 😀 ¿? –…"
    assert printable(text) == visible(text) == text
    assert all(unicodedata.category(c)[0] in "LMNPSZ" for c in text)


@pytest.mark.parametrize("command", ["show", "check"])
def test_two_names_that_look_alike_are_told_apart(tmp_path: Path, command: str) -> None:
    hidden = "".join(chr(0xE0100 + ord(letter)) for letter in "rm -rf")
    rows = [row | {"trajectory": row["trajectory"] + hidden} for row in sound(groups=1)]
    rows[0]["state"] = "room\u202e\ufe0f"
    file = write_jsonl(tmp_path / "steps.jsonl", rows[1:] if command == "check" else rows)
    done = CliRunner().invoke(app, [command, str(file)])
    assert not set(done.output) & {chr(code) for code in (*IGNORABLE, *BLANK)}
    assert r"\U000e0172" in done.output.replace("\n", "")
