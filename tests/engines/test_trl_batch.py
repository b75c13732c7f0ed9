"""Rows of tokens as tensors."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra trl")

import torch

from ascribe.engines.trl.batch import (
    Row,
    cut,
    decision_places,
    lengths,
    per_row,
    per_token,
    tensors,
)

pytestmark = pytest.mark.engine

ROWS = [
    Row((5, 6, 7), (8, 9), np.array([0, 0]), np.array([2])),
    Row((5,), (8, 1, 2, 9), np.array([1, -1, -1, 2]), np.array([0, 3])),
]


def test_prompts_are_padded_on_the_left_and_completions_on_the_right() -> None:
    batch = tensors(ROWS, blank=0, size=3)
    assert batch["prompt_ids"].tolist() == [[5, 6, 7], [0, 0, 5], [0, 0, 0]]
    assert batch["prompt_mask"].tolist() == [[1, 1, 1], [0, 0, 1], [0, 0, 1]]
    assert batch["completion_ids"].tolist() == [[8, 9, 0, 0], [8, 1, 2, 9], [0, 0, 0, 0]]
    assert batch["completion_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert batch["tool_mask"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]]


def test_no_tool_mask_where_the_policy_wrote_everything() -> None:
    assert "tool_mask" not in tensors(ROWS[:1], blank=0, size=2)


def test_a_batch_of_nothing() -> None:
    batch = tensors([], blank=0, size=4)
    assert batch["prompt_mask"].tolist() == [[1]] * 4
    assert batch["completion_mask"].sum() == 0


def test_widths_are_a_multiple() -> None:
    batch = tensors(ROWS, blank=0, size=2, multiple=8)
    assert batch["prompt_ids"].shape == (2, 8)
    assert batch["completion_ids"].shape == (2, 8)
    assert cut(batch, torch.tensor([1]), multiple=4)["prompt_ids"].shape == (1, 4)


def test_advantages() -> None:
    advantage = np.array([0.5, -1.0, 2.0])
    assert per_row(ROWS, advantage, 3).tolist() == [0.5, -1.0, 0.0]
    assert per_token(ROWS, advantage, 3, 4).tolist() == [
        [0.5, 0.5, 0, 0],
        [-1.0, 0, 0, 2.0],
        [0, 0, 0, 0],
    ]


def test_a_part_has_no_columns_of_padding() -> None:
    batch = tensors(ROWS, blank=0, size=3) | {"count": torch.tensor(7)}
    batch["old"] = torch.arange(12).view(3, 4)
    batch["advantages"] = torch.tensor([0.5, -1.0, 0.0])
    part = cut(batch, torch.tensor([2, 0]))
    assert part["prompt_ids"].tolist() == [[0, 0, 0], [5, 6, 7]]
    assert part["completion_ids"].tolist() == [[0, 0], [8, 9]]
    assert part["old"].tolist() == [[8, 9], [0, 1]]
    assert part["advantages"].tolist() == [0.0, 0.5]
    assert part["count"] == 7
    alone = cut(batch, torch.tensor([2]))
    assert alone["prompt_ids"].shape == alone["completion_ids"].shape == (1, 1)


def test_lengths() -> None:
    assert lengths(tensors(ROWS, blank=0, size=3)).tolist() == [5, 5, 1]


def test_where_decisions_are_taken() -> None:
    batch = tensors(ROWS, blank=0, size=3)
    places = decision_places({0: ROWS[0], 1: ROWS[1]}, batch)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    states = ids[:, :, None].float()
    # The last token of each prompt: 7; then 5, and 2, which comes before the second response.
    assert places(states)[:, 0].tolist() == [7, 5, 2]
