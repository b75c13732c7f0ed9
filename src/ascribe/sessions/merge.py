"""Steps to sequences: a prompt that continues an earlier step needs no row of its own.

A trainer that has one row for each step computes the same tokens again and again: each prompt holds
the turns before it. Where a prompt begins with an earlier step's prompt and response, token for
token, the two steps are one sequence. Where a template rewrites the history (drops thoughts,
summarises, shows the last turns alone) a new sequence begins, in the worst case for each step.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ascribe.sessions.spans import Spans, as_numpy
from ascribe.steps.arrays import Bools, Ints

OPEN = 8
"""How many sequences of a trajectory may be continued: the latest ones. More would cost quadratic
time where every prompt is rewritten."""


@dataclass(frozen=True, eq=False)
class Merged:
    """Sequences made of steps.

    Attributes:
        tokens: the token ids of each sequence.
        mask: which of them the model wrote.
        rows: the steps in each sequence, in order.
        spans: where each step's response is; row i is step i.
    """

    tokens: list[Ints]
    mask: list[Bools]
    rows: list[Ints]
    spans: Spans


def merge(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    trajectory: Sequence[Hashable],
) -> Merged:
    """One sequence for steps whose prompts continue each other, token for token.

    A step joins the latest sequence of its trajectory that its prompt continues, so the turns of an
    agent and its sub-agents may alternate. A prompt that adds nothing to a sequence begins a new
    one: in a mask, the two responses would be one run.

    Args:
        prompts: the token ids of each step's prompt.
        responses: the token ids of each step's response.
        trajectory: the trajectory of each step; the steps of one come in their order.

    Raises:
        ValueError: if there are not as many of one as of the others.
    """
    texts = [
        (np.asarray(as_numpy(prompt), np.int64), np.asarray(as_numpy(response), np.int64))
        for prompt, response in zip(prompts, responses, strict=True)
    ]
    rows: list[list[int]] = []
    open_sequences: defaultdict[Hashable, list[int]] = defaultdict(list)
    sequence = np.empty(len(texts), dtype=np.int64)
    for row, ((prompt, _), name) in enumerate(zip(texts, trajectory, strict=True)):
        candidates = open_sequences[name]
        for place in reversed(range(len(candidates))):
            if _continues(prompt, *texts[rows[candidates[place]][-1]]):
                number = candidates.pop(place)
                rows[number].append(row)
                break
        else:
            number = len(rows)
            rows.append([row])
        open_sequences[name] = [*candidates, number][-OPEN:]
        sequence[row] = number

    start = np.array([prompt.size for prompt, _ in texts], dtype=np.int64)
    end = start + np.array([response.size for _, response in texts], dtype=np.int64)
    turn = np.full(len(texts), -1, dtype=np.int64)
    tokens, mask, turns = [], [], np.zeros(len(rows), dtype=np.int64)
    for number, steps in enumerate(rows):
        tokens.append(np.concatenate(texts[steps[-1]]))
        written = np.zeros(tokens[-1].size, dtype=np.bool_)
        for row in steps:
            written[start[row] : end[row]] = True
            if start[row] < end[row]:
                turn[row] = turns[number]
                turns[number] += 1
        mask.append(written)
    lengths = np.array([each.size for each in tokens], dtype=np.int64)
    spans = Spans(sequence, start, end, start, turn, lengths, turns)
    return Merged(tokens, mask, [np.array(steps) for steps in rows], spans)


def _continues(prompt: Ints, before: Ints, response: Ints) -> bool:
    """Whether a prompt is an earlier prompt, the response to it, and something more."""
    size = before.size + response.size
    return (
        prompt.size > size
        and np.array_equal(prompt[before.size : size], response)
        and np.array_equal(prompt[: before.size], before)
    )
