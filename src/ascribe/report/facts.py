"""The numbers of a report: plain values, from a credit and its table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ascribe.diagnose import Diagnosis, diagnose
from ascribe.estimators.credit import Reason, Term
from ascribe.groups.cluster import collapsed
from ascribe.groups.exact import exact
from ascribe.report.crediting import Credited
from ascribe.report.states import StateView, state_views
from ascribe.rollout.summary import wilson
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.check import CheckReport, arrange, first_names, penalty_only
from ascribe.steps.problems import Problem, ProblemKind
from ascribe.steps.returns import penalties
from ascribe.steps.table import StepTable

ALL = "all"
UNKNOWN = "not given"
MOST_FAMILIES = 24
"""Families that are told apart; the others, those with the fewest tasks, count as one."""

LENGTH_BINS = 8


@dataclass(frozen=True)
class Family:
    """How the tasks of a family went; ``all`` is all of them. Rates are means over tasks."""

    family: str
    tasks: int
    episodes: int
    success: float
    low: float
    high: float
    mean_return: float
    turns: float
    valid: float


@dataclass(frozen=True)
class IterationNumbers:
    """One batch, in the order in which they were given."""

    iteration: str
    steps: int
    success: float
    mean_return: float
    signal: float
    """Share of steps that some term credits."""
    alone: float | None
    """Share of steps that are alone in their state."""
    mean_group_size: float | None
    """Steps of a state group."""
    equal_groups: float
    """Share of task groups whose trajectories all earned the same."""


@dataclass(frozen=True)
class Outcome:
    """Task groups of a family by what their trajectories earned."""

    family: str
    outcome: str
    groups: int


@dataclass(frozen=True)
class LengthBin:
    """Trajectories of a range of lengths, and their share of the gradient.

    The gradient of a policy weighs every step by its advantage, so the share of the summed size of
    advantages is the share of what the update is about.
    """

    length: str
    trajectories: float
    steps: float
    gradient: float
    success: float


@dataclass(frozen=True)
class ReasonCount:
    """Steps of a term by what became of them."""

    term: str
    reason: str
    steps: int
    share: float


OUTCOMES = (
    "all fail",
    "all succeed",
    "all earn the same",
    "only penalties differ",
    "returns differ",
)
"""What the trajectories of a task group can earn. Only the last gives a sound episode-level signal;
a group of one trajectory is counted under ``one trajectory``."""
EQUAL = OUTCOMES[:3]
"""Outcomes of groups whose trajectories all earned the same."""
ONE = "one trajectory"


@dataclass(frozen=True)
class Facts:
    """Everything that the verdict and the figures are made from."""

    files: tuple[str, ...]
    recipe: str
    recipe_name: str
    parameters: dict[str, Any]
    """Of the recipe."""
    diagnosis: Diagnosis
    report: CheckReport
    """What ``check`` found. It knows no recipe, so the task groups with equal returns, or with
    returns that differ by penalties alone, are counted again as the recipe compares them."""
    dropped_groups: int
    dropped_rows: int
    success_by_column: bool
    """Whether a column says who won; otherwise a return above 0 counts as a success."""
    families: tuple[Family, ...]
    iterations: tuple[IterationNumbers, ...]
    outcomes: tuple[Outcome, ...]
    lengths: tuple[LengthBin, ...]
    reasons: tuple[ReasonCount, ...]
    main_term: str
    """The term that is told first: the step term, or the first of a recipe without one."""
    equal_steps: dict[str, int]
    """Steps that the main term gives nothing since their peers fared alike, by the outcome of their
    task group."""
    views: tuple[StateView, ...]
    longest_quarter: float
    """Share of the gradient of the longest quarter of the trajectories. Those that tie for its last
    places share them."""
    cut: float
    """Share of trajectories that a limit cut."""
    blank: int
    """Steps with neither a state nor an action, or with empty ones."""
    collapsed: float
    """Share of task groups of which one state holds nearly all steps."""
    one_action: float
    """Share of steps that another trajectory's step shares the state and the action of, among those
    that share their state with another trajectory."""
    trained_differently: float | None
    """Share of steps that were trained with another advantage than this credit's, if known."""

    @property
    def everything(self) -> Family:
        """All families together."""
        return self.families[-1]

    @property
    def task_groups(self) -> int:
        """Task groups whose outcomes are counted: those of answers, not of corrections."""
        return sum(each.groups for each in self.outcomes)

    def groups_with(self, *outcomes: str) -> int:
        """Task groups with one of these outcomes."""
        return sum(each.groups for each in self.outcomes if each.outcome in outcomes)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Every table of numbers, by name."""
        return {
            "families": [asdict(each) for each in self.families],
            "iterations": [asdict(each) for each in self.iterations],
            "reasons": [asdict(each) for each in self.reasons],
            "state_sizes": self._sizes(),
            "funnel": [row for view in self.views for row in view.rows()],
            "row_mix": [{"states": view.name, **asdict(view.mix)} for view in self.views],
            "lengths": [asdict(each) for each in self.lengths],
            "outcomes": [asdict(each) for each in self.outcomes],
            "problems": [_problem(problem) for problem in self.report.problems],
        }

    def _sizes(self) -> list[dict[str, Any]]:
        states = self.diagnosis.states
        sizes = {} if states is None else states.sizes
        return [{"steps_in_group": size, "groups": count} for size, count in sizes.items()]


@dataclass(frozen=True, eq=False)
class Episodes:
    """One entry per trajectory, in canonical order."""

    returns: Floats
    compared: Floats
    """Returns less what the recipe takes off for invalid actions."""
    length: Ints
    won: Bools
    cut: Bools
    answer: Bools
    """Whether it answers its task; a correction of another answer does not count as a try."""
    family: Ints
    gradient: Floats
    """Summed size of the advantages of its steps."""


def gather(credited: Credited, files: Sequence[str]) -> Facts:
    """The facts about a credit."""
    table, credit = credited.table, credited.credit
    single = len(credited.diagnoses) == 1
    diagnosis = credited.diagnoses[0] if single else diagnose(table, credit)
    names, family = _families(table)
    episodes = _episodes(credited, family)
    kind = outcome_of_groups(table, episodes)
    main_term = "step" if "step" in credit.terms else next(iter(credit.terms))
    step = credit.terms.get("step")
    labels = None if step is None else step.labels
    views = state_views(table, credited.recipe, labels)
    _, _, shared, elsewhere, _ = views[0].stages
    return Facts(
        files=tuple(files),
        recipe=credit.recipe,
        recipe_name=credited.recipe.name,
        parameters=asdict(credited.recipe),
        diagnosis=diagnosis,
        report=_as_compared(credited.report, table, episodes, kind),
        dropped_groups=credited.dropped_groups,
        dropped_rows=credited.dropped_rows,
        success_by_column=credited.won is not None,
        families=_by_family(table, episodes, names),
        iterations=_by_batch(credited, episodes),
        outcomes=_outcomes(table, episodes, names, kind),
        lengths=_lengths(episodes),
        reasons=_reasons(credited),
        main_term=main_term,
        equal_steps=_equal_steps(table, credit.terms[main_term], kind),
        views=tuple(views),
        longest_quarter=_longest_quarter(episodes),
        cut=float(episodes.cut.mean()),
        blank=_blank(table),
        collapsed=_collapsed(table, labels),
        one_action=1.0 - elsewhere.steps / shared.steps if shared.steps else 0.0,
        trained_differently=_trained_differently(credited),
    )


def _episodes(credited: Credited, family: Ints) -> Episodes:
    steps, count = arrange(credited.table), arrange(credited.table).trajectory_count
    returns = segments.total(steps.reward, steps.trajectory, count)
    won = returns > 0
    if credited.won is not None:
        done = credited.won[steps.rows].astype(np.float64)
        won = segments.total(done, steps.trajectory, count) > 0
    gradient = segments.total(
        np.abs(credited.credit.advantage[steps.rows]), steps.trajectory, count
    )
    fines = penalties(steps.valid, credited.recipe.invalid_penalty)
    return Episodes(
        returns=returns,
        compared=returns - segments.total(fines, steps.trajectory, count),
        length=segments.size(steps.trajectory, count),
        won=won,
        cut=steps.truncated[steps.starts],
        answer=_answers(credited),
        family=family,
        gradient=gradient,
    )


def _answers(credited: Credited) -> Bools:
    """Trajectories that answer their task. In a batch of corrections alone, all count."""
    steps, corrects = arrange(credited.table), credited.table.corrects
    if corrects is None:
        return np.ones(steps.trajectory_count, dtype=np.bool_)
    first = steps.rows[steps.starts]
    answer, batch = corrects.codes[first] < 0, credited.batch[first]
    none: Bools = np.bincount(batch, weights=answer) == 0
    return answer | none[batch]


def _families(table: StepTable) -> tuple[list[str], Ints]:
    """Names of families, largest first, and the family of each trajectory."""
    steps = arrange(table)
    if table.family is None:
        return [UNKNOWN], np.zeros(steps.trajectory_count, dtype=np.int64)
    first = table.family.codes[steps.rows[steps.starts]]
    values = [str(value) for value in table.family.values]
    codes = np.where(first < 0, len(values), first)
    counted = np.bincount(codes, minlength=len(values) + 1)
    order = np.argsort(-counted, kind="stable")
    order = order[counted[order] > 0]
    named = [*values, UNKNOWN]
    kept = order[:MOST_FAMILIES]
    rename = np.full(len(named), kept.size, dtype=np.int64)
    rename[kept] = np.arange(kept.size)
    names = [named[code] for code in kept]
    if order.size > kept.size:
        names.append(f"{order.size - kept.size:,} more families")
    return names, rename[codes]


def _by_family(table: StepTable, episodes: Episodes, names: Sequence[str]) -> tuple[Family, ...]:
    steps = arrange(table)
    found = []
    for number, name in enumerate(names):
        chosen = episodes.answer & (episodes.family == number)
        if chosen.any():
            found.append(_family(name, steps, episodes, chosen))
    found.sort(key=lambda each: each.family)
    return (*found, _family(ALL, steps, episodes, episodes.answer))


def _family(name: str, steps: Any, episodes: Episodes, chosen: Bools) -> Family:
    group = np.where(chosen, steps.group_of_trajectory, -1)
    tasks = segments.size(group, steps.group_count) > 0
    rate = segments.mean(episodes.won.astype(np.float64), group, steps.group_count)[tasks].mean()
    low, high = wilson(float(rate), int(tasks.sum()))
    inside = chosen[steps.trajectory]
    return Family(
        family=name,
        tasks=int(tasks.sum()),
        episodes=int(chosen.sum()),
        success=float(rate),
        low=low,
        high=high,
        mean_return=float(episodes.returns[chosen].mean()),
        turns=float(episodes.length[chosen].mean()),
        valid=float(steps.valid[inside].mean()),
    )


def _by_batch(credited: Credited, episodes: Episodes) -> tuple[IterationNumbers, ...]:
    steps = arrange(credited.table)
    found = []
    batch_of = credited.batch[steps.rows[steps.starts]]
    for number, (name, seen) in enumerate(zip(credited.names, credited.diagnoses, strict=True)):
        chosen = episodes.answer & (batch_of == number)
        whole = _family(name, steps, episodes, chosen)
        found.append(
            IterationNumbers(
                iteration=name,
                steps=seen.rows,
                success=whole.success,
                mean_return=whole.mean_return,
                signal=seen.signal_share,
                alone=None if seen.states is None else seen.states.singleton_share_of_rows,
                mean_group_size=None if seen.states is None else seen.states.mean_size,
                equal_groups=_equal_groups(steps, episodes, chosen),
            )
        )
    return tuple(found)


def _equal_groups(steps: Any, episodes: Episodes, chosen: Bools) -> float:
    group, count = np.where(chosen, steps.group_of_trajectory, -1), steps.group_count
    size = segments.size(group, count)
    same = segments.constant(episodes.compared[chosen], group[chosen], count)
    return float((same & (size > 1)).sum() / (size > 0).sum())


def _outcomes(
    table: StepTable, episodes: Episodes, names: Sequence[str], kind: Ints
) -> tuple[Outcome, ...]:
    steps = arrange(table)
    tasks = _tasks(table, episodes)
    family = episodes.family[segments.first_rows(steps.group_of_trajectory, steps.group_count)]
    labels = (*OUTCOMES, ONE)
    place = (family * len(labels) + kind)[tasks]
    counted = np.bincount(place, minlength=len(names) * len(labels))
    counted = counted.reshape(len(names), len(labels))
    return tuple(
        Outcome(names[row], labels[column], int(counted[row, column]))
        for row in sorted(range(len(names)), key=names.__getitem__)
        for column in range(len(labels))
        if counted[row, column]
    )


def _tasks(table: StepTable, episodes: Episodes) -> Bools:
    """Groups that hold an answer to their task, not corrections alone."""
    steps = arrange(table)
    group = np.where(episodes.answer, steps.group_of_trajectory, -1)
    return segments.size(group, steps.group_count) > 0


def outcome_of_groups(table: StepTable, episodes: Episodes) -> Ints:
    """Place in ``OUTCOMES`` (or one more: one trajectory) of each task group."""
    steps = arrange(table)
    group, count = steps.group_of_trajectory, steps.group_count
    size = segments.size(group, count)
    won = segments.mean(episodes.won.astype(np.float64), group, count)
    same = segments.constant(episodes.compared, group, count)
    penalised = penalty_only(steps.valid, steps.reward, steps.trajectory, group)
    kind = np.full(count, OUTCOMES.index("returns differ"), dtype=np.int64)
    kind[penalised] = OUTCOMES.index("only penalties differ")
    kind[same] = OUTCOMES.index("all earn the same")
    kind[same & (won == 0)] = OUTCOMES.index("all fail")
    kind[same & (won == 1)] = OUTCOMES.index("all succeed")
    kind[size == 1] = len(OUTCOMES)
    return kind


def _as_compared(
    report: CheckReport, table: StepTable, episodes: Episodes, kind: Ints
) -> CheckReport:
    """The report with every group told once, under what the recipe's own penalty makes of it."""
    fined = kind == OUTCOMES.index("only penalties differ")
    again = {
        ProblemKind.EQUAL_RETURNS: ("has equal returns", kind < len(EQUAL)),
        ProblemKind.ONLY_PENALTIES_DIFFER: ("differs by penalties alone", fined),
    }
    found = [problem for problem in report.problems if problem.kind not in again]
    for name, (said, which) in again.items():
        found += _groups_problem(table, name, said, _tasks(table, episodes) & which)
    return CheckReport(report.rows, tuple(sorted(found, key=lambda problem: -problem.severity)))


def _groups_problem(table: StepTable, kind: ProblemKind, said: str, which: Bools) -> list[Problem]:
    """A problem of the groups ``which``; none if there are none. Rows are those of the table."""
    steps = arrange(table)
    rows = np.sort(steps.rows[which[steps.group]])
    codes = np.unique(table.group.codes[rows])
    if not codes.size:
        return []
    names = first_names(table.group, codes)
    return [Problem(kind, f"group {names} {said}", rows, int(codes.size))]


def _lengths(episodes: Episodes) -> tuple[LengthBin, ...]:
    """From short to long: each length by itself, or bins of about equally many trajectories."""
    length = episodes.length
    edges = np.unique(length)
    if edges.size > LENGTH_BINS:
        shares = np.linspace(0, 1, LENGTH_BINS + 1)[:-1]
        edges = np.unique(np.quantile(length, shares, method="lower"))
    place = np.searchsorted(edges, length, side="right") - 1
    total, gradient = float(length.sum()), float(episodes.gradient.sum())
    found = []
    for number in np.unique(place):
        inside = place == number
        low, high = int(length[inside].min()), int(length[inside].max())
        found.append(
            LengthBin(
                length=str(low) if low == high else f"{low}–{high}",
                trajectories=float(inside.mean()),
                steps=float(length[inside].sum()) / total,
                gradient=float(episodes.gradient[inside].sum()) / gradient if gradient else 0.0,
                success=float(episodes.won[inside].mean()),
            )
        )
    return tuple(found)


def _longest_quarter(episodes: Episodes) -> float:
    _, place = np.unique(-episodes.length, return_inverse=True)
    size, gradient = np.bincount(place), np.bincount(place, weights=episodes.gradient)
    longer = np.cumsum(size) - size
    inside = np.clip(episodes.length.size / 4 - longer, 0, size) / size
    total = float(gradient.sum())
    return float((inside * gradient).sum()) / total if total else 0.0


def _reasons(credited: Credited) -> tuple[ReasonCount, ...]:
    rows = arrange(credited.table).rows
    found = []
    for name, term in credited.credit.terms.items():
        counted = np.bincount(term.reason[rows], minlength=len(Reason))
        found += [
            ReasonCount(
                name, reason.label, int(counted[reason]), float(counted[reason] / rows.size)
            )
            for reason in Reason
            if counted[reason]
        ]
    return tuple(found)


def _equal_steps(table: StepTable, term: Term, kind: Ints) -> dict[str, int]:
    steps = arrange(table)
    silent = term.reason[steps.rows] == Reason.ZERO_VARIANCE
    labels = (*OUTCOMES, ONE)
    counted = np.bincount(kind[steps.group[silent]], minlength=len(labels))
    return dict(zip(labels, counted.tolist(), strict=True))


def _blank(table: StepTable) -> int:
    empty = [
        np.append([not str(text).strip() for text in column.values], True).astype(np.bool_)
        for column in (table.state, table.action)
    ]
    steps = arrange(table)
    return int((empty[0][steps.state] & empty[1][steps.action]).sum())


def _collapsed(table: StepTable, labels: Ints | None) -> float:
    steps = arrange(table)
    if labels is None:
        states = exact(steps.group, steps.state, table.state.values.size).labels
    else:
        states = labels[steps.rows]
    # States may reach over tasks.
    states, count = segments.pairs(steps.group, states, int(states.max(initial=-1)) + 1)
    fell = collapsed(states, count, steps.group)
    # A task of one turn has one state, and nothing is wrong with it.
    turns = segments.size(steps.group, steps.group_count)
    several = turns > np.bincount(steps.group_of_trajectory, minlength=steps.group_count)
    return float((fell & several).mean())


def _trained_differently(credited: Credited) -> float | None:
    if credited.trained is None:
        return None
    rows = arrange(credited.table).rows
    same = np.isclose(credited.trained[rows], credited.credit.advantage[rows], 1e-3, 1e-4)
    return float(1.0 - same.mean())


def _problem(problem: Any) -> dict[str, Any]:
    return {
        "problem": problem.kind.label,
        "severity": problem.severity.name.lower(),
        "count": problem.count,
        "rows": int(problem.rows.size),
        "found": problem.detail,
        "advice": problem.kind.advice,
    }
