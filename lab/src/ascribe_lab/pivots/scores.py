"""What a verifier says about the steps of a table: the column ``step_score``."""

from collections.abc import Mapping

import numpy as np

from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable
from ascribe_lab.pivots.candidates import Origin, candidate
from ascribe_lab.pivots.verifiers.verdict import Verifier


def step_scores(table: StepTable, demonstrated: Mapping[str, str], verifier: Verifier) -> Floats:
    """For each row, the verifier's score of its action against what was demonstrated in its state.

    The score is the verifier's share, from 0 to 1, or else 1 if the action is accepted and 0 if it
    is not. It is NaN where nothing was demonstrated, or where the verifier does not apply. Every
    pair of state and action is verified once.

    Args:
        table: the steps.
        demonstrated: the expert's action in a state, by the state's text.
        verifier: of ``ascribe_lab.pivots.verifiers``, such as a judge.
    """
    found: dict[tuple[str | None, str | None], float] = {}
    pairs = list(zip(table.state.texts(), table.action.texts(), strict=True))
    for state, action in dict.fromkeys(pairs):
        found[state, action] = np.nan
        if state is None or action is None or state not in demonstrated:
            continue
        messages = [{"role": "user", "content": state}]
        turn = candidate(messages, demonstrated[state], Origin("", "", 0, 1))
        verdict = verifier(turn, action)
        if verdict.accepted is not None:
            found[state, action] = verdict.reward if verdict.share is None else verdict.share
    return np.array([found[pair] for pair in pairs], dtype=np.float64)
