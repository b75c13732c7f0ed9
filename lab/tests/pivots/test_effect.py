"""The verifier of effects: the environment says whether two actions do the same."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ascribe.steps.files import write
from ascribe_lab.envs import make
from ascribe_lab.envs.search_qa import SearchQA
from ascribe_lab.pivots import Candidate, extract, make_verifier
from ascribe_lab.pivots.candidates import ReplayPoint
from ascribe_lab.rollout import Model, Plan, Setup, arrow, play
from lab.tests.pivots.made import a_turn


class Counting:
    """Counts in steps of a number; it cannot go back by itself.

    Two guesses end it in the same state: one wins, one is only paid, the rest is for nothing.
    """

    tasks = 5

    def __init__(self, by: int = 1) -> None:
        self.by, self.resets = by, 0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        self.resets += 1
        self.at = (options or {}).get("task", (seed or 0) % 5)
        return self._tell(True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        moves = {"up": self.by, "+1": self.by, "down": -self.by}
        ends = {"end": 0.0, "right": 1.0, "nearly": 1.0, "wrong": 0.0}
        known = action in {*moves, *ends, "look"}
        self.at += moves.get(action, 0)
        observation, info = self._tell(known)
        info["won"] = action == "right"
        return observation, ends.get(action, 0.0), action in ends, False, info

    def close(self) -> None:
        pass

    def _tell(self, valid: bool) -> tuple[str, dict[str, Any]]:
        info = {"admissible_actions": None, "won": False, "task_family": "", "task": ""}
        return f"at {self.at}", {**info, "state": str(self.at), "valid": valid}


SPEC = {"effect": {"environment": "lab.tests.pivots.test_effect:Counting"}}


def scened(action: str, *actions: str, state: str, task: int | None = 2) -> Candidate:
    return a_turn(f"<action>{action}</action>", scene=ReplayPoint(0, task, actions, state))


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [
        ("<think>hm</think><action>up</action>", True),
        ("<action>+1</action>", True),
        ("<action>down</action>", False),
        ("<action>look</action>", False),
        ("<action>nonsense</action>", False),
        ("up", True),  # without a tag the end of the answer is sent, as in a rollout
        ("", False),
    ],
)
def test_what_counts_is_where_the_environment_is_afterwards(answer: str, accepted: bool) -> None:
    verify = make_verifier(SPEC)
    found = verify(scened("up", "down", state="1"), answer)
    assert found.accepted is accepted
    assert found.reason == ("same_effect" if accepted else "other_effect")


def test_what_is_not_understood_is_refused_even_where_nothing_changes() -> None:
    verify = make_verifier(SPEC)
    turn = scened("look", state="2")
    assert verify(turn, "<action>look</action>").accepted
    assert not verify(turn, "<action>nonsense</action>").accepted


def test_an_end_is_an_effect() -> None:
    verify = make_verifier(SPEC)
    assert not verify(scened("look", state="2"), "<action>end</action>").accepted


@pytest.mark.parametrize("answer", ["wrong", "nearly"])
def test_the_outcome_is_an_effect(answer: str) -> None:
    verify = make_verifier(SPEC)
    turn = scened("right", state="2")
    assert verify(turn, "<action>right</action>").reason == "same_effect"
    assert verify(turn, f"<action>{answer}</action>").reason == "other_effect"


def test_in_search_qa_a_wrong_answer_is_refused() -> None:
    options: dict[str, Any] = {"retriever": "http://127.0.0.1:9"}  # nothing is searched for
    environment = SearchQA(**options)
    _, info = environment.reset(seed=0, options={"task": 0})
    right = environment.questions[0].answers[0]
    turn = a_turn(f"<answer>{right}</answer>", scene=ReplayPoint(0, 0, (), info["state"]))
    verify = make_verifier({"effect": {"environment": "search_qa", "options": options}})
    assert verify(turn, f"<think>It is</think><answer>The {right}.</answer>").accepted
    found = verify(turn, "<answer>utter nonsense</answer>")
    assert found.reason == "other_effect"
    assert found.detail.startswith("reward 0, not won")


def test_a_trace_of_another_world_is_an_error_that_says_what_to_do() -> None:
    verify = make_verifier(SPEC)
    with pytest.raises(ValueError, match="another state than the trace says: give the verifier"):
        verify(scened("up", state="7"), "x")
    with pytest.raises(ValueError, match="over before the turn"):
        verify(scened("up", "end", state="2"), "x")
    far = {"effect": {"environment": "lab.tests.pivots.test_effect:Counting", "options": {"by": 9}}}
    with pytest.raises(ValueError, match="give the verifier the options"):
        make_verifier(far)(scened("up", "up", state="3"), "x")


def test_turns_without_a_scene_are_not_for_it() -> None:
    assert make_verifier(SPEC)(a_turn("<action>up</action>"), "x").accepted is None


def test_the_environment_is_named_by_the_user_and_never_by_the_file() -> None:
    with pytest.raises(ValueError, match="does not take these options"):
        make_verifier("effect")
    with pytest.raises(ValueError, match="no agent for 'chess'"):
        make_verifier({"effect": {"environment": "chess"}})


def traces(folder: Path, name: str, groups: int, **options: Any) -> Path:
    setup = Setup(name, options, "plain", "serial")
    plan = Plan(groups, 1, setup.turns(None), seed=5, name=name)
    path = folder / "traces.parquet"
    write(arrow(play(setup, Model("expert"), plan)), path)
    return path


def test_experts_of_an_environment(tmp_path: Path) -> None:
    found = extract([traces(tmp_path, "sokoban", 2)], seed=5)
    verify = make_verifier({"effect": {"environment": "sokoban", "style": "plain"}})
    opposite = {"up": "down", "down": "up", "left": "right", "right": "left"}
    for one in found.candidates:
        assert verify(one, one.action).accepted
        assert one.scene is not None
        said = one.action.removeprefix("<action>").removesuffix("</action>")
        assert not verify(one, f"<action>{opposite[said]}</action>").accepted
    wrong = replace(found.candidates[0], scene=replace(found.candidates[0].scene, seed=1))  # type: ignore[type-var]
    with pytest.raises(ValueError, match="give the verifier the options"):
        verify(wrong, "x")


def test_in_textcraft_other_words_can_do_the_same(tmp_path: Path) -> None:
    pytest.importorskip("minecraft_data", reason="needs the extra textcraft")
    options = {"split": "train", "inventory": True}
    found = extract([traces(tmp_path, "textcraft", 12, **options)], seed=5)
    spec = {"effect": {"environment": "textcraft", "options": options, "style": "plain"}}
    verify = make_verifier(spec)
    crafts = [one for one in found.candidates if one.action.startswith("<action>craft ")]
    two = next(one for one in crafts if one.action.count(",") == 1)
    head, _, parts = two.action.removesuffix("</action>").partition(" using ")
    swapped = f"{head} using {', '.join(reversed(parts.split(', ')))}</action>"
    assert verify(two, swapped).reason == "same_effect"
    assert not make_verifier("normalised")(two, swapped).accepted
    assert verify(two, "<action>get 1 oak log</action>").reason == "other_effect"
    for one in found.candidates:
        assert verify(one, one.action).accepted
        assert not verify(one, "<action>inventory</action>").accepted


def test_the_world_goes_back_without_disturbing_another() -> None:
    environment = make("ezpoints")
    first, _ = environment.reset(seed=0)
    verify = make_verifier({"effect": {"environment": "ezpoints"}})
    assert verify(a_turn("x"), "y").accepted is None
    assert environment.reset(seed=0)[0] == first
