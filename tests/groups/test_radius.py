import numpy as np
import pytest

from ascribe.groups.radius import Target, search
from tests.groups.test_cluster import states

pytestmark = pytest.mark.unit


def test_search_ends_in_the_target() -> None:
    random = np.random.default_rng(1)
    centres = random.standard_normal((10, 64))
    parts = [
        centres[random.integers(10, size=60)] + 0.35 * random.standard_normal((60, 64))
        for _ in range(4)
    ]
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
    found = search([part @ part.T for part in unit])
    assert found.in_range
    assert 4 <= found.median <= 8
    assert 0.02 <= found.radius <= 0.40
    assert len(found.probes) <= 6


def test_search_says_when_no_radius_will_do() -> None:
    scattered = [states(np.random.default_rng(2), 40, 256, 40)]
    found = search([part @ part.T for part in scattered], Target(high=0.05))
    assert not found.in_range
    assert len(found.probes) == 6


def test_median_of_clusters_and_of_rows() -> None:
    labels = [np.array([0, 0, 0, 0, 1, 2])]
    assert Target().median(labels) == 1.0
    assert Target(over="rows").median(labels) == 4.0
