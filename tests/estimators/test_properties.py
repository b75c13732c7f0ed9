"""What must hold of every recipe, whatever the numbers are."""

from dataclasses import asdict, replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe import Credit, Reason, StepTable
from ascribe.estimators import GRPO, RLOO, DrGRPO, GiGPO
from tests.estimators import reference
from tests.strategies import STATES, TEXTS, padding_rows, recipes, step_tables

each_recipe = pytest.mark.parametrize("name", reference.RECIPES)
seeds = st.integers(0, 2**32 - 1)


def assert_same_bits(got: Credit, wanted: Credit, *, labels: bool = True) -> None:
    np.testing.assert_array_equal(got.advantage, wanted.advantage)
    np.testing.assert_array_equal(got.reason, wanted.reason)
    assert got.terms.keys() == wanted.terms.keys()
    for name, term in got.terms.items():
        np.testing.assert_array_equal(term.values, wanted.terms[name].values)
        np.testing.assert_array_equal(term.reason, wanted.terms[name].reason)
        assert term.weight == wanted.terms[name].weight
        if labels:
            np.testing.assert_array_equal(term.labels, wanted.terms[name].labels)


def assert_close(got: Credit, wanted: Credit) -> None:
    np.testing.assert_allclose(got.advantage, wanted.advantage, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(got.reason, wanted.reason)
    for name, term in got.terms.items():
        np.testing.assert_allclose(term.values, wanted.terms[name].values, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(term.reason, wanted.terms[name].reason)


@pytest.mark.slow
@each_recipe
@given(data=st.data(), seed=seeds)
def test_row_order_carries_no_meaning(name, data, seed):
    recipe, table = data.draw(recipes(name)), data.draw(step_tables(states=TEXTS))
    rows = table.to_dicts()
    order = Random(seed).sample(range(len(rows)), len(rows))
    shuffled = StepTable.from_dicts(rows[i] for i in order)
    assert_same_bits(recipe(shuffled), recipe(table).rows(np.array(order)))


@pytest.mark.slow
@each_recipe
@given(data=st.data(), seed=seeds)
def test_padding_counts_for_nothing(name, data, seed):
    recipe, table = data.draw(recipes(name)), data.draw(step_tables(states=TEXTS, padding=False))
    random = Random(seed)
    rows = [{"padding": False, "truncated": False} | row for row in table.to_dicts()]
    where = list(range(len(rows)))
    for filler in padding_rows(rows, random, random.randint(1, 6)):
        at = random.randint(0, len(rows))
        rows.insert(at, filler)
        where = [i + (i >= at) for i in where]
    credit = recipe(StepTable.from_dicts(rows))
    assert_same_bits(credit.rows(np.array(where)), recipe(table))
    fillers = credit.rows(np.array([row["padding"] for row in rows]))
    for values, reason in [
        (fillers.advantage, fillers.reason),
        *((term.values, term.reason) for term in fillers.terms.values()),
    ]:
        np.testing.assert_array_equal(values, 0.0)
        np.testing.assert_array_equal(reason, Reason.PADDING)
    for term in fillers.terms.values():
        np.testing.assert_array_equal(term.labels, -1)


@pytest.mark.slow
@each_recipe
@given(data=st.data(), seed=seeds)
def test_names_carry_no_meaning(name, data, seed):
    # Similar states are another matter: there the text counts, and trajectories are compared in
    # the order of their names.
    recipe, table = data.draw(recipes(name, grouping="exact")), data.draw(step_tables())
    rows = table.to_dicts()
    # Names decide the order of sums; a spread of the size of their rounding is blown up by a std.
    assume(reference.credit(name, rows, asdict(recipe)).narrowest > 1e-5)
    random = Random(seed)
    for column in ("group", "trajectory", "state", "action"):
        old = sorted({row[column] for row in rows if row[column] is not None})
        new = [f"{number:03}" for number in random.sample(range(1000), len(old))]
        renamed = dict(zip(old, new, strict=True)) | {None: None}
        rows = [row | {column: renamed[row[column]]} for row in rows]
    assert_close(recipe(StepTable.from_dicts(rows)), recipe(table))


GROUPWISE = [name for name in reference.RECIPES if name not in ("reinforce_pp", "entropy")]


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPWISE)
@given(data=st.data())
def test_groups_can_be_credited_apart(name, data):
    recipe = data.draw(recipes(name, scope="group"))
    table = data.draw(step_tables(states=TEXTS, padding=False))
    rows = table.to_dicts()
    whole = recipe(table)
    for group in {row["group"] for row in rows}:
        mine = [i for i, row in enumerate(rows) if row["group"] == group]
        apart = recipe(StepTable.from_dicts(rows[i] for i in mine))
        together = whole.rows(np.array(mine))
        assert_same_bits(apart, together, labels=False)
        for term, other in zip(apart.terms.values(), together.terms.values(), strict=True):
            pairs = set(zip(term.labels.tolist(), other.labels.tolist(), strict=True))
            assert len(pairs) == len(dict(pairs)) == len(set(other.labels.tolist()))


def without_cut_trajectories(table: StepTable) -> tuple[StepTable, np.ndarray]:
    rows = table.to_dicts()
    cut = {row["trajectory"] for row in rows if row.get("truncated")}
    stay = np.array([row["trajectory"] not in cut for row in rows])
    return table.take(stay), stay


@pytest.mark.slow
@each_recipe
@given(data=st.data())
def test_excluded_trajectories_might_as_well_not_be_there(name, data):
    recipe = data.draw(recipes(name, grouping="exact", truncation="exclude"))
    table = data.draw(step_tables(padding=False))
    rest, stay = without_cut_trajectories(table)
    assume(stay.any())
    credit = recipe(table)
    assert_same_bits(credit.rows(stay), recipe(rest), labels=False)
    np.testing.assert_array_equal(credit.reason[~stay], Reason.TRUNCATED)
    np.testing.assert_array_equal(credit.advantage[~stay], 0.0)


@pytest.mark.unit
def test_excluded_trajectories_found_no_similar_groups():
    # ratio("aab", "aaab") = 6/7 and ratio("aab", "aabb") = 6/7, but ratio("aaab", "aabb") = 6/8.
    table = StepTable.from_dicts(
        {
            "group": "task",
            "trajectory": trajectory,
            "step": 0,
            "state": state,
            "action": "go",
            "reward": reward,
            "truncated": cut,
        }
        for trajectory, state, reward, cut in [
            ("a", "aab", 0.0, True),
            ("b", "aaab", 1.0, False),
            ("c", "aabb", 0.0, False),
        ]
    )
    recipe = GiGPO(grouping="similar", similarity=0.8, truncation="exclude")
    rest, stay = without_cut_trajectories(table)
    assert_same_bits(recipe(table).rows(stay), recipe(rest), labels=False)


# Sums over groups, and one recipe against another.


def by_group(table: StepTable, values: np.ndarray) -> dict[str, dict[str, float]]:
    """The value of each trajectory's first row, by group and trajectory."""
    out: dict[str, dict[str, float]] = {}
    for row, value in zip(table.to_dicts(), values.tolist(), strict=True):
        if row["step"] == 0 and not row.get("padding"):
            out.setdefault(row["group"], {})[row["trajectory"]] = value
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "rloo", "dr_grpo"])
@given(data=st.data())
def test_trajectories_of_a_group_sum_to_zero(name, data):
    # Without an epsilon and a floor, a spread of the size of rounding would be blown up.
    recipe = data.draw(recipes(name, std_epsilon=1e-2))
    table = data.draw(step_tables())
    for members in by_group(table, recipe(table).advantage).values():
        assert sum(members.values()) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
@given(
    recipe=recipes("gigpo", normalise="mean", revisits="each"),
    table=step_tables(states=TEXTS),
)
def test_mean_form_of_the_step_term_sums_to_zero_in_every_state(recipe, table):
    term = recipe(table).terms["step"]
    sums = np.bincount(term.labels[term.labels >= 0], term.values[term.labels >= 0])
    np.testing.assert_allclose(sums, 0.0, atol=1e-9)


@pytest.mark.slow
@given(data=st.data(), table=step_tables())
def test_leave_one_out_is_the_mean_centred_form_scaled(data, table):
    recipe = data.draw(recipes("rloo"))
    centred = DrGRPO(**asdict(recipe))(table)
    credit = recipe(table)
    np.testing.assert_array_equal(credit.reason, centred.reason)
    names = {row["trajectory"]: row["group"] for row in table.to_dicts() if not row.get("padding")}
    out = reference.left_out(table.to_dicts(), asdict(recipe))
    members = [group for trajectory, group in names.items() if trajectory not in out]
    for i, row in enumerate(table.to_dicts()):
        n = members.count(row["group"])
        factor = n / (n - 1) if n > 1 else 1.0
        assert credit.advantage[i] == pytest.approx(
            factor * centred.advantage[i], rel=1e-9, abs=1e-9
        )


@pytest.mark.slow
@given(data=st.data(), table=step_tables())
def test_gigpo_is_grpo_where_no_state_is_seen_twice(data, table):
    recipe = data.draw(recipes("gigpo", normalise="std", grouping="exact"))
    recipe = replace(
        recipe, baseline_unit="trajectory", group_of_one="no_credit", penalty_timing="before"
    )
    rows = table.to_dicts()
    distinct = StepTable.from_dicts(
        row if row.get("padding") else row | {"state": f"state {i}"} for i, row in enumerate(rows)
    )
    shared = {name: value for name, value in asdict(recipe).items() if hasattr(GRPO, name)}
    credit, whole = recipe(distinct), GRPO(**shared)(distinct)
    np.testing.assert_array_equal(credit.advantage, whole.advantage)
    step = credit.terms["step"]
    alone = {Reason.SINGLETON, Reason.GROUP_OF_ONE, Reason.TRUNCATED, Reason.PADDING}
    assert set(step.reason.tolist()) <= alone
    np.testing.assert_array_equal(step.values, 0.0)


@pytest.mark.slow
@given(table=step_tables(), penalty=st.sampled_from((0.0, 0.125)))
def test_gigpo_mean_form_is_dr_grpo_where_no_state_is_seen(table, penalty):
    blank = StepTable.from_dicts(row | {"state": None} for row in table.to_dicts())
    credit = GiGPO(normalise="mean", invalid_penalty=penalty)(blank)
    np.testing.assert_array_equal(
        credit.advantage, DrGRPO(invalid_penalty=penalty)(blank).advantage
    )
    missing = {Reason.MISSING_STATE, Reason.PADDING}
    assert set(credit.terms["step"].reason.tolist()) <= missing


@pytest.mark.slow
@given(table=step_tables(states=STATES[:2], missing=False))
def test_a_credit_is_the_weighted_sum_of_its_terms(table):
    credit = GiGPO(weight=0.5)(table)
    terms = credit.terms
    np.testing.assert_array_equal(
        credit.advantage, terms["episode"].values + 0.5 * terms["step"].values
    )
    either = terms["episode"].credited | terms["step"].credited
    np.testing.assert_array_equal(credit.credited, either)


@pytest.mark.unit
@pytest.mark.parametrize("recipe", [GRPO(), RLOO(), DrGRPO(), GRPO(std_epsilon=0.0)])
def test_rounding_of_returns_is_no_signal(recipe):
    # 0.1 + 0.2 + 0.3 in two orders: 0.6000000000000001 and 0.6. On paper they tie.
    table = StepTable.from_dicts(
        {
            "group": "task",
            "trajectory": trajectory,
            "step": t,
            "state": f"{trajectory}{t}",
            "action": "go",
            "reward": reward,
        }
        for trajectory, rewards in {"up": (0.1, 0.2, 0.3), "down": (0.3, 0.2, 0.1)}.items()
        for t, reward in enumerate(rewards)
    )
    credit = recipe(table)
    assert set(credit.reason.tolist()) == {Reason.ZERO_VARIANCE}
    np.testing.assert_array_equal(credit.advantage, 0.0)
