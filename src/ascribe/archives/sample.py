"""A sample of the groups of an archive, for what needs a table in memory: report and decisions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np

from ascribe.archives.convert import as_parquet
from ascribe.archives.partition import NAMES, Keys, keys_of
from ascribe.archives.places import Place, open_archive
from ascribe.archives.run import ROW_BYTES
from ascribe.sessions.reading import SessionOptions
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.files import (
    Rollouts,
    is_credit_column,
    table_from_arrow,
    unknown_note,
    without_unused,
)
from ascribe.steps.table import KNOWN_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

COPIES = 3
"""How often a report holds a table, with its credit and figures."""


class Chosen(NamedTuple):
    """Rows of an archive, their numbers, the keys of their groups, and about the bytes of each."""

    table: "pa.Table"
    rows: Ints
    keys: Keys
    size: Floats


def sample_archive(
    source: str | Path,
    memory: int,
    wanted: Callable[[str], bool],
    **sessions: Unpack[SessionOptions],
) -> tuple[Rollouts, Ints, int]:
    """Whole groups of a table of any size that fit into memory.

    Which groups depends on their names and on what is in them, not on how the rows are divided into
    files: in the order of a hash of their names, as many as fit. All are taken if they fit.

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
        limit, found = np.uint64(2**64 - 1), list[Chosen]()
        for number in range(len(archive.chunks)):
            for start, table in archive.batches(number, names, verify=True):
                keys, real, _ = keys_of(table, by_group=True, only_groups=True)
                at = np.flatnonzero((keys <= limit) & real)
                part = without_unused(table.take(pa.array(at)))
                found.append(Chosen(part, start + at, keys[at], _bytes_of(part)))
                if sum(each.size.sum() for each in found) > 2 * memory / COPIES:
                    found = [_fitting(found, memory / COPIES)]
                    limit = found[0].keys.max()
        arrow, rows, *_ = _fitting(found, memory / COPIES)
        others = [name for name in arrow.column_names if name not in KNOWN_COLUMNS]
        carried = arrow.select([name for name in others if not is_credit_column(name)])
        credit = arrow.select([name for name in others if is_credit_column(name)])
        notes = unknown_note(names)
        rollouts = Rollouts(table_from_arrow(arrow), carried, credit, notes, parquet.balance)
        return rollouts, rows, archive.rows


def _bytes_of(table: "pa.Table") -> Floats:
    """About how much memory each row takes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    size = np.full(table.num_rows, float(ROW_BYTES))
    for column in table.columns:
        plain = (
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        )
        if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
            length = pc.binary_length(plain)
        elif hasattr(plain.type, "value_type"):
            length = pc.list_value_length(plain)
        else:
            continue
        size += 4.0 * length.fill_null(0).to_numpy()
    return size


def _fitting(found: Sequence[Chosen], most: float) -> Chosen:
    """The groups that take at most so many bytes, in the order of keys; at least one is taken."""
    import pyarrow as pa

    rows, keys, size = (np.concatenate(each) for each in list(zip(*found, strict=True))[1:])
    whole = pa.concat_tables([each.table for each in found], promote_options="permissive")
    distinct, group = np.unique(keys, return_inverse=True)
    fits = int(np.searchsorted(np.cumsum(np.bincount(group, size)), most, side="right"))
    if fits >= distinct.size:
        return Chosen(whole, rows, keys, size)
    kept = group < max(fits, 1)
    part = without_unused(whole.filter(pa.array(kept)))
    return Chosen(part, rows[kept], keys[kept], size[kept])
