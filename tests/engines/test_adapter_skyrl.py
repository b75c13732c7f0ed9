"""SkyRL 0.3.0: its own trainer, from the output of a generator to the advantages and the loss."""

import asyncio
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("skyrl")
if sys.version_info < (3, 12):  # SkyRL's models of pydantic ask for it there
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict

import numpy as np
import skyrl_gym
import torch
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch
from skyrl.backends.skyrl_train.utils.ppo_utils import (
    AdvantageEstimatorRegistry,
    PolicyLossRegistry,
    apply_loss_reduction_to_advantages_minibatch,
)
from skyrl.train.config import AlgorithmConfig, SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer
from skyrl.train.generators.base import TrajectoryID
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator
from skyrl.train.generators.utils import apply_overlong_filtering
from skyrl.train.trainer import RayPPOTrainer
from skyrl_gym.envs.base_text_env import BaseTextEnv

from ascribe.engines.adapters import ExampleEpisode
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from ascribe.engines.adapters.skyrl import OPTIONS, SkyrlAdapter, credited
from tests.engines.adapter_toys import run_snippet
from tests.engines.option_lists import check_lists
from tests.tiny_model import train_tokenizer

SAME_SIZE = [*EPISODES[:3], *EPISODES[4:]]
"""Without step-wise trajectories, all groups of a batch have one size."""

TOKENIZER = SimpleNamespace(pad_token_id=0, decode=lambda ids: " ".join(map(str, ids)))
EPSILON = 1e-6


def trainer(
    layout: str,
    method: Any = None,
    cls: type = RayPPOTrainer,
    changes: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Any:
    """SkyRL's trainer without models: what it does between generation and the update."""
    config = SkyRLTrainConfig()
    for name, value in changes.items():
        place, _, last = name.rpartition(".")
        setattr(attrgetter(place)(config), last, value)
    config.generator.step_wise_trajectories = layout != "whole"
    config.generator.merge_stepwise_output = layout == "merged"
    config.generator.n_samples_per_prompt = 3
    config.generator.inference_engine.enable_ray_prometheus_stats = False
    config.trainer.enable_ray_gpu_monitor = False
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = 2
    made = (credited(cls, method, **options) if method else cls)(
        config, None, TOKENIZER, None, None, None
    )
    made.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 4)  # so that rows fill up the batch
    return made


def generated(
    layout: str,
    episodes: Sequence[ExampleEpisode] = SAME_SIZE,
    *,
    everywhere: bool = False,
    observed: bool = True,
) -> dict[str, Any]:
    """What a generator returns: a row for each turn, or for each episode.

    Args:
        layout: whole, or one that begins with rows for turns.
        episodes: what was played.
        everywhere: whether the reward stands on every row.
        observed: whether a turn's response ends with the next observation, as in SkyRL's generator.
    """
    rows = []
    for number, episode in enumerate(episodes):
        name = TrajectoryID(instance_id=episode.group, repetition_id=number)
        seen: list[int] = []
        turns = episode.turns if layout != "whole" else [(episode.turns[0][0], ())]
        for turn, (observation, response) in enumerate(turns):
            last = turn == len(turns) - 1
            seen += observation
            after = episode.turns[turn + 1][0] if observed and not last else ()
            written = [1] * len(response) + [0] * len(after)
            tokens = [*response, *after]
            if layout == "whole":
                tokens, written = episode.tokens[len(seen) :], episode.mask[len(seen) :]
            rows.append(
                {
                    "prompt_token_ids": list(seen),
                    "response_ids": tokens,
                    "loss_masks": written,
                    "rewards": episode.reward if last or everywhere else 0.0,
                    "trajectory_ids": name,
                    "is_last_step": last,
                    "stop_reasons": "length" if last and episode.truncated else "stop",
                }
            )
            seen += response
    return {key: [row[key] for row in rows] for key in rows[0]}


def prepare(made: Any, output: dict[str, Any]) -> TrainingInputBatch:
    """What SkyRL's loop makes of the output of a generator, without a critic."""
    uids = [name.instance_id for name in output["trajectory_ids"]]
    batch = made.convert_to_training_input(*made.postprocess_generator_output(output, uids))
    batch["values"] = None
    return batch


def credit(layout: str, method: Any, output: dict[str, Any], **options: Any) -> TrainingInputBatch:
    made = trainer(layout, method, **options)
    return made.compute_advantages_and_returns(prepare(made, output))


def by_turn(batch: TrainingInputBatch) -> list[list[float]]:
    """For each session of a batch, the advantage of each of its turns."""
    sessions: list[list[float]] = [[]]
    last = batch.metadata["is_last_step"]
    for row in range(len(last) - batch.metadata["pad_size"]):
        written = batch["loss_mask"][row].bool()
        assert not batch["advantages"][row][~written].any()
        values = batch["advantages"][row][written].tolist()
        begins = written & ~torch.cat([torch.tensor([False]), written[:-1]])
        run = begins.cumsum(0)[written].tolist()
        sessions[-1] += [v for i, v in enumerate(values) if not i or run[i] != run[i - 1]]
        sessions += [[]] if last[row] else []
    return sessions[:-1]


def gigpo_by_hand() -> list[list[float]]:
    """GiGPO's formula, written out for the episodes."""

    def standard(value: float, values: list[float]) -> float:
        if len(values) == 1:
            return 0.0
        return (value - np.mean(values)) / (np.std(values, ddof=1) + EPSILON)

    returns = {
        (number, turn): episode.reward * 0.95 ** (len(episode.turns) - 1 - turn)
        for number, episode in enumerate(SAME_SIZE)
        for turn in range(len(episode.turns))
    }
    values = []
    for number, episode in enumerate(SAME_SIZE):
        own = [other.reward for other in SAME_SIZE if other.group == episode.group]
        values.append([])
        for turn, (observation, _) in enumerate(episode.turns):
            peers = [
                returns[i, j]
                for i, other in enumerate(SAME_SIZE)
                for j, (shown, _) in enumerate(other.turns)
                if (other.group, shown) == (episode.group, observation)
            ]
            step = standard(returns[number, turn], peers)
            values[-1].append(float(np.float32(standard(episode.reward, own) + step)))
    return values


LAYOUTS = pytest.mark.parametrize("layout", ["whole", "turns", "merged"])


class TurnsAdapter(SkyrlAdapter):
    """The adapter on a batch with one row for each turn."""

    def example(self, episodes: Sequence[ExampleEpisode]) -> Any:
        made = trainer("turns", "grpo")
        groups = len({episode.group for episode in episodes})
        made.cfg.trainer.train_batch_size = made.cfg.trainer.policy_mini_batch_size = groups
        return prepare(made, generated("turns", [each for each in episodes if not each.failed]))

    def advantages(self, result: Any) -> list[Sequence[float]]:
        sessions: list[list[float]] = [[]]
        for row, last in zip(result["advantages"], result.metadata["is_last_step"], strict=True):
            sessions[-1] += row.tolist()
            sessions += [[]] if last else []
        return sessions[: -1 - result.metadata["pad_size"]]


@pytest.mark.parametrize("adapter", [SkyrlAdapter(), TurnsAdapter()])
def test_the_contract(adapter: SkyrlAdapter) -> None:
    assert [result for result in check_adapter(adapter) if not result.kept] == []


@pytest.mark.parametrize("observed", [True, False])
@LAYOUTS
def test_gigpo_by_hand(layout: str, observed: bool) -> None:
    batch = credit(layout, "gigpo", generated(layout, observed=observed))
    assert batch.metadata["pad_size"] > 0
    assert by_turn(batch) == gigpo_by_hand()


@LAYOUTS
def test_grpo_equals_skyrls_own(layout: str) -> None:
    own, ours = (credit(layout, method, generated(layout)) for method in (None, "grpo"))
    assert AdvantageEstimatorRegistry.get("grpo").__name__ == "compute_grpo_outcome_advantage"
    written = own["loss_mask"].bool()
    torch.testing.assert_close(
        ours["advantages"][written], own["advantages"][written], rtol=1e-6, atol=0
    )
    for name in ("returns", "loss_mask", "sequences"):
        assert torch.equal(ours[name], own[name])


def test_a_reward_on_every_row_counts_once_unless_each_row_has_its_own() -> None:
    every = generated("turns", everywhere=True)
    assert by_turn(credit("turns", "gigpo", every)) == gigpo_by_hand()
    table, _ = SkyrlAdapter(step_rewards=True).steps(prepare(trainer("turns"), every))
    assert table.reward.sum() == sum(each.reward * len(each.turns) for each in SAME_SIZE)


def test_a_template_that_rewrites_earlier_turns_leaves_the_states_as_they_are() -> None:
    output = generated("turns")
    for prompt, first in zip(
        output["prompt_token_ids"], [True, *output["is_last_step"]], strict=False
    ):
        prompt[:0] = [] if first else [99]  # no longer begins with the row before
    assert by_turn(credit("turns", "gigpo", output)) == gigpo_by_hand()


def test_histories_are_the_same_in_rows_of_turns() -> None:
    one, other = (
        by_turn(credit(layout, "gigpo", generated(layout), state="history"))
        for layout in ("whole", "turns")
    )
    assert one == other != gigpo_by_hand()


def test_a_masked_session_counts_in_its_group() -> None:
    """As for SkyRL's own estimators, if a filter masks the responses that a limit cut."""
    output = generated("turns")
    rows = len(SAME_SIZE[0].turns)
    output["loss_masks"][:rows] = [[0] * len(mask) for mask in output["loss_masks"][:rows]]
    batch = credit("turns", "grpo", output)
    assert not batch["advantages"][:rows].any()
    output["stop_reasons"][rows - 1] = "length"
    table, _ = SkyrlAdapter().steps(prepare(trainer("turns", "grpo"), output))
    assert table.flag("truncated", default=False).sum() == 1
    own = credit("turns", None, output)
    written = own["loss_mask"].bool()
    torch.testing.assert_close(batch["advantages"][written], own["advantages"][written])


@LAYOUTS
def test_its_loss_has_the_same_gradient_in_every_layout(layout: str) -> None:
    batch = credit(layout, "gigpo", generated(layout))
    scaled = apply_loss_reduction_to_advantages_minibatch(
        batch["advantages"], batch["loss_mask"], "token_mean", 1, 64
    )
    old = torch.full_like(scaled, -0.5)
    logprobs = old.clone().requires_grad_()
    loss, _ = PolicyLossRegistry.get("regular")(
        logprobs, old, scaled, AlgorithmConfig(), loss_mask=batch["loss_mask"]
    )
    loss.backward()
    written = batch["loss_mask"].bool()
    count = sum(sum(episode.mask) for episode in SAME_SIZE)
    torch.testing.assert_close(logprobs.grad[written], -batch["advantages"][written] / count)


class Rooms(BaseTextEnv):
    """Says what is in the next room, and rewards each turn."""

    def __init__(self, extras: dict[str, Any], **_: Any) -> None:
        super().__init__()
        self.ahead = list(extras["rooms"])

    def step(self, action: str) -> Any:
        room, reward = self.ahead.pop(0)
        shown = [{"role": "user", "content": room}] if self.ahead else []
        return {"observations": shown, "reward": reward, "done": not self.ahead, "metadata": {}}


def test_the_rows_of_skyrls_generator_have_the_same_credit_in_every_layout() -> None:
    """Its tokens, masks and rewards of turns; only the engine's responses are given."""
    tokenizer = train_tokenizer(["go left, go right, a door, a key, a wall"], 300)
    visits = [("a door", 0.0), ("a wall", -0.25), ("a key", 1.0)]
    attempts = [visits, [visits[0], visits[2]], visits[:2]]
    skyrl_gym.register("rooms", entry_point=Rooms)

    async def generate(request: dict[str, Any], **_: Any) -> dict[str, Any]:
        text = responses[request["session_ids"][0]].pop(0)
        ids = [*tokenizer.encode(text), tokenizer.eos_token_id]
        return {
            "responses": [text],
            "response_ids": [ids],
            "response_logprobs": [[-0.5] * len(ids)],
            "stop_reasons": ["stop"],
        }

    async def finish(session: str) -> None:
        assert not responses[session]

    client = SimpleNamespace(generate=generate, finish_session=finish)
    found = []
    for layout in ("whole", "turns", "merged"):
        responses = {
            f"t_{i}": ["left", "go right", "left"][: len(a)] for i, a in enumerate(attempts)
        }
        made = trainer(layout, "gigpo", step_rewards=True)
        made.cfg.trainer.train_batch_size = made.cfg.trainer.policy_mini_batch_size = 1
        made.cfg.generator.max_input_length = 512
        made.tokenizer = tokenizer
        parts = made.cfg.generator, made.cfg.environment.skyrl_gym, client, tokenizer
        names = [TrajectoryID("t", number) for number in range(len(attempts))]
        asked = {
            "prompts": [[{"role": "user", "content": "go"}] for _ in attempts],
            "env_classes": ["rooms" for _ in attempts],
            "env_extras": [{"rooms": rooms} for rooms in attempts],
            "trajectory_ids": names,
            "sampling_params": None,
        }
        output = asyncio.run(SkyRLGymGenerator(*parts).generate(asked, disable_tqdm=True))
        if layout == "whole":
            output |= {"trajectory_ids": names, "is_last_step": [True] * len(names)}
        batch = prepare(made, output)
        table, _ = SkyrlAdapter(tokenizer.decode, step_rewards=True).steps(batch)
        assert table.reward.tolist() == [reward for rooms in attempts for _, reward in rooms]
        states = [row["state"] for row in table.to_dicts()]
        assert len(set(states)) == 3, states
        found.append(by_turn(made.compute_advantages_and_returns(batch)))
    assert found[0] == found[1] == found[2]
    assert len({value for session in found[0] for value in session}) > 3


def test_the_lines_of_the_page() -> None:
    experiment = run_snippet("skyrl")["Experiment"]
    assert issubclass(experiment, BasePPOExp)
    made = trainer("turns")
    parts = {"cfg": made.cfg, "tokenizer": TOKENIZER, "tracker": None, "train_dataset": None}
    parts |= dict.fromkeys(("eval_dataset", "inference_engine_client", "generator", "colocate_pg"))
    made = experiment.get_trainer(None, **parts)
    made.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    batch = prepare(made, generated("turns"))
    assert by_turn(made.compute_advantages_and_returns(batch)) == gigpo_by_hand()
    assert made.all_metrics["ascribe/signal"] > 0
    assert "stop_reasons" not in batch.metadata


def test_the_asynchronous_trainer_has_the_same_seam() -> None:
    for name in ("convert_to_training_input", "compute_advantages_and_returns"):
        assert name not in vars(FullyAsyncRayPPOTrainer)
        assert name in vars(credited(FullyAsyncRayPPOTrainer))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"state": "room"}, ValueError, "there is no choice 'room'.*observation"),
        ({"state": "key"}, ValueError, "needs a key for each turn"),
        ({"stat": "history"}, TypeError, "stat"),
    ],
)
def test_wrong_options_of_the_adapter_are_refused_before_anything_is_sampled(
    options: dict[str, Any], error: type, said: str
) -> None:
    with pytest.raises(error, match=said):
        credited(RayPPOTrainer, **options)


def test_recipes_with_history_are_refused() -> None:
    with pytest.raises(ValueError, match="running statistics"):
        credited(RayPPOTrainer, "ccpo")


# Options of SkyRL that act on rewards or advantages.


def test_every_option_of_skyrl_has_an_answer() -> None:
    check_lists(OPTIONS)


@pytest.mark.parametrize(
    ("layout", "name", "value"),
    [
        ("whole", "trainer.algorithm.advantage_batch_normalize", True),
        ("whole", "trainer.algorithm.use_kl_in_reward", True),
        ("whole", "trainer.algorithm.policy_loss_type", "cross_entropy"),
        ("whole", "trainer.algorithm.gamma", 0.9),
        ("whole", "trainer.algorithm.lambd", 0.9),
        ("whole", "trainer.algorithm.grpo_norm_by_std", False),
        ("whole", "trainer.algorithm.dynamic_sampling.type", "replace"),
        ("whole", "generator.apply_overlong_filtering", True),
        ("turns", "trainer.algorithm.dynamic_sampling.type", "filter"),
        ("merged", "trainer.algorithm.loss_reduction", "sequence_mean"),
        ("turns", "trainer.algorithm.loss_reduction", "seq_mean_token_sum_norm"),
    ],
)
def test_what_would_be_wrong_is_refused_before_anything_is_sampled(
    layout: str, name: str, value: Any
) -> None:
    changes = {name: value}
    assert trainer(layout, changes=changes)  # SkyRL's own has it
    with pytest.raises(ValueError, match=name):
        trainer(layout, "grpo", changes=changes)


@pytest.mark.parametrize(
    ("layout", "name", "value"),
    [
        ("whole", "trainer.algorithm.loss_reduction", "sequence_mean"),
        ("whole", "trainer.algorithm.dynamic_sampling.type", "filter"),
        ("turns", "trainer.algorithm.loss_reduction", "prompt_mean"),
        ("whole", "trainer.algorithm.policy_loss_type", "a loss of the user's"),
        ("whole", "generator.zero_reward_on_non_stop", True),
    ],
)
def test_what_is_right_is_not_refused(layout: str, name: str, value: Any) -> None:
    assert trainer(layout, "grpo", changes={name: value})


def test_skyrls_normalisation_moves_what_has_no_credit() -> None:
    """Why it is refused."""
    made = trainer("turns", changes={"trainer.algorithm.advantage_batch_normalize": True})
    batch = made.compute_advantages_and_returns(prepare(made, generated("turns")))
    batch["advantages"][:] = 0.0
    batch["advantages"][0] = 1.0
    data = made._normalize_advantages(batch, [(0, len(batch["sequences"]))])
    assert data["advantages"][1:][batch["loss_mask"][1:].bool()].max() < 0


def test_a_filter_of_cut_responses_hides_turns() -> None:
    """Why it is refused: the credit of other sessions changes, and otherwise in each layout."""
    episodes = [replace(SAME_SIZE[0], truncated=True), *SAME_SIZE[1:]]
    found = []
    for layout in ("whole", "turns"):
        output = generated(layout, episodes)
        plain = credit(layout, "gigpo", {**output})
        output["loss_masks"] = apply_overlong_filtering(
            output["loss_masks"], output["stop_reasons"]
        )
        made = trainer(layout, "gigpo")
        masked = made.compute_advantages_and_returns(prepare(made, output))
        assert made.all_metrics["ascribe/masked_rows"] == 1
        own = masked["loss_mask"].bool()
        found.append((plain["advantages"] - masked["advantages"])[own].abs().max().item())
    assert min(found) > 0.01
    assert found[0] != pytest.approx(found[1])


def test_rows_of_turns_that_do_not_say_where_sessions_end_are_refused() -> None:
    made = trainer("turns", "gigpo")
    batch = prepare(made, generated("turns"))
    del batch.metadata["is_last_step"]
    with pytest.raises(ValueError, match="is_last_step"):
        made.compute_advantages_and_returns(batch)


def test_a_hole_in_the_mask_of_a_turn_is_counted() -> None:
    output = generated("turns")
    output["loss_masks"][2] = [1, 0, 1]  # of LOOK
    made = trainer("turns", "gigpo")
    made.compute_advantages_and_returns(prepare(made, output))
    assert made.all_metrics["ascribe/split_rows"] == 1
    assert made.all_metrics["ascribe/masked_rows"] == 0


@pytest.mark.parametrize("name", sorted(PolicyLossRegistry.list_available()))
def test_a_loss_takes_the_advantage_of_each_turn_or_is_refused(name: str) -> None:
    """Two turns in a row, with the advantages 1 and -1."""
    advantages = torch.tensor([[1.0, 1.0, 0.0, -1.0, -1.0]])
    mask = torch.tensor([[1.0, 1.0, 0.0, 1.0, 1.0]])
    old = torch.full_like(advantages, -0.5)
    logprobs = old.clone().requires_grad_()
    loss, _ = PolicyLossRegistry.get(name)(
        logprobs,
        old,
        advantages / 4,
        AlgorithmConfig(policy_loss_type=name if name == "dual_clip" else "regular"),
        loss_mask=mask,
        rollout_logprobs=old,
    )
    loss.backward()
    if name == "cross_entropy":
        assert (logprobs.grad[mask.bool()] < 0).all()
        with pytest.raises(ValueError, match="takes no advantages"):
            trainer("whole", "grpo", changes={"trainer.algorithm.policy_loss_type": name})
    elif name == "kl_cov":  # adds a KL term to some tokens
        assert (logprobs.grad * advantages)[mask.bool()].sum() < 0
    else:
        torch.testing.assert_close(logprobs.grad, -advantages * mask / 4)
