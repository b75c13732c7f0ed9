"""An estimator of ours in a patched verl; ``test_upstream.py`` runs this file."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from examples.upstream.verl_estimator import gigpo

START, DOOR, KEY = [1, 2], [3], [4, 5, 6]
LEFT, RIGHT = [11], [12, 13]
SESSIONS = {
    "maze_0": (1.0, [(START, LEFT), (DOOR, RIGHT), (KEY, LEFT)]),
    "maze_1": (0.0, [(START, LEFT), (DOOR, LEFT)]),
    "maze_2": (0.5, [(START, RIGHT), (DOOR, RIGHT)]),
    "cave_0": (2.0, [(START, RIGHT), (KEY, LEFT)]),
    "cave_1": (1.0, [(START, LEFT)]),
}
"""The reward of each session, and its turns: what the model saw, and what it wrote."""


def by_hand() -> dict[str, float]:
    """GiGPO's formula for each turn."""

    def standard(value: float, values: list[float]) -> float:
        spread = np.std(values, ddof=1) if len(values) > 1 else 1.0
        return float((value - np.mean(values)) / (spread + 1e-6)) if len(values) > 1 else 0.0

    turns = {
        f"{name}_{i}": (name[:4], reward, seen, reward * 0.95 ** (len(turns) - 1 - i))
        for name, (reward, turns) in SESSIONS.items()
        for i, (seen, _) in enumerate(turns)
    }
    return {
        key: standard(reward, [r for name, (r, _) in SESSIONS.items() if name[:4] == group])
        + standard(rest, [t[3] for t in turns.values() if (t[0], t[2]) == (group, seen)])
        for key, (group, reward, seen, rest) in turns.items()
    }


def test_it_is_registered_and_other_estimators_are_as_before() -> None:
    assert core_algos.get_adv_estimator_fn("ascribe_gigpo") is gigpo
    assert core_algos.get_adv_estimator_needs("grpo") == ()


SEEN: list[Any] = []


@core_algos.register_adv_est("spy", needs=("extra_fields",))
def spy(*, token_level_rewards: Any, extra_fields: Any, **_: Any) -> tuple[Any, Any]:
    SEEN[:] = extra_fields
    return token_level_rewards, token_level_rewards


def test_v1_trainer_by_hand() -> None:
    """One row for each turn, in the order in which verl happens to balance them."""
    rows: dict[str, dict[str, Any]] = {}
    for name, (reward, turns) in SESSIONS.items():
        for i, (seen, written) in enumerate(turns):
            rows[f"{name}_{i}"] = {
                "uid": name[:4],
                "prompts": torch.tensor(seen),
                "responses": torch.tensor(written),
                "response_mask": torch.ones(len(written), dtype=torch.int64),
                "rm_scores": torch.tensor([0.0] * (len(written) - 1) + [reward]),
                "extra_fields": {"turn": i, "tools": [name] * i},
            }
    keys = sorted(rows, key=lambda key: key[::-1], reverse=True)
    algorithm = {"adv_estimator": "ascribe_gigpo", "use_kl_in_reward": False, "gamma": 1, "lam": 1}
    config = OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 2}}})
    units = {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}
    ray.init(num_cpus=4, include_dashboard=False)
    try:
        transfer_queue.init(OmegaConf.create(units))
        stored = list_of_dict_to_tensordict([rows[key] for key in keys])
        where = {"keys": keys, "partition_id": "train"}
        transfer_queue.kv_batch_put(**where, fields=stored, tags=[{} for _ in keys])
        batch = KVBatchMeta(**where, tags=[{} for _ in keys])
        PPOTrainer._compute_advantage(SimpleNamespace(config=config), batch, metrics={})
        written = transfer_queue.kv_batch_get(**where, select_fields=["advantages"])
        found = dict(zip(keys, written["advantages"].unbind(), strict=True))
        config.algorithm.adv_estimator = "spy"
        PPOTrainer._compute_advantage(SimpleNamespace(config=config), batch, metrics={})
    finally:
        transfer_queue.close()
        ray.shutdown()
    assert [rows[key]["extra_fields"] for key in keys] == SEEN
    for key, value in by_hand().items():
        size = len(rows[key]["responses"])
        assert found[key].tolist() == [float(np.float32(value))] * size


def test_legacy_trainers_by_hand() -> None:
    """A row for each session, with padding on both sides of its prompt and response."""
    width = 12
    values = {"prompts": [], "responses": [], "attention_mask": [], "response_mask": []}
    for _, turns in SESSIONS.values():
        first = turns[0][0]
        rest = [(ids, bit) for turn in turns for bit, ids in enumerate(turn)][1:]
        response = [token for ids, _ in rest for token in ids]
        mask = [bit for ids, bit in rest for _ in ids]
        fill = [0] * (width - len(response))
        values["prompts"].append([0, *first])
        values["responses"].append(response + fill)
        values["attention_mask"].append([0, *[1] * (len(first) + len(response)), *fill])
        values["response_mask"].append(mask + fill)
    tensors = {name: torch.tensor(rows) for name, rows in values.items()}
    rewards = torch.zeros(len(SESSIONS), width)
    rewards[:, 0] = torch.tensor([reward for reward, _ in SESSIONS.values()])
    tensors["token_level_rewards"] = rewards
    uid = np.array([name[:4] for name in SESSIONS], dtype=object)
    data = compute_advantage(DataProto.from_dict(tensors, {"uid": uid}), "ascribe_gigpo")
    expected = by_hand()
    for row, (name, (_, turns)) in enumerate(SESSIONS.items()):
        written = data.batch["advantages"][row][tensors["response_mask"][row].bool()].tolist()
        assert written == [
            float(np.float32(expected[f"{name}_{i}"]))
            for i, (_, response) in enumerate(turns)
            for _ in response
        ]
