"""Pivots with TRL: turns of traces are trained on like any environment, paid by a verifier."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

from ascribe.envs import Outcome, Start, TextEnvironment
from ascribe.pivots import Origin, Scene, candidate, write_turns
from ascribe.rollout import Setup
from tests.engines import trl_toys as toys

pytestmark = [pytest.mark.engine, toys.QUIET]


class Door(TextEnvironment[list[bool]]):
    """A door that opens for every text with an e in it."""

    tasks = 2

    def __init__(self) -> None:
        super().__init__(horizon=4)

    def _begin(self, task: int, generator: np.random.Generator) -> Start[list[bool]]:
        return Start([False], "You are at a door.", "open it", "door")

    def _act(self, episode: list[bool], action: str) -> Outcome:
        episode[0] = "e" in action
        return Outcome("You are at a door.")

    def _admissible(self, episode: list[bool]) -> None:
        return None

    def _state(self, episode: list[bool], observation: str) -> str:
        return "open" if episode[0] else "closed"


EFFECT = {"effect": {"environment": f"{__name__}:Door", "style": "plain"}}
"""Accepted is every text that does to the door what was demonstrated."""


def pivots(folder: Path) -> Setup:
    """Two turns at the door, at which somebody opened it."""
    made = [
        candidate(
            [{"role": "user", "content": f"You are in room {task}."}],
            "<action>open it, please</action>",
            Origin("traces.jsonl", f"line {task}", 0, 1),
            scene=Scene(0, task, (), "closed"),
        )
        for task in range(2)
    ]
    write_turns(folder / "pivots.jsonl", made)
    options = {"file": str(folder / "pivots.jsonl"), "verifier": EFFECT}
    return Setup("pivots", options, "plain", "serial")


@pytest.mark.slow
def test_it_learns_what_the_verifier_pays_for(tmp_path: Path) -> None:
    """Groups of answers to one turn, GRPO, and a penalty on the distance to the start."""
    args: dict[str, Any] = {"max_steps": 14, "learning_rate": 3e-3, "num_generations": 8}
    args |= {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "beta": 0.01}
    start = str(tmp_path / "start")  # in a folder, so that the reference can be loaded too
    toys.tiny().save_pretrained(start)
    trainer = toys.trainer(
        tmp_path, model=start, setup=pivots(tmp_path), recipe="grpo", stop=(), args=args
    )
    trainer.train()
    returns = toys.logged(trainer, "ascribe/return")
    assert set(toys.logged(trainer, "ascribe/turns")) == {1.0}
    assert toys.logged(trainer, "kl")[-1] > 0
    assert returns[0] < 0.5
    assert min(returns[-2:]) > 0.7
