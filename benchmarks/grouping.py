"""Which rows are compared: exact states, character n-grams, and the actor's hidden states.

On whole groups of the rollouts of ``examples/household.py``, whose simulator knows the true state.
``exact`` is GiGPO's hash of the observation. ``ngram`` clusters the n-grams of the observation, at
the paper's radius of 0.25 and at the radius of median cluster size 4 to 8. ``actor`` clusters the
hidden states of SmolLM2-135M-Instruct, untrained, over the whole prompt: at the layer, pooling and
radius that ``ascribe calibrate`` chose on other groups, and the same of last tokens alone; in the
last case it reads the observation alone, and the radius is searched.

``purity`` is the share of pairs in a cluster whose true states are equal, ``found`` the share of
pairs of equal true states that are in one cluster. ``fewer_singletons`` and ``times_the_pairs``
compare with ``exact``, in the terms of the BiPACE paper. The quick case has one group, and a small
decoder with random weights for an actor.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import common
import numpy as np
import numpy.typing as npt
import torch
import transformers

from ascribe import Credit, StepTable, diagnose, recipe
from ascribe.steps.files import table_from_arrow
from ascribe_lab.calibrate.actor import Pooling, actor_layers
from ascribe_lab.models.loading import load_smollm2

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import household

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers")

CALIBRATED: tuple[tuple[int, Pooling, float], ...] = ((29, "mean", 0.00275), (23, "last", 0.0015))
"""What ``ascribe calibrate`` chose of all poolings, and of last tokens alone: layer and radius."""

CALIBRATED_ON = 6
"""The first groups are left out: the calibration clustered some of them."""

GROUPS = 6
"""How many groups are measured: one of each family."""

FEWER_POINTS = 0.093
MORE_PAIRS = 1.3
"""What the paper reports for ALFWorld: 9.3 points fewer singletons, 1.3 times the pairs."""

Ints = npt.NDArray[np.int64]


def main() -> None:
    """Measure and print."""
    with common.Figures("grouping") as figures:
        arrow = household.rollouts(CALIBRATED_ON + (1 if figures.quick else GROUPS))
        number = np.array([int(name[-3:]) for name in arrow.column("group").to_pylist()])
        arrow = arrow.filter(number >= CALIBRATED_ON)
        table = table_from_arrow(arrow)
        world = labels_of(table.group.codes.tolist(), arrow.column("world").to_pylist())
        prompts = arrow.column("prompt").to_pylist()
        baseline: dict[str, float] = {}
        for case, credit in groupings(table, prompts, quick=figures.quick):
            numbers = measure(table, credit, world)
            baseline = baseline or numbers
            emit(figures, case, numbers, baseline)


def groupings(table: StepTable, prompts: list[str], *, quick: bool) -> Iterator[tuple[str, Credit]]:
    """Every way to group, by name; exact states first."""
    yield "exact", recipe("gigpo")(table)
    yield "ngram 0.25", recipe("bigpo", preset="ngram")(table)
    searched = recipe("bigpo", preset="ngram", radius_rule="search")
    yield "ngram searched", searched(table)
    if quick:
        states = table.state.texts()
        vectors = actor_layers(states, random_decoder(), as_bytes, [3])[3, "last"]
        searched = recipe("bigpo", radius_rule="search")
        yield "actor of random weights", searched(table, fingerprints=vectors)
        return
    model, tokenizer = load_smollm2()
    layers = [layer for layer, _, _ in CALIBRATED]
    poolings = [pooling for _, pooling, _ in CALIBRATED]
    found = actor_layers(prompts, model, tokenizer, layers, poolings, batch_size=8)
    for layer, pooling, radius in CALIBRATED:
        estimator = recipe("bigpo", radius=radius)
        credit = estimator(table, fingerprints=found[layer, pooling])
        yield f"actor layer {layer} {pooling} {radius:g}", credit
    layer = layers[-1]
    seen = actor_layers(table.state.texts(), model, tokenizer, [layer])[layer, "last"]
    credit = recipe("bigpo", radius_rule="search")(table, fingerprints=seen)
    yield f"actor layer {layer} last, observation, searched", credit


def measure(table: StepTable, credit: Credit, world: Ints) -> dict[str, float]:
    """What a grouping is like, and how it fits the truth."""
    states = diagnose(table, credit).states
    assert states is not None
    labels = credit.terms["step"].labels
    right = pairs(labels_of(labels.tolist(), world.tolist()))
    return {
        "singleton_share_of_groups": states.singleton_share_of_groups,
        "singleton_share_of_rows": states.singleton_share_of_rows,
        "mean_group_size": states.mean_size,
        "matched_pairs": states.matched_pairs,
        "purity": right / max(states.matched_pairs, 1),
        "found": right / pairs(world),
    }


def emit(
    figures: common.Figures, case: str, numbers: dict[str, float], exact: dict[str, float]
) -> None:
    """Print the numbers of one grouping, and how they compare with exact states."""
    for metric, value in numbers.items():
        unit = {"mean_group_size": "rows", "matched_pairs": "pairs"}.get(metric, "share")
        better = "lower" if metric.startswith("singleton") else "higher"
        figures.emit(case, metric, value, unit, better)
    if numbers is not exact:
        fewer = exact["singleton_share_of_groups"] - numbers["singleton_share_of_groups"]
        figures.emit(case, "fewer_singletons", fewer, "share", "higher", FEWER_POINTS)
        more = numbers["matched_pairs"] / exact["matched_pairs"]
        figures.emit(case, "times_the_pairs", more, "ratio", "higher", MORE_PAIRS)


def labels_of(first: list[Any], second: list[Any]) -> Ints:
    """One number for each distinct pair of values."""
    values = list(zip(first, second, strict=True))
    number = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([number[value] for value in values])


def pairs(labels: Ints) -> int:
    """Pairs of rows with the same label."""
    size = np.bincount(labels)
    return int((size * (size - 1) // 2).sum())


def random_decoder() -> Any:
    """A decoder of four blocks that has learned nothing."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        initializer_range=0.2,
    )
    return transformers.LlamaForCausalLM(config).eval()


def as_bytes(texts: list[str], **_: object) -> dict[str, list[list[int]]]:
    """A tokenizer that needs no vocabulary."""
    return {"input_ids": [list(text.encode()) for text in texts]}


if __name__ == "__main__":
    main()
