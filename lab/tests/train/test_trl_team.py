"""Teams with TRL: an adapter for each agent, turns, and statistics that survive a kill."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")
pytest.importorskip("peft", reason="needs the extra trl")

import torch
from transformers import TrainerCallback

from ascribe import Reason, recipe
from ascribe.engines.trl.trainer import CARRIED
from ascribe.steps.files import read
from ascribe_lab.models.policy import Request
from lab.tests.train import trl_games as toys
from lab.tests.train import trl_run

pytestmark = [pytest.mark.engine, toys.QUIET]

VOTERS = ["1", "2", "3"]
PAIR = ["thinker", "solver"]
EARLY = {"minimum": 4}
"""Statistics that are used from the first iteration on."""


def adapters(made: Any) -> dict[str, Any]:
    """The weights of each agent's adapter."""
    found = {}
    for agent, name in made._adapters.names.items():
        own = [p for key, p in made.model.named_parameters() if f".{name}." in key]
        found[agent] = torch.cat([p.detach().flatten() for p in own])
    return found


def carried(folder: Path, number: int) -> Any:
    """The statistics in a checkpoint."""
    state = json.loads((folder / f"checkpoint-{number}" / "trainer_state.json").read_text())
    return state["stateful_callbacks"][CARRIED]


class Watch(TrainerCallback):
    """Keeps the adapters after every update."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.made: Any = None

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seen.append(adapters(self.made))


def test_agents_learn_in_turns(tmp_path: Path) -> None:
    watch = Watch()
    made = toys.trainer(
        tmp_path,
        team={},
        recipe="grpo",
        agents=VOTERS,
        callbacks=[watch],
        dump_dir=tmp_path,
        args={"max_steps": 4},
    )
    watch.made = made
    before = adapters(made)
    made.train()
    turns = [*VOTERS, "1"]
    for turn, after in zip(turns, watch.seen, strict=True):
        assert [name for name in VOTERS if not torch.equal(before[name], after[name])] == [turn]
        before = after
    lengths = []
    for turn, file in zip(turns, sorted(tmp_path.glob("rollouts_*.parquet")), strict=True):
        rollouts = read(file)
        ids = rollouts.carried.column("response_ids").to_pylist()
        own = np.array(rollouts.table.agent.texts()) == turn
        lengths.append(np.mean([len(ids[row]) for row in np.flatnonzero(own)]))
    assert toys.logged(made, "completions/mean_length") == pytest.approx(lengths)


def test_an_evaluation_amid_an_iteration_changes_nobody_s_turn(tmp_path: Path) -> None:
    watch = Watch()
    args = {"max_steps": 2, "num_iterations": 2, "eval_strategy": "steps", "eval_steps": 1}
    args |= {"num_generations_eval": 1, "per_device_eval_batch_size": 4}
    made = toys.trainer(
        tmp_path,
        team={},
        recipe="grpo",
        agents=VOTERS,
        eval_tasks=range(4),
        callbacks=[watch],
        args=args,
    )
    watch.made = made
    before = adapters(made)
    made.train()
    assert len(toys.logged(made, "eval_ascribe/success")) == 2
    for after in watch.seen:
        assert [name for name in VOTERS if not torch.equal(before[name], after[name])] == ["1"]
        before = after


@pytest.mark.parametrize(
    ("topology", "agents", "form", "own"),
    [
        ("voting", VOTERS, "contribution", True),
        ("voting", VOTERS, "allocated", False),
        ("think_solve", PAIR, "think_solve", True),
    ],
)
def test_it_trains_on_what_the_recipe_says(
    topology: str, agents: list[str], form: Any, own: bool, tmp_path: Path
) -> None:
    """With adapters of their own and with shared weights; statistics go from file to file."""
    estimator = recipe("ccpo", form=form, **EARLY)
    made = toys.trainer(
        tmp_path,
        team={"topology": topology},
        recipe=estimator,
        agents=agents if own else [],
        dump_dir=tmp_path,
        args={"max_steps": 3},
    )
    made.train()
    history, largest = None, 0.0
    for file in sorted(tmp_path.glob("rollouts_*.parquet")):
        rollouts = read(file)
        credit = estimator(rollouts.table, history=history)
        trained = np.array(rollouts.carried.column("trained_advantage").to_pylist())
        np.testing.assert_allclose(trained, credit.advantage, rtol=0, atol=1e-6)
        if topology == "think_solve":
            measured = rollouts.table.step == 2
            assert set(credit.reason[measured]) == {Reason.COUNTERFACTUAL}
        history, largest = credit.history, max(largest, float(np.abs(trained).max()))
    assert largest > 0.1
    assert made._history == history


def test_every_agent_answers_with_its_own_adapter(tmp_path: Path) -> None:
    made = toys.trainer(tmp_path, team={}, recipe="grpo", agents=VOTERS)
    with torch.no_grad():
        for name, parameter in made.model.named_parameters():
            if "lora_B.agent_2." in name:
                parameter.fill_(1.0)
    chat = [{"role": "user", "content": "You are in room 0."}]
    asked = [Request(chat, 5, {"agent": agent}) for agent in ("2", "1", "3", "2")]
    with made._sampling_policy() as policy:
        texts = [sample.response_ids for sample in policy(asked, made.player.sampling)]
        alone = [policy([one], made.player.sampling)[0].response_ids for one in asked]
    assert texts == alone
    assert texts[1] == texts[2] != texts[0] == texts[3]


def test_an_agent_without_an_adapter_is_named(tmp_path: Path) -> None:
    made = toys.trainer(tmp_path, team={}, recipe="grpo", agents=["1", "2"])
    with pytest.raises(ValueError, match="agent '3' of the environment"):
        made.train()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layout": "trajectory"}, "layout='step'"),
        ({"recipe": "bipace_q", "fingerprints": -1}, "without fingerprints"),
    ],
)
def test_what_a_team_cannot_do(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        toys.trainer(tmp_path, team={}, agents=VOTERS, **options)


def test_adapters_that_are_there_already_are_not_thrown_away(tmp_path: Path) -> None:
    from peft import get_peft_model

    ready = get_peft_model(toys.tiny(), toys.lora())
    with pytest.raises(ValueError, match="agents need a model without adapters"):
        toys.trainer(tmp_path, model=ready, team={}, agents=VOTERS, peft_config=None)


# Resuming.


def options(folder: Path) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    args = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1}
    return {
        "folder": str(folder),
        "recipe": "ccpo",
        "team": {"topology": "voting"},
        "agents": VOTERS,
        "args": args,
    }


@pytest.mark.slow
def test_statistics_and_adapters_go_on_after_a_kill(tmp_path: Path) -> None:
    unbroken, folder = tmp_path / "unbroken", tmp_path / "killed"
    (run,) = trl_run.start(options(folder) | {"killed_at": "learn 2"})
    trl_run.main(options(unbroken))
    assert trl_run.killed(run, folder).name == "checkpoint-2"
    trl_run.main(options(folder))
    for number in range(1, 5):
        told = carried(unbroken, number)
        assert carried(folder, number) == told  # bit for bit
    assert told["samples"] == 4 * 8
    weights = [torch.load(run / "weights.pt") for run in (unbroken, folder)]
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=0, atol=0)


def test_a_checkpoint_amid_an_iteration_has_the_statistics_before_it(tmp_path: Path) -> None:
    args = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "num_iterations": 2}
    made = toys.trainer(tmp_path, team={}, recipe=recipe("ccpo", **EARLY), args=args)
    made.train()
    told = [carried(tmp_path, number) for number in (1, 2, 3)]
    assert told[0] is None
    assert told[1] == told[2] != made._history


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    args = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    toys.trainer(tmp_path, team={}, recipe="grpo", args=args).train()
    other = toys.trainer(tmp_path, team={}, recipe="ccpo", args=args | {"max_steps": 2})
    with pytest.raises(ValueError, match="holds no ascribe_history"):
        other.train(resume_from_checkpoint=True)
