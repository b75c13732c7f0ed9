"""Records with fields of usual names: messages, or actions with observations."""

from ascribe.sessions.reading.fields import ACTIONS, MESSAGES, Fields
from ascribe.sessions.reading.format import LAST, Format
from ascribe.sessions.reading.nested import RUNS, spread
from ascribe.sessions.reading.turns import ALIASES, KINDS, TURN

CHAT, SETS = "/".join(MESSAGES), "/".join(RUNS)
EVENT = (
    f"{'/'.join(KINDS)}={'|'.join(name for name, role in ALIASES.items() if role == 'assistant')}"
)
DONE = (
    *(f"{CHAT}.0.{'/'.join(TURN)}", f"{CHAT}.0.0", f"{'/'.join(ACTIONS)}.0", f"{CHAT}.*.{EVENT}"),
)
LEVELS = ("", "_.", "_._.", f"{SETS}.0.", f"_.{SETS}.0.", f"{SETS}.0.{SETS}.0.")
FORMAT = Format(
    "fields",
    "sessions with usual fields",
    " | ".join((*(f"{level}{path}" for level in LEVELS for path in DONE), f"{SETS}.0.0.role/from")),
    Fields(),
    example="formats/fields.json",
    rank=LAST,
    split=spread,
)
