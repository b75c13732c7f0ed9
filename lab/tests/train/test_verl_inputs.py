"""One run of verl in which the recipe's columns come from the engine: entropies and values."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.estimators import recipe
from ascribe.steps.files import read
from lab.tests.train import verl_toys as toys

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]

BY = {"wraps": "gae gamma=1.0"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two iterations by ``entropy`` around ``gae``: both read what verl computes."""
    place = tmp_path_factory.mktemp("inputs")
    config = toys.write_config(
        place / "run.yaml",
        toys.write_tiny(place / "model"),
        recipe__name="entropy",
        recipe__parameters=BY,
        update__iterations=2,
        update__loss="token",
        engine={"verl": {"critic.optim.lr": 1e-2}},
    )
    toys.train(config)
    return place


def tables(folder: Path) -> list:
    return [read(folder / "run" / "rollouts" / f"rollouts_0000{n}.parquet") for n in (0, 1)]


def test_the_columns_are_there_and_the_credit_follows_from_them(folder: Path) -> None:
    for steps in tables(folder):
        table = steps.table
        assert table.entropy is not None
        assert table.value is not None
        assert (table.entropy > 0).all()
        assert np.isfinite(table.value).all()
        credit = recipe("entropy", **BY)(table)
        np.testing.assert_allclose(steps.carried["trained_advantage"], credit.advantage, atol=1e-6)
        assert credit.credited.any()
        assert np.ptp(credit.advantage) > 0


def test_entropies_are_those_that_verl_logs(folder: Path) -> None:
    """Verl logs it as the loss is aggregated, here over tokens, and sums in bfloat16."""
    for line, steps in zip(toys.metrics(folder / "run.yaml"), tables(folder), strict=True):
        tokens = [len(ids) for ids in steps.carried["response_ids"].to_pylist()]
        ours = np.average(steps.table.entropy, weights=tokens)
        assert line["actor/entropy"] == pytest.approx(ours, rel=1e-2)


def test_the_critic_learns(folder: Path) -> None:
    lines = toys.metrics(folder / "run.yaml")
    assert all(math.isfinite(line["critic/vf_loss"]) for line in lines)
    assert all(line["critic/grad_norm"] > 0 for line in lines)
    first, second = (steps.table.value for steps in tables(folder))
    assert not np.isclose(first.mean(), second.mean(), rtol=1e-3)


def test_verl_knows_the_keys_of_the_critic(tmp_path: Path) -> None:
    """They are there if the recipe needs values; what verl cannot give is refused by name."""
    from ascribe_lab.train.config import ConfigError
    from ascribe_lab.train.load import load_config
    from ascribe_lab.train.verl.arguments import verl_overrides
    from lab.tests.train.test_verl_examples import assert_verl_knows

    def overrides(**recipe: Any) -> dict[str, Any]:
        config = toys.write_config(tmp_path / "run.yaml", tmp_path, recipe=recipe)
        return verl_overrides(load_config(config).config, config, tmp_path, cpu=True)

    found = overrides(name="entropy", parameters=BY)
    assert found["critic.enable"] is True
    assert_verl_knows(list(found))
    assert "critic.enable" not in overrides(name="gigpo")
    for name, column in (("progress", "score"), ("judged", "step_score")):
        with pytest.raises(ConfigError, match=f"{name} needs the column {column}, which verl does"):
            overrides(name=name)
