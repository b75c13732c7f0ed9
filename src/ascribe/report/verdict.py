"""The verdict: findings from the facts, worst first, with advice.

Each finding is a rule of thumb with a threshold. Shares are of steps unless a sentence says
otherwise.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any

from ascribe.estimators.credit import Reason
from ascribe.report.facts import EQUAL, PENALTIES, Facts
from ascribe.report.states import CLUSTERED
from ascribe.steps.problems import ProblemKind, Severity, counted, one_line


class Level(IntEnum):
    """How serious a finding is."""

    GOOD = 0
    NOTE = 1
    WARNING = 2
    BAD = 3


@dataclass(frozen=True)
class Finding:
    """One thing that the facts show, and what to do about it."""

    name: str
    level: Level
    message: str
    advice: str = ""


@dataclass(frozen=True)
class ReportVerdict:
    """A headline with its advice, and the findings, worst first.

    The headline is the message of the finding that explains the others, if there is one, and
    otherwise the share of steps without a signal.
    """

    headline: str
    advice: str
    findings: tuple[Finding, ...]

    def rows(self) -> list[dict[str, str]]:
        """The findings as rows of a table."""
        return [
            {
                "finding": finding.name,
                "level": finding.level.name.lower(),
                "message": finding.message,
                "advice": finding.advice,
            }
            for finding in self.findings
        ]


ROOT_CAUSES = (
    "groups_of_one",
    "invalid_actions",
    "constant_returns",
    "giant_state",
    "no_recurrence",
    "few_trajectories",
)
"""Findings that explain the others; the first of them that is bad is the headline."""

FEWEST = 8
"""Trajectories below which shares say nothing."""

ADVICE_FROM = 0.1
"""Share of steps without a signal, for one reason, from which the headline has advice."""


def judge(facts: Facts) -> ReportVerdict:
    """The verdict on these facts. Among findings of one level, the earlier rule comes first."""
    rules = (_about_rows, _about_states, _about_tasks, _about_episodes, _about_credit)
    findings = sorted((each for rule in rules for each in rule(facts)), key=lambda f: -f.level)
    if not any(finding.level >= Level.WARNING for finding in findings):
        findings.append(Finding("nothing_wrong", Level.GOOD, "No serious problem was found."))
    bad = {finding.name: finding for finding in findings if finding.level is Level.BAD}
    cause = next((bad[name] for name in ROOT_CAUSES if name in bad), None)
    headline, advice = (cause.message, cause.advice) if cause else _signal(facts)
    return ReportVerdict(headline, advice, tuple(findings))


def percent(share: float) -> str:
    """A share in whole percent; never 0 or 100 unless it is exactly that."""
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 < share < 1:
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %")


# The headline if no root cause was found: why steps have no signal.

_WITHOUT_SIGNAL = {
    Reason.SINGLETON: "are alone in their state",
    Reason.ZERO_VARIANCE: "are in groups with equal returns",
    Reason.MISSING_STATE: "have no state",
    Reason.SAME_ACTION: "are in states where every peer took the same action",
    Reason.GROUP_OF_ONE: "belong to tasks with a single trajectory",
    Reason.REVISIT: "revisit a state of their own trajectory",
    Reason.TRUNCATED: "belong to trajectories that were cut by a limit",
    Reason.COUNTERFACTUAL: "were taken only to measure the other agents",
    Reason.NO_TARGET: "correct an answer that is not in the batch",
    Reason.MISSING_INPUT: "lack a number that the recipe reads",
}


def _signal(facts: Facts) -> tuple[str, str]:
    kind = "step-level signal" if facts.main_term == "step" else "signal"
    term_rows = [row for row in facts.tables["reasons"] if row["term"] == facts.main_term]
    uncredited = sorted(
        (row for row in term_rows if row["reason"] != Reason.CREDITED.label),
        key=lambda row: -row["share"],
    )
    if not uncredited:
        return f"All of your steps have a {kind}.", ""
    reasons = [Reason[row["reason"].upper()] for row in uncredited]
    causes = [_WITHOUT_SIGNAL.get(reason, reason.label) for reason in reasons]
    shares = _adding_up([row["share"] for row in uncredited])
    parts = [f"{percent(share)} {cause}" for share, cause in zip(shares, causes, strict=True)]
    if len(parts) == 1:
        parts = [f"they {causes[0]}"]
    every = len(uncredited) == len(term_rows)
    share = 1.0 if every else sum(row["share"] for row in uncredited)
    begin = "None of your steps has a" if every else f"{percent(share)} of your steps have no"
    begin += f" {kind}"
    if (nothing := 1 - facts.diagnosis.signal_share) == 0:
        lacking = "no step-level one" if facts.main_term == "step" else f"no {facts.main_term} term"
        begin = f"{'All' if every else percent(share)} of your steps have a signal, but {lacking}"
    elif nothing < share - 1e-9:
        begin += f", and {percent(nothing)} none at all"
    worth_advice = uncredited[0]["share"] >= ADVICE_FROM
    return f"{begin}: {_listed(parts)}.", _advice(facts, reasons[0]) if worth_advice else ""


def _adding_up(shares: Sequence[float]) -> list[float]:
    """The shares rounded to whole percents that add up to their rounded sum.

    A share below half a percent stays as it is.
    """
    percents = [int(100 * share) for share in shares]
    remainder = round(100 * sum(shares)) - sum(percents)
    by_rest = sorted(range(len(shares)), key=lambda index: percents[index] - 100 * shares[index])
    for index in by_rest[:remainder]:
        percents[index] += 1
    return [percent_ / 100 or share for percent_, share in zip(percents, shares, strict=True)]


_WRITE_STATES = "Write what the agent saw before each action to the column state."
_MIXED = "Choose tasks that sometimes succeed and sometimes fail."


def _advice(facts: Facts, cause: Reason) -> str:
    if cause is Reason.SINGLETON:
        return _against_singletons(facts)
    if cause is Reason.ZERO_VARIANCE:
        return _against_equal_returns(facts.equal_steps, "steps belong to tasks that")
    counted = _accepts(facts, truncation="end")
    return {
        Reason.MISSING_STATE: _WRITE_STATES,
        Reason.SAME_ACTION: "Sample at a higher temperature, so that peers try different actions.",
        Reason.GROUP_OF_ONE: "Sample several trajectories of every task, under one group name.",
        Reason.REVISIT: "Count every visit (revisits=each), or end episodes that run in circles.",
        Reason.TRUNCATED: "Allow more turns"
        + (", or count trajectories that were cut (truncation=end)." if counted else "."),
    }.get(cause, "")


def _against_singletons(facts: Facts) -> str:
    exact, clustered = facts.views
    now, then = exact.alone, clustered.alone
    similar = ""
    if clustered.name != CLUSTERED and then < 0.8 * now:
        similar = (
            f" Or group similar states: clustered by n-grams, {percent(then)} would be alone "
            f"instead of {percent(now)} (--recipe sbc --preset ngram)."
        )
    named = len(facts.files) == 1 and facts.files[0].suffix
    file = shlex.join(facts.arguments or ([str(facts.files[0])] if named else ["FILE"]))
    begin = ""
    if facts.hashed:
        logs, file = file if facts.arguments else "LOGS", "steps.parquet"
        begin = (
            "The states are hashes of whole histories. Compare what the agent saw instead: ascribe "
            f"import {logs} --state observation --out {file}. Then: "
        )
    return begin + (
        "Remove from the state what never repeats (clocks, counters, identifiers): ascribe states "
        f"{file} --out keyed.parquet.{similar} Or sample more trajectories of every task. If "
        "states cannot recur, use a recipe that needs none: returns."
    )


def _against_equal_returns(counts: Mapping[str, int], things: str) -> str:
    """Advice for the outcome that more than half of what is counted have, if there is one."""
    outcome = max(counts, key=lambda name: counts[name])
    advice = {
        "all fail": "always fail: choose easier ones, warm up first, allow more turns, or sample "
        "more trajectories of each.",
        "all succeed": "always succeed: choose harder ones, or fewer of the easy ones.",
        "returns differ": "have better and worse trajectories, but those that met earned the same: "
        "sample more trajectories of each.",
    }.get(outcome)
    if advice is None or 2 * counts[outcome] <= sum(counts.values()):
        return _MIXED
    return f"Most of these {things} {advice}"


# The rules.


def _above(
    thresholds: tuple[float, float], share: float, name: str, message: str, advice: str
) -> Iterator[Finding]:
    """A finding if the share is at least the first threshold, a bad one above the second.

    ``SHARE`` in the message stands for the share.
    """
    least, bad = thresholds
    if share >= least:
        level = Level.BAD if share > bad else Level.WARNING
        yield Finding(name, level, message.replace("SHARE", percent(share)), advice)


NEVER_BAD = 1.0
"""A share that no share is above."""


def _about_rows(facts: Facts) -> Iterator[Finding]:
    problems = facts.problems
    if facts.dropped_groups or facts.dropped_rows:
        fatal = [problem.kind for problem in problems if problem.severity is Severity.FATAL]
        yield Finding(
            "dropped",
            Level.BAD,
            f"{counted(facts.dropped_groups, 'group')} "
            f"({counted(facts.dropped_rows, 'row')}) could not be credited "
            f"and {'is' if facts.dropped_groups == 1 else 'are'} not counted on this page: "
            f"{', '.join(kind.label for kind in fatal)}.",
            " ".join(_sentence(kind.advice) for kind in fatal[:2]),
        )
    padding = []
    if facts.blank:
        share = percent(facts.blank / facts.diagnosis.rows)
        verb = "has" if facts.blank == 1 else "have"
        steps = counted(facts.blank, "step")
        padding = [f"{steps} ({share}) {verb} neither a state nor an action"]
    for problem in problems:
        if problem.kind is ProblemKind.DUPLICATE_ROW:
            verb = "repeats" if problem.rows.size == 1 else "repeat"
            padding.append(f"{counted(problem.rows.size, 'row')} {verb} another row exactly")
    if padding:
        yield Finding(
            "padding_in_statistics",
            Level.BAD,
            f"{_listed(padding)}. They look like padding that fills up a batch, but count as "
            "steps.",
            "Set the column padding to true for such rows; then no statistic includes them.",
        )
    if (count := facts.diagnosis.trajectories) < FEWEST:
        message = f"Too few trajectories for a verdict: {count}."
        advice = f"Give {FEWEST} trajectories or more, several of each task."
        yield Finding("few_trajectories", Level.BAD, message, advice)
    yield from _above(
        (1e-9, 0.5),
        facts.uncompared / facts.task_groups,
        "groups_of_one",
        "SHARE of the groups have a single trajectory, which cannot be compared with any other.",
        "Give all trajectories of a task the same group name, and sample several of each.",
    )


def _about_states(facts: Facts) -> Iterator[Finding]:
    yield from _above(
        (0.2, 0.5),
        facts.collapsed,
        "giant_state",
        "In SHARE of the groups one state holds nearly all steps, so step-level credit does not "
        "distinguish situations.",
        "The radius is too large, or the fingerprints are all alike: run ascribe calibrate."
        if facts.views[-1].name == CLUSTERED
        else "Check that the column state holds what the agent saw, not a constant.",
    )
    states, instead = facts.diagnosis.states, facts.recipe.without_recurrence()
    singleton = {"term": "step", "reason": Reason.SINGLETON.label}
    rows = [row for row in facts.tables["reasons"] if singleton.items() <= row.items()]
    if instead and facts.views[0].stages[1]["steps"] and states and not states.matched_pairs:
        message, rows = f"No state recurs, so {instead}.", []
        yield Finding("no_recurrence", Level.BAD, message, _against_singletons(facts))
    yield from _above(
        (0.5, 0.9),
        sum(row["share"] for row in rows),
        "singletons",
        "SHARE of the steps are alone in their state and get no step-level credit.",
        _against_singletons(facts),
    )
    yield from _above(
        (0.05, 0.5),
        1 - facts.views[0].stages[1]["share"],
        "missing_states",
        "SHARE of the steps have no state, and so no step-level credit.",
        _WRITE_STATES,
    )


def _about_tasks(facts: Facts) -> Iterator[Finding]:
    yield from _above(
        (0.3, 0.75),
        1 - facts.everything["valid"],
        "invalid_actions",
        "The environment did not understand SHARE of the actions.",
        "Check the prompt and the parser, or warm up on the response format first.",
    )
    kinds = (ProblemKind.DIFFERENT_STARTS, ProblemKind.MIXED_TASKS, ProblemKind.UNSTABLE_START)
    starts = sum(p.count for p in facts.problems if p.kind in kinds)
    yield from _above(
        (0.1, 0.5),
        starts / (facts.diagnosis.groups + facts.dropped_groups),
        "different_starts",
        "In SHARE of the groups the trajectories start in different states, so they are compared "
        "although their tasks may differ.",
        "Use the same seed for all environments of a group, and keep random details out of the "
        "state.",
    )
    yield from _only_penalties(facts)
    if facts.constant_return is None:
        yield from _about_success(facts)
        return
    credited = facts.diagnosis.signal_share > 0
    yield Finding(
        "constant_returns",
        Level.WARNING if credited and facts.recipe.columns else Level.BAD,
        f"Every trajectory of every task earned {facts.constant_return:.3g}, so "
        + (
            "the credit comes from differences within episodes alone."
            if credited
            else "no decision can be told from another."
        ),
        "If some of them succeeded and others failed, check what is written to the column reward. "
        + (
            "Otherwise choose harder tasks."
            if facts.everything["success"] == 1
            else "Otherwise warm up first, choose easier tasks, or allow more turns."
        ),
    )


def _about_success(facts: Facts) -> Iterator[Finding]:
    never = [row for row in facts.tables["families"][:-1] if row["success"] == 0]
    if facts.everything["success"] == 0:
        yield Finding(
            "nothing_succeeds",
            Level.BAD,
            "No episode of any task succeeds.",
            "There is nothing to learn from until some do: warm up first, choose easier tasks, or "
            "allow more turns.",
        )
    elif never:
        names = [
            f"“{one_line(row['family'], 40)}” ({counted(row['tasks'], 'task')})"
            for row in never[:5]
        ]
        more = [f"{len(never) - 5:,} more"] if len(never) > 5 else []
        yield Finding(
            "family_never_succeeds",
            Level.WARNING,
            f"No episode succeeds in {_listed(names + more)}.",
            "These episodes cost as much as others and teach nothing about success: warm up on "
            "such tasks, make them easier, or leave them out for now.",
        )
    counts = {outcome: facts.groups_with(outcome) for outcome in EQUAL}
    share = sum(counts.values()) / facts.task_groups
    yield from _above(
        (0.3, 0.8),
        share,
        "equal_returns",
        "In SHARE of the groups all trajectories earned the same "
        f"(always failing: {counts['all fail']:,}, always succeeding: {counts['all succeed']:,}), "
        "so these groups give no episode-level signal.",
        _against_equal_returns(counts, "tasks"),
    )
    expected = facts.diagnosis.expected_equal_groups / facts.task_groups
    if share >= expected + 0.2:
        yield Finding(
            "more_equal_groups",
            Level.NOTE,
            f"{percent(share)} of the groups have equal returns; from the success rate and the "
            f"group size, {percent(expected)} would be expected if all tasks were equally hard.",
            "The tasks differ much in difficulty, or the trajectories of a group are copies: "
            "choose tasks of medium difficulty, and sample with different seeds.",
        )


def _only_penalties(facts: Facts) -> Iterator[Finding]:
    message = (
        "In SHARE of the groups the trajectories differ only by penalties for invalid actions."
    )
    bad, advice = NEVER_BAD, _MIXED
    if facts.amplified >= 4:
        bad = 0.5
        message += (
            " Division by their small standard deviation makes these differences "
            f"{facts.amplified:.0f} times as large."
        )
        ways = []
        if _accepts(facts, normalise="mean"):
            ways.append("do not divide by the standard deviation (--set normalise=mean)")
        if _accepts(facts, std_floor=0.5):
            ways.append("set a smallest standard deviation (--set std_floor=0.5)")
        advice = _sentence(", or ".join(ways)) if ways else _MIXED
    share = facts.groups_with(PENALTIES) / facts.task_groups
    yield from _above((0.05, bad), share, "only_penalties", message, advice)


def _about_episodes(facts: Facts) -> Iterator[Finding]:
    critic = getattr(facts.recipe, "bootstrap", False)
    then = ": the critic's value stands for it" if critic else " and counts as nothing"
    yield from _above(
        (0.5, NEVER_BAD),
        facts.cut,
        "cut_by_limit",
        "SHARE of the trajectories were cut by a limit; what they would have earned is unknown"
        f"{then}.",
        "Allow more turns or tokens, or look for episodes that run in circles.",
    )
    yield from _above(
        (0.02, 0.2),
        facts.cut_turns or 0.0,
        "cut_responses",
        "A limit on tokens cut SHARE of the responses; what they would have said is lost, and "
        "their actions may be incomplete.",
        "Allow more tokens in a response, or end such episodes as failures.",
    )
    yield from _fewer_turns(facts.tables["iterations"])
    states = facts.diagnosis.states
    if states is not None:
        every = _parameter(facts, "revisits", "each") == "each"
        once = "count a trajectory once per state (--set revisits=average), and "
        yield from _above(
            (0.4, NEVER_BAD),
            states.revisit_share,
            "loops",
            "SHARE of the steps revisit a state of their own "
            f"trajectory{', and are compared with themselves' if every else ''}: episodes run in "
            "circles.",
            _sentence(
                f"{once if every and _accepts(facts, revisits='average') else ''}end episodes that "
                "make no progress"
            ),
        )
    if facts.views[0].stages[2]["share"] >= 0.2:
        yield from _above(
            (0.9, NEVER_BAD),
            facts.one_action,
            "same_actions",
            "For SHARE of the steps that share their state with another trajectory, no other "
            "action was tried there: the policy hardly explores.",
            "Sample at a higher temperature, or add an entropy bonus.",
        )
    if states is not None and states.cross_task:
        yield Finding(
            "merged_tasks",
            Level.WARNING,
            f"{counted(states.cross_task, 'state group')} "
            f"{'holds' if states.cross_task == 1 else 'hold'} steps of several tasks, which are "
            "compared although their goals differ.",
            "Compare within a task: --set scope=group.",
        )


def _fewer_turns(iterations: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Whether episodes became much shorter without becoming more successful."""
    longest, last = max(iterations, key=lambda row: row["turns"]), iterations[-1]
    shorter = last["turns"] <= longest["turns"] / 2
    if shorter and last["success"] <= longest["success"] + 0.05:
        yield Finding(
            "fewer_turns",
            Level.BAD if last["turns"] < 2 else Level.WARNING,
            f"Episodes fell from {longest['turns']:.1f} turns to {last['turns']:.1f}, and success "
            f"did not rise ({percent(longest['success'])}, now {percent(last['success'])}): the "
            "agent has stopped using its turns.",
            "Look for a reward that is had without them, a penalty for length, or a limit that "
            "cuts long episodes; lower the learning rate, or go back to an earlier checkpoint.",
        )


def _about_credit(facts: Facts) -> Iterator[Finding]:
    yield from _above(
        (0.6, NEVER_BAD),
        facts.longest_quarter,
        "long_trajectories",
        "The longest quarter of the trajectories makes up SHARE of the gradient.",
        "Divide the loss of a trajectory by its length, or cut long failures earlier.",
    )
    shares = facts.diagnosis.term_share
    small = len(shares) > 1 and shares.get("step", 1.0) <= 0.05
    if small and facts.diagnosis.advantage_rms > 0:
        weight = max(1.0, 2 * _parameter(facts, "weight", 0.0))
        raised = f", or raise its weight (--set weight={weight:g})"
        yield Finding(
            "small_step_term",
            Level.NOTE,
            f"The step term makes up {percent(shares['step'])} of the credit, so nearly all "
            "credit is episode-level.",
            f"See why steps have no signal{raised if _accepts(facts, weight=weight) else ''}.",
        )
    if (facts.trained_differently or 0.0) >= 0.01:
        yield Finding(
            "trained_differently",
            Level.NOTE,
            f"{percent(facts.trained_differently or 0.0)} of the steps were trained with another "
            f"advantage than {facts.recipe} gives.",
            "Name the recipe of the run with --recipe, --preset and --set to see what it learned "
            "from.",
        )


def _parameter(facts: Facts, name: str, default: Any = None) -> Any:
    return asdict(facts.recipe).get(name, default)


def _accepts(facts: Facts, **change: Any) -> bool:
    """Whether the recipe has this parameter at another value, and would accept this one."""
    ((name, value),) = change.items()
    if _parameter(facts, name, value) == value:
        return False
    try:
        replace(facts.recipe, **change)
    except ValueError:
        return False
    return True


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
