"""What the widths of batches cost a training process on a CPU: memory that it keeps, and time.

Torch computes on a CPU with oneDNN, which prepares code for every shape that it meets and keeps it.
Batches of episodes have a new width nearly every time. Each way is a process of its own that makes
the same passes, forward and backward in bfloat16, of a model with the shape of SmolLM2-135M, over
batches of two rows whose widths are drawn from 200 to 520 tokens and rounded up to a multiple.

``resident_bytes`` is the memory of the process at the end, ``grown_bytes`` what it gained in the
second half of the passes, ``cpu_seconds`` the time of all passes, and ``cpu_ratio`` that against
widths as they come. The quick case has four layers.
"""

import multiprocessing
import random
import time
from pathlib import Path

import common
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

MULTIPLES = (1, 32, 64)
WIDTHS = (200, 520)
ROWS = 2
READ = 30
"""Tokens at the end of each row whose log-probabilities are computed, as for a completion."""
PAGE_BYTES = 4096


def main() -> None:
    """Measure and print."""
    with common.Figures("widths") as figures:
        passes, layers = (4, 4) if figures.quick else (64, 30)
        found = {}
        for multiple in MULTIPLES[:2] if figures.quick else MULTIPLES:
            # A process each: what one has prepared must not serve the next.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found[multiple] = pool.apply(passes_of, (multiple, passes, layers))
        for multiple, (middle, end, seconds) in found.items():
            case = f"{passes} passes, " + (
                "widths as they come" if multiple == 1 else f"multiples of {multiple}"
            )
            figures.emit(case, "resident_bytes", end, "B", "lower")
            figures.emit(case, "grown_bytes", end - middle, "B", "lower")
            figures.emit(case, "cpu_seconds", seconds, "s", "lower")
            figures.emit(case, "cpu_ratio", seconds / found[1][2], "ratio", "lower")


def passes_of(multiple: int, passes: int, layers: int) -> tuple[int, int, float]:
    """Resident bytes in the middle and at the end of these passes, and their CPU seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(**(common.SMOLLM2_SHAPE | {"num_hidden_layers": layers})), dtype=torch.float32
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    widths = random.Random(0)
    middle, begun = 0, time.process_time()
    for number in range(passes):
        width = -(-widths.randint(*WIDTHS) // multiple) * multiple
        tokens = torch.randint(0, model.config.vocab_size, (ROWS, width))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(tokens).last_hidden_state[:, -READ:]
            logits = model.lm_head(hidden).float()
        logits.logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == passes // 2:
            middle = resident_bytes()
    return middle, resident_bytes(), time.process_time() - begun


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


if __name__ == "__main__":
    main()
