"""The pages of the papers' claims: no empty cell, and every test and file that they name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "papers").glob("[a-z]*.md"))
TESTS = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_cell_is_empty(page: Path) -> None:
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len(rows) > 5
    for row in rows:
        cells = row.strip("|").split(" | ")
        assert len(cells) in (3, 4, 5), row
        assert all(cell.strip() for cell in cells), row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {path.name for path in TESTS}
    for named in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / named).exists(), named
    for named in re.findall(r"`(test_\w+\.py)`", text):
        assert named in names, named
    for named in re.findall(r"`(test_\w+)`", text):
        assert any(f"def {named}(" in source for source in TESTS.values()), named
    for named in re.findall(r"`([\w.*]+\.yaml)`", text):
        assert list((ROOT / "examples" / "papers").rglob(named)), named
    for named in re.findall(r"`((?:estimators|groups|agents|pivots)/\w+\.py)`", text):
        assert (ROOT / "src" / "ascribe" / named).exists(), named
