"""Parts of an archive that can be credited by themselves: whole groups, as many as fit into memory.

A first pass over the names of groups and trajectories finds where each group is. If groups lie
close together, a part is a range of rows. If they are scattered, a second pass writes the rows of
each part to the disk: part = hash of the group modulo the number of parts. Groups that belong
together, because a trajectory is in both or one corrects the other, are in one part.
"""

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ascribe.archives.places import Archive, Place
from ascribe.steps.arrays import Bools, Ints
from ascribe.steps.atomic import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

Keys = npt.NDArray[np.uint64]

NAMES = ("group", "trajectory", "iteration", "padding", "corrects")
"""Columns that decide which rows belong together."""
ROW = "ascribe.row"
"""Column of the rows on the disk: their number in the archive."""
SPAN = np.dtype([("key", np.uint64), ("first", np.int64), ("last", np.int64), ("rows", np.int64)])
PAIR = np.dtype([("trajectory", np.uint64), ("key", np.uint64)])
MOST_PASSES = 20
"""How often the ends of parts are moved before groups count as scattered."""


@dataclass(frozen=True, eq=False)
class ArchiveParts:
    """How the rows of an archive are divided into parts.

    Attributes:
        bounds: first row of each part, and the number of rows; None if groups are scattered.
        count: number of parts.
        linked: keys of groups that share a part with another, rising.
        roots: for each of them, the key that decides on its part.
        units: all keys, if they are iterations, each of which is a part; else None.
    """

    bounds: Ints | None
    count: int
    linked: Keys
    roots: Keys
    units: Keys | None = None

    def part_of(self, keys: Keys, real: Bools, start: int) -> Ints:
        """The part of each row; rows of padding are spread over all parts."""
        keys = self.rooted(keys)
        parts = (
            keys % np.uint64(self.count) if self.units is None else self.units.searchsorted(keys)
        )
        spread = (start + np.arange(keys.size)) % self.count
        return np.where(real, parts.astype(np.int64), spread)

    def rooted(self, keys: Keys) -> Keys:
        """The keys, with that of their root for groups that belong together."""
        if not self.linked.size:
            return keys
        place = np.minimum(self.linked.searchsorted(keys), self.linked.size - 1)
        return np.where(self.linked[place] == keys, self.roots[place], keys)


def keys_of(table: "pa.Table", *, by_group: bool) -> tuple[Keys, Bools, list[Keys]]:
    """The key of each row's group, whether it is no padding, and keys of trajectories it is in.

    A key is a hash of the names of the iteration and the group, or of the iteration alone if the
    recipe compares rows over a whole iteration.
    """
    size = table.num_rows
    number = np.zeros(size, dtype=np.uint64)
    if "iteration" in table.column_names:
        column = table.column("iteration").cast("int64").fill_null(0)
        number = column.to_numpy().astype(np.uint64)
    real = np.ones(size, dtype=np.bool_)
    if "padding" in table.column_names:
        real = ~table.column("padding").cast("bool").fill_null(False).to_numpy()
    if not by_group:
        return _mixed(number, number), real, []
    of = partial(_name_keys, table, number)
    trajectory, has_trajectory = of("trajectory", b"trajectory")
    group, has_group = of("group", b"group")
    group = np.where(has_group, group, trajectory)  # such a row is dropped with its trajectory
    trajectories = [np.where(has_trajectory, trajectory, group)]
    if "corrects" in table.column_names:
        corrects, has_corrects = of("corrects", b"trajectory")
        trajectories.append(np.where(has_corrects, corrects, trajectories[0]))
    return group, real, trajectories


def _name_keys(table: "pa.Table", number: Keys, name: str, kind: bytes) -> tuple[Keys, Bools]:
    """A key for each row's name in a column, and whether it has one."""
    import pyarrow as pa

    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    array = column.unify_dictionaries().combine_chunks()
    names = array.dictionary.cast(pa.large_binary()).to_pylist()
    digests = (blake2b(text or b"", digest_size=8, person=kind).digest() for text in names)
    hashes = np.append(np.frombuffer(b"".join(digests), dtype="<u8"), np.uint64(0))
    codes = array.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return _mixed(hashes[codes], number), codes >= 0


def _mixed(keys: Keys, number: Keys) -> Keys:
    mixed = (keys ^ (number * np.uint64(0x9E3779B97F4A7C15))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(31))


# The first pass.


def scan(archive: Archive, work: Place, number: int, *, by_group: bool) -> None:
    """Write where the groups of a chunk are, and which trajectories are in which groups."""
    columns = [name for name in NAMES if name in archive.columns]
    spans, pairs = [np.empty(0, dtype=SPAN)], [np.empty(0, dtype=PAIR)]
    for start, table in archive.batches(number, columns, verify=True):
        keys, real, trajectories = keys_of(table, by_group=by_group)
        rows = np.flatnonzero(real)
        keys = keys[rows]
        runs = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
        span = np.empty(runs.size, dtype=SPAN)
        span["key"], span["first"] = keys[runs], start + rows[runs]
        ends = np.append(runs[1:], keys.size)
        span["last"], span["rows"] = start + rows[ends - 1], ends - runs
        spans.append(joined(span))
        for names in trajectories:
            pair = np.empty(keys.size, dtype=PAIR)
            pair["trajectory"], pair["key"] = names[rows], keys
            changes = (pair["trajectory"][1:] != names[rows][:-1]) | (keys[1:] != keys[:-1])
            pairs.append(np.unique(pair[np.append(True, changes)[: pair.size]]))
    work.child(f"pairs-{number}.bin").write(np.unique(np.concatenate(pairs)).tobytes())
    work.child(f"spans-{number}.bin").write(joined(np.concatenate(spans)).tobytes())


def joined(spans: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One span for each key, in rising order."""
    spans = spans[np.argsort(spans["key"], kind="stable")]
    starts = np.flatnonzero(np.diff(spans["key"], prepend=~spans["key"][:1]))
    result = spans[starts]
    if starts.size:
        result["first"] = np.minimum.reduceat(spans["first"], starts)
        result["last"] = np.maximum.reduceat(spans["last"], starts)
        result["rows"] = np.add.reduceat(spans["rows"], starts)
    return result


def divide(
    archive: Archive, work: Place, most_rows: int, memory: int, *, by_group: bool
) -> ArchiveParts:
    """Parts of at most about ``most_rows`` rows, from what ``scan`` wrote about every chunk.

    Args:
        archive: the rows.
        work: the folder of the results of ``scan``.
        most_rows: rows of a part that fit into memory.
        memory: bytes of the results of ``scan`` to hold at a time.
        by_group: whether keys are of groups.

    Raises:
        ValueError: if the recipe needs a whole iteration at a time, and one does not fit.
    """
    chunks = range(len(archive.chunks))
    edges = [
        np.stack([first, second])
        for pairs in _by_range([work.child(f"pairs-{n}.bin") for n in chunks], PAIR, memory)
        for first, second in [_shared(pairs)]
    ]
    links = np.concatenate([np.empty((2, 0), dtype=np.uint64), *edges], axis=1)
    linked, roots = _components(*links)
    partition = ArchiveParts(None, 1, linked, roots)
    spans = np.concatenate(
        [np.empty(0, dtype=SPAN)]
        + [
            joined(spans)
            for spans in _by_range([work.child(f"spans-{n}.bin") for n in chunks], SPAN, memory)
        ]
    )
    if linked.size:
        spans["key"] = partition.rooted(spans["key"])
        spans = joined(spans)
    if not by_group:
        return _by_iteration(spans, most_rows)
    starts = np.array([chunk.start for chunk in archive.chunks], dtype=np.int64)
    bounds = _bounds(spans, starts, archive.rows, most_rows)
    if bounds is not None:
        return ArchiveParts(bounds, bounds.size - 1, linked, roots)
    return ArchiveParts(None, -(-archive.rows // max(int(0.7 * most_rows), 1)), linked, roots)


def _by_iteration(spans: npt.NDArray[Any], most_rows: int) -> ArchiveParts:
    largest = int(spans["rows"].max(initial=0))
    none = np.empty(0, dtype=np.uint64)
    if largest > most_rows:
        raise ValueError(
            f"the recipe compares all rows of an iteration, and one of {largest:,} rows does not "
            "fit into --memory; raise it, write the column iteration, or choose a recipe that "
            "compares inside a group"
        )
    return ArchiveParts(None, max(spans.size, 1), none, none, spans["key"])


def _by_range(
    places: "Sequence[Place]", dtype: np.dtype[Any], memory: int
) -> "Iterator[npt.NDArray[Any]]":
    """The records of sorted files together, by ranges of their first field that fit into memory."""
    files = [_records(place, dtype) for place in places]
    size = sum(file.nbytes for file in files)
    ranges = size // max(memory, 16 << 20) + 1
    name = str(dtype.names[0]) if dtype.names else ""
    cuts = [np.uint64(number * (2**64 // ranges)) for number in range(1, ranges)]
    places_of = [[0, *np.searchsorted(file[name], cuts).tolist(), file.size] for file in files]
    for number in range(ranges):
        yield np.concatenate(
            [
                file[places[number] : places[number + 1]]
                for file, places in zip(files, places_of, strict=True)
            ]
            or [np.empty(0, dtype=dtype)]
        )


def _records(place: Place, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if place.uri or not place.info().size:
        return np.frombuffer(place.read(), dtype=dtype)
    return np.memmap(place.path, dtype=dtype, mode="r")


def _shared(pairs: npt.NDArray[Any]) -> tuple[Keys, Keys]:
    """Pairs of groups that have a trajectory in common."""
    pairs = np.unique(pairs)
    same = pairs["trajectory"][1:] == pairs["trajectory"][:-1]
    return pairs["key"][:-1][same], pairs["key"][1:][same]


def _components(first: Keys, second: Keys) -> tuple[Keys, Keys]:
    """The keys that edges connect, rising, and for each the smallest key of its component."""
    linked, ends = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = np.split(ends, 2)
    root = np.arange(linked.size)
    while a.size and (root[a] != root[b]).any():
        smaller = np.minimum(root[a], root[b])
        np.minimum.at(root, root[a], smaller)
        np.minimum.at(root, root[b], smaller)
        root = root[root]
    while (root != root[root]).any():
        root = root[root]
    return linked, linked[root]


def _bounds(spans: npt.NDArray[Any], starts: Ints, rows: int, most_rows: int) -> Ints | None:
    """First rows of parts that cut no group, and the number of rows; None if there are none.

    Parts end where chunks end, or before the first row of the groups that a chunk's end would cut.
    """
    cuts, used = [], 0
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), rows], strict=True):
        if stop - used > most_rows and start > used:
            cuts.append(start)
            used = start
    bounds = np.array(cuts, dtype=np.int64)
    for _ in range(MOST_PASSES):
        low = bounds.searchsorted(spans["first"], side="right")
        high = bounds.searchsorted(spans["last"], side="right")
        if (high - low > 1).any():
            return None
        crossing = high > low
        if not crossing.any():
            bounds = np.unique(np.concatenate([[0], bounds, [rows]])).astype(np.int64)
            return bounds if np.diff(bounds).max(initial=0) <= 1.3 * most_rows else None
        np.minimum.at(bounds, low[crossing], spans["first"][crossing])
        bounds = np.unique(bounds)
    return None


# The second pass, for scattered groups.


def scatter(
    archive: Archive,
    work: Place,
    number: int,
    columns: list[str],
    partition: ArchiveParts,
    *,
    by_group: bool,
) -> None:
    """Write the rows of a chunk to the disk, as one record batch for each batch and part."""
    import pyarrow as pa

    sink = pa.BufferOutputStream() if work.uri else None
    target = work.child(f"rows-{number}.arrow")

    def write(file: Any) -> None:
        writer = None
        for start, table in archive.batches(number, columns):
            keys, real, _ = keys_of(table, by_group=by_group)
            parts = partition.part_of(keys, real, start)
            order = np.argsort(parts, kind="stable")
            names = table.column_names
            plain = [_plain(table.column(name)) for name in names]
            rows = pa.table([*plain, pa.array(start + np.arange(keys.size))], [*names, ROW])
            rows = rows.take(pa.array(order)).combine_chunks()
            if writer is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                writer = pa.ipc.new_file(file, rows.schema, options=options)
            ends = np.cumsum(np.bincount(parts, minlength=partition.count))
            for first, last in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
                (batch,) = rows.slice(first, last - first).to_batches() or _empty(rows.schema)
                writer.write_batch(batch)
        if writer is not None:
            writer.close()

    if sink is None:
        with replacing(target.path) as file:
            write(file)
    else:
        write(sink)
        target.write(sink.getvalue())


def _empty(schema: "pa.Schema") -> "list[pa.RecordBatch]":
    import pyarrow as pa

    return [pa.RecordBatch.from_pylist([], schema=schema)]


def _plain(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """A column without a dictionary: those of many batches would have to be one."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    return column.cast(pa.large_string())


def gather(
    archive: Archive, work: Place, number: int, columns: list[str], partition: ArchiveParts
) -> "tuple[pa.Table, Ints]":
    """The rows of a part, and their numbers in the archive, rising."""
    import pyarrow as pa

    if partition.bounds is not None:
        first, last = partition.bounds[number : number + 2].tolist()
        tables = []
        for index, chunk in enumerate(archive.chunks):
            if chunk.start < last and first < chunk.start + chunk.rows:
                for start, table in archive.batches(index, columns):
                    low, high = max(first - start, 0), min(last - start, table.num_rows)
                    if low < high:
                        tables.append(table.slice(low, high - low))
        return pa.concat_tables(tables), np.arange(first, last)
    batches = []
    for index in range(len(archive.chunks)):
        place = work.child(f"rows-{index}.arrow")
        with place.system.open_input_file(place.path) as file:
            reader = pa.ipc.open_file(file)
            numbers = range(number, reader.num_record_batches, partition.count)
            batches += [reader.get_batch(batch) for batch in numbers]
    table = pa.Table.from_batches(batches)
    rows = table.column(ROW).to_numpy()
    return table.drop_columns([ROW]), rows
