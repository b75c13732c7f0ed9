"""``VllmPolicy``: a model folder in a vLLM engine of this process, on a GPU or on the CPU."""

import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ascribe.steps.errors import MissingPackageError
from ascribe_lab.models.loading import model_folder
from ascribe_lab.models.policy import Completion, ModelPolicy, Sampling, TokenPrompt
from ascribe_lab.models.tokens import load_chat, smaller

CPU_CACHE_GIB = "1"
"""Memory for keys and values on the CPU, unless ``VLLM_CPU_KVCACHE_SPACE`` says otherwise."""


class VllmPolicy(ModelPolicy):
    """Samples token ids from a vLLM engine; the engine's decoded text is not used.

    Each request is seeded separately. The log-probabilities are the raw ones, before temperature
    and top-p.

    Args:
        folder: holds ``config.json``, the tokenizer's files and ``*.safetensors``.
        context: most tokens of prompt and response together; the model's own limit by default.
        dtype: type to compute in; ``auto`` is the model's, which vLLM turns into bfloat16 or
            float16 if it is float32.
        chat_options: further ones of ``Chat``.
        engine_options: further ones of vLLM's ``LLM``, such as ``tensor_parallel_size``.

    Raises:
        FileNotFoundError: if there are no safetensors in the folder.
        ImportError: if vLLM is not installed.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        context: int | None = None,
        dtype: str = "auto",
        chat_options: dict[str, Any] | None = None,
        **engine_options: Any,
    ) -> None:
        folder = model_folder(folder)
        self._vllm = _vllm()
        super().__init__(load_chat(folder, context, **(chat_options or {})))
        options = {**_cpu_options(), **engine_options}
        self._engine = self._vllm.LLM(
            model=str(folder),
            max_model_len=self.chat.context,
            dtype=dtype,
            load_format="safetensors",
            trust_remote_code=False,
            # The folder's defaults (top_k, penalties) would change what is sampled.
            generation_config="vllm",
            logprobs_mode="raw_logprobs",
            **options,
        )
        longest = self._engine.llm_engine.model_config.max_model_len
        self.chat.context = smaller(self.chat.context, longest)

    def _complete(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        outputs = self._engine.generate(
            [{"prompt_token_ids": list(prompt.ids)} for prompt in prompts],
            [self._parameters(prompt, sampling) for prompt in prompts],
            use_tqdm=False,
        )
        return [_completion(output.outputs[0]) for output in outputs]

    def _parameters(self, prompt: TokenPrompt, sampling: Sampling) -> Any:
        return self._vllm.SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=prompt.limit,
            seed=prompt.seed,
            stop=list(sampling.stop),
            stop_token_ids=sorted(self.chat.ends),
            # Only the log-probability of the sampled token.
            logprobs=0,
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
        )

    def close(self) -> None:
        """Stop the engine and release its memory."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.llm_engine.engine_core.shutdown()


def _completion(output: Any) -> Completion:
    ids = tuple(output.token_ids)
    steps = zip(ids, output.logprobs, strict=True)
    logprobs = tuple(float(step[token].logprob) for token, step in steps)
    return Completion(ids, logprobs, ended=output.finish_reason == "stop")


def _vllm() -> Any:
    try:
        return import_module("vllm")
    except ImportError as error:
        raise MissingPackageError(
            "needs vLLM: scripts/make_env.sh makes an environment that has it"
        ) from error


def _cpu_options() -> dict[str, Any]:
    """What vLLM needs on a machine without a GPU; nothing where there is one."""
    if not import_module("vllm.platforms").current_platform.is_cpu():
        return {}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", CPU_CACHE_GIB)
    # Binding threads to cores is for machines that do nothing else.
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    # One process: more would only compete for the same cores.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    return {
        # Compiling takes minutes and gains little on a CPU.
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
        # vLLM cannot undo the draw of a seeded request whose prompt was processed in part.
        "enable_chunked_prefill": False,
    }


def reload_on_cpu(runner: Any, weights: Iterable[tuple[str, Any]]) -> None:
    """Load weights into a model runner of vLLM's on the CPU, and renew what was made of the old.

    Its layers turn their weights into another form and drop the original, so weights cannot be
    copied in place. vLLM's own reload leaves one trap: an output layer that shares its weights with
    the embedding keeps the old ones in the other form.
    """
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    runner.reload_weights(weights_iterator=iter(weights))
    for module in runner.model.modules():
        if isinstance(module, VocabParallelEmbedding):
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)
