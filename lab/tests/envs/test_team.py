"""Teams: whose turn it is, what the team earns, and what it would have earned without each."""

import json
from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.envs import make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.team import JudgedAnswer, _vote
from ascribe_lab.rollout import Plan, Setup
from ascribe_lab.rollout.record import table
from ascribe_lab.rollout.setup import Model, play


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """Two sums, judged by their numbers."""
    file = tmp_path / "sums.jsonl"
    sums = [("What is 1 + 2?", "3"), ("What is 4 + 4?", "8")]
    file.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in sums))
    return {"options": {"file": str(file), "judge": "number"}}


def played(options: dict[str, Any], *said: str, **others: Any) -> tuple[list[Any], Any]:
    """What each step told, and the agents in the order of their turns."""
    team = make("team", **options, **others)
    _, info = team.reset(seed=1, options={"task": 0})
    speakers, told = [], []
    for text in said:
        speakers.append(info["agent"])
        told.append(team.step(text))
        info = told[-1][4]
    return told, speakers


@pytest.mark.parametrize(
    ("said", "reward", "without"),
    [
        (("3", r"so \boxed{3}", "it is 3.0"), 1.0, [1.0, 1.0, 1.0]),
        (("3", "3", "4"), 1.0, [0.5, 0.5, 1.0]),
        (("3", "4", "4"), 0.0, [0.0, 0.5, 0.5]),
        (("3", "4", "5"), 1 / 3, [0.0, 0.5, 0.5]),
        (("3", "1,000", "1000"), 0.0, [0.0, 0.5, 0.5]),
        (("3", "dunno", "no idea"), 1.0, [0.0, 1.0, 1.0]),
        (("who", "dunno", "no idea"), 0.0, [0.0, 0.0, 0.0]),
    ],
)
def test_votes(
    options: dict[str, Any], said: tuple[str, ...], reward: float, without: list[float]
) -> None:
    told, speakers = played(options, *said, ties="share")
    assert speakers == ["1", "2", "3"]
    assert [step[1] for step in told[:2]] == [0.0, 0.0]
    _, paid, terminated, _, info = told[-1]
    assert terminated
    assert paid == pytest.approx(reward)
    assert info["won"] == (reward == 1.0)
    assert info["without"] == pytest.approx(without)


@pytest.mark.parametrize(
    ("said", "reward", "without"),
    [
        (("3", "3", "4"), 1.0, [1.0, 1.0, 1.0]),
        (("4", "3", "3"), 1.0, [1.0, 0.0, 0.0]),
        (("3", "4", "5"), 1.0, [0.0, 1.0, 1.0]),
        (("5", "3", "4"), 0.0, [1.0, 0.0, 0.0]),
    ],
)
def test_the_vote_is_deterministic(
    options: dict[str, Any], said: tuple[str, ...], reward: float, without: list[float]
) -> None:
    """CCPO, B.3: also where an agent is left out. Nobody is paid for a share of an answer."""
    told, _ = played(options, *said)
    assert (told[-1][1], told[-1][4]["without"]) == (reward, without)


def test_one_answer_with_two_rewards_is_refused() -> None:
    with pytest.raises(ValueError, match="one answer has two rewards"):
        _vote([JudgedAnswer(1.0, True, "= 4"), JudgedAnswer(0.5, True, "= 4")], "first")


def test_voters_do_not_see_one_another(options: dict[str, Any]) -> None:
    told, _ = played(options, "a secret", "3", "3")
    assert "secret" not in told[0][0]
    assert not told[0][4]["valid"]


def test_a_thinker_and_a_solver(options: dict[str, Any]) -> None:
    told, speakers = played(options, "count on", "3", "4", topology="think_solve")
    assert speakers == ["thinker", "solver", "solver"]
    assert "Reasoning:\ncount on" in told[0][0]
    assert "count on" in told[0][0]
    assert "count on" not in told[1][0]
    assert (told[-1][1], told[-1][4]["without"]) == (1.0, [0.0, 0.0, None])
    told, speakers = played(options, "count on", "4", topology="think_solve", counterfactual=False)
    assert speakers == ["thinker", "solver"]
    assert (told[-1][1], told[-1][4]["without"]) == (0.0, None)


def test_roles_come_before_the_question(options: dict[str, Any]) -> None:
    team = make("team", **options, roles={"2": "You are careful."}, form="Say a number.")
    first, _ = team.reset(seed=0, options={"task": 1})
    assert first == "What is 4 + 4?\n\nSay a number."
    assert team.step("8")[0] == "You are careful.\n\nWhat is 4 + 4?\n\nSay a number."


@pytest.mark.parametrize("topology", ["voting", "think_solve"])
def test_the_contract(options: dict[str, Any], topology: str) -> None:
    report = check_environment(lambda: make("team", **options, topology=topology))
    assert not report.findings, report.findings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topology": "choir"}, "topology"),
        ({"agents": 1}, "at least 2 agents"),
        ({"roles": {"boss": "Lead."}}, "no agent boss"),
        ({"environment": "ezpoints", "options": {}}, "several steps"),
    ],
)
def test_what_is_no_team(options: dict[str, Any], change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make("team", **{**options, **change})


def test_an_agent_that_says_nothing_has_had_its_turn(options: dict[str, Any]) -> None:
    class Silent:
        def __call__(self, requests: Any, _sampling: Any) -> Any:
            from ascribe_lab.rollout import Sample

            return [Sample("" if one.info["agent"] == "2" else "3") for one in requests]

        def close(self) -> None:
            pass

    from ascribe_lab.rollout import rollout

    setup = Setup("team", options, pool="serial")
    with setup.open_pool(2) as pool:
        steps = table(rollout(Plan(1, 2, 3), pool, setup.agent, Silent()))
    rows = steps.to_dicts()
    assert [row["agent"] for row in rows] == ["1", "2", "3"] * 2
    assert [row["valid"] for row in rows] == [True, False, True] * 2


def test_an_expert_team_wins_and_a_cut_one_tells_nothing(options: dict[str, Any]) -> None:
    setup = Setup("team", options, pool="serial")
    won = play(setup, Model("expert"), Plan(2, 2, 3, tasks=[0, 1]))
    assert all(trajectory.won for trajectory in won.trajectories)
    assert {trajectory.without for trajectory in won.trajectories} == {(1.0, 1.0, 1.0)}
    cut = play(setup, Model("expert"), Plan(1, 1, 2))
    assert cut.trajectories[0].without is None
