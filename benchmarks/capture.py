"""What it costs to take fingerprints from the log-prob pass that a trainer makes anyway.

The pass is over prompts of 250 tokens and responses of 32, in bfloat16 and without gradient: logits
of the response, and from them its log-probabilities. ``ratio_to_bare_pass`` is its CPU time with
capture over that without, in the same round, as a median over rounds; ``ratio_low`` and
``ratio_high`` bound its 95 % bootstrap interval. ``null_ratio`` is what comes out where both are
bare: read one against the other, for a busy machine makes both noisy. ``hook_microseconds`` is what
capture itself takes, timed alone, and ``hook_share`` its share of a bare pass.
``separate_pass_ratio`` is the paper's way, a pass over the prompts that returns all hidden states,
over the bare pass. ``bytes_kept`` is what is left of a batch, ``bytes_of_all_layers`` what the
hidden states of all layers would take. The quick case has random weights of the same shape, which
cost the same.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from ascribe.fingerprints.capture import Capture, capture, decoder_blocks, padded
from ascribe.fingerprints.models import load_smollm2

PROMPT, RESPONSE = 250, 32
LAYER = -8
SMOLLM2_SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}

common.PACKAGES = ("ascribe", "numpy", "torch", "transformers")


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

    def captured() -> None:
        with capture(model, LAYER) as hidden:
            hidden.expect(padded(mask, [PROMPT] * rows))
            log_probs(model, ids, mask)
        hidden.fingerprints()

    def separate() -> None:
        separate_pass(model, ids[:, :PROMPT], mask[:, :PROMPT])

    times = balanced({"bare": bare, "again": bare, "captured": captured}, rounds)
    ratios = times["captured"] / times["bare"]
    low, high = interval(ratios)
    figures.emit(case, "ratio_to_bare_pass", np.median(ratios), "ratio", "lower", goal=1.02)
    figures.emit(case, "ratio_low", low, "ratio", "lower")
    figures.emit(case, "ratio_high", high, "ratio", "lower")
    null = times["again"] / times["bare"]
    low, high = interval(null)
    figures.emit(case, "null_ratio", np.median(null), "ratio", "lower")
    figures.emit(case, "null_low", low, "ratio", "lower")
    figures.emit(case, "null_high", high, "ratio", "lower")

    spent = hook_seconds(model, rows)
    pass_seconds = float(np.median(times["bare"]))
    figures.emit(case, "bare_pass_seconds", pass_seconds, "s", "lower")
    figures.emit(case, "hook_microseconds", spent * 1e6, "µs", "lower")
    figures.emit(case, "hook_share", spent / pass_seconds, "ratio", "lower", goal=0.001)

    times = balanced({"bare": bare, "separate": separate}, max(rounds // 8, 2))
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
        config = LlamaConfig(**SMOLLM2_SHAPE)
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    return load_smollm2(torch.bfloat16)[0]


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


def hook_seconds(model: Any, rows: int) -> float:
    """CPU time of one capture from announcement to result, without the model's own work."""
    width = PROMPT + RESPONSE
    states = torch.randn(rows, width, model.config.hidden_size).to(torch.bfloat16)
    mask = torch.ones(rows, width, dtype=torch.int64)
    _, blocks = decoder_blocks(model)
    times = []
    for _ in range(300):
        started = time.process_time()
        hidden = Capture(normalise=True, dtype=torch.float32, device=None)
        hidden.expect(padded(mask, [PROMPT] * rows))
        hidden._begin()
        hidden._run(blocks[LAYER], (), states)
        hidden._end()
        hidden.fingerprints()
        times.append(time.process_time() - started)
    return statistics.median(times)


def balanced(works: dict[str, Callable[[], None]], rounds: int) -> dict[str, np.ndarray]:
    """CPU seconds of each work in each round.

    A round runs all works in an order that is drawn anew, and then in the reverse of it, so that a
    machine that gets slower or faster does so for all of them.
    """
    random = np.random.default_rng(0)
    times = {name: np.zeros(rounds) for name in works}
    for work in works.values():
        work()
    for number in range(rounds):
        order = random.permutation(list(works)).tolist()
        for name in [*order, *reversed(order)]:
            started = time.process_time()
            works[name]()
            times[name][number] += (time.process_time() - started) / 2
    return times


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median over rounds."""
    random = np.random.default_rng(0)
    drawn = random.choice(ratios, size=(10_000, ratios.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)


if __name__ == "__main__":
    main()
