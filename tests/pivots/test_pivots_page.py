"""The pages about pivots say what the source says."""

import re
from pathlib import Path

import pytest

from ascribe.pivots import VERIFIERS
from ascribe.pivots.select import LEFT_OUT
from ascribe.pivots.traces import SKIPPED, SPEAKERS
from ascribe.pivots.verifiers import COMPOSERS
from ascribe.pivots.verifiers.verdict import REASONS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / f"{name}.md").read_text("utf-8") for name in ("pivots", "pivots_reference"))


def names(heading: str) -> list[list[str]]:
    """The code in the first cells of each table of a section."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    return [re.findall(r"^\| `([^`]+)`", table, re.MULTILINE) for table in tables]


def test_every_verifier_and_every_reason_is_explained() -> None:
    named, forms, reasons = names("Verifiers")
    assert named == list(VERIFIERS)
    assert [form.split('"')[1] for form in forms] == [*COMPOSERS, "weighted"]
    assert reasons == list(REASONS)


def test_every_speaker_and_every_reason_to_skip_is_explained() -> None:
    assert names("Turns without a candidate") == [list(SKIPPED)]
    for speaker in SPEAKERS:
        assert f"`{speaker}`" in PAGE


def test_every_reason_without_signal_is_explained() -> None:
    assert names("Why a turn is left out") == [list(LEFT_OUT)]


@pytest.mark.parametrize(
    ("reason", "meaning"), [*REASONS.items(), *SKIPPED.items(), *LEFT_OUT.items()]
)
def test_the_meaning_on_the_page_is_the_sources(reason: str, meaning: str) -> None:
    assert f"| `{reason}` | {meaning} |" in PAGE
