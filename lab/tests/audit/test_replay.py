"""Forks are worth what the game says, whatever the file says; judges are graded by that."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.decisions import find_decisions
from ascribe.steps.check import arrange
from ascribe.steps.files import read
from ascribe_lab.audit.replay import Replayed, replay
from ascribe_lab.models.scripted import RandomPolicy
from ascribe_lab.rollout import Plan, Rollout, Sample, Setup, rollout, save, table
from ascribe_lab.rollout.record import trajectories
from experiments.replay.judges import NONE, grade, model_judge, simple_judges

pytestmark = pytest.mark.unit

GAME = "lab.tests.audit.fork:Fork"
PLAN = Plan(groups=1, size=24, max_turns=4, seed=3, name=GAME)


def setup(**options: bool) -> Setup:
    return Setup(GAME, options, "plain", "serial")


def play(place: Setup) -> Rollout:
    with place.open_pool(24) as pool:
        return rollout(PLAN, pool, place.agent, RandomPolicy(place.agent.render))


def measured(
    place: Setup, done: Rollout, states: str = "environment", plan: Plan = PLAN
) -> list[Replayed]:
    steps = table(done, states)
    policy, played = RandomPolicy(place.agent.render), {t.name: t for t in done.trajectories}
    forks = find_decisions(steps).forks
    return replay(place, policy, plan, forks, table=steps, played=played, count=64)


def test_differences_are_those_of_the_game() -> None:
    found = {each.fork.better.action: each for each in measured(setup(), play(setup()))}
    assert set(found) == {"`left`", "`red`"}  # after right, nothing is won
    assert found["`red`"].better.tolist() == [1.0] * 64
    assert found["`red`"].worse.tolist() == [0.0] * 64
    low, high = found["`left`"].interval
    assert 0 < low < 0.5 < high < 1
    assert found["`left`"].worse.tolist() == [0.0] * 64
    assert [each.verdict for each in found.values()] == ["confirmed"] * 2


def test_both_sides_begin_at_the_decisions_of_both() -> None:
    """All who chose red came from the left, where it pays; in truth it pays half of the time."""
    place = setup(hides=True)
    done = play(place)
    chosen = []
    for way in (["left", "red"], ["right", "blue"]):
        chosen += [t for t in done.trajectories if [s.action for s in t.steps] == way][:3]
    assert len(chosen) == 6
    found = measured(place, replace(done, trajectories=tuple(chosen)), "observation")
    doors = next(each for each in found if each.fork.state == "Two doors.")
    assert doors.fork.difference == 1.0
    assert doors.difference == pytest.approx(0.5, abs=0.05)  # 64 are not 6 times as many
    assert doors.worse.tolist() == [0.0] * 64


def test_an_estimate_is_refuted_by_what_lies_below_it() -> None:
    left = next(e for e in measured(setup(), play(setup())) if e.fork.better.action == "`left`")
    swapped = replace(left, better=left.worse, worse=left.better)
    assert swapped.verdict == "refuted"
    assert swapped.clear
    nothing = replace(left, better=left.worse)
    assert nothing.verdict == ("refuted" if left.fork.low > nothing.interval[1] else "open")
    assert not nothing.clear


def test_a_fork_to_which_the_environment_does_not_return_is_refused() -> None:
    done = play(setup())
    found = measured(setup(forgets=True), done)
    assert {each.verdict for each in found} == {"refused"}
    assert all(not each.better.size and not each.clear for each in found)
    assert "actions gave other results" in found[0].as_dict()["reason"]
    with pytest.raises(ValueError, match="its tasks are other/0"):
        measured(setup(), done, plan=replace(PLAN, name="other"))


def test_a_file_gives_the_same_as_the_rollout(tmp_path: Path) -> None:
    done, place = play(setup()), setup()
    save(done, tmp_path / "played.jsonl", "environment")
    rollouts = read(tmp_path / "played.jsonl")
    forks = find_decisions(rollouts.table).forks
    policy, played = RandomPolicy(place.agent.render), trajectories(rollouts)
    from_file = replay(place, policy, PLAN, forks, table=rollouts.table, played=played, count=64)
    for one, other in zip(measured(place, done), from_file, strict=True):
        assert one.better.tolist() == other.better.tolist()
        assert one.worse.tolist() == other.worse.tolist()


def test_judges_are_graded_by_hand() -> None:
    done = play(setup())
    steps, found = table(done, "environment"), measured(setup(), done)
    judges = simple_judges(steps, [each.fork for each in found], np.random.default_rng(0))
    went_right = np.mean([t.steps[0].action == "right" for t in done.trajectories])
    first, last = (
        grade(judges["first step"], steps, found),
        grade(judges["last step"], steps, found),
    )
    assert (first.sessions, first.decisive, first.largest) == (24, 1.0, went_right)
    assert last.decisive == last.largest == pytest.approx(1 - went_right)
    assert grade(judges["surest fork"], steps, found).decisive == 1.0
    assert grade(np.full(24, NONE), steps, found).decisive == 0.0
    with pytest.raises(ValueError, match="no measured fork decides"):
        grade(judges["first step"], steps, [])


def test_a_model_names_steps_by_number() -> None:
    done = play(setup())
    steps = table(done)
    replies = ["Step 2.", "1", "the first", "7", "0"] * 5
    asked = []

    class Judge:
        def __call__(self, requests: Sequence, sampling: object) -> list[Sample]:
            asked.extend(request.messages[0]["content"] for request in requests)
            return [Sample(text) for text in replies[: len(requests)]]

        def close(self) -> None: ...

    named = model_judge(Judge(), steps, {t.name: t for t in done.trajectories})
    start = arrange(steps).starts
    rows = arrange(steps).rows
    assert named[:5].tolist() == [rows[start[0] + 1], rows[start[1]], NONE, NONE, NONE]
    assert "1. saw: A fork. did: " in asked[0]
    assert ("succeeded" in asked[0]) == done.trajectories[0].won


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_the_command_prints_estimate_and_measurement(tmp_path: Path) -> None:
    file = tmp_path / "played.parquet"
    game = ("--env", GAME, "--model", "random", "--style", "plain", "--pool", "serial")
    options = ("--groups", 1, "--size", 24, "--states", "environment", "--out", file)
    assert run("rollout", *game, *options)[0] == 0
    code, said = run("replay", file, *game)
    assert code == 0, said
    assert "2 forks of 2: 2 confirmed, 0 refuted, 0 open, 0 refused." in said
    code, said = run("replay", file, *game, "--forks", 1, "-k", 8, "--json")
    assert code == 0, said
    (one,) = json.loads(said)
    assert one["verdict"] == "confirmed"
    assert one["low"] < one["difference"] <= one["fork"]["high"]
    code, said = run("replay", file, *game, "--set", "forgets=true")
    assert code == 1
    assert "2 refused. Were environment" in said


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    row = {"group": "g", "trajectory": "a", "step": 0, "state": "s", "action": "x", "reward": 1.0}
    file.write_text(json.dumps(row) + "\n")
    code, said = run("replay", file, "--env", GAME, "--model", "random")
    assert code == 2
    assert "take a file of ascribe rollout" in said
