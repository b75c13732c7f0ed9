import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascribe.estimators.bipace import Branch, pace, row_mix
from ascribe.estimators.credit import Reason
from ascribe.estimators.relative import Norm
from tests import reference_bipace as reference

pytestmark = pytest.mark.unit

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
@settings(max_examples=500, deadline=None)
@given(rows=ROWS)
def test_equals_the_equations(form: str, rows: list[tuple[float, int, int]]) -> None:
    returns, clusters, keys = unpack(rows)
    found = pace(returns, clusters, 4, keys, 3, form=form)
    for i, (value, branch) in enumerate(reference.pace(returns, clusters, keys, form)):
        assert Branch(found.branch[i]).name.lower() == branch
        assert found.values[i] == pytest.approx(value, abs=1e-9)
        if found.reason[i] != Reason.CREDITED:
            assert found.values[i] == 0.0


@settings(max_examples=500, deadline=None)
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
    assert (mix.pace, mix.leave_one_out, mix.singleton) == pytest.approx((5 / 6, 1 / 6, 0.0))
    assert (mix.contrasting_clusters, mix.keys_per_cluster) == (1.0, 3.0)


def test_no_contrast_is_no_credit() -> None:
    same = pace(np.array([1.0, 0.0]), np.zeros(2, int), 1, np.zeros(2, int), 1, form="q")
    assert same.reason.tolist() == [Reason.SAME_ACTION] * 2
    equal = pace(np.array([1.0, 1.0]), np.zeros(2, int), 1, np.array([0, 1]), 2, form="diff")
    assert equal.reason.tolist() == [Reason.ZERO_VARIANCE] * 2
