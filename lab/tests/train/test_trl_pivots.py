"""Pivots with TRL: turns of traces are trained on like any environment, paid by a verifier."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

from ascribe.engines.metrics import read_metrics
from ascribe_lab.envs import Outcome, Start, TextEnvironment
from ascribe_lab.models.loading import save_model
from ascribe_lab.pivots import Origin, candidate, read_responses, write_turns
from ascribe_lab.pivots.candidates import ReplayPoint
from ascribe_lab.rollout import Setup
from ascribe_lab.train.load import load_config
from ascribe_lab.train.rounds import Rounds, train_in_rounds
from lab.tests.train import trl_games as toys

pytestmark = [pytest.mark.engine, toys.QUIET]


JOURNAL = "answers.jsonl"


class Door(TextEnvironment[list[bool]]):
    """A door that opens for every text with an e in it."""

    tasks = 2

    def __init__(self) -> None:
        super().__init__(horizon=4)

    def begin(self, task: int, generator: np.random.Generator) -> Start[list[bool]]:
        return Start([False], "You are at a door.", "open it", "door")

    def act(self, episode: list[bool], action: str) -> Outcome:
        episode[0] = "e" in action
        return Outcome("You are at a door.")

    def admissible(self, episode: list[bool]) -> None:
        return None

    def state_key(self, episode: list[bool], observation: str) -> str:
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
            scene=ReplayPoint(0, task, (), "closed"),
        )
        for task in range(2)
    ]
    write_turns(folder / "pivots.jsonl", made)
    options = {"file": str(folder / "pivots.jsonl"), "verifier": EFFECT}
    return Setup("pivots", options, "plain", "serial")


@pytest.mark.nightly
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


@pytest.mark.slow
def test_pivots_are_chosen_anew_and_the_run_goes_on(tmp_path: Path) -> None:
    """Two rounds are one run: iterations count on, and the reference stays that of the start."""
    given = pivots(tmp_path).options
    start = save_model(toys.tiny(), toys.tokenizer(), tmp_path / "start")
    changes: dict[str, Any] = {
        "model.path": str(start),
        "environment.name": "pivots",
        "environment.options.file": given["file"],
        "environment.options.verifier": given["verifier"],
        "environment.pool": "serial",
        "recipe.name": "grpo",
        "rollout.groups": 2,
        "rollout.size": 8,
        "rollout.max_tokens": 5,
        "update.iterations": 4,
        "update.learning_rate": 3e-3,
        "update.kl": 0.01,
        "output.folder": str(tmp_path / "run"),
        "output.rollouts": True,
        "engine.trl.use_cpu": True,
        "engine.trl.gradient_checkpointing": False,
    }
    config = load_config(None, changes).config
    rounds = Rounds(2, k=16, threshold=1.0)
    done = train_in_rounds(config, "trl", rounds)
    assert [(one.iterations, one.answers) for one in done] == [(2, 32), (4, 32)]
    assert done[0].kept == 2
    lines = read_metrics(tmp_path / "run")
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    # Where the second round begins, the model is away from the start already.
    assert lines[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert lines[2]["kl"] > 1e-4
    asked = [
        {
            answer.text
            for answer in read_responses(tmp_path / f"run/rounds/round_{number}" / JOURNAL)
        }
        for number in range(2)
    ]
    assert asked[0] != asked[1]
    # All is done: nothing is played or written again.
    weights = (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns
    assert train_in_rounds(config, "trl", rounds, resume=True) == done
    assert (tmp_path / "run/model/model.safetensors").stat().st_mtime_ns == weights
    # A round that was cut off after its training ends without another update.
    (tmp_path / "run/rounds/round_1/round.json").unlink()
    assert train_in_rounds(config, "trl", rounds, resume=True) == done
    assert read_metrics(tmp_path / "run") == lines
