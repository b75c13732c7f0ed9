"""Two versions of an agent, compared fork by fork."""

import pytest

from ascribe.decisions.versions import changes
from tests.decisions.test_decisions import sessions


def version(good: int, size: int = 20) -> list[tuple[str, list[tuple[str, str]], float]]:
    """Attempts at a task, of which the first ``good`` turn left in the hall and win."""
    return [
        ("maze", [("start", "go"), ("hall", "left" if n < good else "right")], float(n < good))
        for n in range(size)
    ]


def test_a_drop_is_found_where_it_happens() -> None:
    found = changes(sessions(*version(16)), sessions(*version(4)))
    whole, hall = found
    assert (whole.old, whole.new, whole.drop) == pytest.approx((0.8, 0.2, 0.6))
    assert (whole.task, whole.state) == ("", "")
    assert hall.state == "hall"
    assert hall.certain
    assert {hall.action} <= {"left", "right"}
    assert abs(hall.new_share - hall.old_share) == pytest.approx(0.6)
    assert "won 80 % of 20 before, 20 % of 20 now (-60 points" in hall.text


def test_two_equal_versions_differ_nowhere() -> None:
    for each in changes(sessions(*version(10)), sessions(*version(10))):
        assert not each.certain
        assert each.drop == 0


def test_only_tasks_of_both_versions_count() -> None:
    easy = [("easy", [("start", "go")], 1.0)] * 30
    whole = changes(sessions(*version(10), *easy), sessions(*version(10)))[0]
    assert (whole.old, whole.new) == pytest.approx((0.5, 0.5))
    assert (whole.old_sessions, whole.new_sessions) == (20, 20)
    with pytest.raises(ValueError, match="no task in common"):
        changes(sessions(*easy), sessions(*version(3)))


def test_a_state_without_text_is_no_sum_over_tasks() -> None:
    rows = [
        ("maze", [("start", "go"), ("", "left" if n % 2 else "right")], n % 2) for n in range(9)
    ]
    _, state = changes(sessions(*rows), sessions(*rows))
    assert state.text.startswith("maze, at “”: won")
