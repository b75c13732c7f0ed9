"""IBPO: a wrong answer is worth more if it can be corrected, and corrections are learned too.

Arrays have one entry for each trajectory. ``group`` is its task, -1 for one that takes no part, and
``count`` the number of tasks.

Page: docs/estimators/ibpo.md. Test: tests/estimators/test_ibpo.py.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import EPISODE, LARGEST_FACTOR, Recipe
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence
from ascribe.estimators.relative import Comparison, Norm, relative
from ascribe.groups.exact import exact
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import LARGEST_REWARD, Arranged, arrange
from ascribe.steps.errors import InputError
from ascribe.steps.returns import episode_return
from ascribe.steps.table import StepTable

ANSWER, NO_TARGET = -1, -2
"""Values of ``target`` for a trajectory that corrects none, or one that takes no part."""

NORM = Norm("std", "population", 1e-8)
"""Population standard deviation, 1e-8 added (Algorithm 1, lines 29 and 31)."""

SHAPED = Sentence(
    "{peers} trajectories returned {baseline} on average, where a wrong answer counts for more "
    "the more of its corrections are right; this one counts {own}"
)
CORRECTION = Sentence(EPISODE.text, "a correction weighs G / k, see the parameter mean")


@dataclass(frozen=True, kw_only=True)
class IBPO(Recipe):
    """Implicit behaviour policy optimization: a bonus for wrong answers that can be corrected.

    ``r' = r + λ β s`` for a wrong answer, with s the share of its corrections that are right (Eq.
    14), and ``A = (r' - μ') / (σ' + 1e-8)`` among the answers of the task (Eq. 18). A correction is
    a trajectory whose rows name in ``corrects`` the one that it was written to correct. It is
    learned from too, by its own return among other corrections (Eq. 24). A wrong answer without a
    judged correction keeps its reward.

    Attributes:
        weight: λ (paper: best around 0.6, of 0.4 to 1.2).
        beta: β, size of the bonus in units of the reward between wrong and right (paper: 0.5).
        right: an episode is right if its return without penalties is at least this.
        baseline: a correction is compared with those of the same ``prompt``, which correct the
            same answer (Eq. 24), or with all corrections of its ``task``. With one correction for
            each wrong answer, as in the paper's algorithm, the first gives no credit.
        mean: every ``prompt`` counts the same in the loss, however many responses it has, as 1/G in
            Eq. 24 says, so a correction weighs G / k where it is one of k, and its task has G
            answers; or every ``row`` counts the same. The two agree for k = G.
        joint: whether corrections are learned from, or shape rewards alone (Table 2).
        compare: s by ``correction``, or by ``consistency``: the share of its states in which the
            right ones of its task were, which needs no corrections.
    """

    name: ClassVar[str] = "ibpo"
    paper: ClassVar[str] = "IBPO, counterfactual reasoning paths"
    credits_steps: ClassVar[bool] = False
    compares_in_groups: ClassVar[bool] = True
    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        **Recipe.ranges,
        "beta": (0.0, LARGEST_FACTOR),
        "right": (-LARGEST_REWARD, LARGEST_REWARD),
    }

    weight: float = 0.6
    beta: float = 0.5
    right: float = 1.0
    baseline: Literal["prompt", "task"] = "prompt"
    mean: Literal["prompt", "row"] = "prompt"
    joint: bool = True
    compare: Literal["correction", "consistency"] = "correction"

    @property
    def needs_corrections(self) -> bool:
        """Whether the table must hold corrections of wrong answers."""
        return self.compare == "correction"

    def is_right(self, returns: Floats) -> Bools:
        """Whether episodes with these returns are right, up to rounding."""
        return np.asarray(returns >= self.right - segments.ROUNDING * abs(self.right))

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps = arrange(table)
        task = self.trajectory_groups(steps)
        unpenalised = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
        right = self.is_right(unpenalised)
        target = _targets(table, steps, task)
        answer, corrects = (target == ANSWER) & (task >= 0), (target >= 0) & (task >= 0)
        if self.needs_corrections and table.corrects is None and (answer & ~right).any():
            raise InputError(
                "ibpo needs the column corrects: which trajectory was written to correct which; "
                "training with rollout.corrections plays them. To do without, set the parameter "
                "compare to consistency"
            )

        group = np.where(answer, task, -1)
        wrong = answer & ~right
        if self.compare == "consistency":
            states = exact(steps.group, steps.state, table.state.values.size)
            tuples = every_tuple(right, group, steps.group_count)
            signal, unjudged = consistency(tuples, states.labels, states.count, steps.trajectory)
        else:
            signal, judged = share_corrected(right, np.where(corrects, target, -1))
            signal, unjudged = signal[wrong], ~judged[wrong]
        returns = self.episode_returns(steps)
        bonus = np.zeros(returns.size)
        bonus[wrong] = self.weight * self.beta * signal
        shaped = returns + bonus

        # Answers are compared in their tasks; corrections in groups of their own, numbered on.
        compared_in = target if self.baseline == "prompt" else steps.group_of_trajectory[target]
        labels = np.where(corrects, steps.group_count + compared_in, group)
        labels, count = segments.by_appearance(labels, steps.group_count + task.size)
        values, reason = compared = relative(shaped, labels, count, NORM, Reason.GROUP_OF_ONE)
        reason[target == NO_TARGET] = Reason.NO_TARGET
        if not self.joint:
            reason[corrects], values[corrects] = Reason.COUNTERFACTUAL, 0.0
        elif self.mean == "prompt":
            corrected = target[corrects]
            answers = segments.size(group, steps.group_count)[task[corrected]]
            values[corrects] *= answers / np.bincount(corrected)[corrected]
        owner = steps.trajectory
        explain = partial(_explained, compared, corrects, owner)
        term = self.term(table, values[owner], reason[owner], labels[owner], explain=explain)
        metrics = {
            "bonus_mean": _mean(bonus[answer]),
            "overtakes": float(overtakes(returns, bonus, right, group).sum()),
            "unjudged": float(unjudged.sum()),
            "corrections": float(corrects.sum()),
            "corrections_right": _mean(right[corrects].astype(np.float64)),
        }
        if self.weight:
            limit = weight_limit(returns, bonus / self.weight, group, steps.group_count)
            metrics["weight_limit"] = limit
        return Credit.of({"episode": term}, repr(self), metrics)


@dataclass(frozen=True, eq=False)
class Tuples:
    """Each wrong trajectory that takes part, with reference trajectories of its task (Eq. 4)."""

    target: Ints
    """The wrong trajectories, rising."""
    references: Ints
    """The reference trajectories of each, (tuples, K - 1); -1 for none."""

    def __len__(self) -> int:
        return int(self.target.size)

    @property
    def complete(self) -> Bools:
        """Tuples that have all their references."""
        return np.asarray((self.references >= 0).all(axis=1))


def draw_tuples(
    right: Bools, group: Ints, count: int, random: np.random.Generator, *, size: int = 2
) -> Tuples:
    """Draw references for every wrong trajectory (Section 3.2 and Appendix C.1).

    From the right trajectories of its task, uniformly; if there is none, from the other wrong ones.
    The draws for one tuple are distinct until the candidates run out, and then repeat in order.
    ``size`` is K, trajectories of a tuple, the wrong one included (paper: 2; its ablation 1).

    Raises:
        ValueError: if ``size`` is less than 1.
    """
    if size < 1:
        raise InputError(f"a tuple has at least 1 trajectory, not {size}")
    pool, members, sizes = _pools(right, group, count)
    start = np.cumsum(sizes) - sizes
    rank = np.zeros(right.size, dtype=np.int64)
    rank[members] = np.arange(members.size) - start[pool[members]]

    target = np.flatnonzero(~right & (group >= 0))
    from_wrong = sizes[group[target]] == 0  # it is among its own candidates
    source = np.where(from_wrong, pool[target], group[target])
    candidates = sizes[source] - from_wrong
    # A rank that no draw can reach: nothing is skipped.
    skip = np.where(from_wrong, rank[target], sizes[source])
    index = start[source][:, None] + _distinct(candidates, skip, size - 1, random)
    has_candidates = candidates[:, None] > 0
    return Tuples(target, np.where(has_candidates, members[np.where(has_candidates, index, 0)], -1))


def every_tuple(right: Bools, group: Ints, count: int) -> Tuples:
    """Every wrong trajectory with all right ones of its task, or else all other wrong ones."""
    pool, members, sizes = _pools(right, group, count)
    start = np.cumsum(sizes) - sizes
    target = np.flatnonzero(~right & (group >= 0))
    source = np.where(sizes[group[target]] > 0, group[target], pool[target])
    rank = np.arange(max(1, int(sizes[source].max(initial=1))))
    exists = rank < sizes[source][:, None]
    references = members[np.where(exists, start[source][:, None] + rank, 0)]
    exists &= references != target[:, None]
    # Existing references come first, in order.
    order = np.argsort(~exists, axis=1, kind="stable")
    return Tuples(target, np.take_along_axis(np.where(exists, references, -1), order, axis=1))


def share_corrected(right: Bools, target: Ints) -> tuple[Floats, Bools]:
    r"""``s = mean over corrections ŷ of 1[r(x, ŷ) = 1]`` (Appendix C) of each trajectory.

    With one correction it is the paper's indicator; with several, an estimate of the same
    probability with less noise. ``target`` is the trajectory that each one corrects, -1 for none.
    Also gives whether a trajectory has a correction at all.
    """
    corrections = segments.size(target, right.size)
    total = segments.total(right.astype(np.float64), target, right.size)
    return total / np.maximum(corrections, 1), corrections > 0


def consistency(
    tuples: Tuples, states: Ints, state_count: int, trajectory: Ints
) -> tuple[Floats, Bools]:
    r"""``s = mean over references j of |S_i ∩ S_j| / |S_i|``, with S the distinct states of one.

    ``states`` is the state of each row (``groups.exact``, ``groups.cluster``), -1 if not known, and
    ``trajectory`` its trajectory.

    Returns:
        s of each tuple, and whether it has references but no state to compare.
    """
    present = states >= 0
    visits = np.unique(trajectory[present] * state_count + states[present])
    owner, state = visits // state_count, visits % state_count
    most = max(int(tuples.target.max(initial=0)), int(tuples.references.max(initial=0)))
    size = np.bincount(owner, minlength=most + 1)
    start = np.cumsum(size) - size

    # One line for each tuple and each distinct state of its target.
    count = len(tuples)
    lengths = size[tuples.target]
    line = np.repeat(np.arange(count), lengths)
    at = np.arange(line.size) - (np.cumsum(lengths) - lengths)[line]
    target_state = state[start[tuples.target][line] + at]
    total, compared_references = np.zeros(count), np.zeros(count)
    for reference in tuples.references.T:
        has_states = (reference >= 0) & (size[reference] > 0)
        shared = np.isin(reference[line] * state_count + target_state, visits)
        overlap = segments.mean(shared.astype(np.float64), line, count)
        total += np.where(has_states, overlap, 0.0)
        compared_references += has_states
    compared = (lengths > 0) & (compared_references > 0)
    values = np.where(compared, total / np.maximum(compared_references, 1), 0.0)
    return values, ~compared & tuples.complete


def overtakes(reward: Floats, bonus: Floats, right: Bools, group: Ints) -> Bools:
    """Wrong trajectories whose shaped reward reaches that of a right one of their task.

    Then λ β is too large for these rewards, and the order of right and wrong is lost.
    """
    lowest = np.full(int(group.max(initial=-1)) + 2, math.inf)  # the last: rows that take no part
    np.minimum.at(lowest, np.where(right, group, -1), np.where(right, reward, math.inf))
    lowest[-1] = math.inf
    return (bonus > 0) & (reward + bonus >= lowest[group])


def weight_limit(reward: Floats, bonus: Floats, group: Ints, count: int) -> float:
    r"""The λ below which shaping lowers the variance of rewards inside tasks (Theorem A.2).

    ``Var(r + λ Δ) = Var(r) + 2 λ Cov(r, Δ) + λ² Var(Δ)``, so the variance falls exactly for
    ``0 < λ < -2 Cov(r, Δ) / Var(Δ)``, and most at half of that. Moments are pooled over tasks.
    Advantages centred inside a task of G trajectories have (G - 1) / G of all three, which cancels;
    the paper leaves the factor out of the covariance alone, and its range is G / (G - 1) times too
    long. 0 if the variance never falls, as where the bonus does not vary.

    ``reward`` is the terminal reward r, ``bonus`` Δ at λ = 1: β s of a wrong trajectory, else 0.
    """
    if segments.constant(bonus, group, count).all():
        return 0.0  # its variance is rounding error, and the limit divides by it
    used = group >= 0
    r = (reward - segments.pick(segments.mean(reward, group, count), group))[used]
    delta = (bonus - segments.pick(segments.mean(bonus, group, count), group))[used]
    freedom = max(int(np.maximum(segments.size(group, count) - 1, 0).sum()), 1)
    variance, covariance = (float(delta @ delta) / freedom, float(r @ delta) / freedom)
    return max(-2.0 * covariance / variance, 0.0) if variance > 0 else 0.0


def _targets(table: StepTable, steps: Arranged, task: Ints) -> Ints:
    """The trajectory that each trajectory corrects, ``ANSWER``, or ``NO_TARGET``.

    Raises:
        ValueError: if a trajectory corrects two, or one that is a correction itself.
    """
    if table.corrects is None:
        return np.full(task.size, ANSWER)
    code = table.corrects.codes[steps.rows]
    corrected = code[steps.starts]
    if (code != corrected[steps.trajectory]).any():
        raise InputError(
            "ibpo: the rows of a trajectory name two that it corrects, or one and none"
        )
    label = np.full(table.trajectory.values.size + 1, NO_TARGET)
    label[table.trajectory.codes[steps.rows[steps.starts]]] = np.arange(task.size)
    code_of = {name: i for i, name in enumerate(table.trajectory.values)}
    targets = [label[code_of.get(name, -1)] for name in table.corrects.values]
    target = np.array([*targets, ANSWER], dtype=np.int64)[corrected]
    chained = np.flatnonzero((target >= 0) & (corrected[target] >= 0))
    if chained.size:
        name = table.corrects.values[corrected[chained[0]]]
        raise InputError(f"ibpo: {name!r} is corrected, but is a correction itself")
    target[(target >= 0) & (task[target] < 0)] = NO_TARGET
    return target


def _pools(right: Bools, group: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """One pool of right and one of wrong trajectories for each task.

    Returns the pool of each trajectory, the members pool by pool in order, and the pools' sizes.
    """
    pool = np.where(group < 0, -1, np.where(right, group, group + count))
    members = np.argsort(pool, kind="stable")[np.count_nonzero(pool < 0) :]
    return pool, members, segments.size(pool, 2 * count)


def _distinct(candidates: Ints, skip: Ints, draws: int, random: np.random.Generator) -> Ints:
    """Distinct random ranks for each row, never ``skip``; they repeat once candidates run out.

    A draw among the remaining ranks is shifted past every taken rank, in rising order.
    """
    ranks = np.zeros((candidates.size, draws), dtype=np.int64)
    taken = skip[:, None]
    for k in range(min(draws, int(candidates.max(initial=0)))):
        rank = random.integers(0, np.maximum(candidates - k, 1))
        for taken_rank in taken.T:
            rank += rank >= taken_rank
        ranks[:, k] = rank
        taken = np.sort(np.column_stack([taken, rank]), axis=1)
    repeat = np.arange(draws) % np.maximum(candidates, 1)[:, None]
    return np.take_along_axis(ranks, repeat, axis=1)


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def _explained(compared: Comparison, corrects: Bools, trajectory: Ints) -> Explanation:
    """The shaped reward of each answer, or the return of each correction, against its group."""
    way = corrects[trajectory].astype(np.int8)
    shaped = compared.explained(SHAPED, trajectory)
    return replace(shaped, sentences=(SHAPED, CORRECTION), way=way)
