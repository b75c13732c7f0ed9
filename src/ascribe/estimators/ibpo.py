"""IBPO: wrong answers are worth more if they can be put right, and putting right is learned too."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import EPISODE, Recipe
from ascribe.estimators.correction import (
    Compared,
    Consistency,
    Correction,
    Shaping,
    Signal,
    Tuples,
    advantages,
    every_tuple,
    moments,
    shape,
)
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.estimators.relative import explained
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.returns import episode_return
from ascribe.steps.table import StepTable

ANSWER, NOWHERE = -1, -2
"""What stands for the corrected trajectory where there is none, and where it takes no part."""


SHAPED = Sentence(
    "{peers} trajectories returned {baseline} in the mean, where a wrong answer counts for more "
    "the more of its corrections are right; this one counts {own}"
)


@dataclass(frozen=True, kw_only=True)
class IBPO(Recipe):
    """Implicit behaviour policy optimization: wrong answers shaped by whether they can be mended.

    ``r' = r + λ β s`` for a wrong answer, with s the share of its corrections that are right, and
    ``A = (r' - μ') / (σ' + 1e-8)`` among the answers of the task (Eq. 18). A correction is a
    trajectory whose rows name in ``corrects`` the one that it was written to correct. It is learned
    from too, by its own return among other corrections (Eq. 24). A wrong answer without a judged
    correction keeps its reward.

    Attributes:
        weight: λ (paper: best around 0.6, of 0.4 to 1.2).
        beta: β, size of the bonus in units of the reward between wrong and right (paper: 0.5).
        right: an episode is right if it was paid at least this, penalties left out.
        baseline: a correction is compared with all corrections of its ``task``, or with those of
            the same ``prompt`` alone, which correct the same answer (paper). With one correction
            for each wrong answer, as in the paper's algorithm, the second gives no credit.
        compare: s by ``correction``, or by ``consistency``: the share of its states in which the
            right ones of its task were, which needs no corrections.
    """

    name: ClassVar[str] = "ibpo"
    paper: ClassVar[str] = "IBPO, counterfactual reasoning paths"
    credits_steps: ClassVar[bool] = False
    ranges: ClassVar[dict[str, tuple[float, float]]] = {**Recipe.ranges, "beta": (0.0, math.inf)}

    weight: float = 0.6
    beta: float = 0.5
    right: float = 1.0
    baseline: Literal["task", "prompt"] = "task"
    compare: Literal["correction", "consistency"] = "correction"

    @property
    def needs_corrections(self) -> bool:
        """Whether wrong answers must be corrected for it, and the corrections be in the table."""
        return self.compare == "correction"

    def is_right(self, paid: Floats) -> Bools:
        """Whether episodes are right that were paid so much; rounding does not make them wrong."""
        return np.asarray(paid >= self.right - segments.ROUNDING * abs(self.right))

    def _credit(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        steps = arrange(table)
        task = self._trajectory_groups(steps)
        paid = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
        right = self.is_right(paid)
        target = _targets(table, steps, task)
        answer, corrects = (target == ANSWER) & (task >= 0), (target >= 0) & (task >= 0)
        if self.needs_corrections and table.corrects is None and (answer & ~right).any():
            raise ValueError(
                "ibpo needs the column corrects: which trajectory was written to correct which; "
                "training with rollout.corrections plays them, and compare='consistency' does "
                "without"
            )

        group = np.where(answer, task, -1)
        tuples, signal = self._compared(table, group, right, np.where(corrects, target, -1))
        returns = self._episode_returns(steps)
        shaping = Shaping(self.weight, self.beta)
        shaped = shape(returns, right, group, tuples, signal, shaping=shaping)

        # Answers are compared in their tasks; corrections in groups of their own, numbered on.
        beside = target if self.baseline == "prompt" else steps.group_of_trajectory[target]
        labels = np.where(corrects, steps.group_count + beside, group)
        labels, count = segments.by_appearance(labels, steps.group_count + task.size)
        values, reason = advantages(shaped.reward, labels, count)
        reason[target == NOWHERE] = Reason.NO_TARGET
        of = steps.trajectory
        explain = partial(_explained, shaped.reward, labels, count, corrects, of)
        term = self._term(table, values[of], reason[of], labels[of], explain=explain)
        numbers = {
            "bonus_mean": _mean(shaped.bonus[answer]),
            "overtakes": float(shaped.overtakes.sum()),
            "unjudged": float((shaped.why == Compared.UNJUDGED).sum()),
            "corrections": float(corrects.sum()),
            "corrections_right": _mean(right[corrects].astype(np.float64)),
        }
        if self.weight:
            bonus = shaped.bonus / self.weight
            numbers["weight_limit"] = moments(returns, bonus, group, steps.group_count).limit
        return Credit.of({"episode": term}, repr(self), numbers)

    def _compared(
        self, table: StepTable, group: Ints, right: Bools, target: Ints
    ) -> tuple[Tuples, Signal]:
        """The tuple of each wrong answer, and what the comparison says of it."""
        steps = arrange(table)
        if self.compare == "consistency":
            tuples = every_tuple(right, group, steps.group_count)
            states = exact(steps.group, steps.state, table.state.values.size)
            return tuples, Consistency(states.labels, states.count, steps.trajectory)(tuples)
        wrong = np.flatnonzero(~right & (group >= 0))
        # What was shown beside the target is known to its corrections alone, and not needed.
        tuples = Tuples(wrong, wrong[:, None], np.zeros(wrong.size, dtype=np.bool_))
        return tuples, Correction(_outcomes(wrong, right, target))(tuples)


def _targets(table: StepTable, steps: Arranged, task: Ints) -> Ints:
    """The trajectory that each trajectory corrects, ``ANSWER``, or ``NOWHERE``.

    Raises:
        ValueError: if a trajectory corrects two, or one that is a correction itself.
    """
    if table.corrects is None:
        return np.full(task.size, ANSWER)
    code = table.corrects.codes[steps.rows]
    named = code[steps.starts]
    if (code != named[steps.trajectory]).any():
        raise ValueError(
            "ibpo: the rows of a trajectory name two that it corrects, or one and none"
        )
    label = np.full(table.trajectory.values.size + 1, NOWHERE)
    label[table.trajectory.codes[steps.rows[steps.starts]]] = np.arange(task.size)
    number = {name: place for place, name in enumerate(table.trajectory.values)}
    known = [label[number.get(name, -1)] for name in table.corrects.values]
    found = np.array([*known, ANSWER], dtype=np.int64)[named]
    chained = np.flatnonzero((found >= 0) & (named[found] >= 0))
    if chained.size:
        name = table.corrects.values[named[chained[0]]]
        raise ValueError(f"ibpo: {name!r} is corrected, but is a correction itself")
    found[(found >= 0) & (task[found] < 0)] = NOWHERE
    return found


def _outcomes(wrong: Ints, right: Bools, target: Ints) -> Floats:
    """For each wrong answer its corrections: 1 right, 0 wrong, NaN for none."""
    place = np.full(right.size, -1)
    place[wrong] = np.arange(wrong.size)
    corrections = np.flatnonzero(target >= 0)
    corrections = corrections[place[target[corrections]] >= 0]
    corrections = corrections[np.argsort(target[corrections], kind="stable")]
    owner = place[target[corrections]]
    size = segments.size(owner, wrong.size)
    number = np.arange(owner.size) - (np.cumsum(size) - size)[owner]
    outcomes = np.full((wrong.size, int(size.max(initial=1))), np.nan)
    outcomes[owner, number] = right[corrections]
    return outcomes


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _explained(
    reward: Floats, labels: Ints, count: int, corrects: Bools, trajectory: Ints
) -> Explanation:
    """The shaped reward of each answer, or the return of each correction, beside its group."""
    out = explained(reward, labels, count, SHAPED, members=trajectory)
    return replace(out, sentences=(SHAPED, EPISODE), way=corrects[trajectory].astype(np.int8))
