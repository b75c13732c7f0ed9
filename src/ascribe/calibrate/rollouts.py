"""Calibrate a model on a file of rollouts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ascribe.calibrate import RADII, Calibration, calibrate
from ascribe.calibrate.sample import Sample, sample
from ascribe.calibrate.scan import Features
from ascribe.fingerprints.actor import Pooling, actor_layers
from ascribe.fingerprints.capture import block_index, decoder_blocks
from ascribe.steps.arrays import Ints, Objects
from ascribe.steps.check import arrange
from ascribe.steps.files import Rollouts

LAYERS = 10
"""How many layers, evenly spaced, are looked at unless some are named."""

POOLINGS: tuple[Pooling, ...] = ("last", "mean", "attention")

PART = 32
"""Texts between two reports of progress."""


@dataclass(frozen=True, eq=False)
class Audit:
    """The rows of a table that are looked at, in canonical order.

    Attributes:
        texts: what the model reads, one for each row.
        task: label of each row's task group, contiguous from 0.
        family: label of its family.
        families: names of the families.
        sample: which rows these are, and what each is for.
        all_rows: how many rows the table has.
        trajectories: how many trajectories these rows come from.
    """

    texts: Objects
    task: Ints
    family: Ints
    families: tuple[str, ...]
    sample: Sample
    all_rows: int
    trajectories: int


def audit(rollouts: Rollouts, text_column: str, most_rows: int | None = None) -> Audit:
    """What to look at in a file of rollouts.

    Args:
        rollouts: the file; it needs the column ``family``.
        text_column: what the model shall read: ``state``, or a column that the file carries.
        most_rows: how many rows to look at; see ``sample``.

    Raises:
        TableError: if the rows leave no right answer.
        ValueError: if a column is missing or not filled, or a group has two families.
    """
    table = rollouts.table
    steps = arrange(table)
    if table.family is None:
        raise ValueError("there is no column family, and the probe is to tell families apart")
    family = table.family.codes[steps.rows]
    _none(steps.rows[family < 0], "have no family")
    of_group = np.zeros(steps.group_count, dtype=np.int64)
    of_group[steps.group] = family
    _none(steps.rows[of_group[steps.group] != family], "are of another family than their group")
    texts = _texts(rollouts, text_column)[steps.rows]
    empty = np.fromiter((not text for text in texts), dtype=np.bool_, count=texts.size)
    _none(steps.rows[empty], f"have no text in the column {text_column}")
    chosen = sample(steps.group, family, most_rows)
    return Audit(
        texts=texts[chosen.rows],
        task=steps.group[chosen.rows],
        family=family[chosen.rows],
        families=tuple(table.family.values),
        sample=chosen,
        all_rows=int(steps.rows.size),
        trajectories=int(np.unique(steps.trajectory[chosen.rows]).size),
    )


def calibrate_model(
    seen: Audit,
    model: Any,
    tokenizer: Any,
    random: np.random.Generator,
    *,
    layers: Sequence[int] | None = None,
    poolings: Sequence[Pooling] = POOLINGS,
    radii: Sequence[float] = RADII,
    chat: bool = False,
    most_tokens: int = 1024,
    report: Callable[[float], None] = lambda _: None,
) -> Calibration:
    """Compute the fingerprints of a model at several layers and poolings, and choose.

    Args:
        seen: the rows to look at.
        model: a causal language model of Hugging Face's kind.
        tokenizer: the model's tokenizer.
        random: deals the task groups to the folds of the probe.
        layers: indices of decoder blocks, as in Python; ten of them, evenly spaced, by default.
        poolings: how tokens become one vector.
        radii: see ``calibrate``.
        chat: whether to wrap each text in the tokenizer's chat template.
        most_tokens: of a longer text only the end is read.
        report: called now and then with the share that is done.

    Raises:
        IndexError: if the model has no such layer.
        NoHealthyLayerError: if no layer gives clusters that credit could use.
        ValueError: if the tokenizer has no chat template, or the rows cannot be probed.
    """
    blocks = len(decoder_blocks(model)[1])
    wanted = spaced(blocks) if layers is None else [block_index(n, blocks) for n in layers]
    features = features_of(
        chat_texts(seen.texts, tokenizer) if chat else seen.texts,
        model,
        tokenizer,
        wanted,
        poolings,
        most_tokens=most_tokens,
        report=lambda share: report(0.95 * share),
    )
    return calibrate(
        features,
        seen.task,
        seen.family,
        random,
        clustered=seen.sample.clustered,
        probed=seen.sample.probed,
        radii=radii,
        report=lambda share: report(0.95 + 0.05 * share),
    )


def spaced(blocks: int, most: int = LAYERS) -> list[int]:
    """Layers to look at, evenly spaced, the last one included."""
    count = min(most, blocks)
    return [(number + 1) * blocks // count - 1 for number in range(count)]


def features_of(
    texts: Objects,
    model: Any,
    tokenizer: Any,
    layers: Sequence[int],
    poolings: Sequence[Pooling],
    *,
    most_tokens: int,
    batch_size: int = 4,
    report: Callable[[float], None] = lambda _: None,
) -> Features:
    """Fingerprints at several layers and poolings, as ``fingerprints.actor`` computes them.

    Args:
        texts: prompts; each distinct one is computed once.
        model: a causal language model.
        tokenizer: the model's tokenizer.
        layers: indices of decoder blocks.
        poolings: how tokens become one vector.
        most_tokens: of a longer text only the end is read, where the prompt's news are.
        batch_size: prompts in one pass.
        report: called now and then with the share that is done.
    """
    distinct, inverse = np.unique(texts, return_inverse=True)
    # Texts of like length share a batch, so that little of it is padding.
    order = np.argsort([len(text) for text in distinct], kind="stable")[::-1]
    end_of = _End(tokenizer, most_tokens)
    found: dict[tuple[int, str], Any] = {}
    for start in range(0, order.size, PART):
        part = order[start : start + PART]
        new = actor_layers(distinct[part], model, end_of, layers, poolings, batch_size=batch_size)
        for key, vectors in new.items():
            if key not in found:
                found[key] = np.empty((distinct.size, vectors.shape[1]), dtype=np.float32)
            found[key][part] = vectors
        report(min(start + PART, order.size) / order.size)
    return {key: vectors[inverse] for key, vectors in found.items()}


def chat_texts(texts: Objects, tokenizer: Any) -> Objects:
    """Each text as the only message of a user, in the words of the tokenizer's chat template.

    Raises:
        ValueError: if the tokenizer has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ValueError("the tokenizer has no chat template")
    wrapped = np.empty(texts.size, dtype=object)
    wrapped[:] = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        for text in texts
    ]
    return wrapped


@dataclass(frozen=True)
class _End:
    """A tokenizer that keeps the last tokens of each text."""

    tokenizer: Any
    most: int

    def __call__(self, texts: list[str], **options: Any) -> dict[str, list[list[int]]]:
        tokens = self.tokenizer(texts, **options)["input_ids"]
        return {"input_ids": [ids[-self.most :] for ids in tokens]}


def _texts(rollouts: Rollouts, column: str) -> Objects:
    import pyarrow as pa

    if column == "state":
        values: list[str | None] = rollouts.table.state.texts()
    elif column in rollouts.carried.column_names:
        carried = rollouts.carried.column(column)
        kind = carried.type.value_type if pa.types.is_dictionary(carried.type) else carried.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise ValueError(f"the column {column} is to be text, not {kind}")
        values = carried.to_pylist()
    else:
        raise ValueError(f"there is no column {column} for the model to read")
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def _none(rows: Ints, what: str) -> None:
    if rows.size:
        raise ValueError(f"{rows.size:,} rows {what}, the first of them row {rows.min()}")
