"""Benchmarks speak one language, and the page about them is what the results say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import page  # noqa: E402

KEYS = ["bench", "case", "metric", "value", "unit", "goal", "better"]
METRICS = {
    "estimators": {
        "rows_per_second",
        "cpu_seconds",
        "peak_bytes",
        "exponent",
        "times_engine_order",
        "wall_seconds",
    },
    "against_loops": {
        "cpu_seconds",
        "speedup",
        "largest_difference",
        "partition_agreement",
        "partitions_equal",
    },
    "travel": {"bytes_per_row", "agreement", "identical_groups"},
}


def assert_figure(line: str, bench: str) -> dict[str, object]:
    figure = json.loads(line)
    assert list(figure) == KEYS
    assert figure["bench"] == bench
    assert all(isinstance(figure[key], str) for key in ("case", "metric", "unit"))
    assert isinstance(figure["value"], float)
    assert figure["goal"] is None or isinstance(figure["goal"], float)
    assert figure["better"] in {"lower", "higher"}
    return figure


@pytest.mark.slow
@pytest.mark.parametrize("bench", METRICS)
def test_quick_run_prints_figures_and_nothing_else(bench: str, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    command = [sys.executable, f"benchmarks/{bench}.py", "--quick", "--out", str(out)]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = [assert_figure(line, bench) for line in run.stdout.splitlines()]
    assert {figure["metric"] for figure in figures} == METRICS[bench]
    assert len({(figure["case"], figure["metric"]) for figure in figures}) == len(figures)
    header, *written = out.read_text().splitlines()
    assert written == run.stdout.splitlines()
    assert json.loads(header)["quick"] is True


@pytest.mark.parametrize("bench", METRICS)
def test_committed_results_are_of_a_full_run(bench: str) -> None:
    header, *lines = (BENCHMARKS / "results" / f"{bench}.jsonl").read_text().splitlines()
    said = json.loads(header)
    assert set(said) == {"bench", "quick", "date", "machine", "python", "packages"}
    assert said["quick"] is False
    figures = [assert_figure(line, bench) for line in lines]
    assert {figure["metric"] for figure in figures} == METRICS[bench]


def test_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text() == page.page()


def test_missed_goals_are_marked() -> None:
    good = {"value": 2.0, "goal": 1.0, "better": "higher"}
    assert page.cell(good) == "2 (goal: at least 1)"
    assert page.cell(good | {"better": "lower"}) == "**missed:** 2 (goal: at most 1)"
    assert page.cell(good | {"goal": None}) == "2"
