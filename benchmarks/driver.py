"""Credit of one large iteration in the process that drives a run of verl.

    python benchmarks/driver.py [--quick] [--episodes 1024 8192] [--recipes grpo gigpo sbc]

Groups of 8 episodes, of 20 turns and 7,800 tokens each: a prompt of 1,000 tokens, and in each turn
about 100 tokens of the model, a text that occurs once, and 240 of its tool. Three in four
tool results are one of the group's 40, the others occur once. The tokenizer is SmolLM2's. The rows
are what verl holds: nested tensors of 64-bit token ids and masks, 32-bit rewards. A copy of them
stands for what TransferQueue sends, and counts as memory of the credit.

``steps`` is from these rows to the advantage of each step, ``mask`` looks for tokens that must not
count, and ``tokens`` gives every token its advantage, in an array as wide as the longest row, as
verl's own. Times are those of one core. ``memory`` is the most resident memory of the process
beyond that of the rows and of verl's padded mask. Goals: 64 million tokens in 10 s and 4 GB.
"""

import ctypes
import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
import scale

sys.path.insert(0, str(common.ROOT))
common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "tokenizers", "verl")

SIZE, TURNS, PLACES = 8, 20, 40
PROMPT, ACTION, RESULT = 1000, 100, 240
"""Tokens, in the mean for the last two."""


def main() -> None:
    """Credit iterations of several sizes."""
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    sizes = {"type": int, "nargs": "+", "default": [1024, 8192]}
    names = {"nargs": "+", "default": ["grpo", "gigpo", "sbc"]}
    with common.Figures("driver", episodes=sizes, recipes=names) as figures:
        tokenizer = common.smollm2_tokenizer()
        for episodes in [64] if figures.quick else figures.options.episodes:
            rows = Rows(tokenizer, episodes)
            for name in figures.options.recipes:
                measure(figures, rows, name)


def measure(figures: common.Figures, rows: "Rows", name: str) -> None:
    """Credit the rows by a recipe."""
    from ascribe.engines.verl import batch, loops, trainer  # noqa: PLC0415
    from lab.tests.train import verl_script  # noqa: PLC0415

    steps = loops.LoopSteps(verl_script.verl_config(f"ascribe.recipe={name}"))
    loops.copy_to_local = loops.get_generation_config = lambda _: None
    batch.fetch, batch.extra_fields = rows.fetch, lambda _: [{}] * rows.episodes
    mask = rows.fetch(None, "response_mask")["response_mask"].to_padded_tensor(0)
    spent, peak = {}, 0
    for phase in ("steps", "mask", "tokens"):
        with measured() as found:
            if phase == "steps":
                credit, spans = steps.credit(rows.batch, rows.tokenizer, None, {}, version=0)
            elif phase == "mask":
                batch.mute(rows.batch, spans, credit.learned)
            else:
                trainer.CREDIT.append((credit.advantage, None, spans))
                advantages, _ = trainer.estimate(None, mask)
        spent[phase], peak = found[0], max(peak, found[1])
    assert advantages.shape == mask.shape
    assert (advantages != 0).any()
    case, large = f"{name}, {rows.episodes:,} episodes", rows.episodes == 8192
    figures.emit(case, "size", rows.tokens / 1e6, "million tokens", "higher")
    for phase, seconds in spent.items():
        figures.emit(case, phase, seconds, "s", "lower")
    figures.emit(case, "all", sum(spent.values()), "s", "lower", goal=10.0 if large else None)
    figures.emit(case, "memory", peak / 1e9, "GB", "lower", goal=4.0 if large else None)


@contextmanager
def measured() -> Iterator[list[Any]]:
    """Seconds of CPU inside, and the most bytes of memory beyond what there was before."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what others freed is not there to be used again
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    found: list[Any] = []
    before, started = resident("VmRSS"), time.process_time()
    yield found
    found += [time.process_time() - started, resident("VmHWM") - before]


def resident(kind: str) -> int:
    """Bytes that the kernel counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) << 10
    raise SystemExit(f"the kernel does not tell {kind}: this benchmark needs Linux")


class Rows:
    """The rows of an iteration, an episode each."""

    def __init__(self, tokenizer: Any, episodes: int) -> None:
        import torch  # noqa: PLC0415

        self.tokenizer, self.episodes = tokenizer, episodes
        self.end = tokenizer.eos_token_id
        random = np.random.default_rng(0)
        texts = [scale.text(number) for number in random.integers(0, 1 << 40, 4096).tolist()]
        words = np.concatenate([tokenizer(text)["input_ids"] for text in texts])

        def drawn(size: int, seed: Any) -> Any:
            """Tokens of the bank, from a place that the seed decides."""
            start = int(scale.random([seed])[0]) % (words.size - size)
            return words[start : start + size]

        fields: dict[str, list[Any]] = {name: [] for name in NAMES}
        for episode in range(episodes):
            group, pieces, mask = episode // SIZE, [], []
            for turn in range(TURNS):
                own = int(scale.random([episode], turn)[0])
                place = group * PLACES + own % PLACES if own >> 8 & 3 else 1 << 32 | own >> 16
                action = drawn(ACTION - 20 + (own >> 10) % 40, own)
                result = drawn(RESULT - 50 + place % 101, place)
                pieces += [action, [self.end], result]
                mask += [np.ones(action.size + 1), np.zeros(result.size)]
            pieces, mask = pieces[:-1], mask[:-1]
            fields["prompts"].append(drawn(PROMPT, group))
            fields["responses"].append(np.concatenate(pieces))
            fields["response_mask"].append(np.concatenate(mask))
            score = np.zeros(fields["responses"][-1].size)
            score[-1] = scale.random([episode])[0] % 10 < 4
            fields["rm_scores"].append(score)
        self.kept = {
            name: (
                torch.from_numpy(np.concatenate(values)).to(
                    torch.float32 if name == "rm_scores" else torch.int64
                ),
                torch.from_numpy(np.cumsum([0, *map(len, values)])),
            )
            for name, values in fields.items()
        }
        self.tokens = sum(self.kept[name][0].numel() for name in ("prompts", "responses"))
        keys = [f"task{number // SIZE}_{number % SIZE}_0" for number in range(episodes)]
        tags = [{"min_global_steps": 0, "max_global_steps": 0} for _ in keys]
        self.batch = Batch(keys=keys, tags=tags, partition_id="train")

    def fetch(self, _: Any, *names: str) -> dict[str, Any]:
        """A copy of fields, as TransferQueue sends one."""
        import torch  # noqa: PLC0415

        return {
            name: torch.nested.nested_tensor_from_jagged(
                values.clone(), bounds, max_seqlen=int(bounds.diff().max())
            )
            for name, (values, bounds) in self.kept.items()
            if name in names
        }


class Batch(SimpleNamespace):
    """verl's batch, as far as it is looked at."""

    def __len__(self) -> int:
        return len(self.keys)


NAMES = ("prompts", "responses", "response_mask", "rm_scores")


if __name__ == "__main__":
    main()
