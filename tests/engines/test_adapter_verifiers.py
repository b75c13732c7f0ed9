"""verifiers 0.4: its own episodes in, its own training samples have the advantages."""

import pytest

pytest.importorskip("verifiers.v1")

from ascribe.engines.adapters import credit_batch
from ascribe.engines.adapters.contract import EPISODES, check_adapter
from ascribe.engines.adapters.verifiers import VerifiersAdapter
from tests.engines.adapter_toys import run_snippet

ADAPTER = VerifiersAdapter()


def test_the_contract() -> None:
    assert [result for result in check_adapter(ADAPTER) if not result.kept] == []


def test_samples_have_the_advantages_and_records_keep_them() -> None:
    from verifiers.v1.episode import WireEpisode

    episodes = ADAPTER.example(EPISODES)
    names = run_snippet("verifiers", episodes=episodes)
    result, credited = names["episodes"], names["credited"]
    again = [WireEpisode.model_validate(each.to_record()) for each in result]
    rows = iter(credited.advantage)
    for episode, read, example in zip(result, again, EPISODES, strict=True):
        (branch,), (stored,) = episode.traces[0].branches, read.traces[0].branches
        assert len(branch.advantages) == len(branch.token_ids) == len(example.tokens)
        values = [a for a, m in zip(branch.advantages, branch.sampled_mask, strict=True) if m]
        expected = [a for _, response in example.turns for a in [next(rows)] * len(response)]
        assert values == pytest.approx(expected)
        assert stored.advantages == pytest.approx(branch.advantages, abs=1e-4)  # it rounds


def test_a_judge_and_a_failed_trace_are_left_alone() -> None:
    episodes = ADAPTER.example(EPISODES)
    episodes[0].traces[0].agent.trainable = False
    episodes[1].traces[0].ok = False
    result, credited = credit_batch(ADAPTER, episodes, "gigpo")
    assert all(n.advantages is None for each in result[:2] for n in each.traces[0].nodes)
    assert result[2].traces[0].branches[0].advantages is not None
    assert len(credited.advantage) == sum(len(e.turns) for e in EPISODES[2:])
