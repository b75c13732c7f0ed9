"""Rewards, states and endings of verl's own ToolAgentLoop, which runs here with scripted text."""

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.engines.needs import NEEDS_VERL

os.environ.setdefault("VERL_PLATFORM", "cpu")
pytestmark = [pytest.mark.engine, NEEDS_VERL, pytest.mark.filterwarnings("ignore")]

TURNS = "actor_rollout_ref.rollout.multi_turn.max_assistant_turns"
USERS = "actor_rollout_ref.rollout.multi_turn.max_user_turns"
LENGTH = "actor_rollout_ref.rollout.response_length"
ACTOR = "actor_rollout_ref.actor"
LONGEST = "actor_rollout_ref.rollout.multi_turn.max_tool_response_length"


def credited(episodes: list[Any], scores: list[float], monkeypatch: Any, *overrides: str) -> Any:
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    batch = as_batch(episodes, scores, monkeypatch)
    steps = LoopSteps(verl_config("+ascribe.check=keep", *overrides))
    metrics: dict[str, Any] = {}
    found, _ = steps.credit(batch, tokenizer(), None, metrics, version=0)
    return found.table, metrics


def scripts() -> dict[str, list[str]]:
    """Episodes by what is special in them; every call names its turn."""
    from lab.tests.train.verl_script import call

    return {
        "one call in each turn": [call(turn=0, reward=0.5), call(turn=1, reward=0.25), "Done."],
        "parallel calls": [
            call(turn=0, reward=0.5, sleep=0.05) + call(turn=0, reward=0.25),
            call(turn=1, reward=1.0),
            "Done.",
        ],
        "a failed call": [call(turn=0, error="gone"), call(turn=1, reward=1.0), "Done."],
        "an unknown tool": [call("other"), call(turn=1, reward=1.0), "Done."],
        "calls without a reward": [call(turn=0), call(turn=1), call(turn=2, reward=0.5), "Done."],
        "no call": ["Done."],
        "a call that gives none beside one that does": [
            call(turn=0) + call(turn=0, reward=0.125) + call(turn=0, error="gone"),
            "Done.",
        ],
        "a result that does not fit": [
            call(turn=0, reward=0.5),
            call(turn=1, reward=2.0, size=600),
            "never",
        ],
        "more calls than are allowed": [
            "".join(call(turn=0, reward=1.0) for _ in range(6)),
            "Done.",
        ],
    }


@pytest.mark.parametrize("name", scripts() if NEEDS_VERL.args[0] is False else [])
def test_the_reward_of_a_call_is_that_of_its_turn(name: str, monkeypatch: Any) -> None:
    """By hand, from what the tool itself noted; the rest of the score is the last turn's."""
    from lab.tests.train.verl_script import act, play

    tool = act()
    output = play(scripts()[name], tool, f"{LONGEST}=2000")
    table, _ = credited([output], [3.0], monkeypatch, "+ascribe.rewards=tool_rewards")
    by_hand = np.zeros(len(table))
    for turn, reward in tool.log:
        by_hand[turn] += reward
    by_hand[-1] += 3.0 - by_hand.sum()
    np.testing.assert_allclose(table.reward, by_hand, atol=1e-6)


def test_a_state_is_what_the_last_call_before_a_turn_reported(monkeypatch: Any) -> None:
    from lab.tests.train.verl_script import act, call, play

    texts = [
        call(state="kitchen", sleep=0.05) + call(state="hall"),
        call(error="gone"),
        call(),
        call(state="cellar"),
        "Done.",
    ]
    tool = act()
    episodes = [play(texts, tool), play(["Done."], tool)]
    table, _ = credited(episodes, [1.0, 0.0], monkeypatch, "+ascribe.state=key")
    assert set(table.group.texts()) == {"group0"}
    states = ["(start)", "hall", "hall", "hall", "cellar", "(start)"]
    assert table.state.texts() == states
    with pytest.raises(ValueError, match="none of 1 rows has turn_states in extra_fields"):
        credited([play([call(), "Done."], tool)], [1.0], monkeypatch, "+ascribe.state=key")


def test_an_episode_that_a_limit_ended_is_truncated(monkeypatch: Any) -> None:
    from lab.tests.train.verl_script import act, call, play

    tool, four = act(), [call(turn=0)] * 4
    # verl 0.9.0 cuts a result to the length of a prompt.
    long = (f"{LONGEST}=2000", f"{LENGTH.replace('response', 'prompt')}=2000")
    ended = {
        "its last turn calls nothing": (play([call(), "Done."], tool), False),
        "the same at the limit of turns": (play([call(), "Done."], tool, f"{TURNS}=2"), False),
        "max_assistant_turns": (play(four, tool, f"{TURNS}=2"), True),
        "max_user_turns": (play(four, tool, f"{USERS}=1"), True),
        "a result that does not fit": (play([call(size=600)], tool, *long), True),
        "response_length": (play(["Done. " * 99], tool, f"{LENGTH}=40"), True),
        "max_model_len": (play([call(), "Done"], tool, end=" and"), True),
    }
    table, _ = credited([output for output, _ in ended.values()], [0.0] * len(ended), monkeypatch)
    last = np.append(np.flatnonzero(table.step == 0)[1:], len(table)) - 1
    assert dict(zip(ended, table.truncated[last], strict=True)) == {
        name: cut for name, (_, cut) in ended.items()
    }
    assert not (table.truncated & table.terminated).any()
    assert (table.truncated | table.terminated).sum() == len(ended)


def test_turns_may_end_with_another_token_than_the_tokenizers(monkeypatch: Any) -> None:
    """As with Llama's <|eot_id|>, which stands in the generation config."""
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import act, as_batch, play, tokenizer, verl_config

    output = play(["Done."], act(), end="!")
    (other,) = tokenizer()("!")["input_ids"]
    for ends, cut in ((None, True), ([tokenizer().eos_token_id, other], False)):
        config = SimpleNamespace(eos_token_id=ends)
        batch = as_batch([output, output], [0.0, 1.0], monkeypatch, config)
        steps = LoopSteps(verl_config())
        found, _ = steps.credit(batch, tokenizer(), None, {}, version=0)
        assert found.table.truncated.tolist() == [cut, cut]


def test_a_malformed_list_drops_its_group_alone(
    monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And says which episode it was."""
    from lab.tests.train.verl_script import act, play

    made = [play(["Done."], act()) for _ in range(6)]
    for number, rewards in enumerate([[1.0], [0.5], [0.25, 0.25], [0.0], ["much"], [0.0]]):
        made[number].extra_fields["mine"] = rewards
    loop = "actor_rollout_ref.rollout.agent.agent_loop_config_path=agent.yaml"
    keys = ("+ascribe.rewards=mine", loop)
    table, metrics = credited(made, [1.0] * 6, monkeypatch, *keys)
    assert set(table.group.texts()) == {"group0"}
    assert metrics["ascribe/dropped/bad_mine"] == metrics["ascribe/dropped_groups"] == 2
    assert metrics["ascribe/episodes"] == 2
    assert "episode group1/2: mine is [0.25, 0.25], but must be a list" in caplog.text
    assert "episode group2/4: mine is ['much']" in caplog.text
    del made[0].extra_fields["turn_calls"], made[0].extra_fields["tool_rewards"]
    _, metrics = credited(made, [1.0] * 6, monkeypatch, "+ascribe.rewards=tool_rewards")
    assert metrics["ascribe/dropped/bad_tool_rewards"] == metrics["ascribe/dropped_groups"] == 1
    table, metrics = credited(made[2:], [1.0] * 4, monkeypatch, *keys)
    assert len(table) == 0
    assert metrics["ascribe/dropped/bad_mine"] == 2


def test_an_episode_of_several_rows_has_the_score_of_the_last(monkeypatch: Any) -> None:
    """A reward model scores each row, and verl takes that of the last; the return is logged."""
    from lab.tests.train.verl_script import act, play

    rows = [play([f"Room {number}."], act()) for number in range(4)]
    episodes, scores = [rows[:3], rows[3:]], [[0.1, 0.2, 0.75], [0.25]]
    table, metrics = credited(episodes, scores, monkeypatch)
    assert table.reward.tolist() == [0, 0, 0.75, 0.25]
    assert metrics["ascribe/episodes"] == 2
    assert metrics["ascribe/return"] == 0.5
    assert metrics["ascribe/turns"] == 2


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["+ascribe.check=dorp"], "ascribe.check: .*'dorp'.*drop"),
        (
            ["ascribe.recipe=sbc", "+ascribe.fingerprints=-1", f"{ACTOR}.strategy=megatron"],
            "actor_rollout_ref.actor.strategy: fingerprints need fsdp or fsdp2",
        ),
        (
            ["ascribe.recipe=sbc", "+ascribe.fingerprints=-1", f"{ACTOR}.strategy=veomni"],
            "actor_rollout_ref.actor.strategy: fingerprints need fsdp or fsdp2",
        ),
        (["ascribe.recipe=ccpo"], "ccpo needs the column"),
        (["ascribe.recipe=ibpo"], "ibpo needs the column"),
        (["ascribe.recipe=progress"], "turn_score: verl's own agent loops give no such list"),
        (["+ascribe.rewards=turn_scores"], "turn_scores: verl's own agent loops give no such list"),
    ],
)
def test_a_wrong_configuration_is_refused_before_anything_runs(
    overrides: list[str], said: str
) -> None:
    """The trainer is made before Ray starts a worker."""
    from ascribe.engines.verl.trainer import SyncTrainer
    from lab.tests.train.verl_script import verl_config

    with pytest.raises(ValueError, match=said):
        SyncTrainer(verl_config(*overrides))
