"""A copy of the model in half precision samples, and the model itself learns."""

from pathlib import Path

import numpy as np
import pytest

from lab.tests.train import trl_games as toys

pytest.importorskip("trl", reason="needs the extra trl")
pytestmark = [pytest.mark.engine, toys.QUIET]


def test_the_copy_is_the_model_as_it_is_now(tmp_path: Path) -> None:
    """The same as if the model were written, and read again in half precision."""
    import torch

    from ascribe_lab.train.trl.policies import SamplingCopy

    model, sampler = toys.tiny(), SamplingCopy("bfloat16")
    ids = torch.arange(12)[None]
    for _ in range(2):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.01)
        copy = sampler.of(model)
        assert copy is not model
        assert {weight.dtype for weight in copy.parameters()} == {torch.bfloat16}
        model.save_pretrained(tmp_path)
        half = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
        torch.testing.assert_close(copy(ids).logits, half(ids).logits, rtol=0, atol=0)
        for mine, other in zip(copy.buffers(), model.buffers(), strict=True):
            assert mine.dtype == other.dtype
            assert torch.equal(mine, other)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_a_model_with_adapters_is_refused() -> None:
    from peft import LoraConfig, get_peft_model

    from ascribe_lab.train.trl.policies import SamplingCopy

    model = get_peft_model(toys.tiny(), LoraConfig(r=2, target_modules="all-linear"))
    with pytest.raises(ValueError, match=r"rollout\.dtype: a model with adapters"):
        SamplingCopy("bfloat16").of(model)


def test_training_goes_on_from_the_weights_that_learn(tmp_path: Path) -> None:
    import torch

    made = toys.trainer(tmp_path, sampling_dtype="bfloat16", args={"max_steps": 2})
    before = toys.tiny()
    made.train()
    assert {weight.dtype for weight in made.model.parameters()} == {torch.float32}
    moved = [
        float((new - old).detach().abs().max())
        for new, old in zip(made.model.parameters(), before.parameters(), strict=True)
    ]
    assert max(moved) > 0
    assert np.isfinite(moved).all()
    assert len(toys.logged(made, "ascribe/success")) == 2
