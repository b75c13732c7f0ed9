"""Log-probabilities on a processor are those of TRL, with the same gradient."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra trl")

import torch
from transformers import LlamaForCausalLM
from trl import GRPOTrainer

from ascribe.engines.trl import batch
from tests.engines import trl_toys as toys

pytestmark = [pytest.mark.engine, toys.QUIET]


def rows(size: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts of several lengths, padded on the left; completions of several, on the right."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 40, (size, 12), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(size):
        mask[row, :row] = 0
        mask[row, 12 - row % 4 :] = 0
    return ids, mask


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("batch", [None, 2])
def test_they_are_those_of_trl(tmp_path: Path, temperature: float, batch: int | None) -> None:
    trainer = toys.trainer(tmp_path, args={"temperature": temperature})
    ids, mask = rows()
    found: list[tuple[Any, Any, Any]] = []
    for kind in (type(trainer), GRPOTrainer):
        trainer.model.zero_grad()
        logprobs, entropy, _ = kind._get_per_token_logps_and_entropies(
            trainer, trainer.model, ids, mask, 5, batch_size=batch, compute_entropy=True
        )
        (logprobs.sum() + 0.1 * entropy.sum()).backward()
        gradient = torch.cat([one.grad.flatten() for one in trainer.model.parameters()])
        found.append((logprobs.detach(), entropy.detach(), gradient))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert found[0][2].abs().max() > 1e-3


def test_only_completions_meet_the_vocabulary(tmp_path: Path) -> None:
    trainer = toys.trainer(tmp_path)
    seen: list[int] = []
    head = trainer.model.get_output_embeddings()
    head.register_forward_hook(lambda _head, given, _found: seen.append(given[0].shape[1]))
    trainer._get_per_token_logps_and_entropies(trainer.model, *rows(), 5)
    assert seen == [6]


def test_a_model_that_cannot_give_the_last_alone() -> None:
    class All(LlamaForCausalLM):
        def forward(self, input_ids: Any, attention_mask: Any) -> Any: ...

    assert batch.can_keep_logits(toys.tiny())
    assert not batch.can_keep_logits(All.__new__(All))
