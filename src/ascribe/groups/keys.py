"""Canonical state keys: texts that show the same situation get the same key.

A state's text often says more than the situation: a step counter, a clock, an identifier, a list
whose order means nothing. Two visits then never compare. ``propose`` looks for these in a table and
returns a ``StateKey``, a function of the text; ``measure`` says what a key does to the groups.

A rule merges states, and must not merge different ones. It is refused if what it removes predicts
what follows, in trajectories that were left out (``_evidence``).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ascribe.groups import Groups
from ascribe.groups.canonical import NOISE, NUMBER, RULES, TIME, context, without_counters
from ascribe.groups.exact import exact
from ascribe.groups.responses import first_call
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import Coded, StepTable

GAMMA = 0.95
"""Discount of the returns that are predicted."""
SHRINK = 5.0
"""For how many visits the coarser prediction counts in the mean of a state, or of an action in it.
"""
ROUNDING = 1e-9
"""Differences that are relatively smaller are due to rounding."""
EVIDENCE = 8
"""Rows, pairs of rows or pairs of neighbouring steps that it takes to tell anything."""
REFUSED, DOUBTFUL = 2.0, 0.0
"""Standard errors above 0 from which a rule is refused, and one for a single tool."""
CONSISTENT = 0.8
"""How often an action must lead from merged states to one next state, where no state of the finer
key has two visits, so that nothing can be compared."""
SIGNS = 16
"""Random signs that stand for a next state."""
COMMON = 0.05
"""Share of the texts that a counter must be in."""
MOST_TOOLS = 12
"""Tools, or first words of actions, up to which a rule may be limited to one."""

ORDER = tuple(RULES)


@dataclass(frozen=True)
class StateKey:
    """A key of a state from its text. Numbers are kept, other than counters.

    Attributes:
        rules: names in ``ascribe.groups.canonical.RULES``, in its order. ``NAME@TOOL`` applies to
            what that tool returned, and to nothing else.
        counters: the numbers that the rule ``counters`` removes, each as the word before it, ``#``
            and the word after it.
    """

    rules: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()

    def __call__(self, text: str, tool: str = "") -> str:
        """The key of a text, and of the tool that was called before."""
        for rule in self.rules:
            name, _, only = rule.partition("@")
            if name == "counters":
                text = without_counters(text, self.counters)
            elif only in ("", tool):
                text = RULES[name](text)
        return text

    def in_words(self) -> str:
        """What the key does, in words."""
        names = list(dict.fromkeys(rule.partition("@")[0] for rule in self.rules))
        removed = " and ".join(name for name in names if name not in INSTEAD)
        words = [f"without {removed}"] if removed else []
        return ", ".join([*words, *(INSTEAD[n] for n in names if n in INSTEAD)]) or "as they are"


INSTEAD = {
    "lists": "with lists sorted",
    "bullets": "with bullets sorted",
    "tests": "with tests as which failed",
    "titles": "with pages as their titles",
    "errors": "with errors as their classes",
}
"""What the rules do that do not only remove something."""


def keyed(states: Coded, key: Callable[..., str], tools: Coded | None = None) -> Coded:
    """A column of states with keys in the place of texts.

    Args:
        states: the texts.
        key: a function of a text, and of a tool if there are tools.
        tools: the tool before each text, from ``tools_before``; without, rules for one tool alone
            do not apply.
    """
    if tools is None:
        keys = Coded.encode([key(text) for text in states.values])
        return Coded(np.append(keys.codes, -1)[states.codes], keys.values)
    row, texts, names = _distinct(states, tools)
    keys = Coded.encode([key(*each) for each in zip(texts, names, strict=True)])
    return Coded(np.append(keys.codes, -1)[row], keys.values)


def _distinct(states: Coded, tools: Coded) -> tuple[Ints, list[str], list[str]]:
    """Which text and tool each row has; the texts and the tools."""
    row, count = segments.pairs(tools.codes, states.codes, states.values.size)
    first = segments.first_rows(row, count)
    return row, list(states.values[states.codes[first]]), list(tools.values[tools.codes[first]])


def tools_before(table: StepTable) -> Coded:
    """The tool that the action before each row calls, or its first word; "" for none."""
    tools, order = _tools(table.action), _order(table)
    trajectory = table.trajectory.codes[order]
    before = np.zeros(len(table), dtype=np.int64)
    goes_on = trajectory[1:] == trajectory[:-1]
    before[order[1:]] = np.where(goes_on, tools.codes[table.action.codes[order[:-1]]], 0)
    return Coded(before, tools.values)


def _tools(actions: Coded) -> Coded:
    """The tool that each distinct action calls, or its first word; the last entry is for none."""
    heads = [text[:10_000] for text in actions.values]
    calls = [first_call(text) if '"name"' in text else None for text in heads]
    names = [call[0] if call else "" for call in calls]
    if not any(names):
        names = [" ".join(text.split(maxsplit=1)[:1]).lower() for text in heads]
    names = names if len(set(names)) <= MOST_TOOLS else [""] * len(names)
    tools = Coded.encode(["", *names])
    return Coded(np.roll(tools.codes, -1), tools.values)


def _order(table: StepTable) -> Ints:
    """The rows by trajectory and step."""
    return np.lexsort((table.step, table.trajectory.codes))


# Proposing a key.


class Tried(NamedTuple):
    """A rule that was tried, and what it does in addition to the other rules.

    Attributes:
        rule: its name.
        kept: whether it is part of the key.
        why: the evidence, in words.
        against: how strong the evidence against it is, in standard errors.
        alone: share of rows alone in their state, without the rule and with it.
        predicts: held-out prediction of returns, without it and with it; see ``KeyQuality``.
    """

    rule: str
    kept: bool
    why: str
    against: float
    alone: tuple[float, float]
    predicts: tuple[float, float]


def propose(table: StepTable) -> StateKey:
    """A canonical key for the states of a table: see ``choose``."""
    return choose(table)[0]


def choose(table: StepTable) -> tuple[StateKey, list[Tried]]:
    """A canonical key for the states of a table, and what became of every rule that merges states.

    At first all rules apply, so that each is judged on states without the noise that the others
    remove. The last one that the evidence speaks against is refused; then the others are judged
    anew, until none is refused. Those refused are tried once more, because what one merged wrongly
    may have spoken against another, and then for the results of each tool by themselves.
    """
    _, table = _real(table)
    counters, steps = _counters(table), _Steps.of(table)
    row, texts, tools = _distinct(table.state, tools_before(table))

    @lru_cache(maxsize=16)
    def under(rules: tuple[str, ...]) -> list[str]:
        if not rules:
            return texts
        pairs = list(zip(under(rules[:-1]), tools, strict=True))
        key = StateKey(rules[-1:], counters)
        keys = {pair: key(*pair) for pair in set(pairs)}
        return [keys[pair] for pair in pairs]

    def groups(rules: Iterable[str]) -> Groups:
        keys = Coded.encode(under(tuple(rules)))
        return exact(steps.task, keys.codes[row], keys.values.size)

    def judged(rules: list[str], rule: str) -> Tried | None:
        fine, merged = groups(each for each in rules if each != rule), groups(rules)
        return steps.judge(rule, fine, merged) if fine.count > merged.count else None

    refused: dict[str, Tried] = {}

    def pruned(rules: list[str]) -> list[str]:
        """Without the rules that are refused, and those that merge nothing."""
        while True:
            tried = [judged(rules, rule) for rule in rules]
            bad = [each for each in tried if each and not each.kept]
            if not bad:
                break
            refused[bad[-1].rule] = bad[-1]
            rules = [rule for rule in rules if rule != bad[-1].rule]
        for rule in reversed(rules):
            if judged(rules, rule) is None:
                rules = [each for each in rules if each != rule]
        return rules

    rules = list[str]()
    for rule in RULES:
        if under((*rules, rule)) != under(tuple(rules)):
            rules.append(rule)
    rules = pruned(rules)
    again = sorted(refused, key=lambda rule: refused[rule].against)
    names = sorted(set(tools) - {""})
    again += [f"{rule}@{name}" for rule in again for name in names if len(names) > 1]
    for rule in again:
        if rule.partition("@")[0] not in rules:
            more = sorted([*rules, rule], key=lambda each: ORDER.index(each.partition("@")[0]))
            each = judged(more, rule)
            if each and each.kept:
                rules = more
            elif each:
                refused[rule] = each
    rules = pruned(rules)
    tried = [judged(rules, rule) for rule in rules]
    key = StateKey(tuple(rules), counters if "counters" in rules else ())
    others = (each for each in refused.values() if each.rule not in rules)
    return key, [*filter(None, tried), *others]


def _real(table: StepTable) -> tuple[Ints, StepTable]:
    """The rows with a task, a trajectory and a state, by trajectory and step, without padding."""
    known = np.minimum(table.group.codes, table.trajectory.codes) >= 0
    known &= (table.state.codes >= 0) & ~table.flag("padding", default=False)
    if table.iteration is not None:  # a name in another iteration is another trajectory
        number = np.unique(table.iteration, return_inverse=True)[1].astype(np.int64)
        codes, _ = segments.pairs(number, table.trajectory.codes, table.trajectory.values.size)
        table = replace(table, trajectory=Coded(codes, table.trajectory.values))
    order = _order(table)
    rows = order[known[order]]
    return rows, table.take(rows)


@dataclass(frozen=True, eq=False)
class _Steps:
    """The rows of a table by trajectory and step.

    Attributes:
        actions: labels of the actions; of the tools that they call; the same one for all rows.
        returns: discounted, less the mean over the rows of the task at the same step.
        last: whether no row follows.
        ended: whether the episode ended there.
    """

    task: Ints
    trajectory: Ints
    step: Ints
    actions: tuple[Ints, Ints, Ints]
    returns: Floats
    last: Bools
    ended: Bools

    @staticmethod
    def of(table: StepTable) -> "_Steps":
        """From a table whose rows are in this order."""
        task, trajectory, action = (
            column.codes for column in (table.group, table.trajectory, table.action)
        )
        returns = reward_to_go(np.nan_to_num(table.reward), trajectory, GAMMA)
        step = np.unique(table.step, return_inverse=True)[1].astype(np.int64)
        place, count = segments.pairs(task, step, len(table))
        last = np.append(trajectory[1:] != trajectory[:-1], True)[: len(table)]
        return _Steps(
            task,
            trajectory,
            step,
            (action + 1, _tools(table.action).codes[action], np.zeros_like(action)),
            returns - segments.mean(returns, place, count)[place],
            last,
            last & table.flag("terminated", default=False),
        )

    def judge(self, rule: str, fine: Groups, merged: Groups) -> Tried:
        """Whether a rule merges states that differ."""
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (merged.count + 1, SIGNS))
        after = self.after(merged)
        of_returns = self.evidence(fine, merged, self.returns[:, None])
        of_next = self.evidence(fine, merged, signs[after], after >= 0)
        compared = [found for found in (of_returns, of_next) if found is not None]
        against = max(compared, default=0.0)
        errors = [self.errors(groups) for groups in (fine, merged)]
        kept = against <= (DOUBTFUL if "@" in rule else REFUSED)
        if not kept:
            what = "returns" if against == of_returns else "next states"
            why = f"what it removes predicts {what} ({against:.1f} standard errors)"
        elif compared and _ratio(errors[0] - errors[1], self.trajectory) > REFUSED:
            why = "merged states predict returns better"
        elif compared:
            what = "next states" if of_returns is None or not self.returns.any() else "returns"
            why = f"what it removes does not predict {what}"
        else:
            pairs, equal = self.consistency(merged)
            kept = rule in NOISE or (
                pairs >= EVIDENCE and equal >= CONSISTENT * pairs and "@" not in rule
            )
            share = f"{equal / max(pairs, 1):.0%} of {pairs:.0f} merged pairs"
            why = f"nothing to compare; {share} have one next state"
        alone, predicts = ((f(fine), f(merged)) for f in (_alone, self.predicts))
        return Tried(rule, kept, why, against, alone, predicts)

    def evidence(
        self, fine: Groups, merged: Groups, values: Floats, rows: Bools | None = None
    ) -> float | None:
        r"""How surely what tells fine states apart predicts values; None if nothing can be said.

        Of each value v is subtracted the mean over the rows with its merged state m and action a,
        and then, so that a step counter is no state, the mean of what is left over the rows with
        its merged state and step (and a zero). For a row i in the fine state f of m, with its r
        such a rest,

        ``g_i = r_i · (mean(r in f, a) - mean(r in m without f, a)) · n n' / (n + n')``

        All means are over rows of other trajectories, the last two over n and n' rows. If f does
        not matter, g is 0 on average. Returns its mean over trajectories in standard errors. Each
        pair of rows counts twice, so that the error is √2 times that of independent trajectories.
        """
        of = np.arange(len(values)) if rows is None else np.flatnonzero(rows)
        trajectory, one = self.trajectory[of], np.ones((of.size, 1))
        near, _ = segments.pairs(merged.labels[of], *_counted(self.step[of]))
        for action in self.actions:
            f, m = (segments.pairs(g.labels[of], *_counted(action[of]))[0] for g in (fine, merged))
            n, of_m, of_near = (_others(labels, trajectory, one) for labels in (f, m, near))
            both = ((n > 0) & (of_m > n))[:, 0]
            if both.sum() < EVIDENCE:
                continue
            left = values[of] - _others(m, trajectory, values[of]) / np.maximum(of_m, 1)
            left -= _others(near, trajectory, left) / (of_near + 1)
            left[np.abs(left) < ROUNDING * np.abs(values).max()] = 0.0
            total, rest = _others(f, trajectory, left)[both], _others(m, trajectory, left)[both]
            n, of_m = n[both], of_m[both]
            contrast = total * (of_m - n) - (rest - total) * n
            gain = np.zeros(of.size)
            gain[both] = (left[both] * contrast / of_m).sum(axis=1)
            return _ratio(gain, trajectory) / 2**0.5
        return None

    def errors(self, groups: Groups) -> Floats:
        """Squared error of each return, predicted from other trajectories of the task.

        The prediction is the mean over the state, with 0 as ``SHRINK`` more rows; then over the
        state and the action, with the prediction for the state as so many more.
        """
        prediction = np.zeros((self.returns.size, 1))
        acted, _ = segments.pairs(groups.labels, *_counted(self.actions[0]))
        for labels in (groups.labels, acted):
            total = _others(labels, self.trajectory, self.returns[:, None])
            count = _others(labels, self.trajectory, np.ones_like(prediction))
            prediction = (total + SHRINK * prediction) / (count + SHRINK)
        return np.asarray((self.returns - prediction[:, 0]) ** 2)

    def predicts(self, groups: Groups) -> float:
        """Share of the variance of returns, beyond task and step, that is predicted."""
        variance = float(self.returns @ self.returns)
        return 1.0 - float(self.errors(groups).sum()) / variance if variance else float("nan")

    def after(self, groups: Groups) -> Ints:
        """The state after each row: ``groups.count`` at the end of an episode, -1 if unknown."""
        after = np.append(groups.labels[1:], -1)[: groups.labels.size]
        return np.where(self.ended, groups.count, np.where(self.last, -1, after))

    def consistency(self, groups: Groups) -> tuple[float, float]:
        """Pairs of rows with one state and action; and of these, with one next state."""
        after = self.after(groups)
        known = np.where(after >= 0, groups.labels, -1)
        acted = Groups(*segments.pairs(known, *_counted(self.actions[0])))
        return _pairs(acted, Groups(after, groups.count + 1))


def _counted(labels: Ints) -> tuple[Ints, int]:
    return labels, int(labels.max(initial=0)) + 1


def _others(labels: Ints, trajectory: Ints, values: Floats) -> Floats:
    """Of each row, the sum of values over the rows of other trajectories with its label."""
    own, _ = segments.pairs(labels, *_counted(trajectory))
    columns = [_sums(column, labels) - _sums(column, own) for column in values.T]
    return np.stack(columns, axis=1)


def _sums(values: Floats, labels: Ints) -> Floats:
    return np.asarray(np.bincount(labels, values)[labels])


def _ratio(values: Floats, trajectory: Ints) -> float:
    """The mean over trajectories of a sum over their rows, in standard errors."""
    totals = np.bincount(trajectory, values)[np.unique(trajectory)]
    mean = float(totals.mean()) if totals.size > 1 else 0.0
    error = float(totals.std(ddof=1)) / totals.size**0.5 if mean else 1.0
    return mean / max(error, ROUNDING * abs(mean))


def _pairs(groups: Groups, others: Groups) -> tuple[float, float]:
    """Pairs of rows in one group; and of these, how many are in one of the other groups too."""
    both = segments.pairs(groups.labels, others.labels, others.count)
    counts = (segments.size(groups.labels, groups.count), segments.size(*both))
    one, two = (float((n * (n - 1.0)).sum()) / 2 for n in counts)
    return one, two


def _counters(table: StepTable) -> tuple[str, ...]:
    """Contexts of numbers that rise, or that fall, with every step of every trajectory."""
    values: dict[str, dict[int, float]] = defaultdict(dict)  # by context, then by code of the text
    several = {"#"}  # no words, or in one text twice: which number is it?
    for code, text in enumerate(table.state.values):
        for match in NUMBER.finditer(TIME.sub("#", text)):
            words = context(match)
            if code in values[words]:
                several.add(words)
            values[words][code] = float(match["number"])
    trajectory, found = table.trajectory.codes, []
    for words in values.keys() - several:
        if len(values[words]) < table.state.values.size * COMMON:
            continue
        number = np.full(table.state.values.size, np.nan)
        number[list(values[words])] = list(values[words].values())
        change = np.diff(number[table.state.codes])[trajectory[1:] == trajectory[:-1]]
        change = change[~np.isnan(change)]
        if change.size >= EVIDENCE and (bool((change > 0).all()) or bool((change < 0).all())):
            found.append(words)
    return tuple(sorted(found))


# What a key does.


@dataclass(frozen=True)
class KeyQuality:
    """The groups of a table by a key.

    Attributes:
        states: number of distinct states, task by task.
        alone: share of rows that are alone in their state.
        predicts: share of the variance of returns, beyond task and step, that states and actions
            predict in trajectories that were left out; NaN if returns do not vary.
        consistency: share of pairs of rows with the same state and action whose next states are the
            same; NaN if there is no such pair.
        purity: share of pairs of rows in one state whose true states are equal; NaN without truth.
        found: share of pairs of rows in one true state that are in one state.
    """

    states: int
    alone: float
    predicts: float
    consistency: float
    purity: float
    found: float


def measure(
    table: StepTable, key: Callable[..., str] = str, truth: Coded | None = None
) -> KeyQuality:
    """What a key does to the groups of a table.

    Args:
        table: the rows; padding is left out.
        key: a function of the text of a state.
        truth: the true state of every row, if it is known.
    """
    rows, table = _real(table)
    tools = tools_before(table) if isinstance(key, StateKey) else None
    steps, states = _Steps.of(table), keyed(table.state, key, tools)
    groups = exact(steps.task, states.codes, states.values.size)
    purity = found = float("nan")
    if truth is not None:
        true = exact(steps.task, truth.codes[rows], truth.values.size)
        purity, found = _share(_pairs(groups, true)), _share(_pairs(true, groups))
    return KeyQuality(
        states=groups.count,
        alone=_alone(groups),
        predicts=steps.predicts(groups),
        consistency=_share(steps.consistency(groups)),
        purity=purity,
        found=found,
    )


def _alone(groups: Groups) -> float:
    """The share of rows that are alone in their group."""
    size = segments.size(groups.labels, groups.count)
    return float((size == 1).sum() / max(int(size.sum()), 1))


def _share(counts: tuple[float, float]) -> float:
    pairs, equal = counts
    return equal / pairs if pairs else float("nan")
