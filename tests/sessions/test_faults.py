"""Faults that other trainers had with turns and tokens; a naive version shows each of them."""

from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.sessions import from_sequences, per_turn, spread

pytestmark = pytest.mark.unit


# SkyRL #1492 and #1507: the advantage of the last step, already on its own tokens, was copied to
# the other steps of the trajectory, whose tokens are elsewhere.

# Three steps of one episode, one row each; padding on the left, responses of 1, 3 and 2 tokens.
STEP_MASKS = np.array([[0, 0, 0, 0, 1], [0, 0, 1, 1, 1], [1, 1, 0, 0, 0]])
STEP_TOKENS = np.arange(15).reshape(3, 5)


def copy_the_last_step(advantage: float) -> Any:
    return np.tile(advantage * STEP_MASKS[-1], (3, 1))


def test_skyrl_1492_every_step_has_its_advantage_on_its_own_tokens() -> None:
    right = 0.5 * STEP_MASKS
    wrong = (copy_the_last_step(0.5) != right).any(axis=1)
    assert wrong.tolist() == [True, True, False], "N - 1 of N steps"

    _, spans = from_sequences(
        STEP_TOKENS, STEP_MASKS, group="ttt", trajectory=[0, 0, 0], reward=[1.0] * 3
    )
    assert spread([0.5, 0.5, 0.5], spans).tolist() == right.tolist()


# verl #7278: the running return was set to 0 wherever the mask is 0, so a reward reached the last
# turn alone; and a reward on an observation's token was multiplied with its mask and lost.

MASK = [1, 1, 0, 0, 1, 1]


def running_return(rewards: list[float], mask: list[int]) -> list[float]:
    returns, running = [], 0.0
    for reward, written in zip(rewards[::-1], mask[::-1], strict=True):
        running = (reward + running) * written
        returns.append(running)
    return returns[::-1]


@pytest.mark.parametrize("place", [5, 3])
def test_verl_7278_a_reward_reaches_the_turns_before_an_observation(place: int) -> None:
    rewards = [1.0 if i == place else 0.0 for i in range(6)]
    assert running_return(rewards, MASK)[:2] == [0.0, 0.0], "lost for the first turn"

    other = [0.0] * 6  # an episode to be compared with
    table, spans = from_sequences(
        [[7] * 6] * 2, [MASK] * 2, group="tt", token_rewards=[rewards, other]
    )
    assert table.reward.sum() == 1.0, "nothing is lost, wherever the reward lies"
    advantages = spread(recipe("reinforce_pp")(table), spans)
    assert (advantages[0][:2] > 0).all()
    assert (advantages[1][:2] < 0).all()


# rLLM #575: a merged sequence was cut to the limit of one turn, with its mask, advantages and the
# reward at its end, and nothing was said.


def cut_everything(rows: list[list[float]], limit: int) -> list[list[float]]:
    return [row[:limit] for row in rows]


def test_rllm_575_a_long_sequence_is_not_cut_in_silence() -> None:
    turns, limit = 12, 8
    tokens, mask = [[1, 2] * turns] * 2, [[0, 1] * turns] * 2
    final = [[0.0] * (2 * turns - 1) + [reward] for reward in (1.0, 0.0)]
    naive, _ = from_sequences(
        cut_everything(tokens, limit),
        cut_everything(mask, limit),
        group="tt",
        token_rewards=cut_everything(final, limit),
    )
    assert len(naive) == 8, "four of twelve turns"
    assert not naive.reward.any(), "and no reward"

    table, spans = from_sequences(tokens, mask, group="tt", token_rewards=final)
    credit = recipe("grpo")(table)
    with pytest.raises(
        ValueError, match=r"16 steps have tokens outside of the 8 columns.*cut=True"
    ):
        spans.pad(limit)
    short = spread(credit, spans.pad(limit, cut=True))
    assert short[0].tolist() == spread(credit, spans)[0][:limit].tolist()
    assert (short[0][1::2] > 0).all(), "the first turns keep the credit of the whole episode"
    with pytest.raises(ValueError, match=r"shape \(2, 24\), like has \(2, 8\)"):
        spread(credit, spans.pad(24), like=np.zeros((2, limit)))


# agent-lightning #489: every turn was a sample of the group, so an episode counted as often as it
# has turns, and turns after different prompts shared a baseline.

TURNS, FINAL = [2, 1, 2, 1], [1.0, 0.0, 1.0, 0.0]


def a_sample_for_each_turn() -> Any:
    rewards = np.repeat(FINAL, TURNS)
    return (rewards - rewards.mean())[np.cumsum(TURNS) - 1]


def test_agent_lightning_489_an_episode_counts_once_in_its_group() -> None:
    assert a_sample_for_each_turn().round(3).tolist() == [0.333, -0.667, 0.333, -0.667]
    table, spans = from_sequences(
        [[0, 1] * turns for turns in TURNS],
        [[0, 1] * turns for turns in TURNS],
        group="tttt",
        reward=FINAL,
    )
    turns = per_turn(recipe("dr_grpo")(table), spans)
    assert [row.tolist() for row in turns] == [[0.5, 0.5], [-0.5], [0.5, 0.5], [-0.5]]


# NeMo-RL #4013: groups were told by the prompt, which held the path of a workspace.


def groups_by_prompt(tokens: list[list[int]], size: int) -> list[str]:
    return [str(row[:size]) for row in tokens]


def test_nemo_rl_4013_a_group_is_what_the_caller_names() -> None:
    paths = [11, 12, 13, 14]
    tokens, mask = [[1, path, 2, 3] for path in paths], [[0, 0, 0, 1]] * 4
    rewards = [1.0, 0.0, 1.0, 0.0]
    naive, _ = from_sequences(tokens, mask, group=groups_by_prompt(tokens, 3), reward=rewards)
    assert not recipe("grpo")(naive).advantage.any()
    table, _ = from_sequences(tokens, mask, group=["task"] * 4, reward=rewards)
    assert (recipe("grpo")(table).advantage * [1, -1, 1, -1] > 0).all()
    # The state holds the path too. A key without it makes the first steps comparable.
    assert recipe("gigpo")(table).terms["step"].credited.sum() == 0
    keyed, _ = from_sequences(
        tokens, mask, group=["task"] * 4, reward=rewards, state="key", keys=[["start"]] * 4
    )
    assert recipe("gigpo")(keyed).terms["step"].credited.all()


# agentcore-rl-toolkit #106 and SkyRL #1278: one rollout gives several sequences (a compacted
# history, a sub-agent), each with the rollout's reward, and each was taken for an episode.

#           before the summary, after it; a sub-agent; and an episode in one sequence
SEQUENCES = [[1, 2, 3, 4], [5, 6], [8, 9], [1, 2, 3, 7]]
MASKS = [[0, 1, 0, 1], [0, 1], [0, 1], [0, 1, 0, 1]]
EPISODES = ["long", "long", "long", "short"]
REWARDS = [1.0, 1.0, 1.0, 0.0]


def test_agentcore_106_sequences_of_one_rollout_are_one_episode() -> None:
    naive, _ = from_sequences(SEQUENCES, MASKS, group="tttt", reward=REWARDS)
    assert naive.reward.sum() == 3.0, "the reward counts three times"
    baseline = np.mean(REWARDS)
    assert baseline == 0.75, "and so does the episode in its group"

    table, spans = from_sequences(
        SEQUENCES,
        MASKS,
        group="tttt",
        trajectory=EPISODES,
        reward=REWARDS,
        agent=["main", "main", "helper", "main"],
    )
    assert table.reward.sum() == 1.0
    rows = [row for row in table.to_dicts() if row["trajectory"] == "t/long"]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    credit = recipe("dr_grpo")(table)
    assert [row.tolist() for row in spread(credit, spans)] == [
        [0, 0.5, 0, 0.5],
        [0, 0.5],
        [0, 0.5],
        [0, -0.5, 0, -0.5],
    ]


def test_skyrl_1278_a_reward_on_the_last_sequence_reaches_the_others() -> None:
    rewards = [np.nan, np.nan, 1.0, 0.0]  # where only the last sequence of a rollout has one
    table, _ = from_sequences(SEQUENCES, MASKS, group="tttt", trajectory=EPISODES, reward=rewards)
    advantage = recipe("dr_grpo")(table).advantage
    assert advantage.tolist() == [0.5, 0.5, 0.5, 0.5, -0.5, -0.5]
    with pytest.raises(ValueError, match="episode t/long have different final rewards"):
        from_sequences(
            SEQUENCES, MASKS, group="tttt", trajectory=EPISODES, reward=[0.0, 0.0, 1.0, 0.0]
        )


def test_tokens_that_two_sequences_share_are_credited_once() -> None:
    fork = [[1, 2, 3, 4], [1, 2, 3, 5]]  # a sub-agent that begins with its parent's history
    mask = [[0, 1, 0, 1]] * 2
    twice = sum(np.array(row) for row in mask)[1]
    assert twice == 2, "a naive version learns the first turn twice"
    _, spans = from_sequences(fork, mask, group="tt", trajectory="ab", reward=[1, 1])
    assert len(spans) == 4, "different episodes do not share"
    _, spans = from_sequences(fork, mask, group="tt", trajectory="aa", reward=[1, 1])
    assert [row.tolist() for row in spread(np.ones(3), spans)] == [[0, 1, 0, 1], [0, 0, 0, 1]]
