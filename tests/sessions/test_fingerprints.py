"""One pass over sequences gives the fingerprints that separate passes over the prompts give."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from ascribe.engines.capture import Places, capture, packed, padded
from ascribe.sessions import Spans, from_sequences, merge
from tests.sessions.cases import Case, cases
from tests.sessions.cases import padded as padded_rows

pytestmark = pytest.mark.unit


@given(cases())
def test_places_are_the_last_tokens_before_runs(case: Case) -> None:
    options: Any = {"group": case.group, "trajectory": case.trajectory, "forks": True}
    _, spans = from_sequences(case.tokens, case.mask, reward=[0.0] * len(case.mask), **options)
    rows = np.flatnonzero((spans.prompt > 0) & (spans.turn >= 0))
    left = [number % 3 for number in range(len(case.tokens))]
    width = max(map(len, case.tokens), default=0) + 2
    mask = padded_rows([[1] * len(tokens) for tokens in case.tokens], left, width)
    places = padded(mask, spans.prompt[rows], spans.sequence[rows])
    bounds = np.append(0, np.cumsum([len(tokens) for tokens in case.tokens])).astype(int)
    flat = packed(bounds, spans.prompt[rows], rows=spans.sequence[rows])
    for i, row in enumerate(rows):
        number, before = spans.sequence[row], spans.prompt[row] - 1
        assert (places.rows[i], places.positions[i]) == (number, left[number] + before)
        assert flat.positions[i] == bounds[number] + before
        assert case.mask[number][before] == 0
        assert case.mask[number][before + 1] == 1


def test_a_place_must_be_in_the_batch() -> None:
    with pytest.raises(ValueError, match="no sequence 2 in a batch of 2"):
        padded([[1, 1], [1, 1]], [1], rows=[2])
    with pytest.raises(ValueError, match="sequence 1 has 2 tokens, its prompt cannot have 3"):
        packed([0, 2, 4], [1, 2, 3], rows=[0, 0, 1])


# With a real model and a real tokenizer.


@pytest.fixture(scope="module")
def tiny() -> Any:
    pytest.importorskip("torch", reason="needs the extra actor")
    pytest.importorskip("transformers", reason="needs the extra actor")
    from tests.tiny_model import random_llama, train_tokenizer

    texts = ["Task 0123456789: you are in the hall. You see a door.", "go to room"]
    tokenizer = train_tokenizer(texts, 300)
    return random_llama(len(tokenizer)), tokenizer


def play(tokenizer: Any, turns: int, task: int) -> tuple[list[list[int]], list[list[int]]]:
    """The prompt and the response of each turn, where prompts show the whole chat."""
    prompts: list[list[int]] = []
    responses: list[list[int]] = []
    prompt = tokenizer(f"Task {task}: you are in the hall.")["input_ids"]
    for turn in range(turns):
        prompts.append(prompt)
        responses.append(tokenizer(f" go to room {turn + task}")["input_ids"])
        prompt = prompt + responses[-1] + tokenizer(f" You see {turn * task}.")["input_ids"]
    return prompts, responses


@pytest.mark.parametrize("layout", ["right", "left", "packed"])
def test_one_pass_over_sequences_equals_a_pass_over_each_prompt(tiny: Any, layout: str) -> None:
    import torch

    model, tokenizer = tiny
    prompts: list[list[int]] = []
    responses: list[list[int]] = []
    trajectory: list[int] = []
    for task, turns in enumerate((1, 4, 7)):
        played = play(tokenizer, turns, task)
        prompts += played[0]
        responses += played[1]
        trajectory += [task] * turns
    merged = merge(prompts, responses, trajectory)
    assert len(merged.tokens) == 3
    spans = merged.spans

    expected = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.no_grad(), capture(model, -1) as hidden:
            hidden.expect(padded(torch.ones_like(ids), [len(prompt)]))
            model(input_ids=ids)
        expected.append(hidden.fingerprints())

    inputs, places = laid_out(merged.tokens, spans, layout)
    with torch.no_grad(), capture(model, -1) as hidden:
        hidden.expect(places)
        model(**inputs, use_cache=False)
    together = hidden.fingerprints()
    assert together.dtype == torch.float32
    torch.testing.assert_close(together, torch.cat(expected), atol=1e-5, rtol=0)
    assert (together[:-1] - together[1:]).norm(dim=1).min() > 1e-3, "states differ"


def laid_out(tokens: list[Any], spans: Spans, layout: str) -> tuple[dict[str, Any], Places]:
    """What the model is called with, and the places of the states."""
    import torch

    if layout == "packed":
        lengths = spans.lengths.tolist()
        positions = torch.cat([torch.arange(size) for size in lengths])[None]
        ids = torch.tensor(np.concatenate(tokens))[None]
        bounds = np.append(0, np.cumsum(lengths))
        places = packed(bounds, spans.prompt, rows=spans.sequence)
        return {"input_ids": ids, "position_ids": positions}, places
    width = int(spans.lengths.max()) + 2
    left = [width - len(ids) if layout == "left" else 0 for ids in tokens]
    mask = torch.tensor(padded_rows([np.ones_like(ids) for ids in tokens], left, width))
    ids = torch.tensor(padded_rows(tokens, left, width))
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    return inputs, padded(mask, spans.prompt, spans.sequence)
