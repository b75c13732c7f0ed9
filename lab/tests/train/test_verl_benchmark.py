"""The benchmark of a step with verl, on its quick case."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from lab.tests.test_benchmarks import ROOT, assert_figure
from lab.tests.train.verl_toys import NEEDS_VERL

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.nightly,  # it takes minutes, and its figures are of no use on a busy machine
    NEEDS_VERL,
]

BOTH = {"verl_seconds", "ascribe_seconds"}
WHOLE = {
    "step_ratio",
    "ratio_low",
    "ratio_high",
    "extra_milliseconds",
    "extra_milliseconds_by_row",
    "step_seconds",
    "rows",
    "paired_ratio",
    "paired_low",
    "paired_high",
    "null_ratio",
    "null_low",
    "null_high",
    "own_share",
    "share_low",
    "share_high",
    "own_milliseconds",
    "own_milliseconds_low",
    "own_milliseconds_high",
    "runs",
}
METRICS = {
    "": WHOLE,
    "old_log_prob": BOTH,
    "adv": BOTH,
    "update_actor": BOTH,
    "gen": {"seconds"},
    "update_weights": {"seconds"},
}


def test_quick_run_compares_both_ways(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    command = [sys.executable, "benchmarks/engine_verl.py", "--quick", "--out", str(out)]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False
    )
    assert run.returncode == 0, run.stderr
    header, *lines = out.read_text().splitlines()
    assert json.loads(header)["quick"] is True
    assert lines == run.stdout.splitlines()
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        figure = assert_figure(line, "engine_verl")
        found.setdefault(str(figure["case"]), {})[str(figure["metric"])] = float(
            str(figure["value"])
        )
    for bare in (True, False):
        cases = {case: set(seen) for case, seen in found.items() if ("without" in case) is bare}
        assert {case.partition(": ")[2]: seen for case, seen in cases.items()} == METRICS
    values = [value for figures in found.values() for value in figures.values()]
    assert all(math.isfinite(value) for value in values)
    for case, seen in found.items():
        assert not case.endswith(": adv") or min(seen.values()) > 0
        if "step_ratio" in seen:
            assert seen["ratio_low"] <= seen["step_ratio"] <= seen["ratio_high"]


def test_turns_by_hand_are_ours() -> None:
    command = [sys.executable, "benchmarks/against_stock.py", "--quick", "--engine", "verl"]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = [assert_figure(line, "against_stock") for line in run.stdout.splitlines()]
    found = {(figure["case"], figure["metric"]): figure["value"] for figure in figures}
    wrong = ("largest_difference", "different_states", "different_truncation")
    assert [found["verl", metric] for metric in wrong] == [0.0, 0.0, 0.0]
    assert all(found[case, metric] for case, metric in found if metric == "count")
