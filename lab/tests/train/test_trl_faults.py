"""Environments that break: the failure policy is followed, and training goes on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra trl")

from ascribe.steps.files import read
from ascribe_lab.rollout import FailurePolicy, RolloutFailedError
from lab.tests.train import trl_games as toys

pytestmark = [pytest.mark.engine, toys.QUIET]

ONCE = FailurePolicy(retries=0)


def run(folder: Path, fault: str, faulty: int, **options: Any) -> Any:
    """Two iterations of two groups: tasks 5 and 6 in both, in some order."""
    given: dict[str, Any] = {"failures": ONCE, "recipe": "gigpo", "args": {"max_steps": 2}}
    trainer = toys.trainer(
        folder,
        setup=toys.hall(fault=fault, faulty=faulty),
        tasks=[5, 6],
        states="environment",  # it names the task
        dump_dir=folder,
        **(given | options),
    )
    trainer.train()
    return trainer


def weights(model: Any) -> Any:
    return np.concatenate([p.detach().flatten().numpy() for p in model.parameters()])


@pytest.mark.parametrize(("fault", "reason"), [("raise", "raised"), ("nan", "malformed")])
def test_a_broken_group_is_dropped_and_counted(fault: str, reason: str, tmp_path: Path) -> None:
    trainer = run(tmp_path, fault, 5)
    assert toys.logged(trainer, "ascribe/dropped_groups") == [1, 1]
    assert toys.logged(trainer, f"ascribe/dropped/{reason}") == [1, 1]
    assert toys.logged(trainer, "ascribe/episodes") == [4, 4]
    assert all(failed >= 1 for failed in toys.logged(trainer, "ascribe/failed"))
    assert all(norm > 0 for norm in toys.logged(trainer, "grad_norm"))
    for file in sorted(tmp_path.glob("rollouts_*")):
        assert {state.split(",")[0] for state in read(file).table.state.values} == {"hall 6"}


def test_retries_are_counted(tmp_path: Path) -> None:
    trainer = run(tmp_path, "raise", 5, failures=FailurePolicy(retries=2), args={})
    # The first episode to fail three times ends the group, so some have failed twice by then.
    assert toys.logged(trainer, "ascribe/retries")[0] >= 2
    assert toys.logged(trainer, "ascribe/dropped_groups") == [1]


def test_a_group_may_end_with_one_trajectory(tmp_path: Path) -> None:
    lenient = FailurePolicy(retries=0, smallest_group=1)
    trainer = run(tmp_path, "unlucky", 5, failures=lenient, recipe="grpo")
    assert toys.logged(trainer, "ascribe/dropped_groups") == [0, 0]
    assert toys.logged(trainer, "ascribe/failed") == [3, 3]
    assert toys.logged(trainer, "ascribe/episodes") == [5, 5]
    for file in sorted(tmp_path.glob("rollouts_*")):
        rollouts = read(file)
        trained = rollouts.carried.column("trained_advantage").to_numpy()
        alone = np.array([state.startswith("hall 5") for state in rollouts.table.state.texts()])
        assert (trained[alone] == 0).all()
        assert (trained[~alone] != 0).any()


def test_a_group_with_one_trajectory_left_is_dropped_by_default(tmp_path: Path) -> None:
    trainer = run(tmp_path, "unlucky", 5)
    assert toys.logged(trainer, "ascribe/dropped/raised") == [1, 1]
    assert toys.logged(trainer, "ascribe/episodes") == [4, 4]


@pytest.mark.parametrize(("name", "layout"), [("gigpo", "step"), ("bipace_q", "trajectory")])
def test_an_iteration_without_any_group_is_no_crash(name: str, layout: Any, tmp_path: Path) -> None:
    trainer = toys.trainer(
        tmp_path,
        setup=toys.hall(fault="raise", faulty=-1),
        failures=ONCE,
        recipe=name,
        fingerprints=-1,
        layout=layout,
        dump_dir=tmp_path,
        args={"max_steps": 2, "num_iterations": 2, "beta": 0.0},
    )
    before = weights(trainer.model)
    trainer.train()
    assert toys.logged(trainer, "loss") == [0, 0]
    assert toys.logged(trainer, "ascribe/dropped_groups") == [2]
    assert toys.logged(trainer, "ascribe/rows") == [0]
    assert "ascribe/success" not in trainer.state.log_history[0]
    np.testing.assert_array_equal(weights(trainer.model), before)
    assert len(read(tmp_path / "rollouts_00000.parquet").table) == 0


def test_who_wants_to_stop_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(RolloutFailedError, match="raised: RuntimeError: the roof came down"):
        run(tmp_path, "raise", 5, failures=FailurePolicy(retries=0, stop=True))


def test_environments_in_other_processes(tmp_path: Path) -> None:
    """The pool of processes stays open between iterations, and is closed at the end."""
    from ascribe_lab.rollout import Setup

    setup = Setup(toys.HALL, {"fault": "raise", "faulty": 5}, style="plain", workers=1)
    trainer = toys.trainer(
        tmp_path, setup=setup, tasks=[5, 6], failures=ONCE, args={"max_steps": 2}
    )
    pools = []
    play = trainer.player.play

    def keep(*given: Any) -> Any:
        played = play(*given)
        pools.append(trainer.player.pool)
        return played

    trainer.player.play = keep
    trainer.train()
    assert toys.logged(trainer, "ascribe/dropped_groups") == [1, 1]
    assert pools[0] is pools[1]
    assert trainer.player.pool is None
    assert pools[0].processes == [None]
