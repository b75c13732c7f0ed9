"""Sessions and rewards of odd files, compared with what was written into them."""

from pathlib import Path
from typing import Any

import pytest

from ascribe.sessions.formats import import_files
from tests.sessions.test_formats import lines
from tests.sessions.test_left_out import ASK, returns

pytestmark = pytest.mark.unit


def call(session: str, number: int, reward: Any, **more: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": f"a{number}"}
    made = {"session_id": session, "messages": [ASK], "response_message": said, "reward": reward}
    return {**made, "trace_id": f"{session}-{number}", **more}


@pytest.mark.parametrize("bad", [0, 1])
def test_a_session_with_a_bad_reward_is_left_out_and_said(tmp_path: Path, bad: int) -> None:
    """Its other records do not wait for one that was never counted."""
    rows = [call(f"t:{n}", k, 0.5 * k) for n in range(3) for k in range(2)]
    rows[2 + bad]["reward"] = "abc"
    imported = import_files([lines(tmp_path, *rows)], skip_bad=True)
    assert returns(imported) == {"t/t:0": 0.5, "t/t:2": 0.5}
    assert imported.balance.reasons("record") == {"not as its format": 2}
