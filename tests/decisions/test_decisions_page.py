"""The page on decisions says what the committed results say, and these are good enough."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import common  # noqa: E402
import decisions as simulated  # noqa: E402

pytestmark = pytest.mark.unit


def test_the_table_is_what_the_results_say() -> None:
    page = simulated.PAGE.read_text(encoding="utf-8")
    assert simulated.filled(page) == page


def test_false_discoveries_stay_under_their_rate() -> None:
    header, *lines = common.read_lines(simulated.KEPT)
    assert header["quick"] is False
    false = [line for line in lines if line["metric"] == "false_discovery_rate"]
    assert all(line["value"] <= 0.1 for line in false if line["case"].endswith(", decisions"))
    naive = [line["value"] for line in false if line["case"].endswith("naive: rows")]
    assert min(naive) > 0.1
