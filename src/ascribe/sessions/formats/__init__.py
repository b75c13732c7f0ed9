"""Files that other tools wrote, as tables of steps; and credit back into them.

Each module of this folder is one format; what they share is in ``ascribe.sessions.reading``.
"""

from ascribe.sessions.reading.imports import (
    CHECKED_COLUMNS,
    Imported,
    SessionOptions,
    are_sessions,
    check_carried,
    import_files,
    import_parts,
    is_table,
    read,
    refuse_options,
    write_credit,
)

__all__ = [
    "CHECKED_COLUMNS",
    "Imported",
    "SessionOptions",
    "are_sessions",
    "check_carried",
    "import_files",
    "import_parts",
    "is_table",
    "read",
    "refuse_options",
    "write_credit",
]
