"""Recipe ``events`` in verl: two iterations of TextCraft, credit and gradients by hand, memory."""

import os
from pathlib import Path

import numpy as np
import pytest

from ascribe import recipe
from ascribe.steps.files import read
from lab.tests.train import verl_toys as toys

os.environ.setdefault("VERL_PLATFORM", "cpu")
PRECISION = "actor_rollout_ref.actor.fsdp_config.mixed_precision"
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]


def test_two_iterations_by_hand(tmp_path: Path) -> None:
    chosen = {"name": "events", "parameters": {"memory": 0.5, "shuffles": 2}}
    config = toys.write_config(
        tmp_path / "run.yaml",
        toys.write_tiny(tmp_path / "model"),
        recipe=chosen,
        update__iterations=2,
        rollout__size=8,
        engine={"verl": {f"+{PRECISION}.param_dtype": "fp32"}},
    )
    lines = toys.train(config, SPY_GRADIENT="1")
    histories = toys.assert_credited(config)
    assert [history["iteration"] for history in histories if history] == [1, 2]
    assert all("ascribe/credit/events_evidence" in line for line in lines)
    told_apart = []
    for path in toys.dumped(config):
        credit = recipe("events", memory=0.5, shuffles=0)(read(path).table)
        told_apart.append(np.abs(credit.terms["events"].values).max())
    assert max(told_apart) > 0.1
    checkpoint = tmp_path / "run" / "checkpoints" / "global_step_1" / "actor" / "huggingface"
    for number, model in enumerate((tmp_path / "model", checkpoint), start=1):
        assert_gradient(config, number, model)


def assert_gradient(config: Path, number: int, model: Path) -> None:
    """The actor's gradient is that of its rows by hand: each the mean of A log p of its tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    rows = read(toys.dumped(config)[number - 1]).carried.to_pylist()
    for row in rows:
        prompt, response = row["prompt_ids"], row["response_ids"]
        logits = network(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        chosen = logits.log_softmax(dim=-1)[range(len(response)), response]
        (-row["trained_advantage"] * chosen.mean() / len(rows)).backward()
    found = torch.load(config.parent / "spied" / f"gradient_{number:05d}.pt")
    expected = {name: each.grad for name, each in network.named_parameters()}
    assert found.keys() == expected.keys()
    largest = max(float(each.abs().max()) for each in expected.values())
    assert largest > 1e-3
    for name, each in expected.items():
        torch.testing.assert_close(found[name].float(), each, rtol=1e-3, atol=1e-4 * largest)
