"""The page of CCPO says what the source and the committed results say."""

import json
from pathlib import Path

import pytest

from experiments.ccpo import team as simulated

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.unit

PAGE = simulated.PAGE.read_text(encoding="utf-8")


def test_the_tables_are_what_the_results_say():
    assert simulated.filled(PAGE) == PAGE
    assert all(f"<!-- begin: {name} -->" in PAGE for name in simulated.tables(simulated.kept()))


def test_the_results_are_of_a_full_run():
    header, *lines = map(json.loads, simulated.RESULTS.read_text().splitlines())
    assert header["quick"] is False
    keys = ["bench", "case", "metric", "value", "unit", "goal", "better"]
    assert all(list(line) == keys for line in lines)
    reached = [line["value"] <= line["goal"] for line in lines if line["goal"] is not None]
    assert reached == [True, True]


def test_the_figure_is_there():
    assert (ROOT / "docs" / "figures" / "team.svg").stat().st_size > 10_000
