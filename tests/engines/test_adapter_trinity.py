"""Trinity-RFT 0.6.0: its own experiences in, its own loss takes what comes out."""

import copy
import pickle

import pytest

pytest.importorskip("trinity.common")

import torch
import yaml
from trinity.algorithm.advantage_fn import ADVANTAGE_FN
from trinity.algorithm.policy_loss_fn import POLICY_LOSS_FN
from trinity.buffer.operators.experience_operator import ensure_v1_operator
from trinity.common.experience import (
    EID,
    Experience,
    gather_action_masks,
    gather_response_attrs,
)
from trinity.common.models.utils import tokenize_and_mask_messages_default

from ascribe.engines.adapters.contract import EPISODES, check_adapter
from ascribe.engines.adapters.trinity import OPTIONS, AscribeAdvantage, TrinityAdapter
from tests.engines.adapter_toys import snippet
from tests.engines.option_lists import check_lists
from tests.tiny_model import TEMPLATE, train_tokenizer

ADAPTER = TrinityAdapter()
SETTINGS = yaml.safe_load(snippet("trinity", "yaml"))["algorithm"]
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


def test_the_class_is_found_by_its_path() -> None:
    assert pickle.loads(pickle.dumps(AscribeAdvantage)) is AscribeAdvantage
    assert ensure_v1_operator(AscribeAdvantage("grpo"))


# Options of Trinity that act on rewards or advantages.


def test_every_option_of_trinity_has_an_answer() -> None:
    check_lists(OPTIONS)


@pytest.mark.parametrize("name", sorted(POLICY_LOSS_FN._default_mapping))
def test_a_loss_takes_the_advantage_of_each_turn_or_the_list_names_it(name: str) -> None:
    """Two turns of an experience, with the advantages 1 and -1."""
    cls = POLICY_LOSS_FN.get(name)
    if "advantages" not in cls._select_keys:
        assert name in OPTIONS[0].applied["policy_loss_fn"]
        return
    if name in ("mix", "mix_chord"):  # the loss of PPO, and one of experts
        return
    advantages = torch.tensor([[1.0, 1.0, 0.0, -1.0, -1.0]])
    mask = torch.tensor([[True, True, False, True, True]])
    old = torch.full_like(advantages, -0.5)
    logprob = old.clone().requires_grad_()
    loss, _ = cls(**cls.default_args())(
        logprob=logprob, old_logprob=old, action_mask=mask, advantages=advantages
    )
    loss.backward()
    assert torch.equal(logprob.grad.sign(), -advantages)


def test_an_algorithm_that_computes_in_the_trainer_is_refused() -> None:
    with pytest.raises(ValueError, match="multi_step_grpo"):
        AscribeAdvantage("grpo")({"tokens": torch.zeros(1, 2)})


def test_a_wrong_state_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no choice 'room'"):
        AscribeAdvantage("grpo", state="room")


def test_no_experiences_have_no_advantages() -> None:
    assert AscribeAdvantage("grpo").process([]) == ([], {})


# Turns that masks do not show.


def test_a_masked_step_of_a_run_counts() -> None:
    """As Trinity's workflows mask a response that was cut."""
    expected = by_step(AscribeAdvantage("gigpo")(stepwise(hashes=False))[0])
    batch = stepwise(hashes=False)
    for each in batch:
        each.response_text = "what the model wrote"
    batch[1].action_mask = torch.zeros_like(batch[1].action_mask)
    batch[2].action_mask[1] = False  # inside of LOOK
    result, metrics = AscribeAdvantage("gigpo")(batch)
    assert metrics["ascribe/masked_turns"] == 1
    for each in result:
        value = expected[each.eid.rid, each.eid.step]
        assert each.advantages.tolist() == pytest.approx((value * each.action_mask).tolist())


def chats(template: str) -> list[Experience]:
    """Experiences of whole chats, made as by Trinity from their messages."""
    tokenizer = train_tokenizer(["a door, a key, a wall, left, right, look"], 300)
    tokenizer.chat_template = template
    batch = []
    for run, episode in enumerate(EPISODES):
        messages = []
        for observation, response in episode.turns:
            messages.append({"role": "user", "content": f"see {observation}"})
            messages.append({"role": "assistant", "content": f"do {response}"})
        made = tokenize_and_mask_messages_default(tokenizer, messages, chat_template=template)
        mask = made["assistant_masks"][0]
        first = int(mask.argmax())
        batch.append(
            Experience(
                eid=EID(batch=0, task=episode.group, run=run),
                tokens=made["input_ids"][0],
                prompt_length=first,
                action_mask=mask[first:].bool(),
                messages=messages,
                reward=episode.reward,
                truncate_status="response_truncated" if episode.truncated else None,
            )
        )
    return batch


THINKS = "{# <think> #}" + TEMPLATE
"""A template that drops old thoughts; Trinity then masks all responses but the last ones."""


def of_runs(batch: list[Experience]) -> list[list[float]]:
    """The advantage of each run of ones."""
    found = []
    for each in batch:
        assert not each.advantages[~each.action_mask].any()
        begins = each.action_mask & ~torch.cat([torch.tensor([False]), each.action_mask[:-1]])
        found.append(each.advantages[begins].tolist())
    return found


def test_messages_tell_the_turns_that_a_mask_lacks() -> None:
    whole, shown = chats(TEMPLATE), chats(THINKS)
    turns = [len(episode.turns) for episode in EPISODES]
    result, metrics = AscribeAdvantage("gigpo")(whole)
    assert metrics["ascribe/masked_turns"] == 0
    expected = of_runs(result)
    assert list(map(len, expected)) == turns
    result, metrics = AscribeAdvantage("gigpo")(shown)
    assert metrics["ascribe/masked_turns"] == sum(turns) - len(turns)
    assert of_runs(result) == [values[-1:] for values in expected]
    assert len({values[-1] for values in expected}) > 4


def test_a_cut_response_keeps_the_first_turns() -> None:
    expected = of_runs(AscribeAdvantage("gigpo")(chats(TEMPLATE))[0])
    batch = chats(TEMPLATE)
    cut = int(torch.nonzero(~batch[2].action_mask)[0])  # in the observation after the first turn
    batch[2] = Experience(
        eid=batch[2].eid,
        tokens=batch[2].tokens[: batch[2].prompt_length + cut],
        prompt_length=batch[2].prompt_length,
        action_mask=batch[2].action_mask[:cut],
        messages=batch[2].messages,
        reward=batch[2].reward,
        truncate_status="response_truncated",
    )
    found = of_runs(AscribeAdvantage("gigpo")(batch)[0])
    assert found[2] == expected[2][:1]
    assert found[:2] + found[3:] == expected[:2] + expected[3:]


def test_messages_that_are_not_read_leave_the_tokens() -> None:
    batch = chats(TEMPLATE)
    batch[0].messages = [{"role": "user", "content": 7}, {"role": "assistant", "content": "x"}]
    table, _ = ADAPTER.steps(batch)
    assert len(table) == sum(len(episode.turns) for episode in EPISODES)
    assert "do" not in table.to_dicts()[0]["action"]  # ids, and no text
