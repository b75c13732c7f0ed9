"""Fingerprints by the policy: of texts, by layer and pooling."""

from typing import Any

import numpy as np
import pytest

from ascribe_lab.calibrate.actor import actor, actor_layers
from tests.fingerprints.conftest import tiny

pytestmark = pytest.mark.unit

TEXTS = ["You are in the hall.", "a", "", "You see a key and a door.", "a", "Go north, then west."]


@pytest.fixture
def model() -> Any:
    return tiny()


class Letters:
    """A tokenizer: one token for each character."""

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, Any]:
        assert not add_special_tokens
        return {"input_ids": [[ord(letter) % 90 + 5 for letter in text] for text in texts]}


def states_of(model: Any, text: str, layer: int) -> Any:
    """Hidden states of one text, alone: (tokens, dims)."""
    import torch

    ids = torch.tensor(Letters()([text], add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        return model(ids, output_hidden_states=True).hidden_states[layer][0].double()


def attention_of(model: Any, text: str, layer: int) -> Any:
    """What the last token pays each token, by transformers' own output: (tokens,)."""
    import torch

    ids = torch.tensor(Letters()([text], add_special_tokens=False)["input_ids"])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        paid = model(ids, output_attentions=True).attentions[layer][0].mean(dim=0)[-1].double()
    model.set_attn_implementation("sdpa")
    return paid


def by_hand(model: Any, text: str, layer: int, pooling: str) -> Any:
    if not text:
        return np.zeros(64)
    states = states_of(model, text, layer)
    if pooling == "last":
        vector = states[-1]
    elif pooling == "mean":
        vector = sum(states) / len(states)
    else:
        paid = attention_of(model, text, layer)
        vector = sum(weight * state for weight, state in zip(paid, states, strict=True))
    return (vector / vector.norm()).numpy()


@pytest.mark.parametrize("pooling", ["last", "mean", "attention"])
@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_it_equals_one_text_at_a_time(model: Any, pooling: Any, batch_size: int) -> None:
    found = actor(TEXTS, model, Letters(), -2, pooling=pooling, batch_size=batch_size)
    assert found.dtype == np.float32
    expected = np.stack([by_hand(model, text, -2, pooling) for text in TEXTS])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.array_equal(found[1], found[4])


def test_several_layers_and_poolings_in_one_pass(model: Any) -> None:
    passes = []
    counter = model.model.register_forward_hook(lambda *_: passes.append(1))
    poolings: Any = ["last", "mean", "attention"]
    found = actor_layers(TEXTS, model, Letters(), [1, -2, 2], poolings, batch_size=2)
    counter.remove()
    # Five texts, of which four are distinct and not empty.
    assert len(passes) == 2
    assert list(found) == [(layer, pooling) for layer in (1, -2, 2) for pooling in poolings]
    for (layer, pooling), vectors in found.items():
        alone = actor(TEXTS, model, Letters(), layer, pooling=pooling, batch_size=2)
        np.testing.assert_allclose(vectors, alone, atol=1e-6)
    assert np.array_equal(found[-2, "last"], found[2, "last"])


def test_the_model_is_left_as_it_was(model: Any) -> None:
    model.train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    actor(TEXTS, model, Letters(), -2, pooling="attention")
    assert [module.training for module in model.modules()] == modes
    assert model.config._attn_implementation == "sdpa"
    assert all(not module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("texts", [[], ["", ""], np.array([], dtype=object)])
def test_nothing_to_read(model: Any, texts: Any) -> None:
    assert actor(texts, model, Letters(), -2).tolist() == [[0.0] * 64] * len(texts)


def test_an_unknown_pooling_is_an_error(model: Any) -> None:
    with pytest.raises(ValueError, match="median"):
        actor_layers(TEXTS, model, Letters(), [0], ["median"])  # type: ignore[list-item]


def test_a_block_without_attention_is_an_error(model: Any) -> None:
    import torch

    model.model.layers[-2].self_attn = torch.nn.Identity()
    with pytest.raises(ValueError, match="no attention to weight by"):
        actor(TEXTS, model, Letters(), -2, pooling="attention")
    assert model.config._attn_implementation == "sdpa"
