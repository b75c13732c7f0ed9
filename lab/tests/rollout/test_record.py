"""What a rollout's table says of the responses."""

from dataclasses import replace

import pytest

from ascribe.engines.crediting import with_first_tokens
from ascribe.estimators.base import BY_WORDS
from ascribe.estimators.bipace import BiPACEQ
from ascribe.estimators.clusters import BY_TEXT
from ascribe.sessions import from_sequences
from ascribe_lab.models.policy import Sample
from ascribe_lab.rollout.episode import Step
from ascribe_lab.rollout.record import table as rollout_table
from ascribe_lab.rollout.run import Clock, Rollout, Trajectory

pytestmark = pytest.mark.unit


def test_first_tokens_are_those_of_the_response() -> None:
    """BiPACE, Section 3.5: of what the model wrote, not of the command that was parsed from it."""
    tokens = [(5, 6, 7, 8, 9, 10, 11, 12, n) for n in range(2)] + [(5, 6, 7), ()]
    commands, rewards = ["look", "open door", "look", "look"], [1.0, 0.0, 0.0, 0.0]
    steps = (
        Step("s", "o", (), Sample("", (), ids), action, True, None, reward, True, False, reward > 0)
        for ids, action, reward in zip(tokens, commands, rewards, strict=True)
    )
    trajectories = [
        Trajectory("g", f"g/{number}", "", "toy", (step,)) for number, step in enumerate(steps)
    ]
    table = rollout_table(Rollout(tuple(trajectories), (), (), Clock(0.0, 0.0, 0.0, 0), 0))
    by_tokens = BiPACEQ(action_key="first_tokens")
    assert by_tokens.action_keys(table).labels.tolist() == [0, 0, 1, -1]
    assert (by_tokens.action_keys(table).labels >= 0).mean() == 0.75
    assert by_tokens(table).notes == (BY_TEXT,)
    by_words = replace(table, first_tokens=None)
    assert by_tokens.action_keys(by_words).labels.tolist() == [0, 1, 0, 0]
    assert by_tokens(by_words).notes == (BY_WORDS, BY_TEXT)
    # The same of sequences, whose turns are credited on their tokens.
    sequences, masks = [[1, *ids] for ids in tokens[:3]], [[0, *map(bool, i)] for i in tokens[:3]]
    turns, spans = from_sequences(sequences, masks, group=["g"] * 3, reward=rewards[:3])
    turns = with_first_tokens(turns, spans, sequences, by_tokens)
    assert turns.first_tokens is not None
    assert turns.first_tokens.texts() == table.first_tokens.texts()[:3]
