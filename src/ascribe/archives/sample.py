"""A random sample of the groups of an archive, for what needs a table in memory: the report."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

import numpy as np

from ascribe.archives.convert import as_parquet
from ascribe.archives.partition import NAMES, keys_of
from ascribe.archives.places import Place, open_archive
from ascribe.archives.run import row_bytes
from ascribe.sessions.reading import SessionOptions
from ascribe.steps.arrays import Ints
from ascribe.steps.files import (
    Rollouts,
    is_credit_column,
    table_from_arrow,
    unknown_note,
    without_unused,
)
from ascribe.steps.table import KNOWN_COLUMNS

COPIES = 3
"""How often a report holds a table, with its credit and figures."""


def sample_archive(
    source: str | Path,
    memory: int,
    wanted: Callable[[str], bool],
    **sessions: Unpack[SessionOptions],
) -> tuple[Rollouts, Ints, int]:
    """Whole groups of a table of any size that fit into memory.

    Which groups depends on their names alone. All are taken if they fit.

    Args:
        source: a path, or a URI that pyarrow opens.
        memory: bytes to use.
        wanted: whether to read the column of this name.
        **sessions: how to read sessions; arguments of ``ascribe.sessions.reading.import_files``.

    Returns:
        The sample, its row numbers in the archive, and the number of rows of the archive.
    """
    import pyarrow as pa

    with TemporaryDirectory() as folder:
        parquet = as_parquet(source, Place.of(folder), lambda _: None, **sessions)
        archive = open_archive(parquet.files).cut(1 << 18)
        names = [name for name in archive.columns if wanted(name) or name in NAMES]
        share = memory / (COPIES * row_bytes(archive, names) * max(archive.rows, 1))
        limit = np.uint64(min(int(share * 2**64), 2**64 - 1))
        tables, rows = [], []
        for number in range(len(archive.chunks)):
            for start, table in archive.batches(number, names, verify=True):
                keys, real, _ = keys_of(table, by_group=True)
                chosen = np.flatnonzero((keys <= limit) & real)
                tables.append(without_unused(table.take(pa.array(chosen))))
                rows.append(start + chosen)
        arrow = pa.concat_tables(tables, promote_options="permissive")
        others = [name for name in arrow.column_names if name not in KNOWN_COLUMNS]
        carried = arrow.select([name for name in others if not is_credit_column(name)])
        credit = arrow.select([name for name in others if is_credit_column(name)])
        table, notes = table_from_arrow(arrow), unknown_note(names)
        rollouts = Rollouts(table, carried, credit, notes, parquet.balance)
        return rollouts, np.concatenate(rows), archive.rows
