"""Calibrate a model on a file of rollouts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ascribe.engines.capture import block_index, decoder_blocks
from ascribe.steps.arrays import Bools, Ints, Objects
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.files import Rollouts
from ascribe_lab.calibrate.actor import Pooling, actor_layers
from ascribe_lab.calibrate.choose import RADII, Calibration, Features, calibrate

LAYERS = 10
"""How many layers, evenly spaced, are scanned by default."""

POOLINGS: tuple[Pooling, ...] = ("last", "mean", "attention")

TEXTS_PER_REPORT = 32
"""Texts between two reports of progress."""

WHOLE_SHARE = 2 / 3
"""Share of the sampled rows that goes to whole groups."""


def sample(task: Ints, family: Ints, most: int | None = None) -> tuple[Ints, Bools, Bools]:
    """At most about ``most`` rows; which are clustered; which are probed.

    Cluster sizes are meaningful only if all rows of a task group are clustered. The probe is tested
    on unseen tasks, so it needs many groups, but only a few rows of each. So whole groups are taken
    from each family in turn while they fit into two thirds of the rows. The remaining rows are
    divided evenly among the other groups and evenly spaced within each. The sample is
    deterministic.

    Args:
        task: label of each row's task group, in canonical order, contiguous from 0.
        family: label of each row's family.
        most: how many rows; all by default. There is at least one whole group, and at least one
            row of every group, even if that is more.
    """
    if most is None or task.size <= most:
        all_rows = np.ones(task.size, dtype=np.bool_)
        return np.arange(task.size), all_rows, all_rows
    start = np.flatnonzero(np.diff(task, prepend=-1))
    size = np.diff(np.append(start, task.size))
    # The first group of each family, then the second of each, and so on.
    turn = np.zeros(size.size, dtype=np.int64)
    for index in np.unique(family):
        members = np.flatnonzero(family[start] == index)
        turn[members] = np.arange(members.size)
    is_whole = np.zeros(size.size, dtype=np.bool_)
    for index in np.lexsort((family[start], turn)):
        if not is_whole.any() or size[is_whole].sum() + size[index] <= WHOLE_SHARE * most:
            is_whole[index] = True
    remaining = most - int(size[is_whole].sum())
    per_group = max(remaining // max(int((~is_whole).sum()), 1), 1)
    probed = np.zeros(task.size, dtype=np.bool_)
    for begin, count in zip(start, size, strict=True):
        probed[begin + np.linspace(0, count - 1, min(per_group, count)).astype(np.int64)] = True
    clustered = is_whole[task]
    rows = np.flatnonzero(clustered | probed)
    return rows, clustered[rows], probed[rows]


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """The rows of a file that a calibration uses, in canonical order.

    Attributes:
        texts: what the model reads, one for each row.
        task: label of each row's task group, contiguous from 0.
        family: label of its family.
        families: names of the families.
        clustered: which of them belong to whole groups, to be clustered.
        probed: which of them the probe uses.
        all_rows: how many rows the file has.
        trajectories: how many trajectories these rows come from.
    """

    texts: Objects
    task: Ints
    family: Ints
    families: tuple[str, ...]
    clustered: Bools
    probed: Bools
    all_rows: int
    trajectories: int


def select_rows(
    rollouts: Rollouts, text_column: str, most_rows: int | None = None
) -> CalibrationRows:
    """The rows of a file that a calibration uses.

    Args:
        rollouts: the file; it needs the column ``family``.
        text_column: what the model reads: ``state``, or a column that the file carries.
        most_rows: how many rows to use; see ``sample``.

    Raises:
        TableError: if the rows have a problem that makes credit impossible.
        ValueError: if a column is missing or not filled, or a group has two families.
    """
    table = rollouts.table
    steps = arrange(table)
    if table.family is None:
        raise InputError("there is no column family, which the probe predicts")
    family = table.family.codes[steps.rows]
    _refuse(steps.rows[family < 0], "have no family")
    of_group = np.zeros(steps.group_count, dtype=np.int64)
    of_group[steps.group] = family
    _refuse(steps.rows[of_group[steps.group] != family], "are of another family than their group")
    texts = _texts(rollouts, text_column)[steps.rows]
    empty = np.fromiter((not text for text in texts), dtype=np.bool_, count=texts.size)
    _refuse(steps.rows[empty], f"have no text in the column {text_column}")
    rows, clustered, probed = sample(steps.group, family, most_rows)
    return CalibrationRows(
        texts=texts[rows],
        task=steps.group[rows],
        family=family[rows],
        families=tuple(table.family.values),
        clustered=clustered,
        probed=probed,
        all_rows=int(steps.rows.size),
        trajectories=int(np.unique(steps.trajectory[rows]).size),
    )


def _refuse(rows: Ints, complaint: str) -> None:
    if rows.size:
        raise InputError(f"{rows.size:,} rows {complaint}, the first of them row {rows.min()}")


def _texts(rollouts: Rollouts, column: str) -> Objects:
    import pyarrow as pa

    if column == "state":
        values: list[str | None] = rollouts.table.state.texts()
    elif column in rollouts.carried.column_names:
        carried = rollouts.carried.column(column)
        kind = carried.type.value_type if pa.types.is_dictionary(carried.type) else carried.type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InputError(f"the column {column} must be text, not {kind}")
        values = carried.to_pylist()
    else:
        raise InputError(f"there is no column {column} for the model to read")
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def calibrate_model(
    selected: CalibrationRows,
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
        selected: the rows to use.
        model: a Hugging Face causal language model.
        tokenizer: the model's tokenizer.
        random: assigns task groups to the folds of the probe.
        layers: indices of decoder blocks, as in Python; ten of them, evenly spaced, by default.
        poolings: how tokens become one vector.
        radii: see ``calibrate``.
        chat: whether to wrap each text in the tokenizer's chat template.
        most_tokens: longer texts are cut to this many tokens at the end.
        report: called now and then with the share that is done.

    Raises:
        IndexError: if the model has no such layer.
        NoHealthyLayerError: if no layer gives clusters that a recipe could use.
        ValueError: if the tokenizer has no chat template, or the rows cannot be probed.
    """
    blocks = len(decoder_blocks(model)[1])
    indices = spaced(blocks) if layers is None else [block_index(n, blocks) for n in layers]
    features = features_of(
        chat_texts(selected.texts, tokenizer) if chat else selected.texts,
        model,
        tokenizer,
        indices,
        poolings,
        most_tokens=most_tokens,
        report=lambda share: report(0.95 * share),
    )
    return calibrate(
        features,
        selected.task,
        selected.family,
        random,
        clustered=selected.clustered,
        probed=selected.probed,
        radii=radii,
        report=lambda share: report(0.95 + 0.05 * share),
    )


def spaced(blocks: int, most: int = LAYERS) -> list[int]:
    """Indices of evenly spaced layers, the last one included."""
    count = min(most, blocks)
    return [(index + 1) * blocks // count - 1 for index in range(count)]


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

    Each distinct text is computed once. Prompts differ at their end, so that is what is read of a
    text of more than ``most_tokens``.
    """

    def last_tokens(batch: list[str], **options: Any) -> dict[str, list[list[int]]]:
        return {
            "input_ids": [ids[-most_tokens:] for ids in tokenizer(batch, **options)["input_ids"]]
        }

    distinct, inverse = np.unique(texts, return_inverse=True)
    # Texts of similar length share a batch, so that it has little padding.
    order = np.argsort([len(text) for text in distinct], kind="stable")[::-1]
    features: dict[tuple[int, Pooling], Any] = {}
    for start in range(0, order.size, TEXTS_PER_REPORT):
        batch = order[start : start + TEXTS_PER_REPORT]
        new = actor_layers(
            distinct[batch], model, last_tokens, layers, poolings, batch_size=batch_size
        )
        for key, vectors in new.items():
            if key not in features:
                features[key] = np.empty((distinct.size, vectors.shape[1]), dtype=np.float32)
            features[key][batch] = vectors
        report(min(start + TEXTS_PER_REPORT, order.size) / order.size)
    return {key: vectors[inverse] for key, vectors in features.items()}


def chat_texts(texts: Objects, tokenizer: Any) -> Objects:
    """Each text as the only message of a user, in the tokenizer's chat template.

    Raises:
        ValueError: if the tokenizer has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("the tokenizer has no chat template")
    wrapped = np.empty(texts.size, dtype=object)
    wrapped[:] = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        for text in texts
    ]
    return wrapped
