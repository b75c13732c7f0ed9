"""Parts of an archive that can be credited by themselves: whole groups, as many as fit into memory.

A first pass over the names of groups and trajectories finds where each group is. If groups lie
close together, a part is a range of rows. If they are scattered, a second pass writes the rows of
each part to the disk: part = hash of the group modulo the number of parts. Groups that belong
together, because a trajectory is in both or one corrects the other, are in one part.
"""

import itertools
from dataclasses import dataclass, replace
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
SPAN = np.dtype([("key", np.uint64), ("first", np.int64), ("last", np.int64), ("rows", np.int64)])
PAIR = np.dtype([("trajectory", np.uint64), ("key", np.uint64)])
PART_ROWS = 1 << 17
"""Rows of a part; the arrays of larger ones do not fit into a processor's cache."""
MOST_PARTS = 256
"""Of scattered groups, unless the memory asks for more: each has a stream in each chunk."""
MOST_PIECES = 8
"""How often a row group of groups that lie close together is read; beyond, they are scattered."""


@dataclass(frozen=True, eq=False)
class ArchiveParts:
    """How the rows of an archive are divided into parts.

    Attributes:
        bounds: first row of each part, and the number of rows; None if groups are scattered.
        tasks: the parts that are read together.
        linked: keys of groups that share a part with another, rising.
        roots: for each of them, the key that decides on its part.
        units: all keys, if they are iterations, each of which is a part; else None.
    """

    bounds: Ints | None
    tasks: list[range]
    linked: Keys
    roots: Keys
    units: Keys | None = None

    @property
    def count(self) -> int:
        """Number of parts."""
        return self.tasks[-1].stop

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
    keys = _mixed(hashes, number)[codes] if number.size == 1 else _mixed(hashes[codes], number)
    return keys, codes >= 0


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
    work.child(f"pairs-{number}.bin").write(seal(np.unique(np.concatenate(pairs)).tobytes()))
    work.child(f"spans-{number}.bin").write(seal(joined(np.concatenate(spans)).tobytes()))


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
    archive: Archive,
    work: Place,
    most_rows: int,
    memory: int,
    *,
    by_group: bool,
    part_rows: int = PART_ROWS,
) -> ArchiveParts:
    """Parts of about ``part_rows`` rows, from what ``scan`` wrote about every chunk.

    At most ``most_rows`` rows fit into memory. Of the results of ``scan``, no more than ``memory``
    bytes are held at a time.

    Raises:
        ValueError: if the recipe needs a whole iteration at a time, and one does not fit.
    """

    def results(name: str, dtype: np.dtype[Any]) -> "Iterator[npt.NDArray[Any]]":
        places = [work.child(f"{name}-{number}.bin") for number in range(len(archive.chunks))]
        return _by_range(places, dtype, memory)

    linked, roots = _components(
        np.concatenate([_shared(pairs) for pairs in results("pairs", PAIR)], axis=1)
    )
    partition = ArchiveParts(None, [range(1)], linked, roots)
    spans = np.concatenate([joined(spans) for spans in results("spans", SPAN)])
    if linked.size:
        spans["key"] = partition.rooted(spans["key"])
        spans = joined(spans)
    count = max(spans.size, 1)
    if by_group:
        part_rows = min(part_rows, most_rows)
        if bounds := _bounds(spans, archive, most_rows, part_rows):
            return replace(partition, bounds=bounds[0], tasks=bounds[1])
        least = -(-archive.rows // max(int(0.7 * most_rows), 1))
        count = max(least, min(archive.rows // part_rows, MOST_PARTS), 1)
    elif (largest := int(spans["rows"].max(initial=0))) > most_rows:
        raise InputError(
            f"the recipe compares all rows of an iteration, and one of {largest:,} rows does not "
            f"fit into {option('memory')}",
            hint=(
                "raise it, write the column iteration, or choose a recipe that "
                "compares inside a group"
            ),
        )
    tasks = [range(number, number + 1) for number in range(count)]
    return replace(partition, tasks=tasks, units=None if by_group else spans["key"])


def _by_range(
    places: "Sequence[Place]", dtype: np.dtype[Any], memory: int
) -> "Iterator[npt.NDArray[Any]]":
    """The records of sorted files together, by ranges of their first field that fit into memory."""
    files = []
    for place in places:
        contents: Any = place.read() if place.uri else np.memmap(place.path, np.uint8, mode="r")
        files.append(np.frombuffer(unseal(contents, place.name), dtype=dtype))
    ranges = sum(file.nbytes for file in files) // max(memory, 16 << 20) + 1
    cuts = [np.uint64(number * (2**64 // ranges)) for number in range(1, ranges)]
    first = str(dtype.names[0]) if dtype.names else ""
    ends = [[0, *np.searchsorted(file[first], cuts).tolist(), file.size] for file in files]
    for number in range(ranges):
        yield np.concatenate(
            [file[at[number] : at[number + 1]] for file, at in zip(files, ends, strict=True)]
        )


def _shared(pairs: npt.NDArray[Any]) -> Keys:
    """Pairs of groups that have a trajectory in common: (2, pairs)."""
    pairs = np.unique(pairs)
    same = pairs["trajectory"][1:] == pairs["trajectory"][:-1]
    return np.stack([pairs["key"][:-1][same], pairs["key"][1:][same]])


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


def _bounds(
    spans: npt.NDArray[Any], archive: Archive, most_rows: int, part_rows: int
) -> tuple[Ints, list[range]] | None:
    """First rows of parts that cut no group, and the parts to read together.

    What is read together ends where a chunk ends, or before the groups that this would cut; a chunk
    that does not fit into memory is read a few times. None if groups are scattered, so that it
    would not fit into memory.
    """
    spans = spans[np.argsort(spans["first"])]
    ended = np.maximum.accumulate(spans["last"][:-1])
    cuts = np.append(0, spans["first"][1:][spans["first"][1:] > ended])

    def before(rows: Any) -> Ints:
        return np.unique(cuts[cuts.searchsorted(rows, side="right") - 1])

    pieces = [-(-chunk.rows // most_rows) for chunk in archive.chunks]
    if max(pieces) > MOST_PIECES:
        return None
    starts = [
        chunk.start + chunk.rows * piece // count
        for chunk, count in zip(archive.chunks, pieces, strict=True)
        for piece in range(count)
    ]
    ends = np.append(before(starts), archive.rows)
    reads = [0]
    for end, following in zip(ends, [*ends[1:], archive.rows], strict=True):
        if following - reads[-1] > most_rows and end > reads[-1]:
            reads.append(int(end))
    if reads[-1] < archive.rows:
        reads.append(archive.rows)
    if np.diff(reads).max(initial=0) > 1.3 * most_rows:
        return None
    bounds = [before(np.arange(*read, part_rows)) for read in itertools.pairwise(reads)]
    bounds = [
        np.union1d(inside[inside > start], [start])
        for inside, start in zip(bounds, reads, strict=False)
    ]
    ends = np.cumsum([inside.size for inside in bounds]).tolist()
    tasks = list(itertools.starmap(range, itertools.pairwise([0, *ends])))
    return np.append(np.concatenate(bounds), archive.rows), tasks


# The second pass, for scattered groups.


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
            keys, real, _ = keys_of(table, by_group=by_group)
            parts = partition.part_of(keys, real, start)
            small = parts.astype(np.uint16) if partition.count <= 1 << 16 else parts
            order = np.argsort(small, kind="stable")  # which is fast for 16 bits
            rows = table.append_column(ROW, pa.array(start + np.arange(keys.size)))
            rows = rows.take(pa.array(order)).combine_chunks()
            ends = np.cumsum(np.bincount(parts, minlength=partition.count)).tolist()
            for first, end in itertools.pairwise([0, *ends]):
                yield without_unused(rows.slice(first, end - first))

    write_streams(work.child(f"rows-{number}.arrow"), streams())


def gather(
    archive: Archive, work: Place, task: range, columns: "Sequence[str]", partition: ArchiveParts
) -> "Iterator[tuple[int, pa.Table, Ints]]":
    """Parts that are read together: number, rows, and the rising numbers of these rows."""
    import pyarrow as pa

    if partition.bounds is None:
        places = [work.child(f"rows-{index}.arrow") for index in range(len(archive.chunks))]
        for number in task:
            streams = [read_streams(place, number, partition.count) for place in places]
            tables = [table for stream in streams for table in stream]
            rows = pa.concat_tables(tables) if tables else pa.table({ROW: pa.array([], pa.int64())})
            yield number, rows.drop_columns([ROW]), rows.column(ROW).to_numpy()
        return
    bounds = partition.bounds[task.start : task.stop + 1].tolist()
    tables = []
    for index, chunk in enumerate(archive.chunks):
        if chunk.start < bounds[-1] and bounds[0] < chunk.start + chunk.rows:
            for start, table in archive.batches(index, columns):
                if start >= bounds[-1]:
                    break
                skip = max(bounds[0] - start, 0)
                tables.append(table.slice(skip, bounds[-1] - start - skip))
    whole = pa.concat_tables(tables)
    for number, (first, last) in zip(task, itertools.pairwise(bounds), strict=True):
        table = whole.slice(first - bounds[0], last - first)
        yield number, without_unused(table), np.arange(first, last)
