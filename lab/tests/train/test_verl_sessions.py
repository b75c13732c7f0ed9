"""Sessions of several rows on verl: the update is that of the same session in one row."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engines.needs import NEEDS_VERL

os.environ.setdefault("VERL_PLATFORM", "cpu")
pytestmark = [pytest.mark.engine, NEEDS_VERL, pytest.mark.filterwarnings("ignore")]

PAGE = Path(__file__).parents[3] / "docs/engines/verl_reference.md"
MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
SCORES = [1.0, 0.25, 0.5, 0.0]


def sessions() -> list[Any]:
    """Four sessions, two in a group, of one to three turns; each turn has a key."""
    from lab.tests.train.verl_script import act, call, play

    scripts = [
        [call(turn=0), call(turn=1), "Done."],
        [call(turn=0), "Done, and a long response."],
        ["Done."],
        [call(turn=0), call(turn=0) + " Again.", "No."],
    ]
    made = [play(texts, act()) for texts in scripts]
    for output, texts in zip(made, scripts, strict=True):
        output.extra_fields["turn_states"] = [f"turn {number}" for number in range(len(texts))]
    return made


def by_turn(output: Any, *, repeat: bool) -> list[Any]:
    """The same session with a row for each turn.

    With ``repeat`` a row's response begins with the responses before it, whose mask is 1 again.
    """
    mask = np.array(output.response_mask)
    begins = np.flatnonzero(np.diff(mask, prepend=0) == 1)
    rows = []
    for number, begin in enumerate(begins):
        end = begin + int(np.argmin(np.append(mask[begin:], 0)))
        first = int(begins[0]) if repeat else int(begin)
        states = output.extra_fields["turn_states"]
        extra = {
            **output.extra_fields,
            "turn_calls": [],
            "turn_states": states[: number + 1] if repeat else [states[number]],
        }
        changed = {
            "prompt_ids": output.prompt_ids + output.response_ids[:first],
            "response_ids": output.response_ids[first:end],
            "response_mask": output.response_mask[first:end],
            "response_logprobs": output.response_logprobs[first:end],
            "extra_fields": extra,
        }
        rows.append(output.model_copy(update=changed))
    return rows


def policy_losses() -> list[str]:
    """The names of verl's policy losses."""
    if NEEDS_VERL.args[0]:
        return []
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    return sorted(POLICY_LOSS_REGISTRY)


def policy_gradient(name: str, mode: str, advantages: Any, mask: Any) -> Any:
    """The gradient of one of verl's policy losses where the policy has not moved."""
    import torch
    from verl.trainer.config import RolloutCorrectionConfig
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    correction = RolloutCorrectionConfig(bypass_mode=True, rollout_is=None)
    config = FSDPActorConfig(
        rollout_n=2,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=PolicyLossConfig(loss_mode=name, dro_beta=1.0, rollout_correction=correction),
    )
    config.global_batch_info["loss_scale_factor"] = 100
    old = torch.full_like(advantages, -0.5)
    chosen = old.clone().requires_grad_()
    loss, _ = get_policy_loss_fn(name)(old, chosen, advantages, mask, mode, config, None)
    loss.backward()
    return chosen.grad


def update(
    made: list[Any], mode: str, monkeypatch: Any, policy: str = "vanilla"
) -> tuple[dict[Any, float], Any]:
    """The gradient of verl's loss by each token that a session's model wrote, and the metrics."""
    import torch

    from ascribe.engines.verl import batch as batches
    from ascribe.engines.verl.loops import LoopSteps
    from ascribe.sessions import spread
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    batch = as_batch(made, SCORES, monkeypatch)
    actor = "actor_rollout_ref.actor"
    loss = f"{actor}.loss_agg_mode={mode}", f"{actor}.policy_loss.loss_mode={policy}"
    steps = LoopSteps(verl_config("ascribe.recipe=gigpo", "+ascribe.state=key", *loss))
    metrics: dict[str, Any] = {}
    credit, spans = steps.credit(batch, tokenizer(), None, metrics, version=0)
    learned = sorted(set(spans.sequence.tolist()))
    weights = steps.loss_weights(credit, spans, learned)
    put: dict[str, Any] = {}
    monkeypatch.setattr(
        batches, "transfer_queue", SimpleNamespace(kv_batch_put=lambda **given: put.update(given))
    )
    batches.mute(batch, spans, credit.learned)
    rows = [row for each in made for row in (each if isinstance(each, list) else [each])]
    masks = {
        key: torch.tensor(row.response_mask) for key, row in zip(batch.keys, rows, strict=True)
    }
    if put:
        masks |= dict(zip(put["keys"], put["fields"]["response_mask"].unbind(), strict=True))
    advantages = spread(credit.advantage * weights[spans.sequence], spans)
    width = 600
    values, mask = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    for row, (key, each) in enumerate(zip(batch.keys, advantages, strict=True)):
        values[row, : each.size] = torch.from_numpy(each)
        mask[row, : each.size] = masks[key]
    gradient = policy_gradient(policy, mode, values, mask)
    found: dict[Any, float] = {}
    for row, (key, output) in enumerate(zip(batch.keys, rows, strict=True)):
        for column in np.flatnonzero(mask[row]).tolist():
            place = key.rsplit("_", 1)[0], len(output.prompt_ids) + column
            assert place not in found  # no token is learned twice
            found[place] = float(gradient[row, column])
    return found, metrics


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_rows_of_a_session_have_the_update_of_one_row(
    mode: str, repeat: bool, monkeypatch: Any
) -> None:
    made = sessions()
    one, metrics = update(made, mode, monkeypatch)
    assert any(one.values())
    several = [by_turn(output, repeat=repeat) for output in made]
    other, others = update(several, mode, monkeypatch)
    assert one.keys() == other.keys()
    np.testing.assert_allclose([other[place] for place in one], list(one.values()), atol=1e-9)
    for name in ("ascribe/return", "ascribe/episodes", "ascribe/turns"):
        assert metrics[name] == others[name]
    assert metrics["ascribe/return"] == np.mean(SCORES)
    assert metrics["ascribe/episodes"] == 4


@pytest.mark.parametrize("policy", policy_losses())
def test_every_policy_loss_takes_the_credit_of_turns_or_is_refused(
    policy: str, monkeypatch: Any
) -> None:
    import torch

    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import verl_config

    advantages = torch.tensor([[1.0, 1.0, 0.0, -1.0, -1.0]])
    gradient = policy_gradient(policy, "token-mean", advantages, advantages.abs())
    if policy == "geo_mean":
        assert not gradient.any()
        with pytest.raises(ValueError, match="loss_mode is 'geo_mean': it averages"):
            LoopSteps(verl_config(f"actor_rollout_ref.actor.policy_loss.loss_mode={policy}"))
        return
    torch.testing.assert_close(gradient, -advantages / 4)
    # And a session of several rows counts once.
    made = sessions()
    one, _ = update(made, "seq-mean-token-mean", monkeypatch, policy)
    several = [by_turn(output, repeat=False) for output in made]
    other, _ = update(several, "seq-mean-token-mean", monkeypatch, policy)
    np.testing.assert_allclose([other[place] for place in one], list(one.values()), atol=1e-9)


def test_a_loss_that_counts_rows_of_itself_counts_sessions(monkeypatch: Any) -> None:
    """SAPO's takes means over rows, whatever ``loss_agg_mode`` says."""
    made = sessions()
    one, _ = update(made, "token-mean", monkeypatch, "sapo")
    several = [by_turn(output, repeat=False) for output in made]
    other, _ = update(several, "token-mean", monkeypatch, "sapo")
    np.testing.assert_allclose([other[place] for place in one], list(one.values()), atol=1e-9)


def test_a_loss_of_the_users_own_is_not_refused() -> None:
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import verl_config

    LoopSteps(verl_config("actor_rollout_ref.actor.policy_loss.loss_mode=mine"))


@pytest.mark.parametrize("repeat", [False, True])
def test_the_rewards_of_turns_add_up_to_the_score_of_the_session(
    repeat: bool, monkeypatch: Any
) -> None:
    """A response that a later row repeats is paid once."""
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    made = [by_turn(output, repeat=repeat) for output in sessions()]
    for rows in made:
        for number, row in enumerate(rows):
            row.extra_fields["turn_rewards"] = [0.5**each for each in range(number + 1)]
            if not repeat:
                del row.extra_fields["turn_rewards"][:-1]
    loops = "actor_rollout_ref.rollout.agent.agent_loop_config_path=loops.yaml"
    steps = LoopSteps(verl_config(loops, "+ascribe.rewards=turn_rewards"))
    batch = as_batch(made, SCORES, monkeypatch)
    credit, _ = steps.credit(batch, tokenizer(), None, {}, version=0)
    wanted = [1, 0.5, -0.5, 1, -0.75, 0.5, 1, 0.5, -1.5]
    assert credit.table.reward.tolist() == wanted


def test_a_dropped_group_is_in_no_mean(monkeypatch: Any) -> None:
    """Without it, verl's number of rows in a minibatch is wrong, though each session has one."""
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    size = ("data.train_batch_size=3", "actor_rollout_ref.actor.ppo_mini_batch_size=2")
    steps = LoopSteps(verl_config("+ascribe.state=key", *size))
    made = sessions()
    steps.credit(as_batch(made, SCORES, monkeypatch), tokenizer(), None, {}, version=0)
    assert steps.minibatches is None
    made[0].extra_fields["turn_states"] = ["too short"]
    batch = as_batch(made, SCORES, monkeypatch)
    credit, _ = steps.credit(batch, tokenizer(), None, {}, version=0)
    assert credit.dropped == {"group0": "bad_turn_states"}
    assert steps.minibatches == 2


def test_a_session_without_a_turn_has_the_value_of_its_prompt(monkeypatch: Any) -> None:
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    made = sessions()
    made[0].response_mask = [0] * len(made[0].response_mask)
    del made[0].extra_fields["recorded_turns"]
    steps = LoopSteps(verl_config("ascribe.recipe=gae", "critic.enable=True"))
    tokens = {"value": [np.arange(4.0, 4 + len(output.response_ids)) for output in made]}
    batch = as_batch(made, SCORES, monkeypatch)
    credit, spans = steps.credit(batch, tokenizer(), None, {}, version=0, tokens=tokens)
    assert credit.table.value is not None
    assert credit.table.value[spans.turn == -1].tolist() == [4.0]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["algorithm.gamma=0.9"], "algorithm.gamma is 0.9: verl's own estimators alone read it"),
        (["algorithm.lam=0.9"], "algorithm.lam is "),
        (["ascribe.fingerprints=-1"], "ascribe.fingerprints: grpo compares none here"),
        (["ascribe.recipe=sbc", "ascribe.fingerprints=last"], "a decoder block is expected"),
        (["algorithm.norm_adv_by_std_in_grpo=False"], "algorithm.norm_adv_by_std_in_grpo is "),
        (["algorithm.use_pf_ppo=True"], "algorithm.use_pf_ppo is "),
        (["+algorithm.gdpo_reward_keys=[a]"], "algorithm.gdpo_reward_keys is "),
        (["actor_rollout_ref.actor.shuffle=True"], "actor.shuffle is True: rows are dealt"),
        (
            ["distillation.distillation_loss.use_task_rewards=False"],
            "use_task_rewards is False: the loss would have no advantages",
        ),
        (
            ["ascribe.recipe=gae", "critic.enable=True", "critic.ppo_mini_batch_size=7"],
            "critic.ppo_mini_batch_size: the critic learns from the actor's minibatches",
        ),
    ],
)
def test_keys_without_effect_are_refused(keys: list[str], said: str) -> None:
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import verl_config

    with pytest.raises(ValueError, match=said):
        LoopSteps(verl_config(*keys))


def test_the_older_trainer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ascribe.engines.verl import runners
    from lab.tests.train.verl_script import verl_config

    def main() -> None:
        runners.ppo_main.run_ppo(verl_config("trainer.use_v1=False"), task_runner_class=None)

    monkeypatch.setattr(runners.ppo_main, "run_ppo", None)
    monkeypatch.setattr(runners.ppo_main, "main", main)
    with pytest.raises(ValueError, match="set it to True"):
        runners.main_ppo()


def test_turns_of_a_sub_agent_follow_the_turn_that_spawned_it() -> None:
    from ascribe.engines.verl.lineages import Lineages

    names = [("a", 0), ("a", 0), ("a", 0), ("a", 1)]
    says: list[dict[str, Any]] = [
        {"agent": "main"},
        {"agent": "scout", "parent": [0, 1]},
        {"agent": "clerk", "parent": (1, 0)},
        {"agent": "main"},
    ]
    found = Lineages.of(names, [3, 2, 1, 1], says)
    assert found.order == [[0, 1, 5], [2, 4], [3], [6]]
    assert found.agents == ["main", "scout", "clerk", "main"]
    assert not found.faults
    nobody = Lineages.of(names, [1, 1, 1, 1], [{}] * 4)
    assert (nobody.agents, nobody.order) == (None, None)


@pytest.mark.parametrize("parent", [[1, 0], [0, 3], [2, 0], [0], "main", [-1, 0], [None, 0]])
def test_a_parent_that_is_none_drops_its_group(
    parent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Here also itself: row 1 says that it was spawned by itself."""
    from ascribe.engines.verl.lineages import Lineages

    found = Lineages.of([("a", 0), ("a", 0), ("b", 0)], [3, 2, 1], [{}, {"parent": parent}, {}])
    assert found.faults == {"a": "bad_parent"}
    assert "must be [ROW, TURN] of another row of the session" in caplog.text


# The trainers whose batch is a DataProto.


def proto(made: list[Any]) -> Any:
    """The batch that verl's agent loops make of these episodes, padded on both sides."""
    import torch
    from verl.protocol import DataProto

    left, right = 64, 512

    def row(ids: list[int], width: int, *, on_left: bool = False) -> Any:
        padding = [0] * (width - len(ids))
        return torch.tensor(padding + ids if on_left else ids + padding)

    tensors: dict[str, list[Any]] = {}
    for output, score in zip(made, SCORES, strict=True):
        prompt, response = output.prompt_ids, output.response_ids
        real = [1] * len(prompt), [1] * len(response)
        scores = [0.0] * (len(response) - 1) + [score]
        columns = {
            "prompts": row(prompt, left, on_left=True),
            "responses": row(response, right),
            "response_mask": row(output.response_mask, right),
            "attention_mask": torch.cat([row(real[0], left, on_left=True), row(real[1], right)]),
            "rm_scores": row(scores, right),  # type: ignore[arg-type]
        }
        for name, values in columns.items():
            tensors.setdefault(name, []).append(values)
    names = {name for output in made for name in output.extra_fields}
    others = {
        name: np.array([output.extra_fields.get(name) for output in made] + [None], object)[:-1]
        for name in names
    }
    others["uid"] = np.array(["a", "b", "a", "b"], dtype=object)
    return DataProto.from_dict(
        tensors={name: torch.stack(rows) for name, rows in tensors.items()}, non_tensors=others
    )


def test_a_padded_batch_has_the_credit_of_one_in_the_queue(monkeypatch: Any) -> None:
    """And verl's own method puts it on the tokens."""
    import torch
    from omegaconf import OmegaConf

    from ascribe.engines.verl.loops import LoopSteps
    from ascribe.engines.verl.separate import OneStepOffTrainer
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    made = sessions()
    config = verl_config("ascribe.recipe=gigpo", "+ascribe.state=key")
    order = [0, 2, 1, 3]  # of the sessions whose groups are side by side
    batch = as_batch([made[at] for at in order], [SCORES[at] for at in order], monkeypatch)
    credit, _ = LoopSteps(config).credit(batch, tokenizer(), None, {}, version=0)

    trainer = OneStepOffTrainer.__new__(OneStepOffTrainer)
    trainer.config = OmegaConf.create(OmegaConf.to_container(config))
    trainer.steps, trainer.tokenizer, trainer.global_steps = LoopSteps(config), tokenizer(), 3
    trainer.metrics, trainer.timing_raw, trainer.reward_extra_infos_dict = {}, {}, {}
    trainer._learned, trainer.use_critic = None, False
    trainer.actor_rollout_wg = SimpleNamespace(update_actor=lambda batch: "updated")
    data = proto(made)
    trainer.reward_tensor = data.batch["rm_scores"]
    found = trainer._fit_compute_advantage(data)
    tokens = found.batch["advantages"]
    wanted = torch.zeros_like(tokens)
    place = iter(credit.advantage.tolist())
    for session in order:
        mask = np.array(made[session].response_mask)
        for begin in np.flatnonzero(np.diff(mask, prepend=0) == 1):
            end = begin + int(np.argmin(np.append(mask[begin:], 0)))
            wanted[session, begin:end] = next(place)
    assert torch.equal(tokens, wanted)
    assert tokens.any()
    assert trainer.metrics["ascribe/versions/lag_max"] == 3
    assert trainer.actor_rollout_wg.update_actor(None) == "updated"
    trainer._learned = 0  # no group counts: no update is made
    assert trainer.actor_rollout_wg.update_actor(None)["metrics"] == {"mfu": 0.0}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["ascribe.recipe=sbc", "+ascribe.fingerprints=-1"], "captured by main_ppo alone"),
        (["ascribe.recipe=entropy"], "entropy needs entropies, which main_ppo alone keeps"),
        (["algorithm.filter_groups.enable=True"], "main_ppo alone filters groups"),
    ],
)
def test_what_these_trainers_do_not_give_is_refused(keys: list[str], said: str) -> None:
    from ascribe.engines.verl.separate import OneStepOffTrainer
    from lab.tests.train.verl_script import verl_config

    with pytest.raises(ValueError, match=said):
        OneStepOffTrainer(config=verl_config(*keys))


def test_one_rollout_of_a_task_needs_a_memory() -> None:
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import SIZE, verl_config

    with pytest.raises(ValueError, match=r"rollout\.n: gigpo compares .* with memory=0\.8"):
        LoopSteps(verl_config("ascribe.recipe=gigpo", f"{SIZE}=1"))
    (shown,) = re.findall(rf"`({SIZE}=1 .*?)`", PAGE.read_text("utf-8"))
    assert LoopSteps(verl_config(*shown.split())).recipe.has_history
    LoopSteps(verl_config("ascribe.recipe=gae", "critic.enable=True", f"{SIZE}=1"))


def test_a_task_is_its_index_or_what_the_dataset_holds(monkeypatch: Any) -> None:
    """verl's own column ``index`` is 0 for every task of a dataset that has none."""
    from ascribe.engines.inputs import task_name
    from ascribe.engines.verl import batch as batches
    from lab.tests.train.verl_script import as_batch

    batch = as_batch(sessions(), SCORES, monkeypatch)
    assert batches.queue_rows(batch).tasks is None
    chat = [[{"role": "user", "content": text}] for text in "abab"]
    fields = {
        "data_source": ["rooms", "rooms", "halls", "rooms"],
        "extra_info": [{"index": 7, "time": 1}, {"index": 7, "time": 2}, {"index": 7}, {}],
        "raw_prompt": chat,
    }
    batches.fetch(batch).update(fields)
    first, again, other, without = batches.queue_rows(batch, tasks=True).tasks or []
    assert first == again == task_name(["rooms", 7])
    assert len({first, other, without}) == 3
    fields["extra_info"][0] = fields["extra_info"][2] = {}
    names = batches.queue_rows(batch, tasks=True).tasks or []
    assert names[0] == task_name(["rooms", [*chat[0], {}]])
    assert len(set(names)) == 4
