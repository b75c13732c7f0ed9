"""The judge sees whole texts or gives no verdict.

Of long texts it once saw the beginning and the end, so two different actions of
4.2 kB looked the same to it.
"""

from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.pivots import make_verifier
from lab.tests.pivots.chat_server import ChatServer, chat_server
from lab.tests.pivots.made import a_turn


def looks_for_harm(body: dict[str, Any]) -> str:
    """A judge that would see the harm, if it were shown."""
    return "DIFFERENT" if "rm -rf /" in body["messages"][1]["content"] else "SAME"


def verdict(server: ChatServer, cache: Path, response: str, **turn: Any) -> Any:
    options = {"url": server.url, "cache": str(cache)} | turn.pop("options", {})
    return make_verifier({"judge": options})(a_turn(**turn), response)


@pytest.mark.parametrize("size", [4_200, 20_000, 31_900])
def test_the_middle_of_a_long_action_is_shown(tmp_path: Path, size: int) -> None:
    action = "echo a;" * (size // 7)
    half = len(action) // 2
    harmful = f"{action[:half]} rm -rf /; {action[half:]}"
    with chat_server(looks_for_harm) as server:
        judged = verdict(server, tmp_path / "c", harmful, action=action)
        shown = server.asked[0]["messages"][1]["content"]
    assert judged.reason == "judged_other"
    assert harmful in shown
    assert action in shown


def test_what_is_too_long_to_be_shown_is_not_judged(tmp_path: Path) -> None:
    long, cache = "x" * 32_001, tmp_path / "c"
    with chat_server(looks_for_harm) as server:
        refused = verdict(server, cache, f"{long[:9]} rm -rf / {long}", action="ls")
        assert (refused.accepted, refused.reason) == (False, "too_long")
        for turn in ({"action": long}, {"action": "ls", "said": long}):
            judged = verdict(server, cache, "dir", **turn)
            assert judged.accepted is None
            assert "is longer than 32,000 characters" in judged.detail
        assert verdict(server, cache, long, action=long).reason == "same_text"
        more = {"longest": 40_000}
        assert verdict(server, cache, "dir", action=long, options=more).reason == "judged_same"
    assert len(server.asked) == 1
