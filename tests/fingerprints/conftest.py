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


@pytest.fixture(scope="session")
def smollm2() -> Any:
    """SmolLM2-135M-Instruct in single precision, and its tokenizer."""
    for package in ("torch", "transformers", "gguf", "accelerate"):
        pytest.importorskip(package, reason="needs the extra actor, gguf and accelerate")
    from ascribe.models.loading import load_smollm2

    try:
        return load_smollm2()
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2_half(smollm2: Any) -> Any:
    """The same in bfloat16, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    model, tokenizer = smollm2
    # Not model.to(): that would also round the frequencies of the position encoding.
    half = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    half.load_state_dict(model.state_dict())
    return half.eval(), tokenizer
