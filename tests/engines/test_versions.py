"""Versions of the policy inside a trajectory and inside a group."""

from typing import Any

import numpy as np
import pytest

from ascribe.engines.versions import REASON, SampledVersions, StaleGroupError, Staleness


def sampled(current: int = 5) -> SampledVersions:
    """Two groups: the first has a trajectory of two steps and one of one, the other one of one."""
    versions = [(3, 4), (3, 4), (4, 4), (5, None)]  # the last is the current one
    return SampledVersions.of(["a", "a", "a", "b"], ["a/0", "a/0", "a/1", "b/0"], versions, current)


def test_metrics() -> None:
    assert sampled().metrics() == {
        "ascribe/versions/trajectory_mean": pytest.approx((2 + 1 + 1) / 3),
        "ascribe/versions/trajectory_max": 2,
        "ascribe/versions/group_mean": pytest.approx((2 + 1) / 2),
        "ascribe/versions/group_max": 2,
        "ascribe/versions/lag_mean": pytest.approx((2 + 1 + 0) / 3),
        "ascribe/versions/lag_max": 2,
    }
    assert sampled().columns["first_version"].tolist() == [3, 3, 4, 5]


def test_the_order_of_rows_does_not_matter() -> None:
    one = sampled()
    order = np.array([3, 1, 0, 2])
    names = [[names[i] for i in order] for names in (one.groups, one.trajectories)]
    other = SampledVersions(names[0], names[1], one.first[order], one.last[order], 5)
    assert other.metrics() == one.metrics()


def test_what_is_done_about_a_group_that_mixes_versions() -> None:
    metrics: dict[str, Any] = {}
    assert Staleness(1, "drop").dropped(sampled(), metrics) == {"a": REASON}
    assert metrics["ascribe/stale_groups"] == 1
    assert Staleness(1, "credit").dropped(sampled(), metrics) == {}
    assert metrics["ascribe/stale_groups"] == 1
    assert Staleness(2, "refuse").dropped(sampled(), metrics) == {}
    assert metrics["ascribe/stale_groups"] == 0
    assert Staleness().dropped(sampled(), metrics) == {}
    with pytest.raises(StaleGroupError, match="group a was sampled by 2 versions of the policy"):
        Staleness(1, "refuse").dropped(sampled(), metrics)
    nobody = SampledVersions.of([], [], [], 5)
    assert Staleness(1).dropped(nobody, metrics) == {}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [((0, "drop"), "whole number"), ((True, "drop"), "whole"), ((1, "keep"), "one of drop, ref")],
)
def test_wrong_keys(wrong: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Staleness(*wrong)
