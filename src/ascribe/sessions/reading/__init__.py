"""Files that other tools wrote, as tables of steps; and credit back into them."""

from ascribe.sessions.reading.imports import (
    CHECKED_COLUMNS as CHECKED_COLUMNS,
)
from ascribe.sessions.reading.imports import (
    Imported,
    import_files,
    write_credit,
)
from ascribe.sessions.reading.imports import (
    SessionOptions as SessionOptions,
)
from ascribe.sessions.reading.imports import (
    are_sessions as are_sessions,
)
from ascribe.sessions.reading.imports import (
    balance_of as balance_of,
)
from ascribe.sessions.reading.imports import (
    check_carried as check_carried,
)
from ascribe.sessions.reading.imports import (
    import_parts as import_parts,
)
from ascribe.sessions.reading.imports import (
    is_table as is_table,
)
from ascribe.sessions.reading.imports import (
    read as read,
)
from ascribe.sessions.reading.imports import (
    refuse_options as refuse_options,
)

__all__ = ["Imported", "import_files", "write_credit"]
