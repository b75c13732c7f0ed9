"""verl's one_step_off_policy and fully_async_policy with credit for turns, each in a real run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.estimators import recipe
from ascribe.estimators.assign import assign
from ascribe.steps.files import read
from lab.tests.train import verl_toys as toys
from lab.tests.train.test_verl_loops import turns

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly, toys.NEEDS_VERL]

SENDS = "actor_rollout_ref.rollout.checkpoint_engine"
BOTH: dict[str, Any] = {
    "actor_rollout_ref.hybrid_engine": False,
    "rollout.nnodes": 1,
    "rollout.n_gpus_per_node": 1,
    f"{SENDS}.backend": "file",
    f"{SENDS}.custom_backend_module": "ascribe_lab.train.verl.cpu.weights",
}
OWN: dict[str, dict[str, Any]] = {
    "one_step_off": {},
    "fully_async": {
        "data.train_batch_size": 0,
        "data.gen_batch_size": 1,
        "rollout.total_rollout_steps": 12,
        "async_training.trigger_parameter_sync_step": 1,
        "async_training.staleness_threshold": 1,
    },
}


@pytest.fixture(scope="module", params=list(OWN))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps with verl's ToolAgentLoop."""
    folder = tmp_path_factory.mktemp(request.param)
    toys.run_rooms(
        folder,
        BOTH | OWN[request.param],
        COMMAND=request.param,
        VERL_USE_EXTERNAL_MODULES="lab.tests.train.verl_separate_spy",
        SPY=str(folder / "spied"),
    )
    return folder


def steps(run: Path) -> list[tuple[int, dict[str, Any]]]:
    found = sorted(run.glob("spied/rows_*.json"))
    assert len(found) == 3
    return [(int(path.stem[5:]), json.loads(path.read_text())) for path in found]


def test_grpo_is_verls_own(run: Path) -> None:
    for _, noted in steps(run):
        np.testing.assert_allclose(noted["grpo"], noted["verl"], atol=1e-6)
    assert any(np.any(noted["verl"]) for _, noted in steps(run))


def test_each_turn_has_the_credit_of_its_step(run: Path) -> None:
    """By hand: members of a prompt are counted in their order, and their turns are runs of ones."""
    for number, noted in steps(run):
        dumped = read(run / "steps" / f"rollouts_{number - 1:05d}.parquet")
        advantage = assign(dumped.table, recipe("gigpo")).credit.advantage
        assert np.array_equal(dumped.carried["trained_advantage"], advantage)
        places = zip(dumped.table.trajectory.texts(), dumped.table.step.tolist(), strict=True)
        place = dict(zip(places, advantage, strict=True))
        members: dict[str, int] = {}
        for row, uid in enumerate(noted["uid"]):
            member = members.setdefault(uid, 0)
            members[uid] += 1
            tokens = np.zeros(len(noted["responses"][row]), dtype=np.float32)
            for turn, (start, end) in enumerate(
                turns({"response_mask": noted["response_mask"][row]})
            ):
                tokens[start:end] = place.pop((f"{uid}/{member}", turn))
            assert np.array_equal(np.float32(noted["run"][row]), tokens)
        assert not place
        assert set(members.values()) == {8}


def test_staleness_is_logged(run: Path) -> None:
    lags = [noted["metrics"]["ascribe/versions/lag_max"] for _, noted in steps(run)]
    assert max(lags) >= 1
    for _, noted in steps(run):
        assert noted["metrics"]["ascribe/episodes"] == len(noted["uid"]) == 32
        returns = np.sum(noted["rm_scores"], axis=1).mean()
        assert noted["metrics"]["ascribe/return"] == pytest.approx(returns, abs=1e-6)
    said = (run / "log.txt").read_text(errors="replace")
    assert "ascribe/return" in said
