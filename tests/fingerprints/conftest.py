"""Models for tests of fingerprints; tests that ask for one skip where torch is missing."""

from typing import Any

import pytest


def tiny(kind: str = "llama") -> Any:
    """A random decoder of four blocks, in single precision."""
    torch = pytest.importorskip("torch", reason="needs the extra actor")
    transformers = pytest.importorskip("transformers", reason="needs the extra actor")
    shape = {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        # Far from zero, so that attention is far from even.
        "initializer_range": 0.2,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = transformers.AutoConfig.for_model(kind, **shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.fixture
def model() -> Any:
    return tiny()
