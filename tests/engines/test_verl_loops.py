"""Stock verl with credit for turns: its ToolAgentLoop, and a user's agent loop, in one real run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.estimators import recipe
from ascribe.estimators.assign import assign
from ascribe.steps.files import read
from tests.engines import verl_toys as toys
from tests.tool_model import write_tool_model

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.NEEDS_VERL]

EXAMPLE = Path(__file__).parents[2] / "examples" / "verl_rooms"
RECIPES = ("grpo", "gigpo", "sbc")
KEYS = {
    "data.shuffle": False,
    "data.dataloader_num_workers": 0,
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.rollout.max_model_len": 384,
    "actor_rollout_ref.actor.optim.lr": 1e-3,
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 4096,
    "actor_rollout_ref.model.use_remove_padding": True,
    "trainer.val_before_train": False,
    "trainer.test_freq": -1,
    "trainer.save_freq": -1,
    "trainer.total_training_steps": 2,
    "ascribe.recipe": "sbc",
    "+ascribe.fingerprints": -1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps: the first with verl's ToolAgentLoop, the second with the example's loop."""
    folder = tmp_path_factory.mktemp("rooms")
    model = write_tool_model(folder / "model", "Visit room 2 as often as you can.")
    toys.run_stock(
        [str(EXAMPLE / "run.sh")],
        folder,
        KEYS,
        MODEL=str(model),
        AGENT="tool_agent rooms",
        VERL_USE_EXTERNAL_MODULES="tests.engines.verl_loop_spy",
        SPY=str(folder / "spied"),
    )
    return folder


def rows(run: Path, step: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "spied" / f"rows_{step}.json").read_text())
    return found


def dumped(run: Path, name: str, step: int) -> Any:
    return read(run / "spied" / name / f"rollouts_{step - 1:05d}.parquet")


def episode(row: dict[str, Any]) -> str:
    """The name of a row's trajectory."""
    uid, session, _ = row["key"].rsplit("_", 2)
    return f"{uid}/{session}"


def turns(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Where the runs of ones begin and end."""
    edges = np.flatnonzero(np.diff(row["response_mask"], prepend=0, append=0))
    return list(map(tuple, edges.reshape(-1, 2).tolist()))


@pytest.mark.parametrize("step", [1, 2])
def test_grpo_is_verls_own(run: Path, step: int) -> None:
    noted = rows(run, step)
    assert len(noted) == 32
    for row in noted:
        np.testing.assert_allclose(row["grpo"], row["verl"], atol=1e-6)
    assert any(np.any(row["verl"]) for row in noted)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("name", RECIPES)
def test_credit_of_the_dump_is_on_the_tokens_of_each_turn(run: Path, name: str, step: int) -> None:
    steps = dumped(run, name, step)
    advantage = assign(steps.table, recipe(name)).credit.advantage
    np.testing.assert_allclose(steps.carried["trained_advantage"], advantage, atol=1e-6)
    assert np.ptp(advantage) > 0
    place = dict(
        zip(
            zip(steps.table.trajectory.texts(), steps.table.step, strict=True),
            advantage,
            strict=True,
        )
    )
    noted = rows(run, step)
    assert len(place) == sum(len(turns(row)) for row in noted) > 2 * len(noted)
    for row in noted:
        tokens = np.zeros(len(row["responses"]))
        for turn, (start, end) in enumerate(turns(row)):
            tokens[start:end] = place[episode(row), turn]
        np.testing.assert_allclose(row[name], tokens, atol=1e-6)
        # Nothing beside the spans of credited steps, and all of these.
        assert np.array_equal(np.array(row[name]) != 0, tokens != 0)


def test_states_are_tool_results_or_keys_of_the_loop(run: Path) -> None:
    first, second = dumped(run, "gigpo", 1).table, dumped(run, "gigpo", 2).table
    later = {state for state, step in zip(first.state.texts(), first.step, strict=True) if step}
    assert later <= {f"You are in room {room}." for room in range(10)}
    assert later
    given = {episode(row): row for row in rows(run, 2)}
    for name, step, state, reward in zip(
        second.trajectory.texts(), second.step, second.state.texts(), second.reward, strict=True
    ):
        assert state == given[name]["turn_states"][step]
        assert reward == pytest.approx(given[name]["turn_rewards"][step])
    assert set(first.group.texts()) == {row["key"].split("_")[0] for row in rows(run, 1)}


def test_fingerprints_are_those_of_each_turn(run: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float32).eval()
    seen: list[Any] = []
    model.model.layers[-1].register_forward_hook(
        lambda _module, _inputs, output: seen.append(
            output[0][0] if isinstance(output, tuple) else output[0]
        )
    )
    for row in rows(run, 1)[:8]:
        with torch.no_grad():
            model(torch.tensor([row["prompts"] + row["responses"]]))
        places = [len(row["prompts"]) + start - 1 for start, _ in turns(row)]
        wanted = torch.nn.functional.normalize(seen[-1][places], dim=-1)
        vectors = torch.tensor(row["fingerprint"]).reshape(len(places), -1)
        assert (vectors * wanted).sum(dim=-1).min() > 0.999  # verl computes in half precision
    steps = read(run / "steps" / "rollouts_00000.parquet")
    assert steps.table.fingerprint is not None
    np.testing.assert_allclose(
        steps.carried["trained_advantage"],
        assign(steps.table, recipe("sbc")).credit.advantage,
        atol=1e-6,
    )


@pytest.mark.parametrize("step", [1, 2])
def test_fingerprints_that_stay_in_the_queue_give_the_same_bits(run: Path, step: int) -> None:
    noted = rows(run, step)
    assert any(np.any(row["tasks"]) for row in noted)
    assert [row["tasks"] for row in noted] == [row["sbc"] for row in noted]


def test_verl_finds_the_plug_in_without_a_variable() -> None:
    code = "from verl.trainer.ppo.v1 import get_trainer_cls as of; print(of('ascribe').__module__)"
    unset = ("VERL_USE_EXTERNAL_MODULES", "VERL_USE_EXTERNAL_PLUGINS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["VERL_PLATFORM"] = "cpu"
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split()[-1] == "ascribe.engines.verl.trainer"


def test_the_loop_of_the_example_is_short() -> None:
    assert len((EXAMPLE / "loop.py").read_text().splitlines()) <= 40
