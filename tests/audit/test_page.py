"""The page on the audit shows the committed results, and they hold what is claimed."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from ascribe.audit import WORLDS
from ascribe.audit.scores import POOLED

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.unit


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    spec = spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def benchmark_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script("audit", monkeypatch)


def test_tables_of_policies_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "audit_policy_results.md").read_text(encoding="utf-8")
    assert script("audit_policy_page", monkeypatch).filled(text) == text


def test_tables_are_those_of_the_results(benchmark_script: ModuleType) -> None:
    text = (ROOT / "docs" / "audit_results.md").read_text(encoding="utf-8")
    assert benchmark_script.filled(text) == text


def test_the_claims_hold_in_the_results(benchmark_script: ModuleType) -> None:
    """``sbc`` learns faster than other recipes, paired, and in ``keydoor`` not more slowly."""
    rivals = (
        *("grpo", "returns", "gigpo", "gigpo_mean", "hgpo", "bigpo_mean", "bipace_diff_mean"),
        *("bipace_q", "bipace_q_mean", "bipace_q_equal", "g2po"),
    )
    lines = {(line["case"], line["metric"]): line for line in benchmark_script.kept()}
    for world in (*WORLDS, "mean"):
        found = [lines[f"{world}/sbc minus {rival}/8", "learning_auc"] for rival in rivals]
        end = "high" if world == "keydoor" else "low"
        assert all(line[end] > 0 for line in found)


def test_sbc_is_behind_in_no_world(benchmark_script: ModuleType) -> None:
    apart = [line for line in benchmark_script.kept("worlds") if " minus " in line["case"]]
    assert len(apart) == 24
    assert all(line["high"] >= 0 for line in apart)


def test_discounting_alone_learns_faster_than_gigpo(benchmark_script: ModuleType) -> None:
    learning = {
        line["case"]: line["value"]
        for line in benchmark_script.kept()
        if line["metric"] == "learning_auc"
    }
    ahead = [w for w in WORLDS if learning[f"{w}/returns/8"] > learning[f"{w}/gigpo/8"]]
    assert len(ahead) == 6
    assert learning["mean/returns/8"] > learning["mean/gigpo/8"]


def test_the_headline_predicts_learning_in_a_fresh_run(benchmark_script: ModuleType) -> None:
    lines = [json.loads(line) for line in benchmark_script.PREDICTOR.read_text().splitlines()[1:]]
    fixed = {line["metric"]: line for line in lines if line["case"].startswith("fixed: ")}
    case = f"fixed: later, 8 trajectories, success pooled {POOLED}"
    assert {line["case"] for line in fixed.values()} == {case}
    assert fixed["all_worlds"]["value"] >= fixed["all_worlds"]["goal"]
