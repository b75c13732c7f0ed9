"""Parts of an archive that can be credited by themselves: whole groups, as many as fit into memory.

A first pass over the names of groups and trajectories finds groups that belong together, because a
trajectory is in both or one corrects the other: they are in one part. A second pass writes the rows
of each part to the disk: part = hash of the group modulo the number of parts.
"""

import itertools
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ascribe.archives.places import Archive, Place, read_streams, seal, unseal, write_streams
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.errors import InputError
from ascribe.steps.files import without_unused
from ascribe.steps.hints import option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

Keys = npt.NDArray[np.uint64]

NAMES = ("group", "trajectory", "iteration", "padding", "corrects")
"""Columns that decide which rows belong together."""
ROW = "ascribe.row"
"""Column of the rows on the disk: their number in the archive."""
PAIR = np.dtype([("first", np.uint64), ("second", np.uint64)])
"""A trajectory and the group it is in, or an iteration and the number of its rows."""


@dataclass(frozen=True, eq=False)
class ArchiveParts:
    """How the rows of an archive are divided into parts.

    Attributes:
        count: number of parts.
        linked: keys of groups that share a part with another, rising, if any do.
        roots: for each of them, the key that decides on its part.
        units: all keys, if they are iterations, each of which is a part; else None.
    """

    count: int = 1
    linked: Keys | None = None
    roots: Keys | None = None
    units: Keys | None = None

    def part_of(self, keys: Keys, real: Bools, start: int) -> Ints:
        """The part of each row; rows of padding are spread over all parts."""
        if self.linked is not None and self.roots is not None and self.linked.size:
            place = np.minimum(self.linked.searchsorted(keys), self.linked.size - 1)
            keys = np.where(self.linked[place] == keys, self.roots[place], keys)
        parts = (
            keys % np.uint64(self.count) if self.units is None else self.units.searchsorted(keys)
        )
        spread = (start + np.arange(keys.size)) % self.count
        return np.where(real, parts.astype(np.int64), spread)


def keys_of(
    table: "pa.Table", *, by_group: bool, only_groups: bool = False
) -> tuple[Keys, Bools, list[Keys]]:
    """The key of each row's group, whether it is no padding, and keys of trajectories it is in.

    A key is a hash of the names of the iteration and the group, or of the iteration alone if the
    recipe compares rows over a whole iteration. Trajectories are left out if only groups matter and
    every row names its own.
    """
    size = table.num_rows
    number = np.zeros(1, dtype=np.uint64)
    if "iteration" in table.column_names:
        column = table.column("iteration").cast("int64").fill_null(0)
        number = column.to_numpy().astype(np.uint64)
    real = np.ones(size, dtype=np.bool_)
    if "padding" in table.column_names:
        real = ~table.column("padding").cast("bool").fill_null(False).to_numpy()
    if not by_group:
        return np.broadcast_to(_mixed(number, number), (size,)), real, []
    of = partial(_name_keys, table, number)
    group, has_group = of("group", b"group")
    if only_groups and has_group.all():
        return group, real, []
    trajectory, has_trajectory = of("trajectory", b"trajectory")
    group = np.where(has_group, group, trajectory)  # such a row is dropped with its trajectory
    trajectories = [np.where(has_trajectory, trajectory, group)]
    if "corrects" in table.column_names:
        corrects, has_corrects = of("corrects", b"trajectory")
        trajectories.append(np.where(has_corrects, corrects, trajectories[0]))
    return group, real, trajectories


def _name_keys(table: "pa.Table", number: Keys, name: str, kind: bytes) -> tuple[Keys, Bools]:
    """A key for each row's name in a column, and whether it has one."""
    import pyarrow as pa

    column = without_unused(table.select([name])).column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    names = array.dictionary.cast(pa.large_binary()).to_pylist()
    digests = (blake2b(text or b"", digest_size=8, person=kind).digest() for text in names)
    hashes = np.append(np.frombuffer(b"".join(digests), dtype="<u8"), np.uint64(0))
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    keys = _mixed(hashes, number)[codes] if number.size == 1 else _mixed(hashes[codes], number)
    return keys, codes >= 0


def _mixed(keys: Keys, number: Keys) -> Keys:
    mixed = (keys ^ (number * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(31))


# The first pass.


def scan(archive: Archive, work: Place, number: int, *, by_group: bool) -> None:
    """Write which trajectories of a chunk are in which groups, or how large its iterations are."""
    columns = [name for name in NAMES if name in archive.columns]
    found = [np.empty((0, 2), dtype=np.uint64)]
    for _, table in archive.batches(number, columns, verify=True):
        keys, real, trajectories = keys_of(table, by_group=by_group)
        keys = keys[real]
        for names in trajectories:
            pairs = np.stack([names[real], keys], axis=1)
            changes = (pairs[1:] != pairs[:-1]).any(axis=1)
            found.append(pairs[np.append(True, changes)[: keys.size]])
        if not by_group:
            units, rows = np.unique(keys, return_counts=True)
            found.append(np.stack([units, rows.astype(np.uint64)], axis=1))
    pairs = _distinct(np.concatenate(found).view(PAIR).ravel())
    work.child(f"pairs-{number}.bin").write(seal(pairs.tobytes()))


def divide(archive: Archive, work: Place, most_rows: int, *, by_group: bool) -> ArchiveParts:
    """Parts of at most ``most_rows`` rows, from what ``scan`` wrote about every chunk.

    Raises:
        ValueError: if the recipe needs a whole iteration at a time, and one does not fit.
    """
    places = [work.child(f"pairs-{number}.bin") for number in range(len(archive.chunks))]
    found = [np.frombuffer(unseal(each.read(), each.name), dtype=PAIR) for each in places]
    pairs = np.concatenate(found)
    if by_group:  # groups that have a trajectory in common
        pairs = _distinct(pairs)
        same = pairs["first"][1:] == pairs["first"][:-1]
        linked = _components(np.stack([pairs["second"][:-1][same], pairs["second"][1:][same]]))
        return ArchiveParts(-(-archive.rows // max(int(0.7 * most_rows), 1)), *linked)
    units, unit = np.unique(pairs["first"], return_inverse=True)
    largest = int(np.bincount(unit, weights=pairs["second"]).max(initial=0))
    if largest > most_rows:
        raise InputError(
            f"the recipe compares all rows of an iteration, and one of {largest:,} rows does not "
            f"fit into {option('memory')}",
            hint="raise it, write the column iteration, or choose a recipe that "
            "compares inside a group",
        )
    return ArchiveParts(max(units.size, 1), units=units)


def _distinct(pairs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The pairs without repetitions, rising; ``np.unique`` compares them much more slowly."""
    pairs = pairs[np.lexsort((pairs["second"], pairs["first"]))]
    distinct: npt.NDArray[Any] = pairs[np.append(True, pairs[1:] != pairs[:-1])[: pairs.size]]
    return distinct


def _components(edges: Keys) -> tuple[Keys, Keys]:
    """The keys that edges connect, rising, and for each the smallest key of its component."""
    linked, ends = np.unique(edges, return_inverse=True)
    a, b = ends.reshape(edges.shape)
    root = np.arange(linked.size)
    while a.size and (root[a] != root[b]).any():
        smaller = np.minimum(root[a], root[b])
        np.minimum.at(root, root[a], smaller)
        np.minimum.at(root, root[b], smaller)
        root = root[root]
    while (root != root[root]).any():
        root = root[root]
    return linked, linked[root]


# The second pass.


def scatter(
    archive: Archive,
    work: Place,
    number: int,
    columns: "Sequence[str]",
    partition: ArchiveParts,
    *,
    by_group: bool,
) -> None:
    """Write the rows of a chunk to the disk: an Arrow stream for each batch and part."""
    import pyarrow as pa

    def streams() -> "Iterator[pa.Table]":
        for start, table in archive.batches(number, columns):
            keys, real, _ = keys_of(table, by_group=by_group, only_groups=True)
            parts = partition.part_of(keys, real, start)
            small = parts.astype(np.uint16) if partition.count <= 1 << 16 else parts
            order = np.argsort(small, kind="stable")  # which is fast for 16 bits
            rows = table.append_column(ROW, pa.array(start + np.arange(keys.size)))
            rows = rows.take(pa.array(order)).combine_chunks()
            ends = np.cumsum(np.bincount(parts, minlength=partition.count)).tolist()
            for first, end in itertools.pairwise([0, *ends]):
                yield without_unused(rows.slice(first, end - first))

    write_streams(work.child(f"rows-{number}.arrow"), streams())


def gather(archive: Archive, work: Place, number: int, parts: int) -> "tuple[pa.Table, Ints]":
    """The rows of a part, and the rising numbers of these rows."""
    import pyarrow as pa

    places = [work.child(f"rows-{index}.arrow") for index in range(len(archive.chunks))]
    tables = [table for place in places for table in read_streams(place, number, parts)]
    rows = pa.concat_tables(tables) if tables else pa.table({ROW: pa.array([], pa.int64())})
    return rows.drop_columns([ROW]), rows.column(ROW).to_numpy()
