"""What it costs to take fingerprints from the log-prob pass that a trainer makes anyway.

The pass is over prompts of 250 tokens and responses of 32, in bfloat16 and without gradient: logits
of the response, and from them its log-probabilities. ``ratio_to_bare_pass`` is its CPU time with
capture over that without, in the same round, as a median over rounds; ``ratio_low`` and
``ratio_high`` bound its 95 % bootstrap interval. ``null_ratio`` is what comes out where both are
bare: where its interval is wide, others kept the machine busy, and the ratio says as little.
``ratio_within_pass`` is not troubled by that: it compares the captured pass with itself, less the
time that capture's own code took, ``capture_microseconds``; ``hook_microseconds`` of these went by
inside the model. ``separate_pass_ratio`` is the paper's way, a pass over the prompts that returns
all hidden states, over the bare pass. ``bytes_kept`` is what is left of a batch,
``bytes_of_all_layers`` what the hidden states of all layers would take. The quick case has random
weights of the same shape, which cost the same.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import common
import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from ascribe.engines.capture import Capture, capture, padded
from ascribe_lab.models.loading import load_smollm2

PROMPT, RESPONSE = 250, 32
LAYER = -8
common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers")


def main() -> None:
    """Measure and print."""
    with common.Figures("capture") as figures:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        model = load(quick=figures.quick)
        for rows, rounds in [(1, 8)] if figures.quick else [(1, 40), (16, 6)]:
            measure(figures, model, rows, rounds)


def measure(figures: common.Figures, model: Any, rows: int, rounds: int) -> None:
    """All figures of one batch size."""
    ids = torch.randint(3, model.config.vocab_size, (rows, PROMPT + RESPONSE))
    mask = torch.ones_like(ids)
    case = f"SmolLM2-135M, {rows} x ({PROMPT} + {RESPONSE})"

    def bare() -> None:
        log_probs(model, ids, mask)

    own: list[OwnTime] = []

    def captured() -> None:
        own.append(capture_once(model, ids, mask))

    def separate() -> None:
        separate_pass(model, ids[:, :PROMPT], mask[:, :PROMPT])

    times = common.balanced({"bare": bare, "again": bare, "captured": captured}, rounds)
    ratios = common.median_interval(times["captured"] / times["bare"])
    figures.emit_interval(
        case, "ratio_to_bare_pass", ratios, "ratio", "lower", goal=1.02, ends="ratio_"
    )
    null = common.median_interval(times["again"] / times["bare"])
    figures.emit_interval(case, "null_ratio", null, "ratio", "lower", ends="null_")
    figures.emit(case, "bare_pass_seconds", float(np.median(times["bare"])), "s", "lower")

    within = statistics.median(part.total / (part.total - part.capture) for part in own)
    spent = statistics.median(part.capture for part in own)
    inside = statistics.median(part.hooks for part in own)
    figures.emit(case, "ratio_within_pass", within, "ratio", "lower", goal=1.02)
    figures.emit(case, "capture_microseconds", spent * 1e6, "µs", "lower")
    figures.emit(case, "hook_microseconds", inside * 1e6, "µs", "lower")

    times = common.balanced({"bare": bare, "separate": separate}, max(rounds // 8, 2))
    share = float(np.median(times["separate"] / times["bare"]))
    figures.emit(case, "separate_pass_ratio", share, "ratio", "lower")

    layers = (model.config.num_hidden_layers + 1) * ids.numel() * model.config.hidden_size * 2
    for kind in (torch.float16, torch.float32):
        with capture(model, LAYER, dtype=kind) as hidden:
            hidden.expect(padded(mask, [PROMPT] * rows))
            log_probs(model, ids, mask)
        name = f"{case}, {str(kind).removeprefix('torch.')}"
        figures.emit(name, "bytes_kept", hidden.fingerprints().nbytes, "bytes", "lower")
        figures.emit(name, "bytes_of_all_layers", layers, "bytes", "lower")


def load(*, quick: bool) -> Any:
    """SmolLM2-135M in bfloat16; where time is short, its shape with random weights."""
    if quick:
        config = LlamaConfig(**common.SMOLLM2_SHAPE)
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    return load_smollm2("bfloat16")[0]


def log_probs(model: Any, ids: Any, mask: Any) -> Any:
    """Log-probabilities of the response tokens: (rows, response)."""
    with torch.no_grad():
        # The token before the response predicts its first one; the last predicts nothing.
        out = model(ids, attention_mask=mask, use_cache=False, logits_to_keep=RESPONSE + 1)
        logits = out.logits[:, :-1].float()
        chosen = logits.gather(-1, ids[:, -RESPONSE:, None])[..., 0]
        return chosen - logits.logsumexp(dim=-1)


def separate_pass(model: Any, ids: Any, mask: Any) -> Any:
    """The paper's fingerprints: a pass over the prompts with all hidden states, one logit each."""
    with torch.no_grad():
        out = model(
            ids, attention_mask=mask, use_cache=False, logits_to_keep=1, output_hidden_states=True
        )
        return torch.nn.functional.normalize(out.hidden_states[LAYER][:, -1].float(), dim=-1)


class OwnTime(NamedTuple):
    """CPU seconds of one captured pass: all of it, in capture's code, and in its hooks."""

    total: float
    capture: float
    hooks: float


def capture_once(model: Any, ids: Any, mask: Any) -> OwnTime:
    """A log-prob pass with capture, and where its time went."""
    HOOK_SECONDS.clear()
    started = time.process_time()
    with capture(model, LAYER) as hidden:
        hidden.expect(padded(mask, [PROMPT] * len(ids)))
        called = time.process_time()
        log_probs(model, ids, mask)
        returned = time.process_time()
    hidden.fingerprints()
    total = time.process_time() - started
    hooks = sum(HOOK_SECONDS)
    return OwnTime(total, total - (returned - called) + hooks, hooks)


HOOK_SECONDS: list[float] = []


def timed(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook that also notes how long it took."""

    def run(*arguments: Any) -> None:
        started = time.process_time()
        hook(*arguments)
        HOOK_SECONDS.append(time.process_time() - started)

    return run


for name in ("_begin", "_run", "_end"):
    setattr(Capture, name, timed(getattr(Capture, name)))


if __name__ == "__main__":
    main()
