"""Turns of verl's agent loops where the mask hides some of the model's tokens."""

import os
from typing import Any

import numpy as np
import pytest

from lab.tests.train.test_verl_sessions import SCORES, by_turn, sessions
from tests.engines.needs import NEEDS_VERL

os.environ.setdefault("VERL_PLATFORM", "cpu")
pytestmark = [pytest.mark.engine, NEEDS_VERL, pytest.mark.filterwarnings("ignore")]


def credited(made: list[Any], monkeypatch: Any, *keys: str) -> tuple[Any, Any, dict[str, Any]]:
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    metrics: dict[str, Any] = {}
    steps = LoopSteps(verl_config("ascribe.recipe=gigpo", *keys))
    batch = as_batch(made, SCORES, monkeypatch)
    credit, spans = steps.credit(batch, tokenizer(), None, metrics, version=0)
    return credit, spans, metrics


def turn(output: Any, number: int) -> slice:
    """The tokens of a turn."""
    mask = np.append(output.response_mask, 0)
    begin = int(np.flatnonzero(np.diff(mask, prepend=0) == 1)[number])
    return slice(begin, begin + int(np.argmin(mask[begin:])))


def hide(output: Any, place: slice) -> None:
    output.response_mask[place] = [0] * (place.stop - place.start)


@pytest.mark.parametrize("how", ["a token inside", "the first token", "the last token", "all"])
def test_a_loop_that_masks_tokens_of_a_response_keeps_its_turns(how: str, monkeypatch: Any) -> None:
    """As a loop of the user's that inherits from ``ToolAgentLoop``."""
    made = sessions()
    plain, spans, metrics = credited(made, monkeypatch, "+ascribe.rewards=tool_rewards")
    assert metrics["ascribe/masked_turns"] == 0
    own = turn(made[0], 1)
    hide(
        made[0],
        {
            "a token inside": slice(own.start + 2, own.start + 3),
            "the first token": slice(own.start, own.start + 1),
            "the last token": slice(own.stop - 1, own.stop),
            "all": own,
        }[how],
    )
    masked, found, metrics = credited(made, monkeypatch, "+ascribe.rewards=tool_rewards")
    assert metrics["ascribe/masked_turns"] == 1
    assert masked.table.to_dicts() == plain.table.to_dicts()
    assert np.array_equal(masked.advantage, plain.advantage)
    for name in ("sequence", "start", "end", "turn"):
        assert np.array_equal(getattr(found, name), getattr(spans, name))


def test_masked_tokens_have_no_advantage() -> None:
    import torch

    from ascribe.engines.verl.trainer import CREDIT, estimate
    from ascribe.sessions import Spans

    one = np.array([0])
    spans = Spans(one, one, np.array([4]), one, one, np.array([5]), np.array([1]))
    CREDIT.append((np.array([2.0]), None, spans))
    advantages, _ = estimate(None, torch.tensor([[1, 0, 1, 1, 0]]))
    assert advantages.tolist() == [[2, 0, 2, 2, 0]]


def test_any_loop_may_say_where_its_turns_are(
    monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = sessions()
    plain, *_ = credited(made, monkeypatch)
    for output in made:
        del output.extra_fields["recorded_turns"]
    own = turn(made[0], 1)
    places = [turn(made[0], number) for number in range(3)]
    hide(made[0], slice(own.start + 2, own.start + 3))
    split, *_ = credited(made, monkeypatch)
    assert len(split.table) == len(plain.table) + 1  # a loop that says nothing: by the mask
    made[0].extra_fields["turn_spans"] = [[each.start, each.stop] for each in places]
    told, _, metrics = credited(made, monkeypatch)
    assert told.table.to_dicts() == plain.table.to_dicts()
    assert metrics["ascribe/masked_turns"] == 1
    for wrong in ([[0, 3]], [[3, 0]], "turns", [[0, 10**6]], [1, 2]):
        made[0].extra_fields["turn_spans"] = wrong
        credit, *_ = credited(made, monkeypatch)
        assert credit.dropped == {"group0": "bad_turn_spans"}
    assert "must hold [BEGIN, END] of each turn" in caplog.text


def test_what_was_recorded_of_another_response_is_not_used(monkeypatch: Any) -> None:
    """A loop that makes several rows of one output copies its fields."""
    made = [by_turn(output, repeat=False) for output in sessions()]
    assert all("recorded_turns" in row.extra_fields for rows in made for row in rows)
    several, *_ = credited(made, monkeypatch, "+ascribe.state=key")
    one, *_ = credited(sessions(), monkeypatch, "+ascribe.state=key")
    assert several.table.action.texts() == one.table.action.texts()
    assert np.array_equal(several.advantage, one.advantage)


def test_a_loop_that_trains_on_results_is_read_by_its_mask(monkeypatch: Any) -> None:
    made = sessions()
    first, second = turn(made[0], 0), turn(made[0], 1)
    made[0].response_mask[first.stop : second.start] = [1] * (second.start - first.stop)
    credit, *_ = credited(made, monkeypatch)
    assert not credit.dropped
    assert len(credit.table) == 8


@pytest.mark.parametrize("whole", [False, True])
def test_a_turn_has_the_fingerprint_of_its_first_tokens_that_are_shown(
    whole: bool, monkeypatch: Any
) -> None:
    """Workers take one for each run of ones in the mask."""
    from ascribe.engines.verl import vectors
    from ascribe.sessions.spans import turn_starts

    made = sessions()
    own = turn(made[0], 1)
    hide(made[0], own if whole else slice(own.start + 2, own.start + 3))
    runs = [turn_starts(output.response_mask).size for output in made]
    assert runs[0] == 2 if whole else 4
    rows = [np.repeat(np.arange(float(count)), 2) for count in runs]
    monkeypatch.setattr(vectors, "_read", lambda keys, _: rows[: len(keys)])
    credit, _, _ = credited(
        made, monkeypatch, "ascribe.recipe=bigpo", "ascribe.fingerprints=-1", "ascribe.check=keep"
    )
    taken = credit.table.fingerprint[:, 0].tolist()
    if whole:  # nothing was taken of it
        assert credit.dropped == {"group0": "masked_turn"}
    else:
        assert taken == [0, 1, 3, 0, 1, 0, 0, 1, 2]


def test_a_session_without_a_token_leaves_no_minibatch_empty(monkeypatch: Any) -> None:
    """verl counts it in its minibatches, and its loss would be no number."""
    from types import SimpleNamespace

    from ascribe.engines.verl import batch as batches
    from ascribe.engines.verl.loops import LoopSteps
    from lab.tests.train.verl_script import as_batch, tokenizer, verl_config

    size = ("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=1")
    steps = LoopSteps(verl_config(*size))
    made = sessions()
    made[1].response_mask = [0] * len(made[1].response_mask)
    del made[1].extra_fields["recorded_turns"]
    batch = as_batch(made, SCORES, monkeypatch)
    credit, spans = steps.credit(batch, tokenizer(), None, {}, version=0)
    assert credit.learned.all()
    assert steps.minibatches == 2
    queue = SimpleNamespace(kv_batch_put=None)
    monkeypatch.setattr(batches, "transfer_queue", queue)
    assert batches.mute(batch, spans, credit.learned) == [True, False, True, True]
