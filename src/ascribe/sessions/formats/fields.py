"""Records with fields of usual names: messages, or actions with observations."""

from ascribe.sessions.reading.fields import ACTIONS, MESSAGES, Fields
from ascribe.sessions.reading.format import LAST, Format
from ascribe.sessions.reading.turns import TURN

CHAT = "/".join(MESSAGES)
DONE = (f"{CHAT}.0.{'/'.join(TURN)}", f"{CHAT}.0.0", f"{'/'.join(ACTIONS)}.0")
FORMAT = Format(
    "fields",
    "sessions with usual fields",
    " | ".join(f"{level}{path}" for level in ("", "_.", "_._.") for path in DONE),
    Fields(),
    example="formats/fields.json",
    rank=LAST,
)
