"""The verdict: findings from the facts, worst first, with advice.

Each finding is a rule of thumb with a threshold. Shares are of steps unless a sentence says
otherwise.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from ascribe.estimators.credit import Reason
from ascribe.reports.facts import EQUAL, PENALTIES, Facts
from ascribe.steps.hints import option, setting
from ascribe.steps.problems import ProblemKind, Severity, counted


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
    otherwise why steps have no credit. ``situation`` is the recommended recipe and discount.
    """

    headline: str
    advice: str
    findings: tuple[Finding, ...]
    situation: tuple[str, ...]

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
"""Share of steps without credit, for one reason, from which the headline has advice."""


def judge(facts: Facts) -> ReportVerdict:
    """The verdict on these facts. Among findings of one level, the earlier rule comes first."""
    rules = (_about_rows, _about_states, _about_tasks, _about_episodes, _about_credit)
    findings = sorted((each for rule in rules for each in rule(facts)), key=lambda f: -f.level)
    if not any(finding.level >= Level.WARNING for finding in findings):
        findings.append(Finding("nothing_wrong", Level.GOOD, "No serious problem was found."))
    names = {finding.name for finding in findings}
    bad = {finding.name: finding for finding in findings if finding.level is Level.BAD}
    cause = next((bad[name] for name in ROOT_CAUSES if name in bad), None)
    headline, advice = (cause.message, cause.advice) if cause else _signal(facts)
    lines = facts.placed.sentences(_parameter(facts, "gamma"))
    situation = () if "few_trajectories" in bad else lines[: 1 if "small_discount" in names else 2]
    return ReportVerdict(headline, advice, tuple(findings), situation)


def percent(share: float) -> str:
    """A share in whole percent; never 0 or 100 unless it is exactly that."""
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 < share < 1:
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %")


# The headline if no root cause was found: why steps have no credit.

_WITHOUT_SIGNAL = {
    Reason.SINGLETON: "no other step is in the same state",
    Reason.ZERO_VARIANCE: "the steps they are compared with have the same return",
    Reason.MISSING_STATE: "the file has no state",
    Reason.SAME_ACTION: "all steps in the same state took the same action",
    Reason.GROUP_OF_ONE: "their task has only one trajectory",
    Reason.REVISIT: "their trajectory was in the same state before",
    Reason.TRUNCATED: "a limit cut their trajectory",
    Reason.COUNTERFACTUAL: "they were taken only to measure the other agents",
    Reason.NO_TARGET: "the answer that they correct is not in the batch",
    Reason.MISSING_INPUT: "a number that the recipe reads is missing",
}


def _signal(facts: Facts) -> tuple[str, str]:
    by_state = facts.main_term == "step" and bool(facts.recipe.without_recurrence())
    term_rows = [row for row in facts.tables["reasons"] if row["term"] == facts.main_term]
    uncredited = sorted(
        (row for row in term_rows if row["reason"] != Reason.CREDITED.label),
        key=lambda row: -row["share"],
    )
    if not uncredited:
        compared = "compared with other steps in the same state" if by_state else "credited"
        return f"Every step is {compared}.", ""
    reasons = [Reason[row["reason"].upper()] for row in uncredited]
    causes = [_WITHOUT_SIGNAL.get(reason, reason.label) for reason in reasons]
    if by_state and Reason.ZERO_VARIANCE in reasons:
        equal = "all steps in the same state have the same return"
        causes[reasons.index(Reason.ZERO_VARIANCE)] = equal
    shares = _adding_up([row["share"] for row in uncredited])
    parts = [f"for {percent(share)} {cause}" for share, cause in zip(shares, causes, strict=True)]
    because = f", because {causes[0]}" if len(parts) == 1 else f": {_listed(parts)}"
    share = 1.0 if len(uncredited) == len(term_rows) else sum(row["share"] for row in uncredited)
    nothing = 1 - facts.diagnosis.signal_share
    rest = share - nothing
    partly = (
        "credited by the outcome of their trajectory alone"
        if by_state
        else f"without credit by {facts.main_term}"
    )
    if nothing == 0:
        begin = f"{'All' if share == 1 else f'{percent(share)} of the'} steps are {partly}"
    else:
        begin = "No step has" if nothing == 1 else f"{percent(nothing)} of the steps have no"
        begin += " credit"
        begin += f", and {percent(rest)} are {partly}" if rest > 1e-9 else ""
    worth_advice = uncredited[0]["share"] >= ADVICE_FROM
    return f"{begin[0].upper()}{begin[1:]}{because}.", _advice(
        facts, reasons[0]
    ) if worth_advice else ""


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
    return {
        Reason.MISSING_STATE: _WRITE_STATES,
        Reason.SAME_ACTION: "Sample at a higher temperature, so that peers try different actions.",
        Reason.GROUP_OF_ONE: "Sample several trajectories of every task, under one group name.",
        Reason.REVISIT: "Count every visit (revisits=each), or end episodes that run in circles.",
        Reason.TRUNCATED: "Allow more turns.",
    }.get(cause, "")


def _against_singletons(facts: Facts) -> str:
    named = len(facts.files) == 1 and facts.files[0].suffix
    file = shlex.join(facts.arguments or ([str(facts.files[0])] if named else ["FILE"]))
    begin = ""
    if facts.hashed:
        logs, file = file if facts.arguments else "LOGS", "steps.parquet"
        begin = (
            "The states are hashes of whole histories. Compare what the agent saw instead: ascribe "
            f"import {logs} --state observation --out {file}. Then: "
        )
    elif facts.placed.states == "do not recur":
        return f"No key makes these states recur: {facts.placed.advice}."
    return begin + (
        "Remove from the state what never repeats (clocks, counters, identifiers): ascribe states "
        f"{file} --out keyed.parquet. Or sample more trajectories of every task."
    )


def _against_equal_returns(counts: Mapping[str, int], things: str) -> str:
    """Advice for the outcome that more than half of what is counted have, if there is one."""
    outcome = max(counts, key=lambda name: counts[name])
    advice = {
        "all fail": "always fail: replace them by tasks that are won at times, warm up first, "
        "allow more turns, or sample more trajectories of each.",
        "all succeed": "always succeed: replace them by tasks that are lost at times.",
        "returns differ": "have better and worse trajectories, but all that came to the same state "
        "ended alike: sample more trajectories of each.",
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
    if facts.dropped_groups:
        unlabelled = ProblemKind.MISSING_REWARD
        unusable = (each.kind for each in problems)
        fatal = [k for k in unusable if k.severity is Severity.FATAL or k is unlabelled]
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
        "In SHARE of the groups nearly all steps have the same state, so credit cannot tell "
        "situations apart.",
        "The radius is too large, or the fingerprints are all alike: run ascribe calibrate."
        if hasattr(facts.recipe, "radius") and getattr(facts.recipe, "states", "") != "exact"
        else "Check that the column state holds what the agent saw, not a constant.",
    )
    states, instead = facts.diagnosis.states, facts.recipe.without_recurrence()
    singleton = {"term": "step", "reason": Reason.SINGLETON.label}
    rows = [row for row in facts.tables["reasons"] if singleton.items() <= row.items()]
    if instead and facts.with_state and states and not states.matched_pairs:
        message, rows = f"No state recurs, so {instead}.", []
        yield Finding("no_recurrence", Level.BAD, message, _against_singletons(facts))
    yield from _above(
        (0.5, 0.9),
        sum(row["share"] for row in rows),
        "singletons",
        "For SHARE of the steps no other step is in the same state, so what was done there cannot "
        "be compared.",
        _against_singletons(facts),
    )
    yield from _above(
        (0.05, 0.5),
        1 - facts.with_state,
        "missing_states",
        "SHARE of the steps have no state, so what was done there cannot be compared.",
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
    yield from _above(
        (0.05, NEVER_BAD),
        facts.groups_with(PENALTIES) / facts.task_groups,
        "only_penalties",
        "In SHARE of the groups the trajectories differ only by penalties for invalid actions.",
        _MIXED,
    )
    if facts.constant_return is None:
        yield from _about_success(facts)
        return
    credited = facts.diagnosis.signal_share > 0
    yield Finding(
        "constant_returns",
        Level.WARNING if credited and facts.recipe.columns else Level.BAD,
        f"Every trajectory of every task earned {facts.constant_return:.3g}, so "
        + (
            "credit comes only from differences inside them."
            if credited
            else "nothing shows which decisions were good."
        ),
        "If some of them succeeded and others failed, check what is written to the column reward. "
        + (
            "Otherwise choose tasks that are lost at times."
            if facts.everything["success"] == 1
            else "Otherwise warm up first, choose tasks that are won at times, or allow more turns."
        ),
    )


def _about_success(facts: Facts) -> Iterator[Finding]:
    if facts.everything["success"] == 0:
        yield Finding(
            "nothing_succeeds",
            Level.BAD,
            "No episode of any task succeeds.",
            "There is nothing to learn from until some do: warm up first, choose tasks that are "
            "won at times, or allow more turns.",
        )
    counts = {outcome: facts.groups_with(outcome) for outcome in EQUAL}
    share = sum(counts.values()) / facts.task_groups
    yield from _above(
        (0.3, 0.8),
        share,
        "equal_returns",
        "In SHARE of the groups all trajectories have the same return "
        f"(always failing: {counts['all fail']:,}, always succeeding: {counts['all succeed']:,}), "
        "so comparing them gives no credit.",
        _against_equal_returns(counts, "tasks"),
    )


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
        "A limit on tokens cut SHARE of the responses, so their actions may be incomplete.",
        "Allow more tokens in a response, or end such episodes as failures.",
    )
    yield from _fewer_turns(facts.tables["iterations"])
    states = facts.diagnosis.states if facts.recipe.without_recurrence() else None
    if states is not None:
        yield from _above(
            (0.4, NEVER_BAD),
            states.revisit_share,
            "loops",
            "SHARE of the steps come back to a state of their own trajectory: episodes run in "
            "circles.",
            "End episodes that make no progress.",
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
            "Look for a reward that needs no turns, a penalty for length, or a limit that "
            "cuts long episodes; lower the learning rate, or go back to an earlier checkpoint.",
        )


def _about_credit(facts: Facts) -> Iterator[Finding]:
    if facts.contradicted:
        yield Finding(
            "opposite_credit",
            Level.WARNING,
            f"{len(facts.contradicted):,} of {counted(facts.certain, 'certain decision')} "
            f"{'has' if len(facts.contradicted) == 1 else 'have'} more credit on the worse side "
            f"than on the better one: {facts.contradicted[0].text}.",
            "Training on this credit would teach the worse action; compare recipes with "
            f"{option('compare')}.",
        )
    gamma, discount = _parameter(facts, "gamma"), facts.placed.discount
    if gamma is not None and discount.too_small(gamma):
        message = discount.compared(gamma)
        advice = f"Set the proposed discount ({setting('gamma', discount.gamma)})."
        yield Finding("small_discount", Level.WARNING, message, advice)
    if (facts.trained_differently or 0.0) >= 0.01:
        yield Finding(
            "trained_differently",
            Level.NOTE,
            f"{percent(facts.trained_differently or 0.0)} of the steps were trained with another "
            f"advantage than {facts.recipe} gives.",
            f"Name the recipe of the run with {option('recipe')} to see what it learned from.",
        )


def _parameter(facts: Facts, name: str, default: Any = None) -> Any:
    return asdict(facts.recipe).get(name, default)


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
