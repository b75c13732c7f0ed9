"""Credit of one large iteration in the process that drives a run of verl.

    python benchmarks/driver.py [--quick] [--recipes grpo gigpo sbc]

Groups of 8 episodes. In the first shape each is a row of 20 turns and 7,600 tokens: a prompt of
1,000 tokens, and in each turn about 100 tokens of the model, a text that occurs once, and 240 of
its tool. In the second it is two rows of 160 tokens, with two turns each. Three in four tool
results are one of the group's 40, the others occur once. The tokenizer is SmolLM2's. The rows
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
from typing import Any, NamedTuple

import common
import numpy as np
import scale

sys.path.insert(0, str(common.ROOT))
common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "tokenizers", "verl")

SIZE, PLACES = 8, 40


class Shape(NamedTuple):
    """How many sessions there are, and what each is like; tokens of actions and results: means."""

    sessions: int
    rows: int = 1
    turns: int = 20
    prompt: int = 1000
    action: int = 100
    result: int = 240


LONG, MANY = Shape(8192), Shape(200_000, rows=2, turns=2, prompt=60, action=20, result=60)
"""64 million tokens in few sessions, and in many."""


def main() -> None:
    """Credit iterations of several sizes."""
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    names = {"nargs": "+", "default": ["grpo", "gigpo", "sbc"]}
    with common.Figures("driver", recipes=names) as figures:
        tokenizer = common.smollm2_tokenizer()
        quick = [LONG._replace(sessions=64), MANY._replace(sessions=256)]
        for shape in quick if figures.quick else [LONG._replace(sessions=1024), LONG, MANY]:
            rows = Rows(tokenizer, shape)
            for name in figures.options.recipes:
                measure(figures, rows, name)


def measure(figures: common.Figures, rows: "Rows", name: str) -> None:
    """Credit the rows by a recipe."""
    from ascribe.engines.verl import batch, loops, trainer  # noqa: PLC0415
    from lab.tests.train import verl_script  # noqa: PLC0415

    steps = loops.LoopSteps(verl_script.verl_config(f"ascribe.recipe={name}"))
    loops.copy_to_local = loops.get_generation_config = lambda _: None
    batch.fetch, batch.extra_fields = rows.fetch, lambda _: [{} for _ in rows.batch.keys]
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
    shape, large = rows.shape, rows.shape in (LONG, MANY)
    case = f"{name}, {shape.sessions:,} episodes" + f" of {shape.rows} rows" * (shape.rows > 1)
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
    """The rows of an iteration."""

    def __init__(self, tokenizer: Any, shape: Shape) -> None:
        import torch  # noqa: PLC0415

        self.tokenizer, self.shape = tokenizer, shape
        random = np.random.default_rng(0)
        texts = [scale.text(number) for number in random.integers(0, 1 << 40, 4096).tolist()]
        words = np.concatenate([tokenizer(text)["input_ids"] for text in texts])
        bank = np.append(words, tokenizer.eos_token_id)

        def drawn(seed: Any, size: Any) -> Any:
            """Where such pieces of the bank begin; the seed decides."""
            return scale.random(seed).astype(np.int64) % (words.size - size)

        def row(values: Any, bounds: Any, kind: Any) -> tuple[Any, Any]:
            """A field: what its rows hold, and where each begins."""
            return torch.from_numpy(values.astype(kind)), torch.from_numpy(bounds)

        number = np.arange(shape.sessions * shape.rows)[:, None]
        session, place = np.divmod(number, shape.rows)
        own = scale.random(number, np.arange(shape.turns)).astype(np.int64) & (1 << 62) - 1
        seen = np.where(own >> 8 & 3, session // SIZE * PLACES + own % PLACES, 1 << 32 | own >> 16)
        few, less = shape.action // 5, shape.result // 5
        sizes = np.ones((*own.shape, 3), dtype=np.int64)  # an action, its end, and a result
        sizes[..., 0] = shape.action - few + (own >> 10) % (2 * few)
        sizes[..., 2] = shape.result - less + seen % (2 * less + 1)
        sizes[:, -1, 2] = 0
        starts = np.full(sizes.shape, words.size)
        starts[..., 0], starts[..., 2] = drawn(own, sizes[..., 0]), drawn(seen, sizes[..., 2])
        lengths = sizes.sum(axis=(1, 2))
        bounds = np.append(0, np.cumsum(lengths))
        scores = np.zeros(bounds[-1])
        scores[bounds[1:] - 1] = (scale.random(session) % 10 < 4)[:, 0]
        prompts = np.full(number.size, shape.prompt)
        begins = drawn(np.where(place, 1 << 40 | number, session // SIZE), shape.prompt)[:, 0]
        written = np.repeat(np.tile([1, 1, 0], own.size), sizes.ravel())
        self.kept = {
            "prompts": row(
                bank[ranges(begins, prompts)], np.append(0, np.cumsum(prompts)), np.int64
            ),
            "responses": row(bank[ranges(starts.ravel(), sizes.ravel())], bounds, np.int64),
            "response_mask": row(written, bounds, np.int64),
            "rm_scores": row(scores, bounds, np.float32),
        }
        self.tokens = sum(self.kept[name][0].numel() for name in ("prompts", "responses"))
        names = zip(*divmod(session.ravel(), SIZE), place.ravel(), strict=True)
        keys = [f"task{group}_{own}_{part}" for group, own, part in names]
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


def ranges(starts: Any, sizes: Any) -> Any:
    """The numbers from each start on, so many of each, one after the other."""
    shift = starts - (np.cumsum(sizes) - sizes)
    return np.repeat(shift, sizes) + np.arange(sizes.sum())


if __name__ == "__main__":
    main()
