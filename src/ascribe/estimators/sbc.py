"""SBC: shrunken back-off credit, from group means weighted by group size.

What an action earned above the mean of its state, from the rows that did the same, and a share of
the row's own return, for what no group shows; ``SBC`` explains the symbols. The method is Ascribe's
own.

Page: docs/estimators/sbc.md. Test: tests/estimators/test_sbc.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ascribe.estimators.clusters import BY_TEXT, Clustering
from ascribe.estimators.credit import Credit, Explanation, Metric, Reason, Sentence
from ascribe.estimators.memory import Memory, Names, Recalled, against, hashed, task_names
from ascribe.estimators.relative import Norm, TermScale, equalised, relative
from ascribe.estimators.returns import REMEMBERED
from ascribe.groups import Groups
from ascribe.groups.cluster import cluster
from ascribe.groups.exact import exact
from ascribe.groups.fingerprints import present
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints, Objects
from ascribe.steps.check import arrange
from ascribe.steps.errors import InputError
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import StepTable


@dataclass(frozen=True)
class Ladder:
    """The κ of each level: how many rows the level above counts for.

    They were chosen once, in the worlds of ``ascribe_lab.audit`` and on the policies of
    ``benchmarks/audit_policy.py``. An infinite κ disables a level.

    Attributes:
        state: κ of a state's value, and of trusting it in a bootstrapped return.
        centre: κ of the mean of a state that credit is relative to. 0: credit sums to zero in every
            state, since only differences between its actions move a policy.
        fine: κ of the rows of a state whose fingerprints are closest.
        history: κ of the rows of a state that came from the same state.
        action: κ of an action in a state.
        own: a row's own return counts 1 / κ.
        sweeps: how often values and bootstrapped returns are recomputed from each other; 0 disables
            bootstrapping.
    """

    state: float = 2.0
    centre: float = 0.0
    fine: float = 2.0
    history: float = 4.0
    action: float = 1.0
    own: float = 6.0
    sweeps: int = 2


LADDER = Ladder()

FINE = 0.3
"""The radius of the finer clusters inside a state, as a share of the radius of states."""

WEIGHED = "the recipe weighs several such comparisons"
TASK = Sentence(
    "{peers} steps of this task returned {baseline} on average; this one returned {own}", WEIGHED
)
TASK_REMEMBERED = Sentence(REMEMBERED.text, WEIGHED)
STATE = Sentence(
    "{peers} steps in this state returned {baseline} on average; the {alike} that did the same "
    "returned {own}",
    "the recipe compares them again among those with the closest fingerprints, and among those "
    "that came from the same state",
)
ALONE = Sentence("no other step is in this state; this one returned {own}", WEIGHED)
EARLIER = "the recipe counts the steps of earlier iterations too"


@dataclass(frozen=True, kw_only=True)
class SBC(Clustering):
    r"""Shrunken back-off credit: the larger a group, the more its mean counts.

    With ``S_k[x] = Σ over the row's group k of x / (n_k + κ_k)``, c the state, f the rows of the
    state whose fingerprints are closest (clusters of 0.3 times the radius), h those that came from
    the same state, a the action, R the return from the row on, m a mean over the task, and ' for
    the next row:

    - value: ``V = m + S_c[G - m] + S_f[rest] + S_h[rest]``;
    - bootstrapped return: ``G = r + γ ((1 - λ) V' + λ G')`` with ``λ = κ_c / (n_c' + κ_c)``, made
      from V twice, starting at the discounted return;
    - the state's mean: ``U = mean of G in c + S_f[rest] + S_h[rest]``;
    - credit: ``A = S_ca[G - U] + S_fa[rest] + S_ha[rest] + (R - m) / κ``.

    Every group is inside one task, so tasks can be credited separately. With a ``memory``, what
    earlier iterations measured of the task, of its states and of their actions enters m, ``S_c``,
    ``S_ca`` and the state's mean as further rows.

    Attributes:
        gamma: discount γ of R and G. Tune it for long episodes, where it matters most in the audit.
        states: rows are in the same state if their fingerprints lie in one ``cluster``, or if their
            texts are equal (``exact``; f is not used).
        memory: weight of earlier visits to the same task: rows of t visits ago count ``memory`` to
            the power t; 0 compares inside the batch alone. Needs ``states="exact"``, because
            clusters have no lasting names. With a memory, one trajectory of a task is enough.
        action_key: when two actions are the same, as for ``bipace_q``.
        scale: ``paper`` is the formula, in units of the return. ``equal`` rescales both terms by
            one factor, so that the root mean square of the advantage, over the rows of the batch
            that it credits, equals that of ``grpo``.
    """

    name: ClassVar[str] = "sbc"
    paper: ClassVar[str] = "Ascribe"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "exact": {"states": "exact"},
        "ngram": {"fingerprint": "ngram", "radius": 0.25},
    }

    gamma: float = 0.95
    states: Literal["cluster", "exact"] = "cluster"
    memory: float = 0.0
    action_key: Literal["tag", "first_tokens", "tool_call", "whole"] = "tag"
    scale: TermScale = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory and self.states != "exact":
            raise InputError(
                f"{self.name}: memory is {self.memory}, but clusters have no names that last",
                hint="compare states by their text or key with states='exact'",
            )

    @property
    def has_history(self) -> bool:
        """Whether earlier iterations count."""
        return self.memory > 0 or super().has_history

    def compute(self, table: StepTable, inputs: dict[str, Any]) -> Credit:
        """Credit every row of ``table``."""
        steps = arrange(table)
        groups, metrics = self.state_groups(table, inputs)
        fine = self.fine_groups(table, inputs, groups, metrics)
        keys = self.action_keys(table)
        metrics["key_share"] = Metric(keys.labels >= 0, empty=1.0)
        follows = np.append(steps.trajectory[1:] == steps.trajectory[:-1], False)
        tasks, actions = Groups(steps.group, steps.group_count), Groups(keys.labels, keys.count)
        out = self.excluded(steps)
        levels = (Groups(np.where(out, -1, g), n) for g, n in (tasks, groups, fine, actions))
        rows = Rows(self.rewards(steps), follows, *levels)
        returns = reward_to_go(rows.reward, steps.trajectory, self.gamma)
        ladder = self.ladder()
        memory = Memory.of(self.memory, inputs.get("history") if self.memory else None)
        names = rows.names(table, keys.values) if self.memory else None
        known = rows.known(memory, names)
        peers, boot, above = back_off(rows, returns, self.gamma, ladder, known)
        mean = _backed_off(returns, ((*rows.task, 0.0, known["own"]),))
        # A late penalty is known exactly, so it is compared with the task's mean alone.
        late = self.late_penalties(steps)
        usual = segments.pick(segments.mean(late, *rows.task), rows.task.labels)
        own = (returns - mean) / ladder.own - (late - usual)
        # Rows back off to their task: no credit only where the task has nothing to compare.
        compared = against(returns - late, *rows.task, known["own"])
        reason = compared.reason
        reason[self.alone(steps) & (known["own"].weight[steps.group] == 0)] = Reason.GROUP_OF_ONE
        met, visits = reason.copy(), segments.size(*rows.state) + known["state"].weight
        state, credited = rows.state.labels, reason == Reason.CREDITED
        met[credited & np.append(visits == 1, False)[state]] = Reason.SINGLETON
        met[credited & (state < 0)] = Reason.MISSING_STATE
        by_task = partial(compared.explained, TASK if names is None else TASK_REMEMBERED)
        by_peers = partial(_explain_peers, rows, returns - late, remembers=names is not None)
        terms = {
            "own": self.term(table, own, reason, steps.group, explain=by_task),
            "step": self.term(table, peers, met, groups.labels, explain=by_peers),
        }
        if self.scale == "equal":
            sizes = list(terms), self.episode_term(table, Norm("std")), steps.rows
            terms, metrics["scale_factor"] = equalised(terms, *sizes)
        history = self.carried(metrics, inputs)
        if names is not None:
            metrics["memory_share"] = Metric(known["own"].weight[steps.group] > 0)
            history = memory.updated(*rows.measured(names, returns, boot, above))
        return Credit.of(terms, repr(self), metrics, history)

    def ladder(self) -> Ladder:
        """The κ of every level; the audit overrides them for ablations."""
        return LADDER

    def state_groups(
        self, table: StepTable, inputs: dict[str, Any]
    ) -> tuple[Groups, dict[str, float]]:
        """State group of each row in canonical order, and metrics about the groups."""
        steps = arrange(table)
        if self.states == "cluster":  # excluded rows help to find the clusters, and no more
            return self.clusters(table, inputs, np.zeros(steps.rows.size, dtype=np.bool_))
        return exact(steps.group, steps.state, table.state.values.size), {}

    def fine_groups(
        self, table: StepTable, inputs: dict[str, Any], states: Groups, metrics: dict[str, float]
    ) -> Groups:
        """Rows of a state whose fingerprints are closest; without fingerprints, no groups."""
        found = self._fingerprints(table, inputs) if "radius" in metrics else None
        if found is None:
            return Groups(np.full(states.labels.size, -1), 0)
        task, (vectors, at) = arrange(table).group, found
        radius, unit = FINE * metrics["radius"], self.fingerprint != "given"
        close = cluster(vectors, task, radius, present(vectors)[at], at=at, unit=unit)
        return Groups(*segments.pairs(states.labels, close.labels, close.count))

    def notes(self, table: StepTable, inputs: dict[str, Any]) -> tuple[str, ...]:
        """Says so if states are to be clustered and no row has a fingerprint."""
        notes = super().notes(table, inputs)
        return tuple(note for note in notes if note != BY_TEXT or self.states == "cluster")

    def without_recurrence(self) -> str:
        """The share of the row's own return, since no row has a peer."""
        equal = self.scale == "equal"
        size = " rescaled to the size of grpo" if equal else f" / {self.ladder().own:g}"
        late = self.invalid_penalty and self.penalty_timing == "after"
        return f"{self.name} gives returns{size}" + (" less late penalties" if late else "")


Level = tuple[Ints, int, float] | tuple[Ints, int, float, Recalled]
"""Labels, their number, κ, and what is recalled of each label."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The inputs of ``back_off`` for each row, in canonical order; -1 takes no part."""

    reward: Floats
    follows: Bools
    """Whether the next row is the next step of the same trajectory."""
    task: Groups
    state: Groups
    fine: Groups
    action: Groups

    def by_action(self, labels: Ints) -> Groups:
        """Group and action of each row."""
        return Groups(*segments.pairs(labels, *self.action))

    def histories(self) -> Groups:
        """State of each row and the one before it."""
        state, states = self.state
        before = np.where(np.append(False, self.follows[:-1]), np.append(-1, state[:-1]), -1)
        return Groups(*segments.pairs(state, before + 1, states + 1))

    def names(self, table: StepTable, actions: Objects) -> dict[str, Names]:
        """The names of tasks, states and actions in the memory, in the order of their labels."""
        steps, pair = arrange(table), self.by_action(self.state.labels)
        tasks, texts = task_names(table, steps), table.state.values
        state, acted = (segments.first_rows(*groups) for groups in (self.state, pair))
        states = [
            (tasks[steps.group[row]], hashed("state", texts[steps.state[row]]))
            if row < steps.state.size
            else ("", "")
            for row in state
        ]
        places = ((self.state.labels[row], self.action.labels[row]) for row in acted)
        of_actions = ((states[state], actions[action]) for state, action in places)
        return {
            "own": [(name, "own") for name in tasks],
            "task": [(name, "task") for name in tasks],
            "state": states,
            "action": [(task, hashed(name, action)) for (task, name), action in of_actions],
        }

    def known(self, memory: Memory, names: dict[str, Names] | None) -> dict[str, Recalled]:
        """What the memory holds of tasks, states and actions; nothing without names."""
        if names is not None:
            return {level: memory.recall(of_level) for level, of_level in names.items()}
        sizes = {"own": self.task.count, "task": self.task.count, "state": self.state.count}
        nothing = {level: Recalled(np.zeros(n), np.zeros(n)) for level, n in sizes.items()}
        return nothing | {"action": Recalled(np.zeros(1), np.zeros(1))}

    def measured(
        self, names: dict[str, Names], returns: Floats, boot: Floats, above: Floats
    ) -> list[tuple[Names, Ints, Floats]]:
        """What this iteration adds to the memory."""
        values = (
            ("own", returns, self.task),
            ("task", boot, self.task),
            ("state", boot, self.state),
            ("action", above, self.by_action(self.state.labels)),
        )
        return [
            (names[level], segments.size(*groups), segments.total(of_rows, *groups))
            for level, of_rows, groups in values
        ]


def back_off(
    rows: Rows, returns: Floats, gamma: float, ladder: Ladder, known: dict[str, Recalled]
) -> tuple[Floats, Floats, Floats]:
    """The part of a credit that comes from peers: what an action earned above its state's mean.

    Returns that part, the bootstrapped returns, and what they are above the mean of their state.
    """
    task = (*rows.task, 0.0, known["task"])
    inside = ((*rows.fine, ladder.fine), (*rows.histories(), ladder.history))
    actions: list[Level] = [(*rows.by_action(rows.state.labels), ladder.action, known["action"])]
    actions += [(*rows.by_action(labels), kappa) for labels, _, kappa in inside]
    peers = segments.size(*rows.state) + known["state"].weight
    trace = ladder.state / (segments.pick(peers, rows.state.labels) + ladder.state)
    for _ in range(ladder.sweeps):
        state = (*rows.state, ladder.state, known["state"])
        value = _backed_off(returns, (task, state, *inside))
        returns = bootstrapped(rows.reward, value, trace, rows.follows, gamma)
    centre = (*rows.state, ladder.centre, known["state"])
    above = returns - _backed_off(returns, (task, centre, *inside))
    return _backed_off(above, actions), returns, above


def bootstrapped(
    reward: Floats, value: Floats, trace: Floats, follows: Bools, gamma: float
) -> Floats:
    r"""``G_t = r_t + γ ((1 - λ_{t+1}) V_{t+1} + λ_{t+1} G_{t+1})``, nothing after the last step.

    Computed by doubling, as ``reward_to_go``: after the pass with reach d, ``G_t`` is what a row
    collects in its next d steps plus ``carry`` times what the row d steps later collects.
    ``value`` is V, ``trace`` λ.
    """
    returns, carry = reward.copy(), np.zeros(reward.size)
    returns[:-1] += np.where(follows[:-1], gamma * (1.0 - trace[1:]) * value[1:], 0.0)
    carry[:-1] = np.where(follows[:-1], gamma * trace[1:], 0.0)
    reach = 1
    while reach < returns.size and carry.any():
        returns[:-reach] += carry[:-reach] * returns[reach:]
        carry[:-reach] *= carry[reach:]
        carry[-reach:] = 0.0
        reach *= 2
    return returns


def _backed_off(values: Floats, levels: Iterable[Level]) -> Floats:
    """The sum of ``S[x]`` over levels, x being what the levels before have left of the values.

    ``S[x]`` is the sum of each row's group over the group's size plus κ; 0 for rows in no group.
    What is recalled of a group counts as further rows.
    """
    found = np.zeros(values.size)
    for labels, count, kappa, *recalled in levels:
        size = segments.size(labels, count) + kappa
        rest = segments.total(values - found, labels, count)
        for known in recalled:  # the levels before are equal over the group
            so_far = np.append(found, 0.0)[segments.first_rows(labels, count)]
            size, rest = size + known.weight, rest + known.weight * (known.mean - so_far)
        found = found + segments.pick(rest / np.maximum(size, 1e-300), labels)
    return found


def _explain_peers(rows: Rows, returns: Floats, *, remembers: bool) -> Explanation:
    """The mean return of same-action peers, compared with the mean return in the state."""
    in_state = relative(returns, *rows.state, Norm("mean")).explained(STATE)
    pair, pairs = rows.by_action(rows.state.labels)
    alike = np.where(pair >= 0, np.append(segments.size(pair, pairs), 0)[pair], 1)
    own = np.where(pair >= 0, segments.pick(segments.mean(returns, pair, pairs), pair), returns)
    alone = in_state.peers < 2
    said: tuple[Sentence, ...] = (STATE, ALONE)
    if remembers:
        said = tuple(replace(each, beyond=EARLIER) for each in said)
    return replace(in_state, own=own, sentences=said, way=alone.astype(np.int8), alike=alike)
