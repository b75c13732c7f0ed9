"""The page says what the committed simulations say, and nothing is certain too often in them."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import common
import null_decisions as simulated

from ascribe.decisions import find_decisions

pytestmark = pytest.mark.unit


def test_the_page_is_what_the_results_say() -> None:
    page = simulated.PAGE.read_text(encoding="utf-8")
    assert simulated.filled(page) == page


def test_nothing_is_certain_too_often() -> None:
    header, *lines = common.read_lines(simulated.KEPT)
    assert header["quick"] is False
    certain = {x["case"]: x for x in lines if x["metric"] == "files_with_anything_certain"}
    assert list(certain) == list(simulated.KINDS)
    assert all(line["value"] <= line["goal"] for line in certain.values())


def test_what_is_planted_is_found_as_often_as_before() -> None:
    _, *lines = common.read_lines(simulated.KEPT)
    value = {(line["case"], line["metric"]): line["value"] for line in lines}
    for name in simulated.POWER:
        assert value[name, "more_than_before_high"] >= 0
    assert value["planted .4, 80 attempts", "found"] > 0.7


def test_the_advice_on_more_attempts_holds() -> None:
    _, *lines = common.read_lines(simulated.KEPT)
    value = {(line["case"], line["metric"]): line["value"] for line in lines}
    case = "advice, true effects of 0.08 to 0.6"
    assert value[case, "told_as_promised"] >= 0.8
    assert value["advice, no true effect", "given"] < 0.25


@pytest.mark.parametrize(
    "name", ["90% copies", "equal but for rounding", "two agents, 4 attempts each"]
)
def test_a_few_files_of_a_kind(name: str) -> None:
    made = [simulated.KINDS[name](np.random.default_rng((seed, 1))) for seed in range(8)]
    assert sum(bool(find_decisions(table).certain) for table in made) <= 2


def test_findings_are_false_and_signs_are_turns_seldom_enough() -> None:
    header, *lines = common.read_lines(common.RESULTS / "findings.jsonl")
    assert header["quick"] is False
    found = [line for line in lines if line["metric"] == "files_found"]
    assert len(found) == 8
    assert all(line["value"] <= line["goal"] for line in found)
