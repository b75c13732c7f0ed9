"""GiGPO: credit for the episode, and for the step among visits to the same state.

Page: docs/estimators/gigpo.md. Test: tests/estimators/test_gigpo.py.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.base import EPISODE, Standardising
from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence, Term
from ascribe.estimators.relative import Comparison, Norm, TermScale, equalised, relative
from ascribe.groups import Groups
from ascribe.groups.exact import exact
from ascribe.groups.similar import similar
from ascribe.steps import segments
from ascribe.steps.arrays import Codes8, Floats, Ints
from ascribe.steps.check import Arranged, arrange
from ascribe.steps.table import StepTable

Revisits = Literal["each", "first", "average"]
"""How repeated visits of a trajectory to a state count.

``each`` visit is a member of the state's group (Eq. 6). With ``first``, later visits take no part.
With ``average``, a trajectory is one member with the mean return of its visits, and they share its
advantage. The last two keep a trajectory from being compared with itself, where only the time to
go differs.
"""

StepTerms = tuple[dict[str, Term], dict[str, float]]
"""Step-level terms by name, and metrics about them."""

BY_STEPS = Sentence(
    "{peers} steps of this task, each by its whole trajectory, returned {baseline} on average; "
    "this one returned {own}"
)
RAW = Sentence("alone in its task: its return counts as it is")
STEP = Sentence(
    "{peers} steps in this state returned {baseline} on average; this step returned {own}"
)
VISITS = Sentence(
    "{peers} trajectories came to this state and returned {baseline} on average; "
    "this one returned {own}"
)


def step_relative(
    returns: Floats,
    labels: Ints,
    count: int,
    norm: Norm,
    *,
    trajectory: Ints,
    trajectory_count: int,
    revisits: Revisits = "each",
) -> tuple[Floats, Codes8, Comparison, Ints | None]:
    """Step relative advantage (Eq. 7), inside groups of equal states.

    Returns:
        The advantages and, for each, its ``Reason``; the comparison that they come from, and which
        of its members each row is (None: rows are members).
    """
    if revisits == "each":
        compared = relative(returns, labels, count, norm)
        return compared.values, compared.reason, compared, None
    visit, visits = segments.pairs(labels, trajectory, trajectory_count)
    first_row = segments.first_rows(visit, visits)
    by_visit = returns[first_row] if revisits == "first" else segments.mean(returns, visit, visits)
    compared = relative(by_visit, labels[first_row], count, norm)
    values = segments.pick(compared.values, visit)
    reason = np.append(compared.reason, np.int8(Reason.SINGLETON))[visit]
    if revisits == "first":
        later = labels >= 0
        later[first_row] = False
        values[later], reason[later] = 0.0, Reason.REVISIT
    return values, reason, compared, visit


@dataclass(frozen=True, kw_only=True)
class TwoLevel(Standardising):
    """``A = A^E + ω A^S`` (Eq. 8), for any way to group states: ``gigpo`` and its descendants.

    Attributes:
        gamma: discount γ of the return of a step (paper: 0.95).
        weight: ω, weight of the step term (paper: 1).
        episode_weight: weight of the episode term (paper: 1); 0 is the ablation without A^E.
        scale: the step term as in the ``paper``, or rescaled to ``equal`` the episode term in root
            mean square, each over the rows of the batch that it credits; ω comes on top.
        normalise: ``std`` (F_norm = std) or ``mean`` (F_norm = 1), the paper's two forms.
        baseline_unit: the episode baseline counts each ``trajectory`` once (paper) or each
            ``step``, so that long trajectories weigh more.
        group_of_one: a task with one trajectory gives ``no_credit``, or its ``raw`` return, and its
            visits to a state are compared with each other.
        revisits: how repeated visits of a trajectory to a state count (paper: ``each``).
    """

    compares_in_groups: ClassVar[bool] = True
    sentences: ClassVar[tuple[Sentence, Sentence]] = (STEP, VISITS)
    """How the step term reads: with peers, and with trajectories that came to the state."""

    gamma: float = 0.95
    weight: float = 1.0
    episode_weight: float = 1.0
    scale: TermScale = "paper"
    normalise: Literal["std", "mean"] = "std"
    baseline_unit: Literal["trajectory", "step"] = "trajectory"
    group_of_one: Literal["no_credit", "raw"] = "no_credit"
    revisits: Revisits = "each"

    def state_groups(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[Groups, dict[str, float]]:
        """State group of each row in canonical order (by exact text), and metrics about them."""
        steps = arrange(table)
        return exact(steps.group, steps.state, table.state.values.size), {}

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        groups, metrics = self.state_groups(table, inputs)
        steps, more = self.step_terms(table, groups)
        terms, metrics = {"episode": self._episode(table)} | steps, metrics | more
        if self.scale == "equal":
            sizes = list(steps), terms["episode"], arrange(table).rows
            terms, metrics["scale_factor"] = equalised(terms, *sizes)
        episode = terms.pop("episode")
        if self.episode_weight:
            terms = {"episode": replace(episode, weight=self.episode_weight)} | terms
        return Credit.of(terms, repr(self), metrics, self.carried(metrics, inputs))

    def carried(self, metrics: dict[str, float], inputs: dict[str, Any]) -> dict[str, Any] | None:
        """The state for the next iteration, given the metrics of this one."""
        return None

    def step_terms(self, table: StepTable, groups: Groups) -> StepTerms:
        """The step-level terms, and metrics about them."""
        return {"step": self.step_term(table, groups, self.step_returns(table))}, {}

    def without_recurrence(self) -> str:
        """The episode term alone, which is that of ``grpo`` in the paper's form."""
        if not self.episode_weight:
            return f"{self.name} gives no credit"
        of_paper = (self.episode_weight, self.baseline_unit, self.group_of_one)
        if of_paper != (1.0, "trajectory", "no_credit"):
            return f"{self.name} has its episode term alone"
        return f"{self.name} gives what {'grpo' if self.normalise == 'std' else 'dr_grpo'} gives"

    def _episode(self, table: StepTable) -> Term:
        steps, norm, sentence = arrange(table), self.norm(self.normalise), EPISODE
        member, group = steps.trajectory, self.trajectory_groups(steps)
        compared_by = self.episode_returns(steps)
        scores = compared_by[member] - self.late_penalties(steps)
        if self.baseline_unit == "step":
            member, group = np.arange(member.size), np.where(self.excluded(steps), -1, steps.group)
            compared_by, sentence = scores, BY_STEPS
        compared = relative(compared_by, group, steps.group_count, norm, Reason.GROUP_OF_ONE)
        values, reason = compared.values[member], compared.reason[member]
        explain = partial(compared.explained, sentence, member)
        if self.group_of_one == "raw":
            raw = reason == Reason.GROUP_OF_ONE
            values = np.where(raw, scores, values)
            reason = np.where(raw, np.int8(Reason.CREDITED), reason)
            explain = partial(_with_raw, explain, raw, scores)
        return self.term(table, values, reason, steps.group, explain=explain)

    def step_term(self, table: StepTable, groups: Groups, returns: Floats) -> Term:
        """The step term: what each row came to, compared inside the state groups."""
        steps = arrange(table)
        labels = np.where(self.excluded(steps), -1, groups.labels)
        values, reason, compared, visit = step_relative(
            returns,
            labels,
            groups.count,
            self.norm(self.normalise),
            trajectory=steps.trajectory,
            trajectory_count=steps.trajectory_count,
            revisits=self.revisits,
        )
        self.leave_out_alone(steps, labels, groups.count, reason)
        explain = partial(compared.explained, self.sentences[visit is not None], visit)
        return self.term(table, values, reason, groups.labels, weight=self.weight, explain=explain)

    def leave_out_alone(self, steps: Arranged, labels: Ints, count: int, reason: Codes8) -> None:
        """No step credit without a state, and for a task's only trajectory among its own visits."""
        if self.group_of_one == "no_credit" and (alone := self.alone(steps)).any():
            visitor = steps.trajectory.astype(np.float64)
            one_visitor = np.append(segments.constant(visitor, labels, count), True)
            alone &= one_visitor[labels]  # other tasks may visit its states, if scope is the batch
            reason[alone] = Reason.GROUP_OF_ONE
        reason[labels < 0] = Reason.MISSING_STATE


def _with_raw(explain: "partial[Explanation]", raw: np.ndarray, scores: Floats) -> Explanation:
    """An explanation in which the ``raw`` rows are their own ``scores``, compared with nothing."""
    explanation = explain()
    return replace(
        explanation,
        own=np.where(raw, scores, explanation.own),
        baseline=np.where(raw, 0.0, explanation.baseline),
        sentences=(*explanation.sentences, RAW),
        way=raw.astype(np.int8),
    )


@dataclass(frozen=True, kw_only=True)
class GiGPO(TwoLevel):
    """Group-in-group policy optimization: an episode term and a step term.

    ``A = A^E + ω A^S`` (Eq. 8). ``A^E = (R(τ_i) - mean_j R(τ_j)) / F_norm`` compares a trajectory's
    return with its task group (Eq. 3). ``A^S = (R_t - mean over the state group of R) / F_norm``
    compares a step's discounted return with the other visits to the same state (Eq. 7). F_norm is
    the standard deviation, at least ``std_floor``, plus ``std_epsilon``; or 1.

    Attributes:
        grouping: states are the same if their texts are equal (``exact``), or ``similar``.
        similarity: smallest ratio of similar states (paper: 0.9 for search).
        scope: compare states inside a task ``group`` (paper) or over the ``batch``.
    """

    name: ClassVar[str] = "gigpo"
    paper: ClassVar[str] = "GiGPO, arXiv 2505.10978"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "verl-agent": {
            "baseline_unit": "step",
            "group_of_one": "raw",
            "penalty_timing": "after",
            "invalid_penalty": 0.1,
        },
        "trinity": {
            "gamma": 1.0,
            "normalise": "mean",
            "scope": "batch",
            "group_of_one": "raw",
        },
        "roll": {"scope": "batch", "baseline_unit": "step"},
    }

    grouping: Literal["exact", "similar"] = "exact"
    similarity: float = 0.9
    scope: Literal["group", "batch"] = "group"

    def state_groups(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[Groups, dict[str, float]]:
        """State group of each row in canonical order; there are no metrics about them."""
        steps = arrange(table)
        task = np.zeros_like(steps.group) if self.scope == "batch" else steps.group
        if self.grouping == "similar":
            # An excluded trajectory must not link two states.
            state = np.where(self.excluded(steps), -1, steps.state)
            return similar(task, state, table.state.values, self.similarity), {}
        return exact(task, steps.state, table.state.values.size), {}
