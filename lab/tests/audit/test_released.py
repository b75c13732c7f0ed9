"""verl's own advantage functions in the audit: they are called as the trainer calls them."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ascribe import recipe
from ascribe_lab.audit import WORLDS, scored_recipe
from lab.tests.audit.batches import batch_of

pytest.importorskip("verl", reason="needs the environment of verl")

pytestmark = pytest.mark.engine

BENCHMARKS = str(Path(__file__).parents[3] / "benchmarks")


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_verls_function_computes_what_our_recipe_computes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.delitem(sys.modules, "audit_released", raising=False)
    random = np.random.default_rng(0)
    tasks = WORLDS["graph"].tasks(4, random)
    table = batch_of(tasks, tasks.solve(0.95), random).table
    found = scored_recipe(f"audit_released:verl_{name}")(table).advantage
    np.testing.assert_allclose(found, recipe(name)(table).advantage, atol=1e-5)
