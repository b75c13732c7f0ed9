"""Logs with a row for each message or step, and the name of the session in each."""

from ascribe.sessions.reading.fields import MESSAGES
from ascribe.sessions.reading.format import LAST, Format
from ascribe.sessions.reading.rows import SESSIONS, read, score, scores, session
from ascribe.sessions.reading.turns import ACTION, CONTENTS, OBSERVATION, SPEAKERS

NAMED = f"{'/'.join(SESSIONS)} !{'/'.join(MESSAGES)}:list"
ROWS = (
    f"{'/'.join(SPEAKERS[:5])} {'/'.join(CONTENTS)}",
    f"{'/'.join(ACTION[:9])} {'/'.join(OBSERVATION)}",
)
FORMAT = Format(
    "rows",
    "rows of messages or steps",
    " | ".join(f"{NAMED} {each}" for each in ROWS),
    read,
    example="formats/rows.csv",
    rank=LAST + 1,
    session=session,
    scores=scores,
    score=score,
)
