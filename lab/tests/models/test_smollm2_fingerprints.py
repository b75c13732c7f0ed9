"""Capture and the policy's fingerprints, on a real model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.engines.capture import capture
from ascribe.groups.fingerprints import normalised
from ascribe_lab.calibrate.actor import actor, actor_layers
from ascribe_lab.models.loading import load_causal_lm, save_model
from lab.tests.test_actor import TEXTS
from tests.fingerprints.test_capture import LAYOUTS, Batch, captured, separate

pytestmark = pytest.mark.slow


@LAYOUTS
def test_a_real_model(smollm2: Any, layout: str) -> None:
    import torch

    model, _ = smollm2
    batch = Batch(layout, model.config.vocab_size)
    found = captured(model, batch)
    assert found.shape == (4, 576)
    torch.testing.assert_close(found, separate(model, batch.sequences, -2), atol=1e-5, rtol=0)


@LAYOUTS
def test_a_real_model_in_half_precision(smollm2_half: Any, layout: str) -> None:
    import torch

    model, _ = smollm2_half
    batch = Batch(layout, model.config.vocab_size)
    with torch.no_grad(), capture(model, -2) as hidden:
        hidden.expect(batch.places)
        states = batch.run(model, output_hidden_states=True).hidden_states[-2]
    found = hidden.fingerprints()
    wanted = states[batch.places.rows, batch.places.positions].float()
    wanted = torch.nn.functional.normalize(wanted, dim=1)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
    # Another batch means another order of sums, and bfloat16 has three digits.
    distance = 1 - (found * separate(model, batch.sequences, -2)).sum(dim=1)
    assert distance.abs().max() < 1e-3


def test_a_saved_model_gives_the_same_fingerprints(smollm2: Any, tmp_path: Path) -> None:
    import torch

    model, tokenizer = smollm2
    before = actor(TEXTS, model, tokenizer, -8)
    assert [path.suffix for path in save_model(model, tokenizer, tmp_path).glob("*.bin")] == []
    again, spelling = load_causal_lm(tmp_path)
    assert again.dtype == torch.float32
    assert np.array_equal(before, actor(TEXTS, again, spelling, -8))


STATES = [
    "You are an agent in a house. Your task: put a clean mug on the desk.\n"
    f"You are in the {room}. You see {thing}. The exits lead north and east.\n"
    "What do you do next?"
    for room in ("hall", "kitchen", "garden", "cellar")
    for thing in ("a key", "a mug", "two apples", "an old map")
]


def distances(vectors: Any) -> Any:
    """Cosine distance of every pair of rows."""
    wide = vectors.astype(np.float64)
    return (1 - wide @ wide.T)[np.triu_indices(len(wide), 1)]


# What docs/fingerprints.md says of its limits.


@pytest.fixture(scope="module")
def states(smollm2: Any) -> Any:
    """Fingerprints of the states by middle and late layers, with every pooling."""
    return actor_layers(STATES, *smollm2, [-18, -12, -8], ["last", "mean", "attention"])


def test_different_states_lie_within_the_papers_radius(states: Any) -> None:
    found = distances(states[-8, "last"])
    assert found.min() > 1e-4
    assert found.max() < 0.02


@pytest.mark.parametrize("layer", [-18, -12, -8])
@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_one_number_drowns_the_others(states: Any, layer: int, pooling: str) -> None:
    assert (states[layer, pooling] ** 2).max(axis=1).min() > 0.9
    assert (states[layer, "last"] ** 2).max() < 0.5
    assert distances(states[layer, pooling]).max() < distances(states[layer, "last"]).max() / 5


def test_half_precision_storage_must_be_put_back_to_unit_length(states: Any) -> None:
    exact = states[-8, "last"]
    stored = exact.astype(np.float16)
    length = np.linalg.norm(stored.astype(np.float64), axis=1)
    assert 2e-5 < np.abs(length - 1).max() < 4e-4
    error = np.abs(distances(normalised(stored)) - distances(exact)).max()
    assert error < 4e-5


def test_batches_change_little_in_single_precision_and_more_in_half(
    smollm2: Any, smollm2_half: Any
) -> None:
    for (policy, tokenizer), bound in ((smollm2, 1e-6), (smollm2_half, 1e-3)):
        together = actor(STATES[:6], policy, tokenizer, -8).astype(np.float64)
        alone = actor(STATES[:6], policy, tokenizer, -8, batch_size=1)
        assert np.abs(1 - (together * alone).sum(axis=1)).max() < bound
