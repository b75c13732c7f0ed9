"""The verdict: what the facts mean in words, worst first, and what to try.

Every rule looks at the facts and says one thing or nothing. Shares are of steps unless a sentence
says otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ascribe.estimators import recipe
from ascribe.estimators.credit import Reason
from ascribe.report.facts import ALL, EQUAL, ONE, Facts
from ascribe.report.states import CLUSTERED
from ascribe.steps.problems import ProblemKind


class Level(IntEnum):
    """How much a finding matters."""

    GOOD = 0
    NOTE = 1
    WARNING = 2
    BAD = 3


@dataclass(frozen=True)
class Finding:
    """One thing that the facts say."""

    name: str
    level: Level
    said: str
    advice: str = ""


@dataclass(frozen=True)
class Verdict:
    """A headline, and what was found, worst first."""

    headline: str
    advice: str
    findings: tuple[Finding, ...]

    def rows(self) -> list[dict[str, str]]:
        """The findings as rows of a table."""
        return [
            {
                "finding": each.name,
                "level": each.level.name.lower(),
                "said": each.said,
                "advice": each.advice,
            }
            for each in self.findings
        ]


def judge(facts: Facts) -> Verdict:
    """The verdict on these facts."""
    found = [finding for rule in RULES if (finding := rule(facts)) is not None]
    found.sort(key=lambda finding: -finding.level)
    if not any(finding.level >= Level.WARNING for finding in found):
        found.append(
            Finding("nothing_wrong", Level.GOOD, "Nothing was found that should stop you.")
        )
    said, advice = _headline(facts)
    return Verdict(said, advice, tuple(found))


def percent(share: float) -> str:
    """A share as a reader wants it: no more digits than it is worth, and never a wrong 0 or 100."""
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 < share < 1:
        return "over 99 %"
    return f"{share:.0%}".replace("%", " %")


# The headline: where step-level signal is lost.

_LOST = {
    Reason.SINGLETON: "are alone in their state",
    Reason.ZERO_VARIANCE: "sit in groups with equal outcomes",
    Reason.MISSING_STATE: "have no state",
    Reason.SAME_ACTION: "sit where every peer did the same",
    Reason.GROUP_OF_ONE: "belong to tasks with one trajectory",
    Reason.REVISIT: "come back to a state of their own trajectory",
    Reason.TRUNCATED: "belong to trajectories that a limit cut",
    Reason.COUNTERFACTUAL: "were taken to measure others",
    Reason.NO_TARGET: "correct an answer that does not take part",
}


def _headline(facts: Facts) -> tuple[str, str]:
    kind = "step-level signal" if facts.main_term == "step" else "signal"
    of_term = [each for each in facts.reasons if each.term == facts.main_term]
    silent = [each for each in of_term if each.reason != Reason.CREDITED.label]
    if not silent:
        return f"All of your steps carry a {kind}.", ""
    lost = {each.reason: each.share for each in silent}
    ranked = sorted(lost, key=lambda label: -lost[label])
    causes = [_LOST.get(Reason[label.upper()], label) for label in ranked]
    shares = _adding_up([lost[label] for label in ranked])
    parts = [f"{percent(share)} {cause}" for share, cause in zip(shares, causes, strict=True)]
    if len(parts) == 1:
        parts = [f"they {causes[0]}"]
    advice = _advice(facts, Reason[ranked[0].upper()])
    steps = "All" if len(silent) == len(of_term) else percent(sum(lost.values()))
    return f"{steps} of your steps carry no {kind}: {_listed(parts)}.", advice


def _adding_up(shares: Sequence[float]) -> list[float]:
    """The shares in whole percents that add up to their rounded sum, as a reader will add them.

    A share below half a percent stays as it is.
    """
    whole = [int(100 * share) for share in shares]
    missing = round(100 * sum(shares)) - sum(whole)
    by_rest = sorted(range(len(shares)), key=lambda place: whole[place] - 100 * shares[place])
    for place in by_rest[:missing]:
        whole[place] += 1
    return [part / 100 or share for part, share in zip(whole, shares, strict=True)]


def _advice(facts: Facts, cause: Reason) -> str:
    if cause is Reason.SINGLETON:
        return _against_singletons(facts)
    if cause is Reason.ZERO_VARIANCE:
        return _against_equal_outcomes(facts.equal_steps, "steps belong to tasks that")
    return {
        Reason.MISSING_STATE: "Write what the agent saw before each action into the column state.",
        Reason.SAME_ACTION: "Sample at a higher temperature, so that peers try different actions.",
        Reason.GROUP_OF_ONE: "Sample several trajectories of every task, under one group name.",
        Reason.REVISIT: "Count every visit (revisits=each), or end episodes that run in circles.",
        Reason.TRUNCATED: "Allow more turns, or count trajectories that were cut (truncation=end).",
    }.get(cause, "")


def _against_singletons(facts: Facts) -> str:
    exact, clustered = facts.views
    now, then = exact.mix.singleton, clustered.mix.singleton
    if then < 0.8 * now and facts.recipe_name in ("gigpo", "hgpo"):
        return (
            f"Try states that need not be equal to the letter: clustered by n-grams, "
            f"{percent(then)} would be alone instead of {percent(now)} (--recipe bigpo --preset "
            "ngram). Or take out of the state what never repeats: clocks, counters, identifiers."
        )
    return (
        "Take out of the state what never repeats (clocks, counters, identifiers), or sample more "
        "trajectories of every task. Recipes that back off to the task need no equal states: sbc."
    )


_MIXED = "Take tasks that sometimes succeed and sometimes fail."
_OF_TASKS = {
    "all fail": "always fail: take easier ones, warm up first, allow more turns, or sample more "
    "trajectories of each.",
    "all succeed": "always succeed: take harder ones, or fewer of the easy ones.",
    "returns differ": "have better and worse trajectories, but those that met fared alike: sample "
    "more trajectories of each.",
}


def _against_equal_outcomes(counted: Mapping[str, int], things: str) -> str:
    """Advice for the outcome that more than half of what is counted have, if there is one."""
    outcome = max(counted, key=lambda each: counted[each])
    if outcome not in _OF_TASKS or 2 * counted[outcome] <= sum(counted.values()):
        return _MIXED
    return f"Most of these {things} {_OF_TASKS[outcome]}"


def _listed(parts: Sequence[str]) -> str:
    if len(parts) < 3:
        return " and ".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


# The rules.


def _dropped(facts: Facts) -> Finding | None:
    if not facts.dropped_groups and not facts.dropped_rows:
        return None
    kinds = [each for each in facts.report.problems if each.severity.name == "FATAL"]
    names = ", ".join(each.kind.label for each in kinds)
    advice = " ".join(_sentence(each.kind.advice) for each in kinds[:2])
    return Finding(
        "dropped",
        Level.BAD,
        f"{facts.dropped_groups:,} groups ({facts.dropped_rows:,} rows) could not be credited and "
        f"are left out of every number here: {names}.",
        advice,
    )


def _padding(facts: Facts) -> Finding | None:
    copies = [each for each in facts.report.problems if each.kind is ProblemKind.DUPLICATE_ROW]
    if facts.blank == 0 and not copies:
        return None
    said = []
    if facts.blank:
        share = percent(facts.blank / facts.diagnosis.rows)
        said.append(f"{facts.blank:,} steps ({share}) have neither a state nor an action")
    said += [f"{each.rows.size:,} rows repeat another row exactly" for each in copies]
    return Finding(
        "padding_in_statistics",
        Level.BAD,
        f"{_listed(said)}. They look like padding that fills up a batch, and they are counted as "
        "steps.",
        "Set the column padding to true for such rows: then they enter no statistic.",
    )


def _groups_of_one(facts: Facts) -> Finding | None:
    count = facts.groups_with(ONE)
    if count == 0:
        return None
    share = count / facts.task_groups
    return Finding(
        "groups_of_one",
        Level.BAD if share > 0.5 else Level.WARNING,
        f"{percent(share)} of the groups have one trajectory, which has nothing to be compared "
        "with.",
        "Give all trajectories of a task one group name, and sample several of each.",
    )


def _singletons(facts: Facts) -> Finding | None:
    alone = _share(facts, "step", Reason.SINGLETON)
    if alone < 0.5:
        return None
    episodes = "episode" in facts.diagnosis.term_share
    left = "for them whole episodes are compared and nothing finer" if episodes else "no credit"
    return Finding(
        "singletons",
        Level.BAD if alone > 0.9 else Level.WARNING,
        f"{percent(alone)} of the steps are alone in their state: {left}.",
        _against_singletons(facts),
    )


def _giant_state(facts: Facts) -> Finding | None:
    if facts.collapsed < 0.2:
        return None
    clusters = facts.views[-1].name == CLUSTERED
    return Finding(
        "giant_state",
        Level.BAD,
        f"In {percent(facts.collapsed)} of the groups one state holds nearly all steps, so that "
        "step-level credit tells no situation from another.",
        "The radius is too large, or the fingerprints tell nothing apart: run ascribe calibrate."
        if clusters
        else "Check that the column state holds what the agent saw, not a constant.",
    )


def _equal_returns(facts: Facts) -> Finding | None:
    counted = {outcome: facts.groups_with(outcome) for outcome in EQUAL}
    fail, win = counted["all fail"], counted["all succeed"]
    share = sum(counted.values()) / facts.task_groups
    if share < 0.3:
        return None
    return Finding(
        "equal_returns",
        Level.BAD if share > 0.8 else Level.WARNING,
        f"In {percent(share)} of the groups all trajectories earned the same ({fail:,} always "
        f"fail, {win:,} always succeed): they teach nothing about whole episodes.",
        _against_equal_outcomes(counted, "tasks"),
    )


def _only_penalties(facts: Facts) -> Finding | None:
    count = facts.groups_with("only penalties differ")
    share = count / facts.task_groups
    if share < 0.05:
        return None
    said = (
        f"In {percent(share)} of the groups the trajectories differ by penalties for invalid "
        "actions alone."
    )
    if not _divides(facts):
        return Finding("only_penalties", Level.WARNING, said, _MIXED)
    ways = []
    if _takes(facts, "normalise", "mean"):
        ways.append("do not divide by the spread (--set normalise=mean)")
    if _takes(facts, "std_floor", 0.5):
        ways.append("set a floor for the spread (--set std_floor=0.5)")
    return Finding(
        "only_penalties",
        Level.BAD if share > 0.5 else Level.WARNING,
        f"{said} Divided by their small spread, those count as much as success and failure do "
        "elsewhere.",
        _sentence(", or ".join(ways)) if ways else _MIXED,
    )


def _divides(facts: Facts) -> bool:
    """Whether the recipe divides by the spread inside a task, however small that is."""
    always = facts.recipe_name in ("grpo", "ibpo")
    by_std = always or facts.parameters.get("normalise") == "std"
    return by_std and not facts.parameters.get("std_floor")


def _family_never_succeeds(facts: Facts) -> Finding | None:
    if facts.everything.success == 0:
        return Finding(
            "nothing_succeeds",
            Level.BAD,
            "No episode of any task succeeds.",
            "There is nothing to learn from until some do: warm up first, take easier tasks, or "
            "allow more turns.",
        )
    never = [each for each in facts.families if each.success == 0 and each.family != ALL]
    if not never:
        return None
    names = [f"“{_short(each.family)}” ({each.tasks:,} tasks)" for each in never[:5]]
    more = [f"{len(never) - 5:,} more"] if len(never) > 5 else []
    return Finding(
        "family_never_succeeds",
        Level.WARNING,
        f"Never succeeds: {_listed(names + more)}.",
        "Its episodes cost as much as others and teach nothing about success: warm up on it, make "
        "it easier, or leave it out for now.",
    )


def _different_starts(facts: Facts) -> Finding | None:
    share = _groups_with_problem(facts, ProblemKind.DIFFERENT_STARTS)
    if share < 0.1:
        return None
    return Finding(
        "different_starts",
        Level.BAD if share > 0.5 else Level.WARNING,
        f"In {percent(share)} of the groups the trajectories start in different states, so they "
        "are compared although their tasks may differ.",
        "Seed the environments of a group alike; leave out of the state what differs by chance.",
    )


def _invalid_actions(facts: Facts) -> Finding | None:
    invalid = 1 - facts.everything.valid
    if invalid < 0.3:
        return None
    return Finding(
        "invalid_actions",
        Level.BAD if invalid > 0.75 else Level.WARNING,
        f"{percent(invalid)} of the actions were not understood by the environment.",
        "Check the prompt and the parser, or warm up on the form of an answer first.",
    )


def _cut(facts: Facts) -> Finding | None:
    if facts.cut < 0.5:
        return None
    return Finding(
        "cut_by_limit",
        Level.WARNING,
        f"{percent(facts.cut)} of the trajectories were cut by a limit; what they would have "
        "earned is unknown and counts as nothing.",
        "Allow more turns or tokens, or look for episodes that run in circles.",
    )


def _loops(facts: Facts) -> Finding | None:
    states = facts.diagnosis.states
    if states is None or states.revisit_share < 0.4:
        return None
    each = facts.parameters.get("revisits", "each") == "each"
    compared = " and are compared with themselves" if each else ""
    once = "count a trajectory once per state (--set revisits=average), and "
    once = once if each and _takes(facts, "revisits", "average") else ""
    return Finding(
        "loops",
        Level.WARNING,
        f"{percent(states.revisit_share)} of the steps come back to a state of their own "
        f"trajectory: episodes run in circles{compared}.",
        _sentence(f"{once}end episodes that stand still"),
    )


def _long_trajectories(facts: Facts) -> Finding | None:
    if facts.longest_quarter < 0.6:
        return None
    return Finding(
        "long_trajectories",
        Level.WARNING,
        f"The longest quarter of the trajectories makes {percent(facts.longest_quarter)} of the "
        "gradient.",
        "Divide a trajectory's loss by its length, or cut long failures earlier.",
    )


def _missing_states(facts: Facts) -> Finding | None:
    known = facts.views[0].stages[1]
    missing = 1 - known.share
    if missing < 0.05:
        return None
    return Finding(
        "missing_states",
        Level.BAD if missing > 0.5 else Level.WARNING,
        f"{percent(missing)} of the steps have no state, and so no step-level credit.",
        "Write what the agent saw before each action into the column state.",
    )


def _same_actions(facts: Facts) -> Finding | None:
    shared = facts.views[0].stages[2]
    if shared.share < 0.2 or facts.one_action < 0.9:
        return None
    return Finding(
        "same_actions",
        Level.WARNING,
        f"{percent(facts.one_action)} of the steps that meet another trajectory in their state "
        "meet none that did something else: the policy hardly explores.",
        "Sample at a higher temperature, or give a bonus for entropy.",
    )


def _small_step_term(facts: Facts) -> Finding | None:
    share = facts.diagnosis.term_share.get("step")
    others = len(facts.diagnosis.term_share) > 1
    if share is None or not others or share > 0.05 or facts.diagnosis.advantage_rms == 0:
        return None
    larger = max(1.0, 2 * facts.parameters.get("weight", 0.0))
    raised = f", or raise its weight (--set weight={larger:g})"
    raised = raised if _takes(facts, "weight", larger) else ""
    return Finding(
        "small_step_term",
        Level.NOTE,
        f"The step term makes {percent(share)} of the credit: this is an episode-level estimator "
        "in all but name.",
        f"See why steps lack a signal{raised}.",
    )


def _merged_tasks(facts: Facts) -> Finding | None:
    states = facts.diagnosis.states
    if states is None or states.cross_task == 0:
        return None
    return Finding(
        "merged_tasks",
        Level.WARNING,
        f"{states.cross_task:,} state groups hold steps of several tasks, which are compared "
        "although their goals differ.",
        "Compare inside a task: --set scope=group.",
    )


def _trained_differently(facts: Facts) -> Finding | None:
    share = facts.trained_differently
    if share is None or share < 0.01:
        return None
    return Finding(
        "trained_differently",
        Level.NOTE,
        f"{percent(share)} of the steps were trained with another advantage than {facts.recipe} "
        "gives.",
        "Name the recipe of the run with --recipe, --preset and --set to see what it learned from.",
    )


RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    _dropped,
    _padding,
    _groups_of_one,
    _giant_state,
    _singletons,
    _missing_states,
    _invalid_actions,
    _different_starts,
    _only_penalties,
    _family_never_succeeds,
    _equal_returns,
    _cut,
    _loops,
    _same_actions,
    _merged_tasks,
    _long_trajectories,
    _small_step_term,
    _trained_differently,
)
"""Every rule; where two matter alike, the first is named first."""


def _share(facts: Facts, term: str, reason: Reason) -> float:
    found = [each for each in facts.reasons if each.term == term and each.reason == reason.label]
    return found[0].share if found else 0.0


def _groups_with_problem(facts: Facts, kind: ProblemKind) -> float:
    counted = sum(each.count for each in facts.report.problems if each.kind is kind)
    return counted / (facts.diagnosis.groups + facts.dropped_groups)


def _takes(facts: Facts, parameter: str, value: Any) -> bool:
    """Whether the recipe has the parameter at another value, and would take this one."""
    if facts.parameters.get(parameter, value) == value:
        return False
    try:
        recipe(facts.recipe_name, **facts.parameters | {parameter: value})
    except ValueError:
        return False
    return True


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:39] + "…"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
