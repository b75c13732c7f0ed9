"""Every number of a diagnosis, against loops over rows."""

import json
import math
from dataclasses import asdict
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe import Reason, StepTable, diagnose
from ascribe.estimators import GRPO, HGPO, GiGPO
from ascribe.estimators.diagnostics import wilson
from tests.estimators import reference
from tests.strategies import TEXTS, recipes, step_tables

BINS = {
    "1": (1, 1),
    "2": (2, 2),
    "3-4": (3, 4),
    "5-8": (5, 8),
    "9-16": (9, 16),
    "17-32": (17, 32),
    "33+": (33, 10**9),
}


def real(rows):
    return [i for i, row in enumerate(rows) if not row.get("padding")]


def share(part, whole):
    return part / whole if whole else 0.0


def root_mean_square(values):
    return math.sqrt(sum(value * value for value in values) / len(values))


def by_group(rows):
    """The rows of each trajectory of each group."""
    out = {}
    for i in real(rows):
        out.setdefault(rows[i]["group"], {}).setdefault(rows[i]["trajectory"], []).append(rows[i])
    return out


def earned(rows, *, valid=None):
    """Exact sum of rewards, of all rows or of those that are (not) valid."""
    chosen = [row for row in rows if valid is None or row.get("valid", True) == valid]
    return sum((Fraction(row["reward"]) for row in chosen), Fraction(0)), len(chosen)


def whole_numbers(rows, credit):
    """What a diagnosis says about rows, tasks and terms."""
    mine = real(rows)
    groups = by_group(rows)
    several = [list(group.values()) for group in groups.values() if len(group) > 1]
    advantage = credit.advantage.tolist()
    weighted = {
        name: [term.weight * term.values.tolist()[i] for i in mine]
        for name, term in credit.terms.items()
    }
    magnitude = {name: sum(map(abs, values)) for name, values in weighted.items()}
    labels = [Reason(code).label for code in credit.reason]
    episodes = [episode for group in groups.values() for episode in group.values()]
    success = sum(earned(episode)[0] > 0 for episode in episodes) / len(episodes)
    signal = [
        i for i in mine if any(term.reason[i] == Reason.CREDITED for term in credit.terms.values())
    ]
    return {
        "rows": len(mine),
        "groups": len(groups),
        "trajectories": len(episodes),
        "turns": len(mine) / len(episodes),
        "truncated_share": sum(
            any(row.get("truncated", False) for row in episode) for episode in episodes
        )
        / len(episodes),
        "mean_advantage": sum(advantage[i] for i in mine) / len(mine),
        "advantage_rms": root_mean_square([advantage[i] for i in mine]),
        "signal_share": len(signal) / len(mine),
        "opposite_share": share(len(opposite(rows, advantage, mine)), len(mine)),
        "reasons": {label: labels.count(label) for label in set(labels)},
        "term_share": {
            name: share(part, sum(magnitude.values())) for name, part in magnitude.items()
        },
        "term_rms": {name: root_mean_square(values) for name, values in weighted.items()},
        "zero_variance_groups": sum(
            len({earned(rows)[0] for rows in group}) == 1 for group in several
        ),
        "expected_equal_groups": sum(
            success ** len(group) + (1 - success) ** len(group) for group in several
        ),
        "penalty_only_groups": sum(
            len({earned(rows, valid=True)[0] for rows in group}) == 1
            and len({earned(rows, valid=False) for rows in group}) > 1
            for group in several
        ),
    }


def opposite(rows, advantage, mine):
    """Rows that another row of the task contradicts: same state, same action, opposite credit."""
    least = 1e-9 * max((abs(advantage[i]) for i in mine), default=0.0)
    decision = [(row["group"], row.get("state"), row.get("action")) for row in rows]
    return [
        i
        for i in mine
        if None not in decision[i]
        and any(
            decision[i] == decision[j]
            and advantage[i] * advantage[j] < 0
            and min(abs(advantage[i]), abs(advantage[j])) > least
            for j in mine
        )
    ]


def state_numbers(rows, labels, comparison):
    """What a diagnosis says about state groups."""
    members = {}
    for i in real(rows):
        if labels[i] >= 0:
            members.setdefault(labels[i], []).append(i)
    sizes = [len(group) for group in members.values()]
    visits = {(label, rows[i]["trajectory"]) for label, group in members.items() for i in group}
    pairs = [(i, j) for group in members.values() for i in group for j in group if i < j]
    return {
        "count": len(members),
        "mean_size": share(sum(sizes), len(sizes)),
        "singleton_share_of_groups": share(sizes.count(1), len(sizes)),
        "singleton_share_of_rows": share(sizes.count(1), sum(sizes)),
        "sizes": {
            name: sum(low <= size <= high for size in sizes) for name, (low, high) in BINS.items()
        },
        "matched_pairs": len(pairs),
        "revisit_share": share(sum(sizes) - len(visits), sum(sizes)),
        "zero_variance": sum(
            all(comparison.reasons[member] == "zero_variance" for member in group)
            for group in comparison.members.values()
        ),
        "cross_task": sum(len({rows[i]["group"] for i in group}) > 1 for group in members.values()),
    }


def assert_equal(got, wanted):
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@pytest.mark.slow
@pytest.mark.parametrize("name", reference.RECIPES)
@given(data=st.data())
def test_every_number_equals_loops(name, data):
    # With the episode as a context, the reason of a row is not about its state alone.
    recipe = data.draw(recipes(name, grouping="exact", episode=False))
    table = data.draw(step_tables() | step_tables(states=TEXTS[:2], missing=False))
    rows = table.to_dicts()
    answer = reference.credit(name, rows, asdict(recipe))
    assume(answer.narrowest > 1e-5)
    credit = recipe(table)
    got = diagnose(table, credit).as_dict()
    states = got.pop("states")
    assert_equal(got, whole_numbers(rows, credit))
    if "step" in credit.terms:
        two_levels = name in ("gigpo", "judged", "g2po", "graphgpo")  # the episode comes first
        comparison = answer.comparisons[two_levels]
        labels = credit.terms["step"].labels.tolist()
        assert_equal(states, state_numbers(rows, labels, comparison))
    else:
        assert states is None


def rows_of(*trajectories, group="g"):
    """Trajectories of (state, reward) steps; an invalid step has a third entry, False."""
    return [
        {
            "group": group,
            "trajectory": f"{group}/{i}",
            "step": t,
            "state": state,
            "action": "go",
            "reward": reward,
            "valid": not invalid,
        }
        for i, steps in enumerate(trajectories)
        for t, (state, reward, *invalid) in enumerate(steps)
    ]


@pytest.mark.unit
def test_by_hand():
    # Task g: "a" is seen by both (returns 1 and 0: +0.5, -0.5), "b" by the first alone.
    # Task h: both earn 1 in "a", and nothing is told.
    rows = rows_of([("a", 0.0), ("b", 1.0)], [("a", 0.0)])
    rows += rows_of([("a", 1.0)], [("a", 1.0)], group="h")
    table = StepTable.from_dicts(rows)
    found = diagnose(table, GiGPO(gamma=1.0, normalise="mean", weight=0.5)(table))
    # Episode terms 0.5, 0.5, -0.5, 0, 0; weighted step terms 0.25, 0, -0.25, 0, 0.
    assert (found.rows, found.groups, found.trajectories) == (5, 2, 4)
    assert found.mean_advantage == pytest.approx((0.75 + 0.5 - 0.75) / 5)
    assert found.advantage_rms == pytest.approx(((0.75**2 + 0.5**2 + 0.75**2) / 5) ** 0.5)
    assert found.signal_share == 0.6
    assert found.reasons == {"credited": 3, "zero_variance": 2}
    assert found.term_share == {"episode": 0.75, "step": 0.25}
    assert found.term_rms["step"] == pytest.approx((2 * 0.25**2 / 5) ** 0.5)
    assert (found.zero_variance_groups, found.penalty_only_groups) == (1, 0)
    assert found.states is not None
    assert (found.states.count, found.states.mean_size) == (3, 5 / 3)
    assert (found.states.matched_pairs, found.states.revisit_share) == (2, 0.0)
    assert (found.states.zero_variance, found.states.cross_task) == (1, 0)
    assert found.states.sizes == dict.fromkeys(BINS, 0) | {"1": 1, "2": 2}


@pytest.mark.unit
def test_revisits_and_tasks_that_merge():
    rows = rows_of([("a", 0.0), ("a", 0.0), ("a", 1.0)]) + rows_of([("a", 0.0)], group="h")
    table = StepTable.from_dicts(rows)
    states = diagnose(table, GiGPO(scope="batch")(table)).states
    assert states is not None
    # One group of four rows; two of them are later visits.
    assert (states.count, states.cross_task) == (1, 1)
    assert (states.matched_pairs, states.revisit_share) == (6, 0.5)


@pytest.mark.unit
def test_groups_that_differ_by_penalties_alone():
    alone = rows_of([("a", -0.125, False)], [("a", 0.0)])
    earns = rows_of([("a", -0.125, False), ("b", 1.0)], [("a", 0.0)], group="h")
    table = StepTable.from_dicts(alone + earns)
    found = diagnose(table, GRPO()(table))
    assert (found.penalty_only_groups, found.zero_variance_groups) == (1, 0)
    assert found.states is None


@pytest.mark.unit
def test_without_any_signal():
    table = StepTable.from_dicts(rows_of([(None, 0.0)], [(None, 0.0)]))
    found = diagnose(table, GiGPO()(table))
    assert (found.signal_share, found.advantage_rms) == (0.0, 0.0)
    assert found.term_share == {"episode": 0.0, "step": 0.0}
    assert found.reasons == {"missing_state": 2}
    assert found.states is not None
    assert (found.states.count, found.states.mean_size) == (0, 0.0)


@pytest.mark.unit
def test_as_dict_is_json():
    table = StepTable.from_dicts(rows_of([("a", 0.0)], [("a", 1.0)]))
    found = diagnose(table, GiGPO()(table))
    read = json.loads(json.dumps(found.as_dict()))
    assert read["states"]["count"] == 1
    assert read["rows"] == 2


@pytest.mark.unit
def test_states_of_one_row_are_not_groups_of_equal_returns():
    # Both trajectories earn 1, each in a state of its own: no state group has two rows.
    table = StepTable.from_dicts(rows_of([("a", 1.0)], [("b", 1.0)]))
    states = diagnose(table, HGPO(episode=True)(table)).states
    assert states is not None
    assert states.zero_variance == 0


@pytest.mark.parametrize(
    ("won", "trials", "low", "high"),
    # Newcombe 1998, Table I, method 3 (the score interval without continuity correction).
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_is_the_published_one(won, trials, low, high) -> None:
    assert wilson(won / trials, trials) == pytest.approx((low, high), abs=5e-5)


def test_an_interval_needs_trials() -> None:
    with pytest.raises(ValueError, match="at least one"):
        wilson(0.5, 0)
