"""Canonical state keys: texts that show the same situation get the same key.

A state's text often says more than the situation: a step counter, a clock, an identifier, a list
whose order means nothing. Two visits then never compare. ``propose`` looks for these in a table and
returns a ``StateKey``, a function of the text; ``measure`` says what a key does to the groups.

A rule merges states, and must not merge different ones. It is refused if what it removes predicts
what follows, in trajectories that were left out: see ``_Steps.evidence``.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ascribe.groups import Groups
from ascribe.groups.canonical import NOISE, RULES, TIME, numbers, without_counter
from ascribe.groups.exact import exact
from ascribe.groups.responses import first_call
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.returns import reward_to_go
from ascribe.steps.table import Coded, StepTable

GAMMA = 0.95
"""Discount of the returns that are predicted."""
FOLDS, SHRINK = 4, 5.0
"""Parts of the trajectories that are predicted from the others; rows that a coarser prediction
counts for in the mean over a state."""
EVIDENCE = 8
"""Rows, pairs of rows or pairs of neighbouring steps that it takes to tell anything."""
REFUSED, BY_TOOL = 1.645, 0.5
"""Standard errors above 0 from which a rule is refused (6 % of the right ones), and a rule for a
single tool."""
CONSISTENT = 0.5
"""Share of merged pairs with one next state that a rule needs if no state recurs without it."""
SIGNS = 16
"""Random signs that stand for a next state."""
COMMON = 0.05
"""Share of the texts that a counter must be in."""
MOST_TOOLS = 12
"""Tools up to which a rule may be limited to one."""
SAMPLE = 1_000_000
"""Letters of the states from which a key is proposed, because that takes many passes."""
ROUNDING = 1e-9
"""Differences that are relatively smaller are due to rounding."""


@dataclass(frozen=True)
class StateKey:
    """A key of a state from its text.

    Attributes:
        rules: what is removed or sorted, in this order. Names in
            ``ascribe.groups.canonical.RULES``; ``NAME@TOOL`` for what one tool returned; ``step #
            of`` for the number between these words. All other numbers are kept.
    """

    rules: tuple[str, ...] = ()

    def __call__(self, text: str, tool: str = "") -> str:
        """The key of a text, and of the tool that was called before."""
        for rule in self.rules:
            name, _, only = rule.partition("@")
            if "#" in rule:
                text = without_counter(text, rule)
            elif only in ("", tool):
                text = RULES[name](text)
        return text

    def in_words(self) -> str:
        """What the key does, in words."""
        noise = " and ".join(rule for rule in self.rules if rule in NOISE)
        others = ", ".join(rule for rule in self.rules if rule not in NOISE)
        words = [f"without {noise}"] * bool(noise) + [f"by the rules {others}"] * bool(others)
        return " and ".join(words) or "as they are"


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


def tools_before(table: StepTable, tools: Coded | None = None) -> Coded:
    """The tool that the action before each row calls; "" for none."""
    tools, order = _tools(table.action) if tools is None else tools, _order(table)
    trajectory = table.trajectory.codes[order]
    before = np.zeros(len(table), dtype=np.int64)
    goes_on = trajectory[1:] == trajectory[:-1]
    before[order[1:]] = np.where(goes_on, tools.codes[table.action.codes[order[:-1]]], 0)
    return Coded(before, tools.values)


def _tools(actions: Coded) -> Coded:
    """The tool that each distinct action calls; the last entry is for none."""
    calls = [first_call(text[:10_000]) if '"name"' in text else None for text in actions.values]
    names = [call[0] if call else "" for call in calls]
    tools = Coded.encode(["", *(names if len(set(names)) <= MOST_TOOLS else [""] * len(names))])
    return Coded(np.roll(tools.codes, -1), tools.values)


def _order(table: StepTable) -> Ints:
    """The rows by trajectory and step."""
    return np.lexsort((table.step, table.trajectory.codes))


# Proposing a key.


class Tried(NamedTuple):
    """A rule that was tried, and what it does in addition to the other rules.

    ``why`` is the evidence in words, ``against`` that against it, in standard errors; ``alone`` and
    ``predicts`` are those of ``KeyQuality``, without the rule and with it.
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


def shows_noise(table: StepTable) -> bool:
    """Whether a rule of ``NOISE`` may be in the key that ``propose`` gives: it changes a text."""
    texts = _sample(_real(table)[1]).state.values
    return any(RULES[rule](text) != text for rule in NOISE for text in texts)


def choose(table: StepTable) -> tuple[StateKey, list[Tried]]:
    """A canonical key for the states of a table, and what became of every rule that merges states.

    At first all rules apply, so that each is judged on states without the noise that the others
    remove. The last one that the evidence speaks against is refused; then the others are judged
    anew, until none is refused. Those refused are tried once more, because what one merged wrongly
    may have spoken against another, and then for the results of each tool by themselves.
    """
    table = _sample(_real(table)[1])
    called = _tools(table.action)
    steps, (row, texts, tools) = (
        _Steps(table, called),
        _distinct(table.state, tools_before(table, called)),
    )
    names = list(RULES)
    names[names.index("lists") : 0] = _counters(table)
    places = {name: place for place, name in enumerate(names)}
    refused: dict[str, Tried] = {}

    made: defaultdict[str, dict[str, str]] = defaultdict(dict)  # by rule, then by text

    @lru_cache(maxsize=64)
    def under(rules: tuple[str, ...]) -> list[str]:
        if not rules:
            return texts
        before, key = under(rules[:-1]), StateKey(rules[-1:])
        name, _, only = rules[-1].partition("@")
        known = made[name]
        known.update((text, key(text, only)) for text in set(before) - known.keys())
        if only:
            pairs = zip(before, tools, strict=True)
            return [known[text] if tool == only else text for text, tool in pairs]
        return [known[text] for text in before]

    def judged(rules: list[str], rule: str) -> Tried | None:
        """The rule as one of several; None if it merges nothing."""
        without = under(tuple(each for each in rules if each != rule))
        codes = [Coded.encode(each).codes[row] for each in (without, under(tuple(rules)))]
        fine, merged = (exact(steps.task, code, len(texts)) for code in codes)
        # A rule for one tool also tells its results from the same text of another.
        fine = Groups(*segments.pairs(fine.labels, merged.labels, merged.count))
        if fine.count == merged.count:
            return None
        rank = {text: number for number, text in enumerate(sorted(set(without)))}
        return steps.judge(rule, fine, merged, np.array([rank[text] for text in without])[row])

    def without_refused(rules: list[str]) -> tuple[list[str], list[Tried]]:
        while True:
            tried = [each for rule in rules if (each := judged(rules, rule))]
            bad = [each for each in tried if not each.kept]
            if not bad:
                return rules, tried
            refused[bad[-1].rule] = bad[-1]
            rules = [rule for rule in rules if rule != bad[-1].rule]

    rules = list[str]()
    for rule in names:
        if under((*rules, rule)) != under(tuple(rules)):
            rules.append(rule)
    rules, _ = without_refused(rules)
    again = sorted(refused, key=lambda rule: refused[rule].against)
    used = sorted(set(tools) - {""})
    by_tool = [f"{rule}@{name}" for rule in again for name in used if "#" not in rule]
    for rule in [*again, *(by_tool if len(used) > 1 else ())]:
        if rule.partition("@")[0] not in rules:
            more = sorted([*rules, rule], key=lambda each: places[each.partition("@")[0]])
            if each := judged(more, rule):
                rules = more if each.kept else rules
                refused[rule] = each
    rules, tried = without_refused(rules)
    for rule in reversed(rules):  # what another rule covers is left out
        if judged(rules, rule) is None:
            rules = [each for each in rules if each != rule]
    verdicts = {each.rule: each for each in tried}
    kept = [verdicts.get(rule) or judged(rules, rule) for rule in rules]
    others = [each for each in refused.values() if not (each.kept or each.rule in rules)]
    return StateKey(tuple(rules)), [*filter(None, kept), *others]


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


def _sample(table: StepTable) -> StepTable:
    """The first tasks, as many as have few letters; of the first one, as many rows."""
    length = np.array([*map(len, table.state.values), 0])[table.state.codes]
    order = np.argsort(table.group.codes, kind="stable")
    group, total = table.group.codes[order], np.cumsum(length[order])
    fits = np.searchsorted(total, SAMPLE, side="right")
    if fits < len(table) and group[fits] != group[0]:
        fits = np.searchsorted(group, group[fits])
    sample = table.take(np.sort(order[:fits]))
    return replace(sample, state=sample.state.used())


class _Steps:
    """The rows of a table, which are by trajectory and step, and what follows them."""

    def __init__(self, table: StepTable, tools: Coded) -> None:
        self.task, self.trajectory = table.group.codes, table.trajectory.codes
        self.last = np.append(np.diff(self.trajectory) != 0, True)[: len(table)]
        self.ended = self.last & table.flag("terminated", default=False)
        self.returns = reward_to_go(np.nan_to_num(table.reward), self.trajectory, GAMMA)
        step = np.unique(table.step, return_inverse=True)[1].astype(np.int64)
        self.near = segments.pairs(self.task, step, len(table))[0]
        action = table.action.codes
        # Exact actions; where these never recur, the tools that they call; or any action.
        self.actions = (action + 1, tools.codes[action], np.zeros_like(action))
        owner = self.task[self.last]  # of each trajectory
        by_task = np.argsort(owner, kind="stable")
        place = np.empty_like(owner)
        place[by_task] = np.arange(owner.size) - np.searchsorted(owner[by_task], owner[by_task])
        self.fold = (place % FOLDS)[np.cumsum(self.last) - self.last]

    def judge(self, rule: str, fine: Groups, merged: Groups, order: Ints) -> Tried:
        """Whether a rule merges states that differ.

        If no fine state has enough visits to compare, those of each merged state are taken in two
        halves, in the order of their texts; noise is then trusted.
        """
        after = self.after(merged)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (merged.count + 1, SIGNS))[after]
        errors = self.errors(fine) - self.errors(merged)
        better = _ratio(errors, self.trajectory)
        for apart in (fine, _halves(merged, order)):
            found = [
                self.evidence(apart, merged, self.returns[:, None], np.ones_like(self.last)),
                self.evidence(apart, merged, signs, after >= 0),
            ]
            against = max((each for each in found if each is not None), default=None)
            if against is not None or rule in NOISE:
                break
        pairs, equal = self.consistency(merged)
        kept = against is None or against <= (BY_TOOL if "@" in rule else REFUSED)
        if not kept:
            what = "returns" if against == found[0] else "the next state"
            why = f"removes what predicts {what} ({against:.1f} standard errors)"
        elif better > REFUSED:
            why = f"predicts returns better ({better:.1f} standard errors)"
        elif apart is fine and against is not None:
            tell = found[0] is not None and np.ptp(self.returns)
            why = f"no difference in {'returns' if tell else 'next states'}"
        else:
            kept = rule in NOISE or (pairs >= EVIDENCE and equal >= CONSISTENT * pairs)
            why = f"no state recurs without it; {equal / max(pairs, 1):.0%} have one next state"
        alone, predicts = ((f(fine), f(merged)) for f in (_alone, self.predicts))
        return Tried(rule, kept, why, against or 0.0, alone, predicts)

    def evidence(self, fine: Groups, merged: Groups, values: Floats, rows: Bools) -> float | None:
        r"""How surely what tells fine states apart predicts values; None if nothing can be said.

        Of each value is subtracted the mean over the rows with its merged state m and action a; and
        then, so that a step counter is no state, the mean of what is left over the rows with its
        merged state and step (and a zero). With r what is left, for a row i in the fine state f,

        ``g_i = r_i · (mean(r in f, a) - mean(r in m without f, a)) · n n' / (n + n')``

        All means are over rows of other trajectories, the last two over n and n' rows. If f does
        not matter, g is 0 on average. Returns its mean over trajectories in standard errors. Each
        pair of rows counts twice, so that the error is √2 times that of independent trajectories.
        """
        trajectory, values = self.trajectory[rows], values[rows]
        one = np.ones((len(values), 1))
        near, _ = segments.pairs(merged.labels[rows], *_counted(self.near[rows]))
        for label in self.actions:
            action = _counted(label[rows])
            f, m = (segments.pairs(each.labels[rows], *action)[0] for each in (fine, merged))
            n, of_m, of_near = (_others(labels, trajectory, one) for labels in (f, m, near))
            both = ((n > 0) & (of_m > n))[:, 0]
            if both.sum() >= EVIDENCE:
                left = values - _others(m, trajectory, values) / np.maximum(of_m, 1)
                left -= _others(near, trajectory, left) / (of_near + 1)
                left[np.abs(left) < ROUNDING * np.abs(values).max()] = 0.0
                total, rest = (_others(labels, trajectory, left) for labels in (f, m))
                gain = left * (total * of_m - rest * n) / np.maximum(of_m, 1)
                return _ratio(np.where(both, gain.sum(axis=1), 0.0), trajectory) / 2**0.5
        return None

    def errors(self, groups: Groups | None) -> Floats:
        """Squared error of each return, predicted from other trajectories of the task.

        The prediction is that for the task, and what is left of it: for the step, for the state,
        and for the action in the state, all shrunken means.
        """
        levels = [self.task, self.near]
        if groups is not None:
            acted, _ = segments.pairs(groups.labels, *_counted(self.actions[0]))
            levels += [groups.labels, acted]
        left, errors = self.returns, np.zeros(self.returns.size)
        for fold in range(FOLDS):
            out, left = self.fold == fold, self.returns
            for labels in levels:
                known, count = np.where(out, -1, labels), _counted(labels)[1]
                size = segments.size(known, count) + SHRINK
                left = left - (segments.total(left, known, count) / size)[labels]
            errors[out] = left[out] ** 2
        return errors

    def predicts(self, groups: Groups) -> float:
        """Share of the squared error of the prediction by task and step that states remove."""
        before, after = (float(self.errors(each).sum()) for each in (None, groups))
        return 1.0 - after / before if before and np.ptp(self.returns) > 0 else float("nan")

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


def _halves(groups: Groups, order: Ints) -> Groups:
    """Each group in two, by an order of its rows."""
    rows = np.lexsort((order, groups.labels))
    size = segments.size(groups.labels, groups.count)
    place = np.arange(rows.size) - np.repeat(np.cumsum(size) - size, size)
    half = np.zeros(rows.size, dtype=np.int64)
    half[rows] = 2 * place >= size[groups.labels[rows]]
    return Groups(groups.labels * 2 + half, groups.count * 2)


def _others(labels: Ints, trajectory: Ints, values: Floats) -> Floats:
    """Of each row, the sum of values over the rows of other trajectories with its label."""
    both = (labels, segments.pairs(labels, *_counted(trajectory))[0])
    columns = [[np.bincount(each, column)[each] for each in both] for column in values.T]
    return np.stack([total - own for total, own in columns], axis=1)


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


def _counters(table: StepTable) -> list[str]:
    """Contexts of numbers that rise, or that fall, with every step of every trajectory."""
    values: dict[str, dict[int, float]] = defaultdict(dict)  # by context, then by code of the text
    several = {"#"}  # no words, or in one text twice: which number is it?
    for code, text in enumerate(table.state.values):
        for match, words in numbers(TIME.sub("#", text)):
            if code in values[words] or "@" in words:
                several.add(words)
            values[words][code] = float(match[1])
    trajectory, found = table.trajectory.codes, []
    for words in sorted(values.keys() - several):
        if len(values[words]) >= COMMON * table.state.values.size:
            number = np.full(table.state.values.size, np.nan)
            number[list(values[words])] = list(values[words].values())
            change = np.diff(number[table.state.codes])[trajectory[1:] == trajectory[:-1]]
            change = change[~np.isnan(change)]
            if change.size >= EVIDENCE and abs(np.sign(change).sum()) == change.size:
                found.append(words)
    return found


# What a key does.


@dataclass(frozen=True)
class KeyQuality:
    """The groups of a table by a key.

    Attributes:
        states: number of distinct states, task by task.
        alone: share of rows that are alone in their state.
        predicts: share of the squared error of returns, predicted by task and step, that states and
            actions remove in trajectories that were left out; NaN if returns do not vary.
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
    called = _tools(table.action)
    tools = tools_before(table, called) if isinstance(key, StateKey) else None
    steps, states = _Steps(table, called), keyed(table.state, key, tools)
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
