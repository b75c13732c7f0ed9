"""Logs with a row for each message or step, and the name of the session in each."""

from collections.abc import Mapping
from typing import Any

from ascribe.sessions.reading import rows
from ascribe.sessions.reading.fields import MESSAGES
from ascribe.sessions.reading.format import LAST, Format
from ascribe.sessions.reading.turns import ACTION, ARGUMENTS, DATA, KINDS, OBSERVATION
from ascribe.sessions.reading.turns import CONTENTS as SAID
from ascribe.sessions.reading.turns import SPEAKERS as WHO

NAMES = "/".join(name for name in rows.SESSIONS[:-1] if "." not in name)
"""A trajectory is that of a table of steps, in which a column is missing."""
NAMED = f"{NAMES} !{'/'.join(MESSAGES)}:list"
ROWS = (
    f"{'/'.join(WHO[:5])} {'/'.join(SAID)}",
    f"{'/'.join(ACTION[:10])} {'/'.join(OBSERVATION)}",
    f"{'/'.join(rows.ASKED)} {'/'.join(rows.ANSWER)} !name",
    f"name {'/'.join(ARGUMENTS)}:object {'/'.join(OBSERVATION)}",
    f"{'/'.join(KINDS)} {'/'.join(DATA)}:object",
)


class _OrMessages(Format):
    """The format of rows with the name of a session, or of messages that are a file."""

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Whether a record is of this format."""
        return super().fits(record) or rows.is_message(record)


FORMAT = _OrMessages(
    "rows",
    "rows of messages or steps",
    " | ".join(f"{NAMED} {each}" for each in ROWS),
    rows.read,
    example="formats/rows.csv",
    rank=LAST + 1,
    session=rows.session,
    scores=rows.scores,
    score=rows.score,
    split=rows.opened,
)
