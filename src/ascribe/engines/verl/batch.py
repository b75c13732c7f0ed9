"""verl's batches: names of rows whose fields are in TransferQueue, or one ``DataProto``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transfer_queue
from tensordict import TensorDict

from ascribe.engines.inputs import task_name
from ascribe.sessions import Spans, spread
from ascribe.sessions.spans import Ragged
from ascribe.steps.arrays import Bools, Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchRows:
    """The rows of a batch that are not padding; those of a session come in their order."""

    places: Ints
    """Of the rows, in the batch."""
    size: int
    """Rows of the batch, with padding."""
    sessions: list[tuple[str, int]]
    """Prompt (verl's ``uid``) and session of each row."""
    prompts: Ragged
    responses: Ragged
    masks: Ragged
    """1 where the model wrote the token of the response."""
    scores: Ragged
    extra: Sequence[Mapping[str, Any]]
    """What the agent loop put into ``extra_fields``."""
    versions: Sequence[tuple[int | None, int | None]]
    """The first and the last version of the policy that sampled a row."""
    queue: Any = None
    """The names in TransferQueue, if the rows are there."""
    tasks: list[str] | None = None
    """What identifies the task of each row over iterations."""


VERSIONS = ("min_global_steps", "max_global_steps")


def queue_rows(batch: Any, *, tasks: bool = False) -> BatchRows:
    """The rows of a batch in TransferQueue; a key is ``UID_SESSION_NUMBER``.

    With ``tasks``, their tasks too: by ``extra_info.index``, or else by all that the dataset has.
    """
    names = {}
    for row, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
        if not is_padding(tag):
            uid, session, number = key.rsplit("_", 2)
            names[row] = (uid, int(session), int(number))
    rows = sorted(names, key=names.__getitem__)
    fields = ("prompts", "responses", "response_mask", "rm_scores")
    data, extra = fetch(batch, *fields), extra_fields(batch)
    columns = [ragged(data[field]) for field in fields]
    prompts, responses, masks, scores = (
        Ragged(each.values, each.starts[rows], each.sizes[rows]) for each in columns
    )
    named = None
    if tasks:
        source, info, prompt = (
            _values(batch, n) for n in ("data_source", "extra_info", "raw_prompt")
        )
        # verl's own column index is 0 where a dataset has none.
        own = {row: info[row].get("index", [*prompt[row], info[row]]) for row in rows}
        named = [task_name([source[row], own[row]]) for row in rows]
    return BatchRows(
        places=np.array(rows, dtype=np.int64),
        size=len(batch.keys),
        sessions=[names[row][:2] for row in rows],
        prompts=prompts,
        responses=responses,
        masks=masks,
        scores=scores,
        extra=[extra[row] for row in rows],
        versions=[(batch.tags[row][VERSIONS[0]], batch.tags[row][VERSIONS[1]]) for row in rows],
        queue=batch,
        tasks=named,
    )


def proto_rows(data: Any) -> BatchRows:
    """The rows of a ``DataProto``, in which each is a session."""
    count, others = data.batch["responses"].shape[1], data.non_tensor_batch
    attention = data.batch["attention_mask"].cpu().numpy() == 1
    lengths = attention[:, -count:].sum(axis=1)
    numbers: Counter[str] = Counter()
    sessions = []
    for uid in map(str, others["uid"]):
        sessions.append((uid, numbers[uid]))
        numbers[uid] += 1

    def cut(name: str) -> Ragged:
        values = data.batch[name].numpy()
        return Ragged(values.reshape(-1), count * np.arange(len(values)), lengths)

    prompts = zip(data.batch["prompts"].numpy(), attention[:, :-count], strict=True)
    fields = [
        dict(zip(others, values, strict=True)) for values in zip(*others.values(), strict=True)
    ]
    extra = [{k: v for k, v in one.items() if v is not None} for one in fields]
    return BatchRows(
        places=np.arange(len(sessions)),
        size=len(sessions),
        sessions=sessions,
        prompts=Ragged.of([ids[real] for ids, real in prompts]),
        responses=cut("responses"),
        masks=cut("response_mask"),
        scores=cut("rm_scores"),
        extra=extra,
        versions=[(one.get(VERSIONS[0]), one.get(VERSIONS[1])) for one in extra],
    )


def fetch(batch: Any, *names: str) -> Any:
    """These fields of all rows, each as a nested tensor or a list."""
    return transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names)
    )


def ragged(values: Any) -> Ragged:
    """The rows of a nested tensor, or of one that is padded to no length."""
    if values.is_nested and values.layout == torch.jagged and values.lengths() is None:
        bounds = values.offsets().cpu().numpy()
        return Ragged(values.values().cpu().numpy(), bounds[:-1], np.diff(bounds))
    return Ragged.of([row.numpy() for row in values.unbind()])


def extra_fields(batch: Any) -> list[dict[str, Any]]:
    """What the agent loop put into ``extra_fields`` of each row."""
    return _values(batch, "extra_fields")


def _values(batch: Any, name: str) -> list[Any]:
    """A field of all rows that holds no tensors."""
    return [getattr(one, "data", one) for one in fetch(batch, name)[name]]


def is_padding(tag: Any) -> bool:
    """Whether a row only fills up the batch."""
    return bool(tag.get("is_padding", False))


def mute(batch: Any, spans: Spans, learned: Bools) -> list[bool]:
    """Mask all tokens but those of steps to learn from, so that no others count in any mean.

    Others are those of padding, of groups that do not count, and of responses that an earlier row
    of the session holds too. Returns which rows have tokens left.
    """
    masks = ragged(fetch(batch, "response_mask")["response_mask"])
    total, before = masks.sizes.sum(), (np.cumsum(masks.sizes) - masks.sizes)[spans.sequence]
    together = replace(
        spans,
        sequence=np.zeros_like(spans.sequence),
        start=spans.start + before,
        end=spans.end + before,
        lengths=np.array([total]),
    )
    left = spread(learned, together, like=np.zeros(0, np.float32))[0] != 0
    shown = masks.flat(np.bool_)
    changed = np.flatnonzero(masks.any_of(shown & ~left)).tolist()
    if changed:
        ends = np.cumsum(masks.sizes)
        wanted = [left[ends[row] - masks.sizes[row] : ends[row]] for row in changed]
        values = torch.nested.as_nested_tensor(
            [
                torch.from_numpy(masks[row] * want)
                for row, want in zip(changed, wanted, strict=True)
            ],
            layout=torch.jagged,
        )
        transfer_queue.kv_batch_put(
            keys=[batch.keys[row] for row in changed],
            partition_id=batch.partition_id,
            fields=TensorDict(dict.fromkeys(("response_mask", "loss_mask"), values), len(changed)),
        )
    kept: list[bool] = masks.any_of(shown & left).tolist()
    return kept
