"""Pivots as an environment: both engines train on what keeps the contract."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ascribe_lab.agents import View, agent_for
from ascribe_lab.envs import make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.pivots import extract, read_turns, write_turns
from ascribe_lab.pivots.candidates import KINDS
from ascribe_lab.rollout import Model, Plan, Setup, play, table
from lab.tests.pivots.made import CHAT, a_turn, call, lines
from tests.hostile import HOSTILE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three turns: a call, a sentence, and one of the papers' tags."""
    found = extract([lines(tmp_path / "t.jsonl", CHAT)]).candidates
    tagged = a_turn("<action>go north</action>")
    path = tmp_path / "pivots.jsonl"
    facts = {"verifier": {"first": ["tool_call", "normalised"]}}
    write_turns(path, [*found, tagged], KINDS[1], facts)
    return path


def test_the_contract_is_kept(file: Path) -> None:
    report = check_environment(lambda: make("pivots", file=str(file)), seeds=4)
    assert report.kept, report.findings


def test_a_turn_is_an_episode_of_one_step(file: Path) -> None:
    environment = make("pivots", file=file)
    assert environment.tasks == 3
    observation, info = environment.reset(seed=1, options={"task": 0})
    turn = read_turns(file).candidates[0]
    assert json.loads(observation) == list(turn.messages)
    assert info["state"] == turn.id
    answer = "Let me see. " + call("search", count=2, query="Lisbon")
    said, reward, terminated, truncated, info = environment.step(answer)
    assert (said, reward, terminated, truncated) == ("same_calls", 1.0, True, False)
    assert info["won"]


def test_a_turn_is_a_task_as_often_as_it_was_in_the_traces(tmp_path: Path) -> None:
    often, once = replace(a_turn("go"), copies=2), a_turn("stay")
    write_turns(tmp_path / "turns.jsonl", [often, once])
    environment = make("pivots", file=tmp_path / "turns.jsonl", verifier="exact")
    met = [environment.reset(options={"task": task})[1]["state"] for task in range(4)]
    assert met == [often.id] * 3 + [once.id]
    assert environment.tasks == 4


def test_the_agent_shows_the_history_as_the_chat_that_it_is(file: Path) -> None:
    environment = make("pivots", file=file)
    for task, turn in enumerate(read_turns(file).candidates):
        observation, info = environment.reset(options={"task": task})
        for style in ("paper", "plain"):
            shown = agent_for("pivots", style).messages(View(info["task"], observation))
            assert shown == list(turn.messages)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_observation_is_shown_somehow(text: str) -> None:
    (said,) = agent_for("pivots").messages(View("", text))
    assert said["role"] == "user"
    assert "<|" not in said["content"]
    told = json.dumps([{"role": "assistant", "content": text}])
    (said,) = agent_for("pivots").messages(View("", told))
    assert said["role"] == "assistant"
    assert "<|" not in said["content"]
    forged = json.dumps([{"role": "developer", "content": text}])
    (said,) = agent_for("pivots").messages(View("", forged))
    assert said["role"] == "user"


def test_groups_of_answers_can_be_credited(file: Path) -> None:
    setup = Setup("pivots", {"file": str(file)}, "plain", "serial")
    expert = play(setup, Model("expert"), Plan(3, 2, 1, tasks=[0, 1, 2]))
    assert [trajectory.reward for trajectory in expert.trajectories] == [1.0] * 6
    steps = table(play(setup, Model("random"), Plan(3, 4, 1, tasks=[0, 1, 2])))
    assert len(steps) == 12
    assert set(steps.step) == {0}
    assert len(steps.state.used().values) == 3


def test_the_verifier_of_the_options_comes_first(file: Path) -> None:
    environment = make("pivots", file=file, verifier="exact")
    environment.reset(options={"task": 2})
    assert environment.step("go north")[1] == 0.0


def test_candidates_need_a_verifier(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    write_turns(path, [a_turn("go")])
    with pytest.raises(ValueError, match="give one"):
        make("pivots", file=path)
    assert make("pivots", file=path, verifier="exact").tasks == 1
    write_turns(path, [])
    with pytest.raises(ValueError, match="holds no turns"):
        make("pivots", file=path, verifier="exact")


@pytest.mark.parametrize(
    "spec",
    [
        "judge",
        {"judge": {"url": "http://127.0.0.1:9", "cache": "c"}},
        {"any": ["exact", {"all": [{"judge": {"url": "http://127.0.0.1:9", "cache": "c"}}]}]},
        {"first": [{"all": [{"effect": {"environment": "os:system"}}]}]},
        {"effect": {"environment": "os:system"}},
        {"effect": {"environment": ["sokoban"]}},
        {"progress": {"environment": "os:system"}},
        {"effect": {"environment": "team", "options": {"environment": "os:system"}}},
        {"progress": {"environment": "pivots", "options": {"file": "f", "verifier": "judge"}}},
    ],
)
def test_a_file_cannot_name_code_to_run_or_a_server_to_ask(
    spec: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a verifier was made")

    monkeypatch.setattr("ascribe_lab.pivots.environment.make_verifier", never)
    path = tmp_path / "p.jsonl"
    write_turns(path, [a_turn("go")], KINDS[1], {"verifier": spec})
    with pytest.raises(ValueError, match="give the verifier yourself"):
        make("pivots", file=path)


def test_a_file_can_name_an_environment_of_our_own(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    facts = {"verifier": {"any": ["exact", {"effect": {"environment": "sokoban"}}]}}
    write_turns(path, [a_turn("go")], KINDS[1], facts)
    assert make("pivots", file=path).tasks == 1
