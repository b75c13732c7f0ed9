"""Trinity-RFT 0.6.0: its own experiences in, its own loss takes what comes out."""

import copy

import pytest

pytest.importorskip("trinity.common")

import torch
import yaml
from trinity.algorithm.advantage_fn import ADVANTAGE_FN
from trinity.algorithm.policy_loss_fn import POLICY_LOSS_FN
from trinity.common.experience import (
    EID,
    Experience,
    gather_action_masks,
    gather_response_attrs,
)

from ascribe.engines.adapters.contract import EPISODES, check_adapter
from ascribe.engines.adapters.trinity import AscribeAdvantage, TrinityAdapter
from tests.engines.adapter_toys import snippet

ADAPTER = TrinityAdapter()
SETTINGS = yaml.safe_load(snippet("Trinity-RFT", "yaml"))["algorithm"]
PATH = SETTINGS["advantage_fn"]


def stepwise(*, hashes: bool = True, rewards: bool = True) -> list[Experience]:
    """An experience for each step, as workflows of several steps make them."""
    batch = []
    for run, episode in enumerate(EPISODES):
        seen: list[int] = []
        for step, (observation, response) in enumerate(episode.turns):
            seen += observation
            last = step == len(episode.turns) - 1
            info = {"env_state_hash": f"{episode.group}{observation}"} if hashes else {}
            if rewards:
                info["step_reward"] = episode.reward if last else 0.0
            batch.append(
                Experience(
                    eid=EID(batch=3, task=episode.group, run=run, step=step),
                    tokens=[*seen, *response],
                    prompt_length=len(seen),
                    logprobs=[-0.5] * len(response),
                    reward=episode.reward,
                    info=info,
                )
            )
            seen += response
    return batch


def by_step(batch: list[Experience]) -> dict[tuple[str, int], float]:
    for each in batch:
        assert torch.equal(each.returns, each.advantages)
        assert len(set(each.advantages.tolist())) == 1
    return {(each.eid.rid, each.eid.step): float(each.advantages[0]) for each in batch}


def both(own: str, arguments: dict, **ours: object) -> tuple[dict, dict]:
    theirs, _ = ADVANTAGE_FN.get(own)(**arguments)(stepwise())
    result, _ = ADVANTAGE_FN.get(PATH)(**ours)(stepwise()[::-1])
    return by_step(theirs), by_step(result)


def test_the_contract() -> None:
    assert [result for result in check_adapter(ADAPTER) if not result.kept] == []


def test_grpo_equals_trinitys_step_wise_grpo() -> None:
    theirs, ours = both("step_wise_grpo", {}, recipe="grpo")
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_gigpo_equals_trinitys_gigpo() -> None:
    theirs, ours = both("gigpo", {}, recipe="gigpo", preset="trinity")
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert len(set(ours.values())) > 4


def test_the_papers_gigpo_discounts_and_normalises() -> None:
    arguments = {"gamma": 0.95, "fnorm": "std"}
    theirs, ours = both("gigpo", arguments, recipe="gigpo")
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_a_copied_final_reward_counts_once() -> None:
    function = AscribeAdvantage("gigpo")
    with_rewards, _ = function(stepwise())
    copied, metrics = function.process(stepwise(rewards=False))
    assert by_step(copied) == by_step(with_rewards)
    assert 0 < metrics["ascribe/signal"] <= 1


def test_states_without_hashes_are_prompts() -> None:
    table, _ = ADAPTER.steps(stepwise(hashes=False))
    assert table.to_dicts()[0]["state"] in ("1 2", "1 2 11 3")
    with_mask, _ = ADAPTER.steps(ADAPTER.example(EPISODES))
    assert len(with_mask) == len(table)


def test_its_batch_and_its_loss_take_the_advantages() -> None:
    function = ADVANTAGE_FN.get(PATH)(**SETTINGS["advantage_fn_args"])
    result, _ = function(ADAPTER.example(EPISODES))
    kept = Experience.deserialize_many(Experience.serialize_many(copy.deepcopy(result)))
    width = max(len(each.action_mask) for each in kept)
    mask = gather_action_masks(kept, width)
    advantages = gather_response_attrs(kept, "advantages", width)
    assert not advantages[~mask].any()
    old = gather_response_attrs(kept, "logprobs", width)
    logprob = old.clone().requires_grad_()
    loss, _ = POLICY_LOSS_FN.get("ppo")(clip_range=0.2)(
        logprob=logprob, old_logprob=old, action_mask=mask, advantages=advantages
    )
    loss.backward()
    # At the ratio 1 the gradient is the advantage over the number of tokens.
    torch.testing.assert_close(logprob.grad, -advantages * mask / mask.sum())
