"""Slow, obvious versions of every estimator: what the fast ones must equal.

Loops over the plain rows of ``StepTable.to_dicts()``. Rewards, returns, means and squares are exact
fractions; a number is rounded only when it is divided by a standard deviation or handed back. So
two values are equal here if and only if they are equal on paper. Nothing of Ascribe is imported:
reasons are their labels, groups are tuples that say what their members share.
"""

import math
import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]
Parameters = Mapping[str, Any]


@dataclass
class Part:
    """One term, per row: its value, its reason and what names the group it was compared in."""

    values: list[float]
    reasons: list[str]
    keys: list[Hashable]


@dataclass
class Answer:
    """A credit, per row, and the comparisons that it rests on."""

    values: list[float]
    reasons: list[str]
    terms: dict[str, Part]
    comparisons: list["Comparison"]

    @property
    def narrowest(self) -> float:
        """Smallest spread of a group that has one, for values of size 1 or less.

        Where it is tiny, what a standard deviation divides is mostly the rounding of the inputs.
        """
        return min((each.narrowest for each in self.comparisons), default=math.inf)


# Rows and trajectories.


def is_padding(row: Row) -> bool:
    return bool(row.get("padding") or False)


def is_valid(row: Row) -> bool:
    return bool(row.get("valid", True))


def real_rows(rows: list[Row]) -> list[int]:
    """Numbers of the rows that are not padding, by group name, trajectory name and step."""
    real = [i for i, row in enumerate(rows) if not is_padding(row)]
    names = {i: (by_number(rows[i]["group"]), by_number(rows[i]["trajectory"])) for i in real}
    return sorted(real, key=lambda i: (*names[i], rows[i]["step"]))


def by_number(name: str) -> tuple[str, int, str]:
    """A key that orders names by a number at their end."""
    text, digits = re.fullmatch(r"(.*?)([0-9]*)", name, re.DOTALL).groups()
    return text, int(digits or 0), name


def trajectories(rows: list[Row]) -> dict[str, list[int]]:
    """Row numbers of each trajectory, first step first."""
    found: dict[str, list[int]] = {}
    for i in real_rows(rows):
        found.setdefault(rows[i]["trajectory"], []).append(i)
    return found


def left_out(rows: list[Row], parameters: Parameters) -> set[str]:
    """Trajectories that were cut by a limit, if the recipe leaves those out."""
    if parameters["truncation"] == "end":
        return set()
    return {rows[i]["trajectory"] for i in real_rows(rows) if rows[i].get("truncated")}


def counted_rows(rows: list[Row], parameters: Parameters) -> list[int]:
    """The real rows whose trajectory counts."""
    out = left_out(rows, parameters)
    return [i for i in real_rows(rows) if rows[i]["trajectory"] not in out]


# Rewards and returns.


def penalty(row: Row, parameters: Parameters, timing: str) -> Fraction:
    """What is taken off this row at this time."""
    if is_valid(row) or parameters["penalty_timing"] != timing:
        return Fraction(0)
    return Fraction(parameters["invalid_penalty"])


def episode_returns(rows: list[Row], parameters: Parameters) -> dict[str, Fraction]:
    """Sum of the rewards of each trajectory, early penalties taken off."""
    out = {}
    for name, members in trajectories(rows).items():
        out[name] = Fraction(0)
        for i in members:
            out[name] += Fraction(rows[i]["reward"]) - penalty(rows[i], parameters, "before")
    return out


def rewards_to_go(rows: list[Row], parameters: Parameters) -> dict[int, Fraction]:
    """Discounted return from each row on, from the last step to the first; late penalties off."""
    gamma = Fraction(parameters["gamma"])
    out = {}
    for members in trajectories(rows).values():
        following = Fraction(0)
        for i in reversed(members):
            reward = Fraction(rows[i]["reward"]) - penalty(rows[i], parameters, "before")
            following = reward + gamma * following
            out[i] = following - penalty(rows[i], parameters, "after")
    return out


# Groups: what rows share.


def same_state(rows: list[Row], counted: list[int], *, scope: str) -> dict[int, Hashable]:
    """Task and state of each row that has a state; the state alone over a whole batch."""
    return {
        i: (rows[i]["group"] if scope == "group" else "batch", rows[i]["state"])
        for i in counted
        if rows[i]["state"] is not None
    }


def longest_common_subsequence(first: str, second: str) -> int:
    """Length, by dynamic programming over all pairs of prefixes."""
    length = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in range(len(first)):
        for j in range(len(second)):
            if first[i] == second[j]:
                length[i + 1][j + 1] = length[i][j] + 1
            else:
                length[i + 1][j + 1] = max(length[i][j + 1], length[i + 1][j])
    return length[-1][-1]


def ratio(first: str, second: str) -> float:
    """Twice the longest common subsequence over the summed lengths; 1 for two empty texts."""
    total = len(first) + len(second)
    return 2 * longest_common_subsequence(first, second) / total if total else 1.0


def similar_state(
    rows: list[Row],
    counted: list[int],
    *,
    scope: str,
    threshold: float,
    measure: Callable[[str, str], float] = ratio,
) -> dict[int, Hashable]:
    """Task and founder of each row: the first state of the task that the row's is similar to."""
    founders: dict[str, list[str]] = {}
    went: dict[Hashable, Hashable] = {}
    out: dict[int, Hashable] = {}
    for i in counted:
        state = rows[i]["state"]
        if state is None:
            continue
        task = rows[i]["group"] if scope == "group" else "batch"
        if (task, state) not in went:
            known = founders.setdefault(task, [])
            for founder in known:
                if measure(state, founder) >= threshold:
                    went[task, state] = (task, founder)
                    break
            else:
                known.append(state)
                went[task, state] = (task, state)
        out[i] = went[task, state]
    return out


def same_history(rows: list[Row], counted: list[int], length: int) -> dict[int, Hashable]:
    """Task and last ``length`` states of each row that has that many, none of them missing."""
    out = {}
    wanted = set(counted)
    for members in trajectories(rows).values():
        for t, i in enumerate(members):
            context = [rows[j]["state"] for j in members[max(0, t - length + 1) : t + 1]]
            if i in wanted and len(context) == length and None not in context:
                out[i] = (rows[i]["group"], *context)
    return out


# A value against those of its peers.


@dataclass
class Comparison:
    """What came of comparing members inside groups."""

    members: dict[Hashable, list[Hashable]] = field(default_factory=dict)
    values: dict[Hashable, float] = field(default_factory=dict)
    reasons: dict[Hashable, str] = field(default_factory=dict)
    narrowest: float = math.inf


def relative(
    values: Mapping[Hashable, Fraction],
    group_of: Mapping[Hashable, Hashable],
    *,
    by: str,
    std: str = "sample",
    epsilon: float = 0.0,
    floor: float = 0.0,
    alone: str = "singleton",
) -> Comparison:
    """Each value against its group; members that ``group_of`` does not name take no part."""
    out = Comparison()
    for member, group in group_of.items():
        out.members.setdefault(group, []).append(member)
    for members in out.members.values():
        earned = [values[member] for member in members]
        spread = max(earned) - min(earned)
        if len(members) == 1 or spread == 0:
            for member in members:
                out.values[member] = 0.0
                out.reasons[member] = alone if len(members) == 1 else "zero_variance"
            continue
        size = max(Fraction(1), *(abs(value) for value in earned))
        out.narrowest = min(out.narrowest, float(spread / size))
        mean = sum(earned) / len(earned)
        squares = sum((value - mean) ** 2 for value in earned)
        freedom = len(earned) - 1 if std == "sample" else len(earned)
        scale = max(math.sqrt(squares / freedom), floor) + epsilon
        for member in members:
            out.reasons[member] = "credited"
            if by == "leave_one_out":
                others = [values[other] for other in members if other != member]
                out.values[member] = float(values[member] - sum(others) / len(others))
            else:
                out.values[member] = float(values[member] - mean) / (scale if by == "std" else 1.0)
    return out


def standardised(
    values: Mapping[Hashable, Fraction],
    group_of: Mapping[Hashable, Hashable],
    parameters: Parameters,
    by: str,
    alone: str,
) -> Comparison:
    """``relative`` with the recipe's own standard deviation."""
    return relative(
        values,
        group_of,
        by=by,
        std=parameters["std"],
        epsilon=parameters["std_epsilon"],
        floor=parameters["std_floor"],
        alone=alone,
    )


def step_relative(
    returns: Mapping[int, Fraction],
    keys: Mapping[int, Hashable],
    trajectory_of: Mapping[int, str],
    revisits: str,
    compare: Callable[[Mapping[Any, Fraction], Mapping[Any, Hashable]], Comparison],
) -> Comparison:
    """Returns compared inside state groups; rows in canonical order, -- see ``Revisits``."""
    if revisits == "each":
        return compare(returns, keys)
    visits: dict[tuple[Hashable, str], list[int]] = {}
    for i, key in keys.items():
        visits.setdefault((key, trajectory_of[i]), []).append(i)
    if revisits == "first":
        out = compare(returns, {rows[0]: keys[rows[0]] for rows in visits.values()})
        for rows in visits.values():
            for later in rows[1:]:
                out.values[later], out.reasons[later] = 0.0, "revisit"
        return out
    average = {visit: sum(returns[i] for i in rows) / len(rows) for visit, rows in visits.items()}
    shared = compare(average, {visit: visit[0] for visit in visits})
    for visit, rows in visits.items():
        for i in rows:
            shared.values[i], shared.reasons[i] = shared.values[visit], shared.reasons[visit]
    return shared


# The size of a term against that of the episode term.


def size_of(values: list[float], reasons: list[str]) -> float:
    """Root mean square over the credited rows."""
    said = [value for value, why in zip(values, reasons, strict=True) if why == "credited"]
    return math.sqrt(math.fsum(value * value for value in said) / len(said)) if said else 0.0


def factor_to_equal(part: Part, episode: Part) -> float:
    """What ``part`` is multiplied by to be of the size of ``episode``; 1 if either has none."""
    size = size_of(part.values, part.reasons)
    wanted = size_of(episode.values, episode.reasons)
    return wanted / size if size > 1e-9 and wanted > 1e-9 else 1.0


def in_scale(part: Part, episode: Part, parameters: Parameters) -> Part:
    """The part as the parameter ``scale`` wants it."""
    factor = factor_to_equal(part, episode) if parameters["scale"] == "equal" else 1.0
    return Part([factor * value for value in part.values], part.reasons, part.keys)


# The recipes.


def credit(name: str, rows: list[Row], parameters: Parameters) -> Answer:
    """The credit of every row by the recipe of that name, with all its parameters given."""
    return RECIPES[name](rows, parameters)


def grpo(rows: list[Row], parameters: Parameters) -> Answer:
    """Returns of trajectories, standardised inside the task group."""
    returns, group_of = _counted_returns(rows, parameters)
    found = standardised(returns, group_of, parameters, "std", "group_of_one")
    return _whole_trajectories(rows, parameters, found, found.values, found.reasons)


def rloo(rows: list[Row], parameters: Parameters) -> Answer:
    """Returns of trajectories against the mean of the others."""
    returns, group_of = _counted_returns(rows, parameters)
    found = relative(returns, group_of, by="leave_one_out", alone="group_of_one")
    return _whole_trajectories(rows, parameters, found, found.values, found.reasons)


def dr_grpo(rows: list[Row], parameters: Parameters) -> Answer:
    """Returns of trajectories against the mean of the task group."""
    returns, group_of = _counted_returns(rows, parameters)
    found = relative(returns, group_of, by="mean", alone="group_of_one")
    return _whole_trajectories(rows, parameters, found, found.values, found.reasons)


def reinforce_pp(rows: list[Row], parameters: Parameters) -> Answer:
    """Returns of trajectories, standardised over the batch; the group's mean off first, or not."""
    returns, group_of = _counted_returns(rows, parameters)
    silent: dict[Hashable, str] = {}
    if parameters["baseline"] == "group":
        found = relative(returns, group_of, by="mean", alone="group_of_one")
        silent = {name: why for name, why in found.reasons.items() if why != "credited"}
        centred = {}
        for name, group in group_of.items():
            peers = [returns[other] for other, its in group_of.items() if its == group]
            if len(peers) > 1:
                centred[name] = returns[name] - sum(peers) / len(peers)
        returns = centred
    found = standardised(
        returns, dict.fromkeys(returns, "batch"), parameters, "std", "group_of_one"
    )
    values = {name: 0.0 if name in silent else found.values[name] for name in group_of}
    reasons = {name: silent.get(name) or found.reasons[name] for name in group_of}
    return _whole_trajectories(rows, parameters, found, values, reasons)


def returns(rows: list[Row], parameters: Parameters) -> Answer:
    """Returns from a step on, against the mean of the task, or of the others at the same turn."""
    counted = counted_rows(rows, parameters)
    to_go = rewards_to_go(rows, parameters)
    task = {i: rows[i]["group"] for i in counted}
    if parameters["baseline"] == "task":
        keys = task
        found = relative({i: to_go[i] for i in counted}, task, by="mean", alone="group_of_one")
    else:
        keys = {i: (rows[i]["group"], rows[i]["step"]) for i in counted}
        found = relative({i: to_go[i] for i in counted}, keys, by="leave_one_out", alone="beyond")
    for i in counted:
        peers = [j for j in counted if task[j] == task[i]]
        others = [to_go[j] for j in peers if rows[j]["trajectory"] != rows[i]["trajectory"]]
        if not others:
            found.values[i], found.reasons[i] = 0.0, "group_of_one"
        elif found.reasons[i] == "beyond":
            differ = len({to_go[j] for j in peers}) > 1
            found.values[i] = float(to_go[i] - sum(others) / len(others))
            found.reasons[i] = "credited" if differ else "zero_variance"
    part = _part(rows, parameters, found.values, found.reasons, keys)
    return Answer(part.values, part.reasons, {"returns": part}, [found])


def gae(rows: list[Row], parameters: Parameters) -> Answer:
    """Sums of what each step brought beyond the critic's value, from the last step to the first."""
    gamma, lam = Fraction(parameters["gamma"]), Fraction(parameters["lam"])
    values, reasons = {}, {}
    for name, members in trajectories(rows).items():
        if name in left_out(rows, parameters):
            continue
        following: tuple[Fraction, Fraction] | None = (Fraction(0), Fraction(0))
        for i in reversed(members):
            row, expected = rows[i], known(rows[i]["value"])
            reward = Fraction(row["reward"]) - penalty(row, parameters, "before")
            if i == members[-1] and parameters["bootstrap"] and row.get("truncated"):
                following = (expected, Fraction(0)) if expected is not None else None
            if expected is None or following is None:
                following = None
                values[i], reasons[i] = 0.0, "missing_input"
            else:
                value_after, advantage_after = following
                surprise = reward + gamma * value_after - expected
                advantage = surprise + gamma * lam * advantage_after
                following = (expected, advantage)
                values[i] = float(advantage - penalty(row, parameters, "after"))
                reasons[i] = "credited"
    keys = {i: rows[i]["trajectory"] for i in values}
    part = _part(rows, parameters, values, reasons, keys)
    return Answer(part.values, part.reasons, {"gae": part}, [])


def progress(rows: list[Row], parameters: Parameters) -> Answer:
    """Rewards for progress, summed and compared, or compared and summed."""
    weight, gamma = Fraction(parameters["weight"]), Fraction(parameters["gamma"])
    paid: dict[int, Fraction] = {}
    counted, unknown = counted_rows(rows, parameters), set()
    for members in trajectories(rows).values():
        scores = [known(rows[i]["score"]) for i in members]
        for n, i in enumerate(members):
            paid[i] = Fraction(rows[i]["reward"]) - penalty(rows[i], parameters, "before")
            if None in scores[n:]:
                unknown.add(i)
            elif n + 1 < len(members):
                paid[i] += weight * (scores[n + 1] - scores[n])
    own = {}
    for members in trajectories(rows).values():
        following = Fraction(0)
        for i in reversed(members):
            following = (Fraction(0) if i in unknown else paid[i]) + gamma * following
            own[i] = following - penalty(rows[i], parameters, "after")
    task = {i: rows[i]["group"] for i in counted if i not in unknown}
    by, baseline = parameters["normalise"], parameters["baseline"]
    keys: dict[int, Hashable] = dict(task)
    if baseline == "separate":
        lasts = {members[-1] for members in trajectories(rows).values()}
        keys = {i: (task[i], i in lasts) for i in task}
    compared = {i: (own if baseline == "task" else paid)[i] for i in task}
    found = standardised(compared, keys, parameters, by, "group_of_one")
    names = {
        i: {rows[j]["trajectory"] for j in counted if rows[j]["group"] == task[i]} for i in task
    }
    values, said = dict(found.values), dict(found.reasons)
    if baseline != "task":
        for members in trajectories(rows).values():
            total, following = 0.0, False
            for i in reversed(members):
                if i in task:
                    total = found.values[i] + float(gamma) * total
                    values[i] = total - float(penalty(rows[i], parameters, "after"))
                    following = said[i] == "credited" or (following and gamma > 0)
                    said[i] = "credited" if following else said[i]
    reasons = {}
    for i in counted:
        if i in unknown:
            values[i], reasons[i] = 0.0, "missing_input"
            continue
        reasons[i] = "group_of_one" if len(names[i]) == 1 else said[i]
        if reasons[i] != "credited":
            values[i] = 0.0
    part = _part(rows, parameters, values, reasons, keys)
    return Answer(part.values, part.reasons, {"progress": part}, [found])


def judged(rows: list[Row], parameters: Parameters) -> Answer:
    """The outcome of the trajectory, and the judge's scores: sums from a step on, or by turn."""
    counted, by = counted_rows(rows, parameters), parameters["normalise"]
    whole = standardised(*_counted_returns(rows, parameters), parameters, by, "group_of_one")
    episode = _whole_trajectories(rows, parameters, whole, whole.values, whole.reasons)
    gamma, own, reasons = Fraction(parameters["gamma"]), {}, {}
    for members in trajectories(rows).values():
        scores = [known(rows[i]["step_score"]) for i in members]
        for n, i in enumerate(members):
            later = scores[n:] if parameters["compare"] == "returns" else scores[n : n + 1]
            if None in later:
                reasons[i] = "missing_input"
            else:
                total = sum(gamma**k * score for k, score in enumerate(later))
                own[i] = total - penalty(rows[i], parameters, "after")
    keys: dict[int, Hashable] = {i: rows[i]["group"] for i in counted if i in own}
    if parameters["compare"] == "turn":
        keys = {i: (rows[i]["group"], rows[i]["step"]) for i in keys}
    found = standardised({i: own[i] for i in keys}, keys, parameters, by, "singleton")
    values = {}
    for i in counted:
        names = {rows[j]["trajectory"] for j in counted if rows[j]["group"] == rows[i]["group"]}
        if i in keys:
            reasons[i] = "group_of_one" if len(names) == 1 else found.reasons[i]
        values[i] = found.values[i] if reasons[i] == "credited" else 0.0
    step = _part(rows, parameters, values, reasons, keys)
    first = episode.terms["episode"]
    total = [a + parameters["weight"] * b for a, b in zip(first.values, step.values, strict=True)]
    of_both = zip(first.reasons, step.reasons, strict=True)
    said = ["credited" if "credited" in both else both[-1] for both in of_both]
    return Answer(total, said, {"episode": first, "step": step}, [whole, found])


def entropy(rows: list[Row], parameters: Parameters) -> Answer:
    """Another recipe's credit by the entropy of the responses, and a bonus for what comes next."""
    answer = credit(parameters["wraps"], rows, {**WRAPPED[parameters["wraps"]], **parameters})
    counted = counted_rows(rows, parameters)
    heard = {i: h for i in counted if (h := known(rows[i]["entropy"])) is not None}
    low, high = min(heard.values(), default=Fraction(0)), max(heard.values(), default=Fraction(0))
    scaled = {i: float((h - low) / (high - low)) if high > low else 0.0 for i, h in heard.items()}
    sure = {i: math.exp(-parameters["k"] * h) for i, h in scaled.items()}
    mean = math.fsum(sure.values()) / len(sure) if sure else 1.0
    bonus = dict.fromkeys(range(len(rows)), 0.0)
    for members in trajectories(rows).values():
        for i, following in pairwise(members):
            if following in scaled:
                next_sure = math.exp(-parameters["k_next"] * scaled[following])
                bonus[i] = parameters["clarity"] * next_sure
    said = [i for i in heard if answer.reasons[i] == "credited"]
    total = math.fsum(answer.values[i] * sure[i] / mean + bonus[i] for i in said)
    shift = total / len(said) if said else 0.0

    def reason(before: list[str], i: int) -> str:
        return "missing_input" if before[i] == "credited" and i not in heard else before[i]

    every = range(len(rows))
    terms = {
        name: Part(
            [part.values[i] * sure[i] / mean if i in sure else 0.0 for i in every],
            [reason(part.reasons, i) for i in every],
            part.keys,
        )
        for name, part in answer.terms.items()
    }
    terms["clarity"] = Part(
        [bonus[i] - shift if i in said else 0.0 for i in every],
        [reason(answer.reasons, i) for i in every],
        ["batch" if i in said else None for i in every],
    )
    values = [sum(part.values[i] for part in terms.values()) for i in every]
    return Answer(values, terms["clarity"].reasons, terms, answer.comparisons)


PLAIN_STD = {"std": "sample", "std_epsilon": 1e-6, "std_floor": 0.0}
WRAPPED: dict[str, dict[str, Any]] = {
    "grpo": PLAIN_STD,
    "returns": {"gamma": 0.95, "baseline": "task"},
    "gae": {"gamma": 0.95, "lam": 0.95, "bootstrap": True},
    "gigpo": {
        **PLAIN_STD,
        "gamma": 0.95,
        "weight": 1.0,
        "scale": "paper",
        "normalise": "std",
        "revisits": "each",
        "baseline_unit": "trajectory",
        "group_of_one": "no_credit",
        "grouping": "exact",
        "similarity": 0.9,
        "scope": "group",
    },
}
"""Defaults of recipes that ``entropy`` may wrap."""


def known(value: float | None) -> Fraction | None:
    """A number of an optional column, None where it is empty."""
    return None if value is None or math.isnan(value) else Fraction(value)


def gigpo(rows: list[Row], parameters: Parameters) -> Answer:
    """An episode term and a step term."""
    counted = counted_rows(rows, parameters)
    if parameters["grouping"] == "exact":
        keys = same_state(rows, counted, scope=parameters["scope"])
    else:
        threshold = parameters["similarity"]
        keys = similar_state(rows, counted, scope=parameters["scope"], threshold=threshold)
    return _two_levels(rows, parameters, rewards_to_go(rows, parameters), keys)


def g2po(rows: list[Row], parameters: Parameters) -> Answer:
    """An episode term, what a step led to in its state, and what it gained in its task."""
    counted = counted_rows(rows, parameters)
    keys = same_state(rows, counted, scope="group")
    gamma, early = Fraction(parameters["gamma"]), {**parameters, "penalty_timing": "before"}
    if parameters["penalty_timing"] == "after":
        early["invalid_penalty"] = 0.0
    to_go = rewards_to_go(rows, early)
    visits: dict[Hashable, list[Fraction]] = {}
    for i in counted:
        visits.setdefault(keys.get(i, i), []).append(to_go[i])
    worth = {i: gamma * sum(visits[keys.get(i, i)]) / len(visits[keys.get(i, i)]) for i in counted}
    led_to, gains, task = {}, {}, {i: rows[i]["group"] for i in counted}
    for members in trajectories(rows).values():
        for i, following in zip(members, [*members[1:], None], strict=True):
            if i in worth:
                reward = Fraction(rows[i]["reward"]) - penalty(rows[i], parameters, "before")
                arrived = reward + (Fraction(0) if following is None else worth[following])
                led_to[i] = arrived - penalty(rows[i], parameters, "after")
                gains[i] = arrived - worth[i]
    found = standardised(gains, task, parameters, parameters["normalise"], "group_of_one")
    for i in counted:
        names = {rows[j]["trajectory"] for j in counted if task[j] == task[i]}
        if len(names) == 1 and parameters["group_of_one"] == "no_credit":
            found.values[i], found.reasons[i] = 0.0, "group_of_one"
    gain = _part(rows, parameters, found.values, found.reasons, task)
    return _two_levels(rows, parameters, led_to, keys, {"gain": gain}, [found])


def graphgpo(rows: list[Row], parameters: Parameters) -> Answer:
    """An episode term, and the distance to success after a step, by search from the end."""
    counted = counted_rows(rows, parameters)
    keys = same_state(rows, counted, scope="group")
    nodes = {i: keys.get(i, i) for i in counted}
    right, plain = Fraction(parameters["right"]), {**parameters, "invalid_penalty": 0.0}
    won = {name for name, total in episode_returns(rows, plain).items() if total >= right}
    leads: dict[Hashable, set[Hashable]] = {}
    after: dict[int, Hashable] = {}
    for name, members in trajectories(rows).items():
        for i, following in zip(members, [*members[1:], None], strict=True):
            if i not in nodes:
                continue
            task = rows[i]["group"]
            end = ("won", task) if name in won else ("lost", task)
            after[i] = end if following is None else nodes[following]
            leads.setdefault(after[i], set()).add(nodes[i])
    worth = {}
    for task in {rows[i]["group"] for i in counted}:
        distance: dict[Hashable, int] = {("won", task): 0}
        frontier: list[Hashable] = [("won", task)]
        while frontier:
            node = frontier.pop(0)
            for before in leads.get(node, ()):
                if before not in distance:
                    distance[before] = distance[node] + 1
                    frontier.append(before)
        for i in counted:
            if rows[i]["group"] == task:
                left = distance.get(after[i], max(distance.values()) + 1)
                worth[i] = Fraction(parameters["goal"]) * Fraction(parameters["gamma"]) ** left
                worth[i] -= penalty(rows[i], parameters, "after")
    return _two_levels(rows, parameters, worth, keys)


def _two_levels(
    rows: list[Row],
    parameters: Parameters,
    compared: Mapping[int, Fraction],
    keys: Mapping[int, Hashable],
    more: Mapping[str, Part] | None = None,
    comparisons: list[Comparison] | None = None,
) -> Answer:
    """GiGPO's episode term, ``compared`` inside the states ``keys``, and ``more`` step terms."""
    counted = counted_rows(rows, parameters)
    returns, group_of = _counted_returns(rows, parameters)
    by = parameters["normalise"]

    scores = {
        i: returns[rows[i]["trajectory"]] - penalty(rows[i], parameters, "after") for i in counted
    }
    if parameters["baseline_unit"] == "trajectory":
        whole = standardised(returns, group_of, parameters, by, "group_of_one")
        values = {i: whole.values[rows[i]["trajectory"]] for i in counted}
        reasons = {i: whole.reasons[rows[i]["trajectory"]] for i in counted}
    else:
        task = {i: rows[i]["group"] for i in counted}
        whole = standardised(scores, task, parameters, by, "group_of_one")
        values, reasons = whole.values, whole.reasons
    if parameters["group_of_one"] == "raw":
        for i in counted:
            if reasons[i] == "group_of_one":
                values[i], reasons[i] = float(scores[i]), "credited"
    episode = _part(rows, parameters, values, reasons, {i: rows[i]["group"] for i in counted})

    stepwise = step_relative(
        {i: compared[i] for i in keys},
        keys,
        {i: rows[i]["trajectory"] for i in keys},
        parameters["revisits"],
        lambda values, groups: standardised(values, groups, parameters, by, "singleton"),
    )
    for i in keys if parameters["group_of_one"] == "no_credit" else ():
        visitors = {rows[j]["trajectory"] for j in keys if keys[j] == keys[i]}
        if len(visitors) == 1 and _only_trajectory(rows, counted, i):
            stepwise.values[i], stepwise.reasons[i] = 0.0, "group_of_one"
    for i in counted:
        if rows[i]["state"] is None:
            stepwise.values[i], stepwise.reasons[i] = 0.0, "missing_state"
    step = _part(rows, parameters, stepwise.values, stepwise.reasons, keys)
    step = in_scale(step, episode, parameters)

    terms = {"episode": episode, "step": step} | dict(more or {})
    total = [
        episode.values[i]
        + parameters["weight"] * sum(part.values[i] for part in list(terms.values())[1:])
        for i in range(len(rows))
    ]
    found = [[part.reasons[i] for part in terms.values()] for i in range(len(rows))]
    reasons_of_all = ["credited" if "credited" in each else each[-1] for each in found]
    return Answer(total, reasons_of_all, terms, [whole, stepwise, *(comparisons or [])])


def _only_trajectory(rows: list[Row], counted: list[int], i: int) -> bool:
    """Whether the task of row ``i`` has no other trajectory."""
    task = {rows[j]["trajectory"] for j in counted if rows[j]["group"] == rows[i]["group"]}
    return task == {rows[i]["trajectory"]}


def hgpo(rows: list[Row], parameters: Parameters) -> Answer:
    """Step terms in contexts of one state, two states ..., averaged over those with peers."""
    counted = counted_rows(rows, parameters)
    to_go = rewards_to_go(rows, parameters)
    by = parameters["normalise"]
    contexts: list[tuple[float, Comparison]] = []
    if parameters["episode"]:
        returns = episode_returns(rows, parameters)
        scores = {
            i: returns[rows[i]["trajectory"]] - penalty(rows[i], parameters, "after")
            for i in counted
        }
        task = {i: rows[i]["group"] for i in counted}
        contexts.append((1.0, standardised(scores, task, parameters, by, "singleton")))
    for k in range(1, parameters["history_length"] + 2):
        keys = same_history(rows, counted, k)
        found = standardised({i: to_go[i] for i in keys}, keys, parameters, by, "singleton")
        contexts.append(((k + 1.0) ** parameters["alpha"], found))

    values, reasons = {}, {}
    for i in counted:
        with_peers = [
            (weight, found.values[i], found.reasons[i])
            for weight, found in contexts
            if found.reasons.get(i, "singleton") != "singleton"
        ]
        entries = [(weight, value) for weight, value, _ in with_peers]
        if parameters["drop_zeros"]:
            # The documented meaning of zero: rounding must not decide what is averaged.
            entries = [(weight, value) for weight, value in entries if abs(value) > 1e-9]
        bottom = sum(weight for weight, _ in entries)
        values[i] = sum(weight * value for weight, value in entries) / bottom if entries else 0.0
        if any(why == "credited" for _, _, why in with_peers):
            reasons[i] = "credited"
        elif with_peers:
            reasons[i] = "zero_variance"
        else:
            reasons[i] = "singleton" if rows[i]["state"] is not None else "missing_state"
        if parameters["group_of_one"] == "no_credit" and _only_trajectory(rows, counted, i):
            values[i], reasons[i] = 0.0, "group_of_one"
            for _, found in contexts:
                found.reasons[i] = "group_of_one"
    step = _part(rows, parameters, values, reasons, same_history(rows, counted, 1))
    whole = standardised(*_counted_returns(rows, parameters), parameters, by, "group_of_one")
    answer = _whole_trajectories(rows, parameters, whole, whole.values, whole.reasons)
    step = in_scale(step, answer.terms["episode"], parameters)
    return Answer(step.values, step.reasons, {"step": step}, [found for _, found in contexts])


def _counted_returns(
    rows: list[Row], parameters: Parameters
) -> tuple[dict[Hashable, Fraction], dict[Hashable, Hashable]]:
    """Return and task of each trajectory that counts."""
    out = left_out(rows, parameters)
    returns = {
        name: value for name, value in episode_returns(rows, parameters).items() if name not in out
    }
    task = {name: rows[members[0]]["group"] for name, members in trajectories(rows).items()}
    return returns, {name: task[name] for name in returns}


def _whole_trajectories(
    rows: list[Row],
    parameters: Parameters,
    found: Comparison,
    values: Mapping[Hashable, float],
    reasons: Mapping[Hashable, str],
) -> Answer:
    """The same credit for every row of a trajectory."""
    counted = counted_rows(rows, parameters)
    part = _part(
        rows,
        parameters,
        {i: values[rows[i]["trajectory"]] for i in counted},
        {i: reasons[rows[i]["trajectory"]] for i in counted},
        {i: rows[i]["group"] for i in counted},
    )
    return Answer(part.values, part.reasons, {"episode": part}, [found])


def _part(
    rows: list[Row],
    parameters: Parameters,
    values: Mapping[Any, float],
    reasons: Mapping[Any, str],
    keys: Mapping[Any, Hashable],
) -> Part:
    """A term for all rows; padding and trajectories left out say so."""
    out = left_out(rows, parameters)
    part = Part([], [], [])
    for i, row in enumerate(rows):
        if is_padding(row):
            entry = (0.0, "padding", None)
        elif row["trajectory"] in out:
            entry = (0.0, "truncated", None)
        else:
            entry = (values[i], reasons[i], keys.get(i))
        for column, value in zip((part.values, part.reasons, part.keys), entry, strict=True):
            column.append(value)
    return part


RECIPES: dict[str, Callable[[list[Row], Parameters], Answer]] = {
    "grpo": grpo,
    "rloo": rloo,
    "dr_grpo": dr_grpo,
    "reinforce_pp": reinforce_pp,
    "returns": returns,
    "gae": gae,
    "progress": progress,
    "judged": judged,
    "gigpo": gigpo,
    "g2po": g2po,
    "graphgpo": graphgpo,
    "hgpo": hgpo,
    "entropy": entropy,
}
