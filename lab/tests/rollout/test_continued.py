"""Episodes that continue others begin at a decision on record, also when they are tried again."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ascribe_lab.rollout import Plan
from ascribe_lab.rollout.continued import Point, play_on
from ascribe_lab.rollout.pools.pool import FailureKind
from lab.tests.rollout.test_run import AGENT, PLAN, Faulty, Moody, Walker, play

pytestmark = pytest.mark.unit

AT = 2
STEPS = next(t for t in play(PLAN).trajectories if len(t.steps) > AT + 2 and not t.steps[0].action)
RESET = PLAN.reset(PLAN.number_of(STEPS.group))
OTHER = replace(STEPS.steps[AT], action="jump", sample=replace(STEPS.steps[AT].sample, text="jump"))


def continued(pool: Faulty, point: Point, plan: Plan = PLAN, **options: object) -> list:
    opened = contextmanager(lambda _: (yield pool))
    setup = SimpleNamespace(open_pool=opened, agent=AGENT)
    return play_on(setup, Walker(), plan, [point], **options)


def point(**changes: object) -> Point:
    values = {"reset": RESET, "before": STEPS.steps[:AT], "now": STEPS.steps[AT], "taken": OTHER}
    return Point(**(values | changes))


def test_another_action_is_carried_out_in_the_same_state() -> None:
    ((one, two),) = continued(Faulty({}), point(), size=2)
    for episode in (one, two):
        assert episode.steps[:AT] == STEPS.steps[:AT]
        assert episode.steps[AT].state == STEPS.steps[AT].state
        assert (episode.steps[AT].action, episode.steps[AT].valid) == ("jump", False)
        assert len(episode.steps) > AT + 1
    ((own,),) = continued(Faulty({}), point(taken=STEPS.steps[AT]))
    assert own.steps[: AT + 1] == STEPS.steps[: AT + 1]


def test_the_policy_may_decide_again() -> None:
    ((same,),) = continued(Faulty({}), point(taken=None))
    assert same.steps[:AT] == STEPS.steps[:AT]


@pytest.mark.parametrize("change", [{}, {"reward": 0.25}])
def test_a_failed_continuation_returns_to_the_decision(change: dict[str, object]) -> None:
    """After a crash it goes on; if the replay gives something else, it starts at the decision."""
    whole = continued(Faulty({}), point())
    pool = Moody({("step", 1): FailureKind.CRASHED})
    # The first replay brings the episode to the decision, and must agree with the record.
    pool.changed = lambda result: replace(result, **change) if pool.calls["replay"] == 2 else result
    assert continued(pool, point()) == whole


@pytest.mark.parametrize(
    "wrong",
    [
        {"now": replace(STEPS.steps[AT], observation="elsewhere")},
        {"now": replace(STEPS.steps[AT], state="elsewhere")},
        {"before": (STEPS.steps[0], replace(STEPS.steps[1], reward=5.0))},
        {"reset": PLAN.reset(5)},
    ],
)
def test_what_does_not_come_again_is_refused(wrong: dict[str, object]) -> None:
    (reason,) = continued(Faulty({}), point(**wrong))
    assert reason == "not_reproducible: the same 1 actions gave other results"
