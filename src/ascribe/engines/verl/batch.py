"""verl's batch: the names of rows, whose fields are in TransferQueue."""

from typing import Any

import torch
import transfer_queue

from ascribe.steps.arrays import Bools


def fetch(batch: Any, *names: str) -> Any:
    """These fields of all rows, each as a nested tensor or a list."""
    return transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=list(names)
    )


def extra_fields(batch: Any) -> list[dict[str, Any]]:
    """What the agent loop put into ``extra_fields`` of each row."""
    return [getattr(one, "data", one) for one in fetch(batch, "extra_fields")["extra_fields"]]


def is_padding(tag: Any) -> bool:
    """Whether a row only fills up the batch."""
    return bool(tag.get("is_padding", False))


def mute(batch: Any, rows: Bools) -> None:
    """Mask all tokens of these rows, so that they do not count in any mean either."""
    keys = [key for key, mute in zip(batch.keys, rows, strict=True) if mute]
    if not keys:
        return
    partition = batch.partition_id
    found = transfer_queue.kv_batch_get(
        keys=keys, partition_id=partition, select_fields=["response_mask", "loss_mask"]
    )
    for name in ("response_mask", "loss_mask"):
        found[name] = torch.zeros_like(found[name])
    transfer_queue.kv_batch_put(keys=keys, partition_id=partition, fields=found)
