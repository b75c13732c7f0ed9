"""BiGPO and BiPACE: against loops written from the equations, and what must hold of them.

Code: src/ascribe/estimators/bipace.py. Page: docs/estimators/bipace.md.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import Reason, StepTable, recipe
from ascribe.estimators.bipace import Branch, pace, row_mix
from ascribe.estimators.clusters import BY_TEXT
from ascribe.estimators.relative import Norm
from ascribe.steps.check import arrange
from tests.estimators import reference_bipace as reference
from tests.strategies import step_tables

pytestmark = pytest.mark.unit

NAMES = ("bigpo", "bipace_diff", "bipace_q")


def fingerprints(table: StepTable, seed: int) -> np.ndarray:
    """Equal states get nearby vectors."""
    random = np.random.default_rng(seed)
    by_state = random.standard_normal((table.state.values.size + 1, 8))
    return by_state[table.state.codes] + 0.2 * random.standard_normal((len(table), 8))


@given(table=step_tables())
def test_identity_at_radius_zero_is_gigpo_bit_for_bit(table: StepTable) -> None:
    exact = recipe("gigpo")(table)
    clustered = recipe("bigpo", fingerprint="identity", radius=0.0)(table)
    assert np.array_equal(clustered.advantage, exact.advantage)
    assert np.array_equal(clustered.reason, exact.reason)
    for name, term in exact.terms.items():
        assert np.array_equal(clustered.terms[name].values, term.values)
        assert np.array_equal(clustered.terms[name].labels, term.labels)


@pytest.mark.parametrize("name", NAMES)
@given(table=step_tables(), seed=st.integers(0, 10**6), radius=st.floats(0.01, 0.6))
def test_row_order_never_matters(name: str, table: StepTable, seed: int, radius: float) -> None:
    vectors = fingerprints(table, seed)
    credit = recipe(name, radius=radius)(table, fingerprints=vectors)
    order = np.random.default_rng(seed).permutation(len(table))
    moved = recipe(name, radius=radius)(table.take(order), fingerprints=vectors[order])
    assert np.array_equal(moved.advantage, credit.advantage[order])
    assert np.array_equal(moved.terms["step"].labels, credit.terms["step"].labels[order])
    assert moved.metrics == credit.metrics


@pytest.mark.parametrize("form", ["q", "diff"])
@given(table=step_tables(padding=False), seed=st.integers(0, 10**6))
def test_step_term_equals_the_paper_from_end_to_end(form: str, table: StepTable, seed: int) -> None:
    """Algorithm 1 on each task, then Eq. 4 to 7 inside its clusters, all by loops."""
    vectors = fingerprints(table, seed)
    parameters = {"radius": 0.2, "gamma": 0.5, "on_collapse": "keep", "group_of_one": "raw"}
    credit = recipe(f"bipace_{form}", **parameters)(table, fingerprints=vectors)
    steps = arrange(table)
    for task in range(steps.group_count):
        rows = steps.rows[steps.group == task]
        unit = vectors[rows] / np.linalg.norm(vectors[rows], axis=1, keepdims=True)
        clusters = reference.greedy_cosine(unit, 0.2 + 1e-6)
        returns = [to_go(table, int(row), 0.5) for row in rows]
        keys = table.action.codes[rows].tolist()
        expected = reference.pace(returns, clusters, keys, form)
        found = credit.terms["step"].values[rows]
        assert found == pytest.approx([value for value, _ in expected], abs=1e-9)


def to_go(table: StepTable, row: int, gamma: float) -> float:
    same = table.trajectory.codes == table.trajectory.codes[row]
    later = same & (table.step >= table.step[row])
    away = table.step[later] - table.step[row]
    return float((gamma**away * table.reward[later]).sum())


@pytest.mark.parametrize("name", ["bipace_diff", "bipace_q"])
@pytest.mark.parametrize("revisits", ["first", "average"])
def test_a_way_to_count_revisits_that_would_do_nothing_is_refused(name: str, revisits: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: revisits is '{revisits}', but every visit"):
        recipe(name, revisits=revisits)
    assert recipe(name, revisits="each") == recipe(name)
    assert recipe("bigpo", revisits=revisits).revisits == revisits


def rollout(states: list[str]) -> StepTable:
    rows = [
        {"group": "g", "trajectory": f"t{i}", "step": 0, "state": state, "action": "go"}
        | {"reward": float(i % 2)}
        for i, state in enumerate(states)
    ]
    return StepTable.from_dicts(rows)


def test_collapse_falls_back_to_exact_states_by_name() -> None:
    table = rollout(["hall", "hall", "yard", "yard"])
    vectors = np.ones((4, 3))
    fallen = recipe("bigpo")(table, fingerprints=vectors)
    assert fallen.metrics["collapsed_groups"] == 1
    assert fallen.terms["step"].labels.tolist() == [0, 0, 1, 1]
    kept = recipe("bigpo", on_collapse="keep")(table, fingerprints=vectors)
    assert kept.terms["step"].labels.tolist() == [0, 0, 0, 0]


def test_rows_without_a_fingerprint_say_so() -> None:
    vectors = np.array([[1.0, 0], [1, 0], [0, 0], [0, 1]])
    credit = recipe("bigpo")(rollout(["a", "b", "c", "d"]), fingerprints=vectors)
    assert credit.terms["step"].reason[2] == Reason.MISSING_STATE
    assert credit.terms["step"].labels.tolist() == [0, 0, -1, 1]


def test_what_is_missing_is_said() -> None:
    table = rollout(["a", "b"])
    with pytest.raises(ValueError, match="2 rows, but 3 fingerprints"):
        recipe("bipace_q")(table, fingerprints=np.ones((3, 2)))
    with pytest.raises(TypeError, match="takes no input 'fingerprints'"):
        recipe("gigpo")(table, fingerprints=np.ones((2, 2)))


@pytest.mark.parametrize("name", ["bigpo", "bipace_diff", "bipace_q", "sbc"])
def test_without_fingerprints_states_are_compared_by_their_text(name: str) -> None:
    table = rollout(["hall", "hall", "attic", "attic"])
    by_text = recipe(name, fingerprint="identity")(table)
    for missing in ({}, {"fingerprints": np.zeros((4, 3))}):
        credit = recipe(name)(table, **missing)
        np.testing.assert_allclose(credit.advantage, by_text.advantage, atol=1e-12)
        assert credit.notes == (BY_TEXT,)
    assert by_text.notes == ()
    assert recipe(name)(table, fingerprints=np.eye(4)[[0, 0, 1, 2]]).notes == ()
    assert recipe("sbc", preset="exact")(table).notes == ()


def test_the_step_term_alone_has_the_scale_of_the_reward() -> None:
    """Eq. 4 to 7 are in units of the return, beside a standardised episode term.

    So 10 for a success, as in GiGPO, gives the step term ten times the weight that 1 gives it.
    """
    rows = rollout(["hall", "hall", "attic", "attic"] * 3).to_dicts()
    sizes = {}
    for paid in (1.0, 10.0):
        acted = ({"reward": paid * (n % 3), "action": f"{n // 4}"} for n in range(len(rows)))
        table = StepTable.from_dicts(row | more for row, more in zip(rows, acted, strict=True))
        terms = recipe("bipace_q", fingerprint="identity")(table).terms
        sizes[paid] = {name: np.sqrt(np.mean(term.values**2)) for name, term in terms.items()}
    assert sizes[10.0]["episode"] == pytest.approx(sizes[1.0]["episode"], rel=1e-4)
    assert sizes[10.0]["step"] == pytest.approx(10 * sizes[1.0]["step"])
    assert sizes[1.0]["step"] > 0


def test_radius_can_be_searched() -> None:
    table = rollout(["hall"] * 6 + ["hall."] * 6)
    searched = recipe("bigpo", fingerprint="ngram", radius_rule="search")(table)
    assert 0.02 <= searched.metrics["radius"] <= 0.40
    assert recipe("bigpo", fingerprint="ngram", radius=0.3)(table).metrics["radius"] == 0.3
    assert recipe("bipace_q", preset="qwen2.5-1.5b").radius == 0.05


def test_a_searched_radius_is_that_of_the_first_iteration() -> None:
    """Appendix F: on the first training step, and then it stays. So a resumed run needs it."""
    first, second = rollout(["hall"] * 6 + ["hall."] * 6), rollout([f"room {n}" for n in range(12)])
    searching = recipe("bipace_q", fingerprint="ngram", radius_rule="search")
    assert searching.has_history
    assert not recipe("bipace_q").has_history
    found = searching(first)
    assert found.history == {"radius": found.metrics["radius"]}
    again = searching(second, history=found.history)
    assert again.metrics["radius"] == found.metrics["radius"] != searching(second).metrics["radius"]
    assert again.history == found.history
    # In one table with the iterations of a run it is the same.
    rows = [row | {"iteration": 0} for row in first.to_dicts()]
    rows += [row | {"iteration": 1} for row in second.to_dicts()]
    whole = searching(StepTable.from_dicts(rows))
    assert whole.metrics["iteration 1/radius"] == found.metrics["radius"]


def test_an_online_radius_follows_the_median_cluster_size() -> None:
    apart = rollout([f"room {n}" for n in range(12)])
    following = recipe("sbc", fingerprint="identity", radius_rule="online", radius=0.1)
    radii, history = [], None
    for _ in range(5):
        credit = following(apart, history=history)
        history = credit.history
        radii.append(credit.metrics["radius"])
    assert radii == pytest.approx([0.1, 0.1, 0.115, 0.115, 0.115 * 1.15])
    assert credit.metrics["median_size"] == 1.0


# Same-action peers.

ROWS = st.lists(
    st.tuples(
        st.sampled_from((0.0, 1.0, 0.5, 2.0)) | st.floats(-10, 10),
        st.integers(-1, 3),
        st.integers(-1, 2),
    ),
    max_size=24,
)


def unpack(rows: list[tuple[float, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    returns = np.array([row[0] for row in rows], dtype=np.float64)
    return returns, np.array([r[1] for r in rows], int), np.array([r[2] for r in rows], int)


@pytest.mark.parametrize("form", ["q", "diff"])
@given(rows=ROWS)
def test_equals_the_equations(form: str, rows: list[tuple[float, int, int]]) -> None:
    returns, clusters, keys = unpack(rows)
    found = pace(returns, clusters, 4, keys, 3, form=form)
    for i, (value, branch) in enumerate(reference.pace(returns, clusters, keys, form)):
        assert Branch(found.branch[i]).name.lower() == branch
        assert found.values[i] == pytest.approx(value, abs=1e-9)
        if found.reason[i] != Reason.CREDITED:
            assert found.values[i] == 0.0


@given(rows=ROWS)
def test_q_sums_to_zero_where_every_row_has_peers(rows: list[tuple[float, int, int]]) -> None:
    """Q - V is centred: weighted by how often each action was taken, it adds up to nothing."""
    returns, clusters, keys = unpack(rows)
    found = pace(returns, clusters, 4, keys, 3, form="q")
    for cluster in range(4):
        inside = clusters == cluster
        if inside.any() and (found.branch[inside] == Branch.PACE).all():
            assert found.values[inside].sum() == pytest.approx(0.0, abs=1e-9)


def test_worked_example_of_the_page() -> None:
    """One cluster: `take` earned 1, 1, 0 and `look` 0, 0 and `open` 1.

    V = 3/6; Q(take) = 2/3, so +1/6; Q(look) = 0, so -1/2; `open` is alone with its action and is
    compared with the mean of the other five, 2/5: +3/5. Against the others: take 1 - 1/3 = 2/3.
    """
    returns = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    clusters, keys = np.zeros(6, int), np.array([0, 0, 0, 1, 1, 2])
    q = pace(returns, clusters, 1, keys, 3, form="q")
    assert q.values == pytest.approx([1 / 6, 1 / 6, 1 / 6, -1 / 2, -1 / 2, 3 / 5])
    assert q.branch.tolist() == [Branch.PACE] * 5 + [Branch.LEAVE_ONE_OUT]
    diff = pace(returns, clusters, 1, keys, 3, form="diff")
    assert diff.values == pytest.approx([2 / 3, 2 / 3, -1 / 3, -3 / 4, -3 / 4, 3 / 5])
    scaled = pace(returns, clusters, 1, keys, 3, form="q", norm=Norm("std", epsilon=0.0))
    assert scaled.values == pytest.approx(q.values / returns.std(ddof=1))
    mix = row_mix(q.branch, clusters, 1, keys, 3)
    assert list(mix.values()) == pytest.approx([5 / 6, 1 / 6, 0.0, 1.0, 3.0])


def test_no_contrast_is_no_credit() -> None:
    same = pace(np.array([1.0, 0.0]), np.zeros(2, int), 1, np.zeros(2, int), 1, form="q")
    assert same.reason.tolist() == [Reason.SAME_ACTION] * 2
    equal = pace(np.array([1.0, 1.0]), np.zeros(2, int), 1, np.array([0, 1]), 2, form="diff")
    assert equal.reason.tolist() == [Reason.ZERO_VARIANCE] * 2
