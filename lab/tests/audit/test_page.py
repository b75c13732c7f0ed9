"""The page on the audit shows the committed results, and they hold what is claimed."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from ascribe_lab.audit import WORLDS
from ascribe_lab.audit.scores import POOLED

ROOT = Path(__file__).parents[3]
PREDICTOR = ROOT / "experiments" / "audit_predictor" / "results" / "audit_predictor.jsonl"

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


def test_momentum_takes_part_of_the_lead_of_sbc(benchmark_script: ModuleType) -> None:
    """What docs/audit.md says of its table, from the lines alone."""
    lines = {(line["case"], line["metric"]): line for line in benchmark_script.kept("pairs")}
    learned = {
        line["case"]: line["value"]
        for line in benchmark_script.kept()
        if line["metric"] == "momentum_auc"
    }

    def apart(first: str, second: str, metric: str) -> float:
        return float(lines[f"mean/{first} minus {second}/8", metric]["value"])

    for second, most in (("gigpo", 0.6), ("returns", 0.5)):
        without, with_it = (apart("sbc", second, f"{m}_auc") for m in ("learning", "momentum"))
        assert 0 < with_it < most * without
    near = apart("sbc_exact", "returns@0.9", "momentum_auc")
    assert 0 < near < 0.3 * apart("sbc_exact", "returns@0.9", "learning_auc")
    outside = [
        learned[f"{world}/sbc_exact/8"] - learned[f"{world}/returns@0.9/8"]
        for world in WORLDS
        if world != "dense"
    ]
    assert abs(sum(outside) / len(outside)) < 0.005
    groups = lines["mean/gigpo_mean minus gigpo_mean_random/8", "momentum_auc"]
    assert groups["low"] < 0 < groups["high"]


def test_other_scores_predict_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says how many scores do better on the worlds that the score was not chosen on."""
    module = script("audit", monkeypatch)
    values: dict[str, dict[str, float]] = {}
    for line in map(json.loads, PREDICTOR.read_text(encoding="utf-8").splitlines()[1:]):
        values.setdefault(line["case"], {})[line["metric"]] = line["value"]
    scores = {n: v for n, v in values.items() if "chosen_on" in v and n != "ceiling"}
    chosen = max(scores, key=lambda name: scores[name]["chosen_on"])
    better = [n for n, v in scores.items() if v["tested_on"] > scores[chosen]["tested_on"]]
    assert (len(better), len(scores), scores[chosen]["tested_on"]) == (224, 420, 0.9167)
    assert "224 of the 420" in module.SUMMARY.read_text(encoding="utf-8")


def test_the_page_shows_the_results(benchmark_script: ModuleType) -> None:
    text = benchmark_script.SUMMARY.read_text(encoding="utf-8")
    assert benchmark_script.filled(text) == text


def test_scores_of_the_choice_are_those_of_the_results(benchmark_script: ModuleType) -> None:
    """Of each recipe the form that learns best, at group size 8."""
    text = benchmark_script.CHOICE.read_text(encoding="utf-8")
    assert benchmark_script.with_scores(text) == text


def test_the_page_on_recipes_shows_its_results(benchmark_script: ModuleType) -> None:
    text = benchmark_script.CHOICE.read_text(encoding="utf-8")
    assert benchmark_script.with_scores(text) == text


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
    lines = [json.loads(line) for line in PREDICTOR.read_text().splitlines()[1:]]
    fixed = {line["metric"]: line for line in lines if line["case"].startswith("fixed: ")}
    case = f"fixed: later, 8 trajectories, success pooled {POOLED}"
    assert {line["case"] for line in fixed.values()} == {case}
    assert fixed["all_worlds"]["value"] >= fixed["all_worlds"]["goal"]


def test_tables_of_intervals_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("audit_intervals", monkeypatch)
    text = module.PAGE.read_text(encoding="utf-8")
    assert module.filled(text) == text
