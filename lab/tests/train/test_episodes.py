"""Which episodes a run plays: the same whatever the number of processes, and after a resume."""

import numpy as np
import pytest

from ascribe_lab.models.policy import mix_seeds
from ascribe_lab.train.episodes import EpisodeSpec, SpecPlan, columns_of, episode_specs, task_rows


def test_more_groups_begin_with_the_same_groups() -> None:
    assert task_rows(50, 7, "train")[:20] == task_rows(20, 7, "train")
    assert task_rows(50, 7, "train", [4, 8, 15])[:20] == task_rows(20, 7, "train", [4, 8, 15])


def test_another_seed_is_another_run() -> None:
    ours, theirs = task_rows(20, 7, "train"), task_rows(20, 8, "train")
    assert not {row["seed"] for row in ours} & {row["seed"] for row in theirs}


def test_all_tasks_are_played_before_one_is_played_again() -> None:
    tasks = [3, 5, 7, 11]
    played = [row["task"] for row in task_rows(12, 0, "train", tasks)]
    rounds = np.array(played).reshape(3, 4)
    assert [sorted(turn) for turn in rounds.tolist()] == [tasks] * 3
    assert len({tuple(turn) for turn in rounds.tolist()}) > 1


def test_without_tasks_the_seed_draws() -> None:
    assert {row["task"] for row in task_rows(3, 0, "train")} == {None}


def test_members_are_counted_over_processes() -> None:
    rows = [row for row in task_rows(2, 0, "train") for _ in range(4)]
    whole = episode_specs(rows)
    assert [seat.member for seat in whole] == [0, 1, 2, 3, 0, 1, 2, 3]
    first, second = rows[:3], rows[3:]
    parts = episode_specs(first) + episode_specs(second, before=[row["group"] for row in first])
    assert parts == whole


def make(specs: list[EpisodeSpec]) -> SpecPlan:
    groups = len({spec.group for spec in specs})
    return SpecPlan(groups=groups, size=4, max_turns=2, specs=tuple(specs))


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_an_episode_is_the_same_on_any_process(cut: int) -> None:
    every = episode_specs([row for row in task_rows(2, 0, "train", [5, 6]) for _ in range(4)])

    def told(plan: SpecPlan) -> list[tuple[object, ...]]:
        return [
            (
                plan.trajectory_name(episode.group, episode.member),
                plan.group_name(episode.group),
                episode.reset,
                plan.sample_seed(episode),
            )
            for episode in plan.episodes()
        ]

    assert told(make(every[:cut])) + told(make(every[cut:])) == told(make(every))


def test_members_of_a_group_begin_alike_and_sample_apart() -> None:
    plan = make(episode_specs([task_rows(1, 0, "train", [5])[0]] * 4))
    episodes = plan.episodes()
    assert len({episode.reset.seed for episode in episodes}) == 1
    assert len({plan.sample_seed(episode) for episode in episodes}) == 4
    assert episodes[0].reset.options == {"task": 5}


def test_mixed_seeds_are_the_same_on_every_machine() -> None:
    assert mix_seeds(1, 2, 3) == 3822189696


def test_teams_and_environments_of_others_may_give_the_columns_of_teams() -> None:
    assert columns_of("team") == columns_of("my.package:Team") == ("agent", "without")
    assert columns_of("textcraft") == ()
