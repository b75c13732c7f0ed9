"""The rows of one update: answers to the tasks, and corrections (IBPO, Appendix E.2, part C)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ascribe.estimators.correction.shape import advantages
from ascribe.estimators.correction.tuples import Tuples
from ascribe.steps import segments
from ascribe.steps.arrays import Codes8, Floats, Ints

Baseline = Literal["prompt", "task"]
"""What a correction is compared with: corrections of the same ``prompt`` (Eq. 24), or all those of
the ``task``, whichever answer they correct. With one correction a prompt (Algorithm 1) the first
has nothing to compare, and gives no credit."""


@dataclass(frozen=True, eq=False)
class JointRows:
    """Training rows: first the answers, then the corrections, each of them a whole sequence."""

    trajectory: Ints
    """The trajectory that the row is, or that it corrects."""
    correction: Ints
    """Number of the correction among those of its prompt; -1 for an answer."""
    prompt: Ints
    """Prompt of each row: tasks first (0 to tasks - 1), then one for each tuple."""
    reward: Floats
    """r' for an answer, r for a correction, which is never shaped."""
    advantage: Floats
    reason: Codes8
    weight: Floats
    """1 / rows of the prompt, so that every prompt counts the same (the 1/G of Eq. 24)."""


def joint_rows(
    shaped: Floats,
    group: Ints,
    count: int,
    tuples: Tuples,
    outcomes: Floats,
    *,
    baseline: Baseline = "prompt",
) -> JointRows:
    """Every trajectory that takes part, and every correction that was judged.

    Args:
        shaped: shaped reward r' of each trajectory.
        group: task of each trajectory; -1 takes no part.
        count: number of tasks.
        tuples: the tuples that were corrected.
        outcomes: for each tuple its corrections, as for ``Correction``: 1, 0, or NaN for one that
            was not judged, which is no row.
        baseline: what a correction is compared with.
    """
    answers = np.flatnonzero(group >= 0)
    tuple_of, number = np.nonzero(~np.isnan(outcomes) & tuples.complete[:, None])
    task = group[tuples.target]
    beside = count + (tuple_of if baseline == "prompt" else task[tuple_of])
    compared_in = np.concatenate([group[answers], beside])
    groups = count + max(len(tuples), count)
    reward = np.concatenate([shaped[answers], outcomes[tuple_of, number]])
    prompt = np.concatenate([group[answers], count + tuple_of])
    value, reason = advantages(reward, compared_in, groups)
    size = segments.size(prompt, count + len(tuples))
    return JointRows(
        trajectory=np.concatenate([answers, tuples.target[tuple_of]]),
        correction=np.concatenate([np.full(answers.size, -1, dtype=np.int64), number]),
        prompt=prompt,
        reward=reward,
        advantage=value,
        reason=reason,
        weight=1.0 / size[prompt],
    )
