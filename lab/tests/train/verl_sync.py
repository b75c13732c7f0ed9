"""What vLLM on the CPU says before and after new weights, as JSON: ``... FOLDER``.

In a process of its own, because verl looks for its platform once.
"""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

os.environ |= {
    "VERL_PLATFORM": "cpu",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}

PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [3, 3, 40, 41, 42], list(range(60, 90))]


def models(folder: Path) -> tuple[Path, Path, Any]:
    """Two folders with models that share nothing but their form, and the second one's weights."""
    import torch

    from lab.tests.models.conftest import random_llama

    first = random_llama(128)
    assert first.config.tie_word_embeddings
    first.save_pretrained(folder / "first")
    with torch.no_grad():
        for weight in first.parameters():
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) / 4)
    first.save_pretrained(folder / "second")
    return folder / "first", folder / "second", list(first.named_parameters())


def start(folder: Path) -> Any:
    from vllm import LLM

    return LLM(
        model=str(folder),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        distributed_executor_backend="uni",
        max_model_len=64,
        max_num_seqs=4,
    )


def logprobs(engine: Any) -> Any:
    from vllm import SamplingParams

    asked = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=1.0, detokenize=False)
    answers = engine.generate([{"prompt_token_ids": ids} for ids in PROMPTS], asked, use_tqdm=False)
    return np.array(
        [
            place[token].logprob
            for ids, answer in zip(PROMPTS, answers, strict=True)
            for token, place in zip(ids[1:], answer.prompt_logprobs[1:], strict=True)
        ]
    )


def main(folder: Path) -> dict[str, float]:
    """The largest differences from a fresh start."""
    import verl  # noqa: F401 (loads the plug-in)

    from ascribe_lab.models.vllm_policy import reload_on_cpu

    first, second, weights = models(folder)
    engine = start(second)
    fresh = logprobs(engine)
    engine.llm_engine.engine_core.shutdown()
    del engine
    gc.collect()
    engine = start(first)

    def off() -> float:
        engine.reset_prefix_cache()
        return float(np.abs(logprobs(engine) - fresh).max())

    def own(worker: Any) -> None:
        worker.model_runner.reload_weights(weights_iterator=iter(weights))

    found = {"before": off()}
    engine.collective_rpc(own)
    found["vllm"] = off()
    for name in ("ours", "ours again"):
        engine.collective_rpc(lambda worker: reload_on_cpu(worker.model_runner, weights))
        found[name] = off()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
