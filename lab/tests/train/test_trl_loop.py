"""The minimal loop of the learning experiment makes the update of our trainer."""

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

from ascribe.steps.files import read
from lab.tests.train import trl_games as toys
from lab.tests.train.test_trl_trainer import parameters

pytestmark = [pytest.mark.engine, toys.QUIET]


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 0.3), ("adamw_torch", 1e-3)])
def test_the_loop_makes_the_update_of_the_trainer(
    optimiser: str, rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates on the same rows, so that the second one is clipped; every weight compared."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from experiments import learning_loop as loop

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(toys.tokenizer()), **shape, **heads))
    ours, before = copy.deepcopy(model), parameters(model)
    args: dict[str, Any] = {"num_iterations": 2, "max_steps": 2, "optim": optimiser}
    args |= {"learning_rate": rate}
    trainer = toys.trainer(
        tmp_path, model=model, recipe="gigpo", layout="step", dump_dir=tmp_path, args=args
    )
    trainer.train()
    steps, advantage = [], []
    for row in read(tmp_path / "rollouts_00000.parquet").carried.to_pylist():
        prompt, tokens = tuple(row["prompt_ids"]), tuple(row["response_ids"])
        with torch.no_grad():
            logits = ours(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        logps = logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        steps.append(loop.Step("", "", 0, "", prompt, tokens=tokens, logps=logps.tolist()))
        advantage.append(row["trained_advantage"])
    kind = {"sgd": torch.optim.SGD, "adamw_torch": torch.optim.Adam}[optimiser]
    optimizer = kind(ours.parameters(), lr=rate)
    for _ in range(2):
        loop.update(ours, optimizer, steps, np.array(advantage))
    moved = np.abs(parameters(model) - before)
    assert moved.max() > rate / 100
    apart = np.abs(parameters(ours) - parameters(model))
    if optimiser == "sgd":
        assert apart.max() < 1e-6 + 1e-3 * moved.max()
    # Adam gives a weight without a gradient a step by its rounding error.
    assert np.quantile(apart, 0.99) < 1e-6 + 1e-2 * moved.max()
    assert len({len(step.tokens) for step in steps}) > 1
    assert "bipace_in_one_file" in sys.modules
