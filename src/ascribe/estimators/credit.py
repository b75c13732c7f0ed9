"""Credit: advantages, their terms, and the reason where there is no signal."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ascribe.groups.actions import KEY_FUNCTIONS, action_keys
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Brief, Codes8, Floats, Ints, Objects
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.problems import counted
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import StepTable

if TYPE_CHECKING:
    import pyarrow as pa


class Reason(IntEnum):
    """Why a row has no signal; ``CREDITED`` if it has one, even if the number is zero.

    Example:
        >>> reason = ascribe.Reason(credit.terms["step"].reason[1])
        >>> reason.label, reason.words
        ('singleton', 'no other step is in this state')
    """

    words: str
    """The reason in a sentence."""

    def __new__(cls, code: int, words: str = "") -> "Reason":
        """The member of a code, with its sentence."""
        reason = int.__new__(cls, code)
        reason._value_, reason.words = code, words
        return reason

    CREDITED = 0, "it was compared with peers whose values differ"
    SINGLETON = 1, "no other step is in this state"
    GROUP_OF_ONE = 2, "its task has only one trajectory"
    ZERO_VARIANCE = 3, "everything it is compared with earned the same"
    MISSING_STATE = 4, "it has no state, or no fingerprint of it"
    REVISIT = 5, "only the first visit to a state counts"
    TRUNCATED = 6, "its trajectory was cut by a limit and does not count"
    PADDING = 7, "it is padding"
    DROPPED = 8, "its trajectory or its group was left out"
    SAME_ACTION = 9, "every peer in this state took the same action"
    COUNTERFACTUAL = 10, "it was sampled only to measure the other agents"
    NO_TARGET = 11, "the trajectory that it corrects is not in the batch"
    MISSING_INPUT = 12, "a number that the recipe reads is missing"

    @property
    def label(self) -> str:
        """The name in files and on the screen."""
        return self.name.lower()


@dataclass(frozen=True)
class Sentence:
    """A sentence that explains a comparison.

    Attributes:
        text: a format string over ``own``, ``baseline``, ``peers`` and ``alike``; ``{own:+}``
            always has a sign.
        beyond: what else the recipe does with the comparison; empty if ``value = (own - baseline) /
            spread``, with one positive spread for each group.
    """

    text: str
    beyond: str = ""


UNEXPLAINED = Sentence("its group has {peers} rows", "the recipe gives no further explanation")


class _Figure(float):
    """A number in a sentence."""

    def __format__(self, sign: str) -> str:
        return format(float(self), f"{sign}.3g")


_ONE = re.compile(r"\b(1 (?:other )?(?:peer|step|row))s\b")


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Brief):
    """What each row of a term was compared with.

    Attributes:
        own: the row's own value: the return of its trajectory, its discounted return, the mean
            return of its same-action peers, what its agent contributed.
        baseline: what ``own`` was compared with.
        peers: how many rows, or trajectories, made the baseline.
        sentences: the ways in which the term compares.
        way: which of the ``sentences`` is each row's.
        alike: how many rows ``own`` is the mean of, if it is one.
    """

    own: Floats
    baseline: Floats
    peers: Ints
    sentences: tuple[Sentence, ...] = (UNEXPLAINED,)
    way: Codes8 | None = None
    alike: Ints | None = None

    def said(self, row: Any) -> str:
        """The sentence of a row, with its figures."""
        sentence = self.sentences[0 if self.way is None else self.way[row]]
        text = sentence.text.format(
            own=_Figure(self.own[row]),
            baseline=_Figure(self.baseline[row]),
            peers=self.peers[row],
            alike=0 if self.alike is None else self.alike[row],
        )
        text = _ONE.sub(r"\1", text).replace("1 trajectories", "1 trajectory")
        return f"{text}; {sentence.beyond}" if sentence.beyond else text

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> "Explanation":
        """The explanation with ``change`` applied to every array."""
        names = ("own", "baseline", "peers", "way", "alike")
        present = ((name, getattr(self, name)) for name in names)
        changed: dict[str, Any] = {name: change(a) for name, a in present if a is not None}
        return replace(self, **changed)


ORDER = "; the arguments are values, reason, labels, in this order"
ARRAYS = (
    ("values", (np.floating,), "an array of floats, a value for each row"),
    ("reason", (np.int8,), "an array of int8, a Reason for each row"),
    ("labels", (np.int16, np.int32, np.int64), "an array of integers, a group for each row"),
)
"""The arrays of a term: name, types, and what they hold."""


@dataclass(frozen=True, eq=False, repr=False)
class Term(Brief):
    """One part of an advantage: its values, the groups it compared in, and its reasons.

    ``values`` is 0 wherever ``reason`` is not ``CREDITED``. ``labels`` names the group that each
    row was compared in, -1 for none. ``weight`` is the factor with which it enters the sum.
    ``explain`` computes the ``explanation``, in the order of ``values``, on first use.

    Example:
        >>> step = credit.terms["step"]
        >>> step.values.round(2).tolist()
        [0.63, 0.0, -0.32, 0.0, -0.32]
        >>> step.why()[0]
        '3 steps in this state returned 0.317 on average; this step returned 0.95'
    """

    values: Floats
    reason: Codes8
    labels: Ints
    weight: float = 1.0
    explain: Callable[[], Explanation] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        rows = np.shape(self.values)
        for name, kinds, meaning in ARRAYS:
            array = getattr(self, name)
            dtype = getattr(array, "dtype", None)
            if dtype is None or not any(np.issubdtype(dtype, kind) for kind in kinds):
                found = type(array).__name__ if dtype is None else dtype
                raise InputError(f"Term: {name} is {found}, but must be {meaning}{ORDER}")
            if array.shape != rows or len(rows) != 1:
                raise InputError(f"Term: {name} has the shape {array.shape}, values {rows}")
        if not _within(self.reason, 0, len(Reason) - 1):
            raise InputError(f"Term: reason holds codes that no Reason has{ORDER}")
        if not _within(self.labels, -1, None):
            raise InputError("Term: labels below -1", hint="-1 means that a row was in no group")
        without = np.where(self.reason == Reason.CREDITED, 0.0, self.values)
        if rows_ := np.flatnonzero(without)[:5].tolist():
            raise InputError(
                f"Term: values of rows {rows_} are not 0, but their reason is not CREDITED"
            )

    @cached_property
    def explanation(self) -> Explanation:
        """What each row was compared with."""
        if self.explain is not None:
            return self.explain()
        size = segments.size(self.labels, int(self.labels.max(initial=-1)) + 1)
        return Explanation(self.values, np.zeros(self.values.size), np.append(size, 0)[self.labels])

    @property
    def own(self) -> Floats:
        """Each row's own value."""
        return self.explanation.own

    @property
    def baseline(self) -> Floats:
        """What each row's own value was compared with."""
        return self.explanation.baseline

    @property
    def peers(self) -> Ints:
        """How many rows, or trajectories, made each row's baseline."""
        return self.explanation.peers

    def why(self) -> Objects:
        """What each row was compared with, or why it has no credit, in words."""
        words = np.array([reason.words for reason in Reason], dtype=object)[self.reason]
        for row in np.flatnonzero(self.credited):
            words[row] = self.explanation.said(row)
        return words

    @property
    def credited(self) -> Bools:
        """Rows with the reason ``CREDITED``."""
        return np.equal(self.reason, Reason.CREDITED)


class Metric(float):
    """A metric with the values that it summarises, so that those of parts can be joined.

    ``summary`` is a function of numpy; ``empty`` is the metric of no values.
    """

    values: npt.NDArray[Any]
    summary: Callable[[npt.NDArray[Any]], Any]
    empty: float

    def __new__(
        cls,
        values: npt.NDArray[Any],
        summary: Callable[[npt.NDArray[Any]], Any] = np.mean,
        empty: float = 0.0,
    ) -> "Metric":
        """The metric of these values."""
        metric = super().__new__(cls, summary(values) if values.size else empty)
        metric.values, metric.summary, metric.empty = values, summary, empty
        return metric

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.values, self.summary, self.empty


def join_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a batch from those of its parts; one that is no ``Metric`` as their mean."""
    joined: dict[str, float] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        each = [part[name] for part in parts if name in part]
        kept = [one for one in each if isinstance(one, Metric)]
        if kept:
            values = np.concatenate([one.values for one in kept])
            joined[name] = Metric(values, kept[0].summary, kept[0].empty)
        else:
            joined[name] = each[0] if len(set(each)) == 1 else fmean(each)
    return joined


@dataclass(frozen=True, eq=False)
class Credit:
    """The advantage of every row of a table, in the table's row order.

    ``advantage = Σ over terms of weight * values``. A row that no term credits has advantage 0 and
    its ``reason``, which distinguishes it from a row whose credit is zero.

    Example:
        >>> credit
        Credit(5 rows, 100% with a signal, GiGPO(normalise='mean'))
        >>> credit.reasons.tolist()
        ['credited', 'credited', 'credited', 'credited', 'credited']
        >>> credit.to_table(table).select(["action", "why_step"]).to_pylist()[1]
        {'action': 'take apple', 'why_step': 'no other step is in this state'}
        >>> low, high = credit.interval(table, level=0.9)
        >>> print(f"{low[0]:+.2f} to {high[0]:+.2f}")
        -0.21 to +0.45
    """

    advantage: Floats
    reason: Codes8
    terms: dict[str, Term] = field(default_factory=dict)
    recipe: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    """About the computation, by name: the radius that was used, the row mix. One that differs
    between parts of a batch is a ``Metric``."""
    history: dict[str, Any] | None = None
    """State to pass in with the next batch (running statistics), in plain values for a checkpoint;
    None for a recipe without any."""
    notes: tuple[str, ...] = ()
    """Sentences about how the recipe computed it, such as what it had to do without."""

    @staticmethod
    def of(
        terms: dict[str, Term],
        recipe: str,
        metrics: dict[str, float] | None = None,
        history: dict[str, Any] | None = None,
    ) -> "Credit":
        """The sum of terms. The reason of a row is its last term's, unless a term credits it."""
        advantage = sum(term.weight * term.values for term in terms.values())
        reason = list(terms.values())[-1].reason.copy()
        for term in terms.values():
            reason[term.credited] = Reason.CREDITED
        total = np.asarray(advantage, np.float64)
        return Credit(total, reason, terms, recipe, metrics or {}, history)

    @staticmethod
    def join(parts: Sequence["Credit"]) -> "Credit":
        """The credits of several tables by one recipe, one after another.

        Groups of different tables get different labels. ``history`` is the last one; ``metrics``
        stay with the parts.
        """
        terms = {}
        for name, first in parts[0].terms.items():
            of_parts = [part.terms[name] for part in parts]
            labels, used = [], 0
            for term in of_parts:
                labels.append(np.where(term.labels < 0, -1, term.labels + used))
                used += int(term.labels.max(initial=-1)) + 1
            terms[name] = Term(
                np.concatenate([term.values for term in of_parts]),
                np.concatenate([term.reason for term in of_parts]),
                np.concatenate(labels),
                first.weight,
                partial(_explain_joined, of_parts),
            )
        advantage = np.concatenate([part.advantage for part in parts])
        reason = np.concatenate([part.reason for part in parts])
        notes = join_notes([part.notes for part in parts])
        recipe, history = parts[0].recipe, parts[-1].history
        return Credit(advantage, reason, terms, recipe, history=history, notes=notes)

    def __len__(self) -> int:
        return int(self.advantage.size)

    def __repr__(self) -> str:
        signal = self.credited.sum() / max(len(self), 1)
        return f"Credit({counted(len(self), 'row')}, {signal:.0%} with a signal, {self.recipe})"

    @property
    def reasons(self) -> Objects:
        """The ``reason`` of each row in words, as in files."""
        return np.array([reason.label for reason in Reason], dtype=object)[self.reason]

    def _check_table(self, method: str, table: StepTable) -> None:
        if len(table) != len(self):
            raise InputError(
                f"{method}: the table has {len(table):,} rows, the credit {len(self):,}",
                hint="pass the table that was credited",
            )

    def to_table(self, table: StepTable | None = None) -> "pa.Table":
        """The columns that ``ascribe credit`` writes, and an explanation of each term.

        ``advantage`` and ``reason``; and for each term ``advantage_TERM`` (before its weight),
        ``reason_TERM``, ``group_size_TERM`` (rows of the group that it compared in) and
        ``why_TERM`` (what the row was compared with, or why it has no credit, in words).

        Args:
            table: the steps, in whose rows this is the credit: their columns come first.
        """
        import pyarrow as pa

        from ascribe.steps.files import table_to_arrow

        if table is not None:
            self._check_table("to_table", table)
        columns = credit_columns(credit_arrays(self))
        for name, term in self.terms.items():
            sizes = np.append(segments.size(term.labels, int(term.labels.max(initial=-1)) + 1), 0)
            columns[f"group_size_{name}"] = pa.array(sizes[term.labels])
            columns[f"why_{name}"] = pa.array(term.why(), pa.string())
        if table is None:
            return pa.table(columns)
        arrow = table_to_arrow(table)
        for name, column in columns.items():
            arrow = arrow.append_column(name, column)
        return arrow

    def interval(
        self,
        table: StepTable,
        level: float = 0.9,
        *,
        gamma: float = 0.95,
        action_key: str = "tag",
    ) -> tuple[Floats, Floats]:
        """Bounds on the true advantage of each row's decision, in units of the return.

        They are what the sessions of the table say about ``Q(s, a) - V(s)``, whatever the recipe
        made of them: their middle is not the recipe's ``advantage``. States are those of the
        recipe's step term, or else equal texts. See ``estimators.interval``.

        Args:
            table: the steps that were credited.
            level: probability that an interval holds the advantage.
            gamma: discount of the return; the default is that of the step-level recipes.
            action_key: when two actions are the same, as for ``sbc``.

        Returns:
            The lower and the upper bound of each row; NaN where it has no credit.
        """
        from ascribe.estimators.interval import posterior_interval

        self._check_table("interval", table)
        if not 0 < level < 1:
            raise InputError(f"interval: level is {level}, but must lie between 0 and 1")
        steps = arrange(table)
        # Tasks without a signal are evidence too: they say how much returns vary.
        without = (Reason.TRUNCATED, Reason.COUNTERFACTUAL, Reason.DROPPED)
        use = ~np.isin(self.reason[steps.rows], without)
        bounds = np.full((2, len(self)), np.nan)
        if not use.any():
            return bounds[0], bounds[1]
        labels = steps.state
        if "step" in self.terms:
            labels = self.terms["step"].labels[steps.rows]
        keys = action_keys(table.action.take(steps.rows), KEY_FUNCTIONS[action_key])
        # Without a state or a key, a row is like no other.
        state, action = _without_gaps(labels), _without_gaps(keys.labels)
        returns = reward_to_go(steps.reward, steps.trajectory, gamma)
        found = posterior_interval(
            returns[use],
            steps.group[use],
            steps.trajectory[use],
            state[use],
            action[use],
            level=level,
        )
        rows = steps.rows[use]
        bounds[:, rows] = np.where(self.credited[rows], found, np.nan)
        return bounds[0], bounds[1]

    @property
    def alone_share(self) -> float:
        """Share of the step term's rows that are alone in their state; 0 if it has none."""
        labels = self.terms["step"].labels if "step" in self.terms else np.zeros(0, np.int64)
        sizes = segments.size(labels, int(labels.max(initial=-1)) + 1)
        return float(np.sum(sizes == 1) / max(1, sizes.sum()))

    @property
    def credited(self) -> Bools:
        """Rows that carry a signal."""
        return np.equal(self.reason, Reason.CREDITED)

    def rows(self, rows: Ints | Bools) -> "Credit":
        """The credit of these rows, by number or by mask; -1 is a row that was left out."""
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        taken = partial(_taken, rows=numbers)
        terms = {
            name: Term(
                taken(term.values, 0.0),
                taken(term.reason, Reason.DROPPED),
                taken(term.labels, -1),
                term.weight,
                partial(_explain_rows, term, taken),
            )
            for name, term in self.terms.items()
        }
        reason = taken(self.reason, Reason.DROPPED)
        return replace(self, advantage=taken(self.advantage, 0.0), reason=reason, terms=terms)

    def spread(self, keep: Bools) -> "Credit":
        """The credit of the full table: this credit at the rows ``keep``, ``DROPPED`` elsewhere."""
        return self.rows(np.where(keep, np.cumsum(keep) - 1, -1))


def join_notes(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The notes of all parts of a table; one that not all have says how many do."""
    counts = Counter(note for notes in parts for note in notes)
    every = len(parts)
    return tuple(
        note if count == every else f"In {count} of {every} parts: {note}"
        for note, count in counts.items()
    )


def credit_arrays(credit: Credit) -> dict[str, npt.NDArray[Any]]:
    """The columns of a credit: ``advantage`` and ``reason``, and those of each term.

    ``advantage_TERM`` is not multiplied by the term's weight.
    """
    columns: dict[str, npt.NDArray[Any]] = {"advantage": credit.advantage, "reason": credit.reason}
    for name, term in credit.terms.items():
        columns |= {f"advantage_{name}": term.values, f"reason_{name}": term.reason}
    return columns


def credit_columns(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, "pa.Array"]:
    """Arrow columns from ``credit_arrays``: null where a row has no credit, reasons by name."""
    import pyarrow as pa

    labels = pa.array([reason.label for reason in Reason])
    columns = {}
    for name, values in arrays.items():
        if name.startswith("reason"):
            codes = pa.array(values.astype(np.int32))
            columns[name] = pa.DictionaryArray.from_arrays(codes, labels)
        else:
            reason = arrays.get(name.replace("advantage", "reason", 1), arrays["reason"])
            columns[name] = pa.array(values, mask=reason != Reason.CREDITED)
    return columns


def _without_gaps(labels: Ints) -> Ints:
    """The labels, with a label of its own for each -1."""
    return np.where(labels < 0, labels.max() + 1 + np.arange(labels.size), labels)


def _within(codes: npt.NDArray[Any], low: int, high: int | None) -> bool:
    return not codes.size or bool(codes.min() >= low and (high is None or codes.max() <= high))


def _taken(values: npt.NDArray[Any], fill: float, rows: Ints) -> npt.NDArray[Any]:
    return np.append(values, np.array(fill, values.dtype))[rows]


def _explain_rows(term: Term, taken: "partial[npt.NDArray[Any]]") -> Explanation:
    return term.explanation.mapped(lambda values: taken(values, 0.0))


def _explain_joined(terms: Sequence[Term]) -> Explanation:
    """The explanations of a term in several tables; each brings its sentences."""
    parts = [term.explanation for term in terms]
    sizes = [part.own.size for part in parts]
    starts = np.cumsum([0, *(len(part.sentences) for part in parts[:-1])])

    def joined(name: str) -> Any:
        arrays = ((getattr(part, name), part.own.size) for part in parts)
        return np.concatenate([np.zeros(n, np.int64) if a is None else a for a, n in arrays])

    return Explanation(
        own=joined("own"),
        baseline=joined("baseline"),
        peers=joined("peers"),
        sentences=tuple(sentence for part in parts for sentence in part.sentences),
        way=joined("way") + np.repeat(starts, sizes),
        alike=joined("alike"),
    )
