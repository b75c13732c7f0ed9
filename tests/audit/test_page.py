"""The page on the audit shows the committed results, and they hold what is claimed."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.unit


@pytest.fixture
def benchmark_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    spec = spec_from_file_location("benchmarks_audit", ROOT / "benchmarks" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_those_of_the_results(benchmark_script: ModuleType) -> None:
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    assert benchmark_script.filled(text) == text


def test_the_claims_hold_in_the_results(benchmark_script: ModuleType) -> None:
    """Ahead of the published recipes in every world at every size, paired."""
    lines = benchmark_script.kept()
    published = ("gigpo", "gigpo_mean", "bipace_q", "bipace_q_mean")
    metrics = ("cosine", "gradient_cosine", "action_gradient_cosine")
    ahead = [
        line
        for line in lines
        if any(f"/sbc minus {rival}/" in line["case"] for rival in published)
        and line["metric"] in metrics
    ]
    assert len(ahead) == 9 * len(published) * 3 * len(metrics)  # eight worlds and their mean
    assert all(line["low"] > 0 for line in ahead)
    mean = {(line["case"], line["metric"]): line["value"] for line in lines}
    rivals = [("bipace_q", size) for size in (4, 8, 16)] + [("bipace_q_mean", 8)]
    for rival, size in rivals:
        for metric, factor in (("cosine", 1.9), ("gradient_cosine", 1.8)):
            ours = mean[f"mean/sbc/{size}", metric]
            assert ours >= factor * mean[f"mean/{rival}/{size}", metric]
