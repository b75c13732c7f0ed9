"""The verifier of progress: the expert says how much is left to do."""

from pathlib import Path
from typing import Any

import pytest

from ascribe.steps.files import write
from ascribe_lab.pivots import Candidate, extract, make_verifier
from ascribe_lab.pivots.candidates import ReplayPoint
from ascribe_lab.rollout import Model, Plan, Setup, arrow, play
from lab.tests.pivots.made import a_turn


def turns(folder: Path, name: str, groups: int, **options: Any) -> tuple[Candidate, ...]:
    """What an expert did."""
    setup = Setup(name, options, "plain", "serial")
    path = folder / "traces.parquet"
    write(arrow(play(setup, Model("expert"), Plan(groups, 1, setup.turns(None), seed=5))), path)
    return tuple(extract([path], seed=5).candidates)


def test_experts_make_progress_and_their_opposites_do_not(tmp_path: Path) -> None:
    verify = make_verifier({"progress": {"environment": "sokoban", "style": "plain"}})
    opposite = {"up": "down", "down": "up", "left": "right", "right": "left"}
    for one in turns(tmp_path, "sokoban", 2):
        assert verify(one, one.action).reason == "progress"
        said = one.action.removeprefix("<action>").removesuffix("</action>")
        assert verify(one, f"<action>{opposite[said]}</action>").reason == "no_progress"


def test_in_textcraft_either_of_two_things_may_be_fetched_first(tmp_path: Path) -> None:
    pytest.importorskip("minecraft_data", reason="needs the extra textcraft")
    options = {"split": "train", "depth": 1, "inventory": True}
    found = turns(tmp_path, "textcraft", 12, **options)
    named = {"environment": "textcraft", "options": options, "style": "plain"}
    verify, effect = make_verifier({"progress": named}), make_verifier({"effect": named})
    traces: dict[str, list[Candidate]] = {}
    for one in found:
        traces.setdefault(one.origin.trace, []).append(one)
        assert verify(one, one.action).accepted
        for nothing in ("<action>inventory</action>", "<action>get 1 moon</action>", ""):
            assert verify(one, nothing).reason == "no_progress"
    both = [
        (first, second.action)
        for first, second, *_ in (ones for ones in traces.values() if len(ones) > 2)
        if second.action.startswith("<action>get ")
    ]
    assert both
    for first, second in both:
        assert verify(first, second).accepted
        assert not effect(first, second).accepted


def test_what_it_cannot_judge() -> None:
    verify = make_verifier({"progress": {"environment": "sokoban"}})
    assert verify(a_turn("<action>up</action>"), "x").accepted is None
    elsewhere = a_turn("<action>up</action>", scene=ReplayPoint(0, None, (), "nowhere"))
    with pytest.raises(ValueError, match="another state than the trace says"):
        verify(elsewhere, "x")


def test_no_expert_no_progress() -> None:
    with pytest.raises(ValueError, match="has no expert"):
        make_verifier({"progress": {"environment": "lab.tests.pivots.test_effect:Counting"}})
