"""Recipe ``events`` in TRL's own tool loop: credit, gradients and memory by hand.

Page: docs/engines/trl.md.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.estimators.events import EventCredit
from ascribe.steps.files import read_table
from tests.engines import trl_toys as toys

pytest.importorskip("trl")
pytestmark = [pytest.mark.engine, toys.QUIET]

RECIPE = recipe("events", memory=0.5, shuffles=2, every=2)


class Rooms:
    """Rooms to walk through; to be in room 2 at the end wins."""

    def reset(self, **_: Any) -> str:
        """Begin an episode."""
        self.room = 0
        return " You are in room 0."

    def move(self, room: int) -> str:
        """Go to a room.

        Args:
            room: its number.
        """
        self.room = room
        return f"You are in room {room}."

    def get_reward(self) -> float:
        """Whether the agent is there."""
        return float(self.room == 2)


def make(folder: Path, factory: pytest.TempPathFactory, **args: Any) -> Any:
    from datasets import Dataset

    from ascribe.engines.trl import AscribeTrainer
    from tests.engines.trl_tools import TASK, tool_model

    model, tokenizer = tool_model(factory)
    given = {"max_steps": 2, "per_device_train_batch_size": 16, "gradient_accumulation_steps": 1}
    given |= {"num_generations": 8, "max_completion_length": 60, "loss_type": "bnpo"}
    given |= {"max_grad_norm": 1e9, "temperature": 1.0, "shuffle_dataset": False}
    return AscribeTrainer(
        str(model),
        args=toys.config(folder, **(given | args)),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": TASK}]}] * 8),
        processing_class=tokenizer,
        environment_factory=Rooms,
        recipe=RECIPE,
        dump_dir=folder / "dump",
    )


def test_two_iterations_by_hand(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    import torch
    from transformers import TrainerCallback

    made = make(tmp_path, tmp_path_factory)
    batches, score = [], made._generate_and_score_completions

    def keep(inputs: Any) -> Any:
        batches.append(score(inputs))
        return batches[-1]

    made._generate_and_score_completions = keep
    compared = []

    class ByHand(TrainerCallback):  # type: ignore[misc]
        """Compares the gradient with that of the policy gradient, before each update."""

        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            batch = batches[-1]
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
            mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
            length = batch["completion_ids"].shape[1]
            logits = model(ids, attention_mask=mask).logits[:, -length - 1 : -1]
            chosen = batch["completion_ids"].unsqueeze(-1)
            logprob = logits.log_softmax(-1).gather(-1, chosen).squeeze(-1)
            wrote = (batch["completion_mask"] * batch["tool_mask"]).float()
            loss = -(logprob * batch["advantages"] * wrote).sum() / wrote.sum()
            named = dict(model.named_parameters())
            by_hand = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            for each, wanted in zip(named.values(), by_hand, strict=True):
                if wanted is not None:
                    torch.testing.assert_close(each.grad, wanted, rtol=1e-3, atol=1e-6)
            compared.append(max(float(each.abs().max()) for each in by_hand if each is not None))

    made.add_callback(ByHand())
    made.train()
    assert len(batches) == len(compared) == 2
    assert min(compared) > 1e-4
    history = None
    for number, batch in enumerate(batches):
        table = read_table(tmp_path / "dump" / f"rollouts_{number:05d}.parquet")
        credit = RECIPE(table, history=history)
        history = credit.history
        wrote = (batch["completion_mask"] * batch["tool_mask"]).numpy()
        starts = wrote & ~np.pad(wrote, ((0, 0), (1, 0)))[:, :-1]
        advantages = batch["advantages"].numpy()[starts.astype(bool)]
        np.testing.assert_allclose(advantages, credit.advantage, atol=1e-5)
        assert ("events_prediction" in credit.metrics) == (number == 0)
        assert np.abs(credit.terms["events"].values).max() > 0.1, "calls were told apart"
    assert len(toys.logged(made, "ascribe/credit/events_evidence")) == 2


def test_memory_is_in_the_checkpoint(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    steps = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2}
    made = make(tmp_path, tmp_path_factory, **steps)
    made.train()
    state = json.loads((tmp_path / "checkpoint-2/trainer_state.json").read_text())
    kept = state["stateful_callbacks"]["ascribe_history"]
    assert kept["iteration"] == 2
    assert isinstance(RECIPE, EventCredit)
    assert any(name.startswith("unusual ") for name in kept["known"])
    again = make(tmp_path, tmp_path_factory, **steps)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    last = json.loads((tmp_path / "checkpoint-3/trainer_state.json").read_text())
    assert last["stateful_callbacks"]["ascribe_history"]["iteration"] == 3
