import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.groups import cluster as module
from ascribe.groups.cluster import cluster, cluster_grams, collapsed
from tests.estimators import reference_bipace as reference

pytestmark = pytest.mark.unit


def states(random: np.random.Generator, rows: int, width: int, kinds: int) -> np.ndarray:
    """Unit vectors around a few directions, some on their own."""
    centres = random.standard_normal((kinds, width))
    noise = random.choice([0.05, 0.3, 2.0], size=(rows, 1))
    vectors = centres[random.integers(kinds, size=rows)]
    vectors = vectors + noise * random.standard_normal((rows, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    width=st.integers(2, 24),
    radius=st.floats(0.001, 1.2),
)
def test_labels_equal_algorithm_1(seed: int, sizes: list[int], width: int, radius: float) -> None:
    random = np.random.default_rng(seed)
    parts = [states(random, size, width, 4) for size in sizes]
    task = np.repeat(np.arange(len(sizes)), sizes)
    found = cluster(np.concatenate(parts), task, radius)
    used = 0
    for number, part in enumerate(parts):
        expected = np.array(reference.greedy_cosine(part, radius + module.TOLERANCE))
        assert (found.labels[task == number] - used == expected).all()
        used += expected.max() + 1
    assert found.count == used
    # Single precision, half of the bytes, the same labels but for ties within its rounding.
    assert cluster_grams([part @ part.T for part in parts], radius)[0].tolist() == (
        found.labels[task == 0].tolist()
    )


def test_large_groups_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    vectors = states(random, 90, 16, 8).astype(np.float32)
    task = np.repeat([0, 1, 2], [70, 5, 15])
    whole = cluster(vectors, task, 0.1)
    monkeypatch.setattr(module, "BLOCK_ROWS", 16)
    monkeypatch.setattr(module, "BATCH_ENTRIES", 2000)
    assert np.array_equal(cluster(vectors, task, 0.1).labels, whole.labels)


def test_rows_that_take_no_part() -> None:
    vectors = np.eye(4)[[0, 1, 0, 1, 0]]
    taking_part = np.array([True, False, True, True, True])
    found = cluster(vectors, np.zeros(5, int), 0.0, taking_part)
    assert found.labels.tolist() == [0, -1, 0, 1, 0]


def test_a_torch_tensor_gives_the_same_labels() -> None:
    torch = pytest.importorskip("torch")
    vectors = states(np.random.default_rng(0), 60, 32, 5).astype(np.float32)
    task = np.repeat([0, 1], [25, 35])
    expected = cluster(vectors, task, 0.1).labels
    tensor = torch.from_numpy(vectors)
    assert np.array_equal(cluster(tensor, task, 0.1).labels, expected)
    half = tensor.to(torch.bfloat16)
    exact = cluster(half, task, 0.1).labels
    assert np.array_equal(exact, cluster(half.float(), task, 0.1).labels)


def test_collapse_is_seen() -> None:
    labels = np.array([0] * 20 + [1, 2, 1, 3])
    task = np.repeat([0, 1], [20, 4])
    assert collapsed(labels, 4, task).tolist() == [True, False]
