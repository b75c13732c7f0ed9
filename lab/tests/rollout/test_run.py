"""A rollout: which episodes are played, what is kept of them, and what failures do."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from ascribe import check
from ascribe_lab.agents.agent import Agent, AgentDecision, Parsed, View
from ascribe_lab.envs import make
from ascribe_lab.rollout import (
    FailurePolicy,
    Plan,
    Request,
    Rollout,
    RolloutFailedError,
    Sample,
    Sampling,
    arrow,
    rollout,
    save,
    table,
)
from ascribe_lab.rollout.episode import EpisodeFailure
from ascribe_lab.rollout.pools import EnvironmentSpec, SerialPool
from ascribe_lab.rollout.pools.pool import Failure, FailureKind, Reset, StepResult

CORRIDOR = EnvironmentSpec("lab.tests.envs.toys:Corridor", {"expert": True})


def prompt(view: View, remembered: Sequence[object]) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{view.task} | {view.observation} | {len(view.turns)}"}]


def parser(response: str) -> Parsed:
    return Parsed(response or None, problem=None if response else "empty")


def skip(response: str, parsed: Parsed, view: View) -> AgentDecision:
    return AgentDecision(None, valid=False, problem=parsed.problem)


AGENT = Agent(prompt, lambda turns: turns, parser, skip)


class Walker:
    """Follows the expert, but goes astray by the request's seed; keeps what it was asked."""

    def __init__(self, astray: float = 0.3) -> None:
        self.astray = astray
        self.asked: list[Request] = []

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        self.asked += requests
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Sample:
        share = request.seed / 2**32
        if share < self.astray / 2:
            return Sample("")
        action = "left" if share < self.astray else request.info["expert_action"]
        ids = tuple(action.encode())
        return Sample(action, (1, 2), ids, tuple(-0.5 for _ in ids))

    def close(self) -> None:
        """Nothing to give back."""


def play(plan: Plan, pool: object = None, **options: object) -> Rollout:
    policy = options.pop("policy", None) or Walker()
    if pool is not None:
        return rollout(plan, pool, AGENT, policy, **options)
    with SerialPool(CORRIDOR, slots=5) as pool:
        return rollout(plan, pool, AGENT, policy, **options)


PLAN = Plan(groups=6, size=4, max_turns=20, seed=3, name="walk")


def test_every_episode_of_the_plan_is_played_once() -> None:
    played = play(PLAN)
    names = [trajectory.name for trajectory in played.trajectories]
    assert names == [f"walk/{group}/{member}" for group in range(6) for member in range(4)]
    assert (played.dropped, played.failed, played.retries) == ((), (), 0)


def test_a_group_is_one_task_from_one_start() -> None:
    played = play(PLAN)
    for group in range(6):
        members = [t for t in played.trajectories if t.group == f"walk/{group}"]
        assert len({(t.task, t.family, t.steps[0].state) for t in members}) == 1
    assert len({t.task for t in played.trajectories}) > 1


def test_the_same_seed_gives_the_same_tasks_and_more_groups_change_nothing() -> None:
    once, longer = play(PLAN), play(replace(PLAN, groups=9))
    assert once.trajectories == longer.trajectories[: len(once.trajectories)]
    other = play(replace(PLAN, seed=4))
    assert [t.task for t in other.trajectories] != [t.task for t in once.trajectories]


@pytest.mark.parametrize("slots", [1, 2, 7, 24, 30])
def test_the_places_of_the_pool_do_not_matter(slots: int) -> None:
    with SerialPool(CORRIDOR, slots=slots) as pool:
        assert play(PLAN, pool).trajectories == play(PLAN).trajectories


def test_tasks_can_be_given_by_number() -> None:
    played = play(replace(PLAN, groups=2, tasks=[0, 7]))
    assert [t.family for t in played.trajectories] == ["near"] * 4 + ["far"] * 4


def test_a_finished_episode_is_asked_no_more() -> None:
    policy = Walker()
    played = play(PLAN, policy=policy)
    assert len(policy.asked) == sum(len(t.steps) for t in played.trajectories)


def test_an_episode_ends_once_and_at_its_end() -> None:
    for trajectory in play(PLAN).trajectories:
        ends = [step.terminated or step.truncated for step in trajectory.steps]
        assert ends == [False] * (len(ends) - 1) + [True]
        assert trajectory.won == trajectory.steps[-1].terminated


def test_a_turn_without_an_action_counts_and_changes_nothing() -> None:
    played = play(PLAN)
    passed = [
        (step, following)
        for trajectory in played.trajectories
        for step, following in zip(trajectory.steps, trajectory.steps[1:], strict=False)
        if not step.action
    ]
    assert passed
    for step, following in passed:
        assert (step.valid, step.problem, step.reward) == (False, "empty", 0.0)
        assert (following.state, following.observation) == (step.state, step.observation)


def test_turns_are_limited_also_when_nothing_is_done() -> None:
    played = play(replace(PLAN, max_turns=5), policy=Walker(astray=2.0))
    assert max(len(t.steps) for t in played.trajectories) == 5
    assert all(t.steps[-1].truncated for t in played.trajectories if len(t.steps) == 5)


def test_the_rewards_are_the_environments() -> None:
    for trajectory in play(PLAN).trajectories:
        number = int(trajectory.group.split("/")[1])
        env = make(CORRIDOR.name, expert=True)
        observation, info = env.reset(seed=PLAN.episodes()[4 * number].reset.seed)
        for step in trajectory.steps:
            assert (step.observation, step.state) == (observation, info["state"])
            if step.action:
                observation, reward, _, _, info = env.step(step.action)
                assert (step.reward, step.valid) == (reward, info["valid"])


def test_the_table_is_one_that_check_passes(tmp_path) -> None:
    played = play(PLAN)
    steps = table(played)
    assert len(steps) == sum(len(t.steps) for t in played.trajectories)
    assert not [p for p in check(steps).problems if p.severity.name in ("ERROR", "FATAL")]


def test_observations_are_the_states_and_the_environment_s_keys_can_be() -> None:
    """BiPACE, B.1: the state is what the agent sees."""
    played = play(PLAN)
    steps = [step for t in played.trajectories for step in t.steps]
    assert table(played).state.texts() == [step.observation for step in steps]
    assert table(played, "environment").state.texts() == [step.state for step in steps]
    assert any(step.state != step.observation for step in steps)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".jsonl.gz"])
def test_a_file_gives_back_the_sampled_ids(tmp_path, suffix: str) -> None:
    from ascribe.steps.files import read

    played = play(PLAN)
    path = tmp_path / f"rollouts{suffix}"
    save(played, path)
    back = read(path)
    assert not back.notes
    steps = [step for t in played.trajectories for step in t.steps]
    ids = back.carried.column("response_ids").to_pylist()
    assert ids == [list(step.sample.response_ids) for step in steps]
    prompts = [json.loads(text) for text in back.carried.column("prompt").to_pylist()]
    assert prompts == [step.messages for step in steps]
    assert back.carried.column("won").to_pylist() == [step.won for step in steps]


def test_half_surrogates_of_a_model_are_marked_in_the_file() -> None:
    class Broken(Walker):
        def _answer(self, request: Request) -> Sample:
            return Sample("jump \ud800", (1,), (2,), (-0.5,))

    played = play(replace(PLAN, groups=1, max_turns=2), policy=Broken())
    rows = arrow(played)
    assert set(rows.column("response").to_pylist()) == {"jump �"}
    assert not any(rows.column("valid").to_pylist())


class Faulty:
    """A pool that fails by a script: which call, which slot, and how."""

    def __init__(self, script: dict[tuple[str, int], FailureKind], slots: int = 4) -> None:
        self.inner = SerialPool(CORRIDOR, slots=slots)
        self.slots = slots
        self.script, self.calls = dict(script), {"step": 0, "replay": 0}

    def step(self, commands):
        return self._answer("step", commands, self.inner.step)

    def replay(self, commands):
        return self._answer("replay", commands, self.inner.replay)

    def _answer(self, call, commands, work):
        kind = self.script.pop((call, self.calls[call]), None)
        self.calls[call] += 1
        if kind is None:
            return work(commands)
        victim, *others = commands
        results = work({slot: commands[slot] for slot in others}) if others else {}
        return {victim: Failure(kind, "by script"), **results}


@pytest.mark.parametrize("kind", [k for k in FailureKind if k.name in ("CRASHED", "HUNG", "LOST")])
def test_a_failed_episode_is_taken_up_where_it_was(kind: FailureKind) -> None:
    plan = replace(PLAN, groups=1, size=4)
    whole = play(plan).trajectories
    for call in range(4):
        pool = Faulty({("step", call): kind})
        played = play(plan, pool)
        assert played.trajectories == whole
        assert played.retries == 1


def test_an_episode_that_fails_too_often_drops_its_group() -> None:
    always = {("step", call): FailureKind.RAISED for call in range(3)}
    plan = replace(PLAN, groups=2, size=2)
    played = play(plan, Faulty(always, slots=2), failures=FailurePolicy(retries=2))
    assert [t.group for t in played.trajectories] == ["walk/1"] * 2
    (dropped,) = played.dropped
    assert str(dropped) == "walk/0: 1 of 2 trajectories left (walk/0/0 raised)"
    assert played.failed[0].detail == "by script"


def test_a_group_may_count_with_fewer() -> None:
    always = {("step", call): FailureKind.RAISED for call in range(3)}
    plan = replace(PLAN, groups=2, size=2)
    policy = FailurePolicy(retries=2, smallest_group=1)
    played = play(plan, Faulty(always, slots=2), failures=policy)
    assert [t.name for t in played.trajectories] == ["walk/0/1", "walk/1/0", "walk/1/1"]
    assert not played.dropped


def test_the_policy_may_be_to_stop() -> None:
    pool = Faulty({("step", 0): FailureKind.RAISED})
    with pytest.raises(RolloutFailedError, match="walk/0/0: raised: by script"):
        play(PLAN, pool, failures=FailurePolicy(retries=0, stop=True))


def test_a_reset_that_fails_is_tried_again() -> None:
    pool = Faulty({("replay", 0): FailureKind.CRASHED})
    assert play(PLAN, pool).trajectories == play(PLAN).trajectories


class Constant(Walker):
    """Responds with the same action every time."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.action = action

    def _answer(self, request: Request) -> Sample:
        return Sample(self.action)


class Moody(Faulty):
    """A pool whose environments return something else when they are played again."""

    change: ClassVar[dict[str, object]] = {}

    def replay(self, episodes):
        results = super().replay(episodes)
        return {
            slot: [self.changed(result) if actions else result for result in results[slot]]
            for slot, (_, actions) in episodes.items()
        }

    def changed(self, result: StepResult) -> StepResult:
        info = {key: self.change.get(key, value) for key, value in result.info.items()}
        change = {key: value for key, value in self.change.items() if key not in info}
        return replace(result, info=info, **change)


@pytest.mark.parametrize(
    "change", [{"observation": "?"}, {"reward": 0.25}, {"state": "elsewhere"}, {"won": True}]
)
def test_an_episode_that_cannot_be_played_again_begins_anew(change: dict[str, object]) -> None:
    plan = replace(PLAN, groups=1, size=4)
    pool = Moody({("step", 2): FailureKind.CRASHED})
    pool.change = change
    played = play(plan, pool)
    assert played.trajectories == play(plan).trajectories
    assert played.retries == 2


def test_time_in_the_environment_is_limited() -> None:
    played = play(replace(PLAN, episode_limit=1e-9))
    assert {episode.kind for episode in played.failed} == {EpisodeFailure.TOO_LONG}
    assert len(played.dropped) + len({t.group for t in played.trajectories}) == 6


def test_a_prompt_that_is_too_long_cuts_the_episode() -> None:
    class Short(Walker):
        def _answer(self, request: Request) -> Sample:
            if request.messages[0]["content"].endswith("| 2"):
                return Sample("", finish="prompt_too_long")
            return Sample("sing")

    played = play(replace(PLAN, groups=1), policy=Short())
    for trajectory in played.trajectories:
        assert len(trajectory.steps) == 2
        assert trajectory.steps[-1].truncated


def test_a_first_prompt_that_is_too_long_is_a_failure() -> None:
    class Never(Walker):
        def _answer(self, request: Request) -> Sample:
            return Sample("", finish="prompt_too_long")

    played = play(replace(PLAN, groups=1), policy=Never())
    assert not played.trajectories
    assert played.failed[0].kind is EpisodeFailure.PROMPT_TOO_LONG


def test_text_that_no_file_can_hold_is_refused() -> None:
    spec = EnvironmentSpec("lab.tests.rollout.toys:Toy")
    with SerialPool(spec, slots=4) as pool:
        played = play(replace(PLAN, groups=1), pool, policy=Constant("return surrogate"))
    assert {episode.kind for episode in played.failed} == {FailureKind.MALFORMED}


@pytest.mark.parametrize(
    "wrong", [{"groups": 0}, {"size": 0}, {"max_turns": 0}, {"tasks": [1, 2, 3]}]
)
def test_a_plan_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be at least 1|3 tasks for 6 groups"):
        replace(PLAN, **wrong)


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"smallest_group": 0}])
def test_a_failure_policy_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        FailurePolicy(**wrong)


def test_seeds_of_a_plan_do_not_repeat() -> None:
    plan = Plan(groups=500, size=2, max_turns=1)
    seeds = [episode.reset for episode in plan.episodes()]
    assert len({begin.seed for begin in seeds}) == 500
    assert isinstance(seeds[0], Reset)
