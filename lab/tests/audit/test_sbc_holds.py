"""What is claimed for ``sbc``, on fresh seeds."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ascribe.estimators import BiGPO
from ascribe_lab.audit import QUICK, WORLDS, Audit, audit
from benchmarks.audit_forms import ABLATIONS, scored_recipe
from lab.tests.audit.batches import batch_of

pytestmark = pytest.mark.slow

RIVALS = ("gigpo", "gigpo_mean", "bipace_q", "bipace_q_mean")
METRICS = ("cosine", "gradient_cosine", "action_gradient_cosine")
FRESH = replace(QUICK, blocks=10, updates=0, seed=2026)


@pytest.mark.parametrize(
    "size", [8, *(pytest.param(size, marks=pytest.mark.nightly) for size in (4, 16))]
)
def test_it_is_ahead_in_every_world(size: int) -> None:
    settings = replace(FRESH, sizes=(size,), blocks=6, batches=2)
    found = audit({name: scored_recipe(name) for name in (*RIVALS, "sbc")}, settings)
    for world in WORLDS:
        for rival in RIVALS:
            for metric in METRICS:
                ahead = found.difference(world, "sbc", rival, size, metric)
                assert ahead.low > 0, (world, rival, metric, ahead)


def test_in_clusters_that_mix_states_it_is_no_worse_than_gigpo_on_exact_texts() -> None:
    worlds = ("graph", "craft", "stop")
    settings = replace(FRESH, worlds={name: WORLDS[name] for name in worlds}, blur=0.97)
    found = audit(
        {name: scored_recipe(name) for name in ("gigpo", "gigpo_mean", "sbc", "sbc_keep")}, settings
    )
    assert mean_purity(worlds, blur=0.97) < 0.2
    for world in worlds:
        for ours, rival in product(("sbc", "sbc_keep"), ("gigpo", "gigpo_mean")):
            for metric in METRICS:
                ahead = found.difference(world, ours, rival, 8, metric)
                assert ahead.low > 0, (world, ours, rival, metric, ahead)


def mean_purity(worlds: tuple[str, ...], blur: float) -> float:
    shares = []
    for name in worlds:
        random = np.random.default_rng(0)
        tasks = WORLDS[name].tasks(8, random)
        batch = batch_of(tasks, tasks.solve(0.95), random, blur=blur)
        label = BiGPO(on_collapse="keep")(batch.table).terms["step"].labels
        pair = label[:, None] == label[None, :]
        np.fill_diagonal(pair, val=False)
        shares.append((batch.state[:, None] == batch.state[None, :])[pair].mean())
    return float(np.mean(shares))


def test_every_part_can_be_left_out() -> None:
    names = ("sbc", *(f"sbc-{part}" for part in ABLATIONS))
    settings = replace(FRESH, worlds={"craft": WORLDS["craft"]}, blocks=3, batches=2)
    found: Audit = audit({name: scored_recipe(name) for name in names}, settings)
    for name in names[1:]:
        one = found.blocks("craft", name, 8, "cosine")
        assert (one != found.blocks("craft", "sbc", 8, "cosine")).all()
