"""A recipe equals its slow, obvious version in ``reference.py``, row by row."""

from dataclasses import asdict

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from ascribe import RECIPES, Credit, Reason, Recipe, StepTable
from tests.estimators import reference
from tests.strategies import STATES, TEXTS, recipes, step_tables

TABLES = (
    step_tables()
    | step_tables(states=TEXTS)
    # Few values, so that one often lies at the mean of its peers.
    | step_tables(states=STATES[:2], rewards=(0.0, 0.5, 1.0), missing=False)
)


def same_partition(labels: np.ndarray, keys: list[object]) -> bool:
    """Whether rows share a label where they share a key, and -1 stands where there is no key."""
    pairs = set(zip(labels.tolist(), keys, strict=True))
    of_label = dict(pairs)
    of_key = {key: label for label, key in pairs}
    if len(of_label) != len(pairs) or len(of_key) != len(pairs):
        return False
    return all((label == -1) == (key is None) for label, key in pairs)


def assert_equals_reference(table: StepTable, recipe: Recipe) -> None:
    rows = table.to_dicts()
    wanted = reference.credit(recipe.name, rows, asdict(recipe))
    # Below this, rounding of the returns alone is as large as the tolerance.
    assume(wanted.narrowest > 1e-5)
    credit = recipe(table)
    assert credit.recipe == repr(recipe)
    assert list(credit.terms) == list(wanted.terms)
    assert_close(credit, wanted)
    for name, term in credit.terms.items():
        assert_close(term, wanted.terms[name])
        assert same_partition(term.labels, wanted.terms[name].keys)


def assert_close(got, wanted) -> None:
    values = got.advantage if isinstance(got, Credit) else got.values
    assert [Reason(code).label for code in got.reason] == wanted.reasons
    np.testing.assert_allclose(values, wanted.values, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(values[got.reason != Reason.CREDITED], 0.0)


def cases(name: str) -> st.SearchStrategy[tuple[StepTable, Recipe]]:
    """A table, and the recipe with random parameters, its defaults or one of its presets."""
    kind = RECIPES[name]
    named = [kind(), *(kind.preset(preset) for preset in kind.presets)]
    return st.tuples(TABLES, recipes(name)) | st.tuples(step_tables(), st.sampled_from(named))
