"""The base of all recipes, and the parameters and arithmetic that they share."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

from ascribe.estimators.credit import Credit, Explanation, Reason, Sentence, Term
from ascribe.estimators.relative import Norm, Std, relative
from ascribe.groups.actions import KEY_FUNCTIONS, ActionKeys, action_keys
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints
from ascribe.steps.check import LARGEST_REWARD, Arranged, arrange
from ascribe.steps.errors import InputError
from ascribe.steps.hints import among, page
from ascribe.steps.returns import PenaltyTiming, episode_return, penalties, reward_to_go
from ascribe.steps.table import StepTable

Truncation = Literal["end", "exclude"]
"""What to do with a truncated trajectory.

``end``: treat its last step as terminal, as in the papers. ``exclude``: it enters no statistic and
gets no credit, since its remaining rewards are unknown.
"""

LARGEST_FACTOR = 1e9
"""Beyond this, a weight or a slope is an error, and may overflow when it meets a large reward."""

EPISODE = Sentence("{peers} trajectories returned {baseline} on average; this one returned {own}")

BY_WORDS = (
    "There is no column first_tokens, so actions are compared by the first 8 words of their text."
)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named estimator: a frozen dataclass of plain parameters, called on a table.

    A subclass sets ``name`` and ``paper`` and implements ``compute``. The other methods are shared
    parts of recipes; their arrays are in canonical order (see ``steps.check.arrange``).

    Attributes:
        invalid_penalty: penalty to subtract from the reward of an invalid action (GiGPO: 0.1 in
            ALFWorld and WebShop, 0.01 in search). 0 by default, because rewards may contain the
            penalty already.
        penalty_timing: subtract the penalty ``before`` discounting (it lowers earlier returns too)
            or ``after`` (only its own).
        truncation: a trajectory cut by a limit takes part (``end``), or is left out (``exclude``).

    Example:
        >>> gigpo = ascribe.recipe("gigpo", normalise="mean")
        >>> gigpo(table).advantage.round(2).tolist()
        [1.3, 0.67, -0.65, -0.33, -0.65]
        >>> isinstance(gigpo, ascribe.Recipe), gigpo.name
        (True, 'gigpo')
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    credits_steps: ClassVar[bool] = True
    """Whether steps of one trajectory may get different advantages."""
    compares_in_groups: ClassVar[bool] = False
    """Whether rows are compared inside their task group alone, if no parameter says otherwise."""
    compares_attempts: ClassVar[bool] = False
    """Whether a task with one trajectory has no credit, whatever the other tasks are."""
    inputs: ClassVar[tuple[str, ...]] = ()
    """Names of the inputs of a call, in addition to the table."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Optional columns of the table that the recipe cannot do without."""
    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        "gamma": (0.0, 1.0),
        "similarity": (0.0, 1.0),
        "std_epsilon": (0.0, LARGEST_REWARD),
        "std_floor": (0.0, LARGEST_REWARD),
        "history_length": (0, 1000),
        "radius": (0.0, 2.0),
        "memory": (0.0, 0.999),
        "weight": (0.0, LARGEST_FACTOR),
        "episode_weight": (0.0, LARGEST_FACTOR),
        "invalid_penalty": (0.0, LARGEST_REWARD),
    }
    """Smallest and largest value of each parameter that has them."""

    invalid_penalty: float = 0.0
    penalty_timing: PenaltyTiming = "before"
    truncation: Truncation = "end"

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for parameter in fields(self):
            self._validate(parameter.name, hints[parameter.name])
        if not self.credits_steps and self.penalty_timing == "after":
            raise InputError(
                f"{self.name} discounts nothing, so penalty_timing 'after' would lose the penalty",
                hint="leave it at 'before'",
            )

    def __init_subclass__(cls) -> None:
        """Give the subclass this ``repr``, in place of one that lists every parameter."""
        super().__init_subclass__()
        if "__repr__" not in vars(cls):
            cls.__repr__ = Recipe.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """The parameters that differ from their defaults: enough to reproduce a run."""
        values = ((each, getattr(self, each.name)) for each in fields(self))
        changed = (f"{each.name}={value!r}" for each, value in values if value != each.default)
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def needs_corrections(self) -> bool:
        """Whether the table must hold corrections of wrong answers."""
        return False

    @property
    def by_group(self) -> bool:
        """Whether the credit of a task group needs no other group, but those that it corrects."""
        return self.compares_inside and getattr(self, "scale", None) != "equal"

    @property
    def compares_inside(self) -> bool:
        """Whether a task group is compared with no other; ``scale="equal"`` may be of a batch."""
        over_batch = {"scope": ("batch",), "radius_rule": ("search", "online")}
        return self.compares_in_groups and not any(
            getattr(self, name, None) in choices for name, choices in over_batch.items()
        )

    @property
    def has_history(self) -> bool:
        """Whether the recipe carries state from one iteration to the next."""
        return "history" in self.inputs

    def __call__(self, table: StepTable, **inputs: Any) -> Credit:
        """Credit every row of ``table``, each iteration by itself.

        Args:
            table: the steps.
            **inputs: further inputs, by the names in ``inputs``; an array has one entry for each
                row.

        Raises:
            TableError: if the rows of the table cannot be put in order; ``ascribe.check`` says why.
            TypeError: for an input that the recipe does not take.
            ValueError: if a column is missing, or an advantage is not a finite number.
        """
        for name in inputs:
            if name not in self.inputs:
                accepted = ", ".join(self.inputs) or "none"
                raise TypeError(f"{self.name} takes no input {name!r}; it takes: {accepted}")
        present = table.columns()
        if missing := [name for name in self.columns if name not in present]:
            arrange(table)  # what is wrong with its rows comes first
            raise InputError(
                f"{self.name} needs the column {' and '.join(missing)}, which the table does not "
                f"have; where it comes from: {page('estimators/columns')}"
            )
        credit = self._compute_each(table.iterations(), inputs)
        terms = {name: term.values for name, term in credit.terms.items()}
        for name, values in {"advantage": credit.advantage, **terms}.items():
            if rows := np.flatnonzero(~np.isfinite(values))[:5].tolist():
                listed = ", ".join(map(str, rows))
                raise InputError(
                    f"{self.name}: {name} is not finite in rows {listed}; rewards or parameters "
                    "are too large, or the recipe has a bug"
                )
        alone = credit.alone_share
        if (instead := self.without_recurrence()) and alone > 0.5:
            # Without the share, which changes: engines log equal notes once.
            most = "Most steps have no other step in the same state; for these,"
            where = "No state recurs, so" if alone == 1 else most
            credit = replace(credit, notes=(*credit.notes, f"{where} {instead}."))
        return credit

    def _compute_each(
        self, iterations: list[tuple[int, Ints, StepTable]], inputs: dict[str, Any]
    ) -> Credit:
        """Credit each iteration as a trainer does, and pass the history on to the next."""
        several, parts = len(iterations) > 1, list[Credit]()
        metrics: dict[str, float] = {}
        for number, rows, part in iterations:
            own = {k: v[rows] if several and hasattr(v, "shape") else v for k, v in inputs.items()}
            if parts and self.has_history:
                own["history"] = parts[-1].history
            credit = replace(self.compute(part, own), notes=self.notes(part, own))
            parts.append(credit)
            metrics |= {f"iteration {number}/{k}": v for k, v in credit.metrics.items()}
        if not several:
            return parts[0]
        place = np.argsort(np.concatenate([rows for _, rows, _ in iterations]))
        return replace(Credit.join(parts).rows(place), metrics=metrics)

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit the rows of one iteration; ``inputs`` holds names of ``self.inputs``."""
        raise NotImplementedError

    def notes(self, table: StepTable, inputs: dict[str, Any]) -> tuple[str, ...]:
        """What a reader of the credit should know about how it was computed, in sentences."""
        by_tokens = getattr(self, "action_key", None) == "first_tokens"
        return (BY_WORDS,) if by_tokens and table.first_tokens is None else ()

    def without_recurrence(self) -> str:
        """What the recipe gives to steps that are alone in their state, as a clause; or nothing."""
        return ""

    @classmethod
    def preset(cls, preset: str, **changes: Any) -> Self:
        """The recipe as public code computes it, with any parameter changed by name."""
        if preset not in cls.presets:
            hint = among(preset, sorted(cls.presets))
            raise InputError(f"{cls.name} has no preset {preset!r}", hint=hint)
        return cls(**(cls.presets[preset] | changes))

    def _validate(self, name: str, hint: Any) -> None:
        value = getattr(self, name)
        problem = f"{self.name}: {name} is {value!r}"
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise InputError(f"{problem}, but must be one of {', '.join(get_args(hint))}")
            return
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = {bool: isinstance(value, bool), int: is_number and isinstance(value, int)}
        if hint is str:
            if not isinstance(value, str):
                raise InputError(f"{problem}, but must be text")
            return
        if not fits.get(hint, is_number and abs(value) <= sys.float_info.max):
            raise InputError(f"{problem}, but must be a finite {hint.__name__}")
        low, high = self.ranges.get(name, (-math.inf, math.inf))
        if not low <= value <= high:
            raise InputError(f"{problem}, but must lie between {low} and {high}")

    def rewards(self, steps: Arranged) -> Floats:
        """Rewards, less the penalty if it comes before discounting."""
        if self.invalid_penalty and self.penalty_timing == "before":
            return steps.reward - penalties(steps.valid, self.invalid_penalty)
        return steps.reward

    def late_penalties(self, steps: Arranged) -> Floats:
        """What is taken off after discounting."""
        late = self.penalty_timing == "after"
        return penalties(steps.valid, self.invalid_penalty if late else 0.0)

    def step_returns(self, table: StepTable) -> Floats:
        """Discounted return from each row on, as the recipe compares it."""
        steps, gamma = arrange(table), float(getattr(self, "gamma", 1.0))
        to_go = reward_to_go(self.rewards(steps), steps.trajectory, gamma)
        return to_go - self.late_penalties(steps)

    def episode_returns(self, steps: Arranged) -> Floats:
        """Return of each trajectory."""
        return episode_return(self.rewards(steps), steps.trajectory, steps.trajectory_count)

    def numbers(self, table: StepTable, column: str) -> Floats:
        """A column of ``columns``; NaN where it is empty."""
        values: Floats = getattr(table, column)[arrange(table).rows]
        return values

    def action_keys(self, table: StepTable) -> ActionKeys:
        """The action of each row, by the recipe's ``action_key`` or else by tag."""
        name, column = getattr(self, "action_key", "tag"), table.action
        if name == "first_tokens" and table.first_tokens is not None:
            name, column = "whole", table.first_tokens
        return action_keys(column.take(arrange(table).rows), KEY_FUNCTIONS[name])

    def excluded(self, steps: Arranged) -> Bools:
        """Mask of the rows that the recipe excludes."""
        if self.truncation == "exclude":
            return steps.truncated
        return np.zeros(steps.rows.size, dtype=np.bool_)

    def trajectory_groups(self, steps: Arranged) -> Ints:
        """Group of each trajectory; -1 for those left out."""
        return np.where(self.excluded(steps)[steps.starts], -1, steps.group_of_trajectory)

    def alone(self, steps: Arranged) -> Bools:
        """Mask of the rows whose task has one trajectory: its steps are not compared alone."""
        size = segments.size(self.trajectory_groups(steps), steps.group_count)
        return np.asarray(size[steps.group] < 2)

    def episode_term(self, table: StepTable, norm: Norm, sentence: Sentence = EPISODE) -> Term:
        """Relative return of each trajectory in its task group, the same for all its steps.

        Args:
            table: the steps.
            norm: what a return is compared with.
            sentence: how the comparison reads.
        """
        steps, owner = arrange(table), arrange(table).trajectory
        members = (self.episode_returns(steps), self.trajectory_groups(steps), steps.group_count)
        compared = relative(*members, norm, Reason.GROUP_OF_ONE)
        explain = partial(compared.explained, sentence, owner)
        values, reason = compared.values[owner], compared.reason[owner]
        return self.term(table, values, reason, steps.group, explain=explain)

    def term(
        self,
        table: StepTable,
        values: Floats,
        reason: Codes8,
        labels: Ints,
        *,
        weight: float = 1.0,
        explain: Callable[[], Explanation] | None = None,
    ) -> Term:
        """A term in the table's row order; rows that are excluded get the reason ``TRUNCATED``.

        Rows without credit have the value 0, whatever ``values`` holds.

        Args:
            table: the steps.
            values: value of each row.
            reason: ``Reason`` of each row.
            labels: group that each row was compared in; -1 for none.
            weight: the factor of the term.
            explain: computes the explanation of the term, in canonical order too.
        """
        steps = arrange(table)
        excluded = self.excluded(steps)
        reason = np.where(excluded, np.int8(Reason.TRUNCATED), reason)
        labels = np.where(excluded, -1, labels)
        values = np.where(reason == Reason.CREDITED, values, 0.0)
        return Term(
            values=steps.to_table_order(values, len(table), 0.0),
            reason=steps.to_table_order(reason, len(table), Reason.PADDING),
            labels=steps.to_table_order(labels, len(table), -1),
            weight=weight,
            explain=None if explain is None else partial(_in_table_order, table, explain),
        )


def _in_table_order(table: StepTable, explain: Callable[[], Explanation]) -> Explanation:
    steps = arrange(table)
    return explain().mapped(lambda values: steps.to_table_order(values, len(table), 0))


@dataclass(frozen=True, kw_only=True)
class Standardising(Recipe):
    """A recipe that may divide by a standard deviation.

    Attributes:
        std: ``sample`` (n - 1) as torch, verl and TRL compute it, or ``population`` (n).
        std_epsilon: added to the standard deviation (verl: 1e-6; TRL: 1e-4).
        std_floor: the standard deviation is at least this, so that returns that differ by little
            (two successes, one step apart) do not count as much as success against failure.
    """

    std: Std = "sample"
    std_epsilon: float = 1e-6
    std_floor: float = 0.0

    def norm(self, by: Literal["std", "mean"]) -> Norm:
        """The comparison with these parameters."""
        return Norm(by, self.std, self.std_epsilon, self.std_floor)
