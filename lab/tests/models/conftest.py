"""A tiny random model with a real tokenizer; tests that ask for it skip where torch is missing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.tests.models.bad_server import BadServer
from tests.tiny_model import random_llama

__all__ = ["random_llama"]


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

    from ascribe_lab.models.loading import SMOLLM2, SMOLLM2_INSTALL, package_folder

    package, file = SMOLLM2
    try:
        folder = package_folder(package, SMOLLM2_INSTALL)
    except ImportError as error:
        pytest.skip(str(error))
    return AutoTokenizer.from_pretrained(folder, gguf_file=file, local_files_only=True)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return load_tokenizer()


@pytest.fixture(scope="session")
def tiny(tokenizer: Any) -> Any:
    return random_llama(len(tokenizer))


@pytest.fixture(scope="session")
def tiny_folder(tiny: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model and its tokenizer as a model folder."""
    from ascribe_lab.models.loading import save_model

    return save_model(tiny, tokenizer, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def smollm2() -> Any:
    """SmolLM2-135M-Instruct in single precision, and its tokenizer."""
    for package in ("torch", "transformers", "gguf", "accelerate"):
        pytest.importorskip(package, reason="needs the extra actor, gguf and accelerate")
    from ascribe_lab.models.loading import load_smollm2

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
