"""Every benchmark's quick case prints figures and nothing else; one command runs them all."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.__main__ import promises

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
SCRIPTS = sorted({command.VARIANTS.get(name, (name,))[0] for name in command.names()})
IN_CI = {"decisions", "gateway_log", "pivots"}
"""Quick cases that take a few seconds of CPU."""
TESTED_ELSEWHERE = {"engine_verl": "lab/tests/train/test_verl_benchmark.py"}


def assert_figure(line: str, bench: str) -> dict[str, object]:
    figure = json.loads(line)
    assert list(figure) == KEYS
    assert figure["bench"] == bench
    assert all(isinstance(figure[key], str) for key in ("case", "metric", "unit"))
    assert isinstance(figure["value"], float)
    assert figure["goal"] is None or isinstance(figure["goal"], float)
    assert figure["better"] in {"lower", "higher"}
    return figure


def assert_quick_run(bench: str, script: list[str], folder: Path) -> None:
    """Run a quick case: it prints figures and nothing else, and writes what it prints."""
    out = folder / "results.jsonl"
    words = [sys.executable, *script, "--quick", "--out", str(out)]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
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


def quick_run(bench: str, needs: tuple[str, ...], in_ci: bool) -> object:
    """A parameter whose id has the packages, by which environments choose tests."""
    marks = [] if in_ci else [pytest.mark.nightly]
    return pytest.param(bench, id=" ".join([bench, *needs]), marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bench",
    [
        quick_run(name, command.NEEDS.get(name, ()), name in IN_CI)
        for name in SCRIPTS
        if name not in TESTED_ELSEWHERE
    ],
)
def test_quick_run_prints_figures_and_nothing_else(bench: str, tmp_path: Path) -> None:
    if packages := command.missing(bench):
        pytest.skip(f"needs {', '.join(packages)}")
    assert_quick_run(bench, [f"benchmarks/{bench}.py"], tmp_path)


def test_what_is_tested_elsewhere_is() -> None:
    for bench, path in TESTED_ELSEWHERE.items():
        assert f"benchmarks/{bench}.py" in (ROOT / path).read_text(encoding="utf-8")


# The command.

GOOD = '{"bench": "b", "case": "c", "metric": "%s", "value": %s, "unit": "s", "goal": %s, '
GOOD += '"better": "lower"}'
WELL = f"""
import sys
lines = {[GOOD % ("fast", 1.0, 2.0), GOOD % ("slow", 3.0, 2.0), GOOD % ("any", 4.0, "null")]}
open(sys.argv[sys.argv.index("--out") + 1], "w").write("\\n".join(["{{}}", *lines]))
print(*lines, sep="\\n")
"""
HALF = """
import sys
open(sys.argv[sys.argv.index("--out") + 1], "w").write("half")
"""


def run_command(
    monkeypatch: pytest.MonkeyPatch, folder: Path, scripts: dict[str, str], *words: str
) -> int:
    for name, text in scripts.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(command, "HERE", folder)
    monkeypatch.setattr(command, "VARIANTS", {})
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    return command.main()


def test_the_table_says_what_missed_its_goal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, tmp_path, {"good": WELL, "attack/hard": WELL}) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["bench", "case", "metric", "value", "unit", "goal"]
    assert rows[1:4] == [
        ["good", "c", "slow", "3", "s", "2", "missed"],
        ["good", "c", "fast", "1", "s", "2", "ok"],
        ["good", "c", "any", "4", "s"],
    ]
    assert {row[0] for row in rows[4:7]} == {"attack/hard"}
    written = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.json*")]
    assert sorted(map(str, written)) == ["results/attack/hard.jsonl", "results/good.jsonl"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HALF}raise SystemExit(3)", "ended with code 3"),
        (f"{HALF}print('half of it')", "printed 'half of it'"),
        (f"{HALF}print({GOOD % ('nan', 'NaN', 'null')!r})", "no finite value"),
        (f"{HALF}print({GOOD[1:] % ('nan', 1.0, 'null')!r})", 'printed \'"bench"'),
        (f"{HALF}print({(GOOD % ('case', 1.0, 'null')).replace('unit', 'in')!r})", "other keys"),
        (HALF, "printed nothing"),
        (f"print({GOOD % ('fast', 1.0, 'null')!r})", "No such file"),
    ],
)
def test_a_failure_stops_no_other_and_leaves_the_whole_file(
    text: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "bad.jsonl").write_text("whole")
    scripts = {"bad": text, "good": WELL}
    assert run_command(monkeypatch, tmp_path, scripts, "--out", str(out)) == 1
    printed = capsys.readouterr().out
    assert "failed: " in printed
    assert said in printed
    assert "missed" in printed
    assert (out / "bad.jsonl").read_text() == "whole"
    assert (out / "good.jsonl").exists()


def test_a_quick_run_leaves_the_results_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(monkeypatch, tmp_path, {"good": WELL}, "--quick", "good") == 0
    folder = Path(capsys.readouterr().out.split()[-1].rstrip("."))
    assert (folder / "good.jsonl").exists()
    assert not (tmp_path / "results").exists()


def test_what_misses_a_package_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "NEEDS", {"good": ("no_such_package",)})
    assert run_command(monkeypatch, tmp_path, {"good": WELL}) == 0
    assert "skipped: needs no_such_package" in capsys.readouterr().out
    assert run_command(monkeypatch, tmp_path, {}, "--list") == 0
    assert capsys.readouterr().out == "good (needs no_such_package)\n"


def test_an_unknown_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_command(monkeypatch, tmp_path, {"good": WELL}, "god")
    assert "no benchmark god" in capsys.readouterr().err


# What is committed.


@pytest.mark.parametrize("bench", METRICS)
def test_committed_results_are_of_a_full_run(bench: str) -> None:
    header, *lines = (BENCHMARKS / "results" / f"{bench}.jsonl").read_text().splitlines()
    facts = json.loads(header)
    assert set(facts) == {"bench", "quick", "date", "machine", "python", "packages"}
    assert facts["quick"] is False
    figures = [assert_figure(line, bench) for line in lines]
    assert {figure["metric"] for figure in figures} == METRICS[bench]


def test_committed_results_have_the_keys_of_figures() -> None:
    files = [*(BENCHMARKS / "results").glob("*.jsonl")]
    for path in [*files, *(ROOT / "experiments").glob("*/results/*.jsonl")]:
        header, *lines = map(json.loads, path.read_text().splitlines())
        assert all(list(line) == KEYS for line in lines), path.name
        assert {line["bench"] for line in lines} == {header["bench"]}


def test_every_result_is_of_a_benchmark() -> None:
    assert {path.stem for path in (BENCHMARKS / "results").glob("*.jsonl")} <= {*command.names()}


def test_the_page_names_every_benchmark() -> None:
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+)`", text))
    assert {name for name in command.names() if "/" not in name} | {"attack/"} <= named


# The page.


def test_the_page_is_made_from_the_results() -> None:
    page = promises.PAGE.read_text(encoding="utf-8")
    assert promises.filled(page) == page, "run: python benchmarks --page"
    assert len(page.replace("|", " ").split()) <= 700


def test_promises_are_of_benchmarks() -> None:
    to_come = {"clustering", "reports"} - {*command.names()}
    assert {*promises.BENCHMARKS} <= {*command.names()} | to_come


def test_a_row_of_the_page_says_the_worst_and_what_limits_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(promises, "RESULTS", tmp_path)
    promise = promises.Promise(
        *("Speed", "b", "case .*", "ratio", "bare ({})", "noise"),
        beside="null_ratio",
    )
    assert promises.row(promise) == ["Speed", "", "bare", "", "not measured", "`b`"]
    values = {
        "case 1": (1.5, 2.0),
        "case 2": (2.5, 2.0),
        "case 3": (9.0, None),
        "other": (8.0, 2.0),
    }
    lines: list[dict[str, object]] = [{"bench": "b"}]
    for case, (value, goal) in values.items():
        told = {"ratio": value, "ratio_low": 1.0, "ratio_high": 3.14159, "null_ratio": 1.01}
        lines += [
            {
                "bench": "b",
                "case": case,
                "metric": metric,
                "value": each,
                "unit": "ratio",
                "goal": goal if metric == "ratio" else None,
                "better": "lower",
            }
            for metric, each in told.items()
        ]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    missed = "**not reached**: noise"
    shown = ["Speed", "2.5 [1, 3.14]", "bare (1.01)", "≤ 2", missed, "`b`"]
    assert promises.row(promise) == shown
    assert promises.row(promise._replace(case="case 1"))[3:5] == ["≤ 2", "reached"]
    assert promises.row(promise._replace(case="case 3"))[3:5] == ["", "no goal"]


def test_the_innermost_function_has_the_time() -> None:
    from benchmarks.common import OwnTime

    now = iter(range(100))
    own = OwnTime(lambda: float(next(now)))
    engine = own.watched(lambda: None, ours=False)
    credit = own.watched(lambda: engine() or engine(), ours=True)
    credit()  # looks at the clock at its beginning, twice in each call of the engine, at its end
    assert own.lap() == 3.0
    engine()
    assert own.lap() == 0.0
