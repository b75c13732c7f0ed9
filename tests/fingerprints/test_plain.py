import numpy as np
import pytest

from ascribe.groups.fingerprints import normalised, present
from ascribe.groups.identity import identity
from ascribe.groups.ngram import ngram

pytestmark = pytest.mark.unit


def test_identity_is_one_hot_inside_a_task() -> None:
    task, state = np.array([0, 0, 0, 1, 1]), np.array([3, 5, 3, 5, -1])
    vectors = identity(task, state, 6)
    assert vectors.tolist() == [[1, 0], [0, 1], [1, 0], [1, 0], [0, 0]]
    assert present(vectors).tolist() == [True, True, True, True, False]


def test_ngrams_of_like_texts_lie_close() -> None:
    texts = np.array(
        [
            "You arrive at fridge 1. The fridge 1 is closed.",
            "You arrive at fridge 2. The fridge 2 is closed.",
            "Inventory: 3 oak planks, 1 stick",
            "",
            "é",
        ],
        dtype=object,
    )
    vectors = ngram(texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0, 1], abs=1e-6)
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.7
    assert abs(similarity[0, 2]) < 0.3
    assert np.array_equal(ngram(texts), vectors)


def test_normalised_refuses_what_is_not_finite() -> None:
    with pytest.raises(ValueError, match="rows \\[1\\]"):
        normalised(np.array([[1.0, 0.0], [np.nan, 0.0]]))
    assert normalised(np.array([[3.0, 4.0], [0.0, 0.0]])) == pytest.approx(
        np.array([[0.6, 0.8], [0.0, 0.0]])
    )
