"""Capture and the policy's fingerprints, on a real model."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.fingerprints.actor import actor
from ascribe.fingerprints.capture import capture
from ascribe.fingerprints.models import load_causal_lm, save_model

from .test_actor import TEXTS
from .test_capture import LAYOUTS, Batch, captured, separate

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
def test_a_real_model_in_half_precision(smollm2: Any, layout: str) -> None:
    import torch

    model = copy.deepcopy(smollm2[0]).to(torch.bfloat16)
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


def test_a_real_policy_finds_states_alike_that_are(smollm2: Any) -> None:
    model, tokenizer = smollm2
    frame = "You are an agent in a house. Task: put a mug on the desk. {} What do you do next?"
    hall, again, kitchen = (
        frame.format(state)
        for state in (
            "You are in the hall. You see a door.",
            "You are in the hall. You see one door.",
            "You are in the kitchen and hold a mug.",
        )
    )
    a, b, c = actor([hall, again, kitchen], model, tokenizer, -8)
    np.testing.assert_allclose(np.linalg.norm([a, b, c], axis=1), 1.0, atol=1e-6)
    assert 1 - a @ b < 1 - a @ c
