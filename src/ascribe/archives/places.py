"""Files and folders on any file system that pyarrow opens, and archives: tables in such files."""

import json
import os
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import IO, TYPE_CHECKING, Any, cast
from zlib import crc32

import numpy as np

from ascribe.steps import atomic
from ascribe.steps.errors import InputError
from ascribe.steps.files import check_columns, check_seal, read_row_groups, readable, write_parquet
from ascribe.steps.hints import option
from ascribe.steps.problems import Problem, ProblemKind, TableError, one_line, without_credentials

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Place:
    """A file or folder: a local path, or a URI that pyarrow opens, such as ``s3://bucket/key``.

    Attributes:
        uri: where the file system is; empty for local files.
        path: the path in that file system; of local files, without links.
    """

    uri: str = field(repr=False)
    path: str

    @staticmethod
    def of(location: str | Path) -> "Place":
        """The place of a path or URI: the one function that says whether it is local."""
        text = str(location)
        system, path = _opened(text) if "://" in text else (None, text)
        if system is None or system.type_name == "local":
            return Place("", os.path.realpath(path))
        return Place(text, path.rstrip("/"))

    def __str__(self) -> str:
        return f"{self.system.type_name}://{self.path}" if self.uri else self.path

    @property
    def system(self) -> Any:
        """The file system."""
        return _opened(self.uri)[0]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def child(self, name: str) -> "Place":
        """A file or folder in this folder."""
        return Place(self.uri, f"{self.path}/{name}")

    def sibling(self, name: str) -> "Place":
        """A file or folder beside this one."""
        return Place(self.uri, f"{self.path.rpartition('/')[0]}/{name}")

    def info(self) -> Any:
        """What pyarrow knows about it: type, size and time."""
        return self.system.get_file_info(self.path)

    def identity(self) -> list[Any]:
        """What is not the same in another file, or once a file has been written again."""
        info, local = self.info(), None if self.uri else Path(self.path).stat()
        more = [local.st_ino, local.st_ctime_ns] if local else []  # mtime can be set, not ctime
        return [self.path, info.size, info.mtime_ns, *more]

    def exists(self) -> bool:
        """Whether there is a file or folder."""
        from pyarrow.fs import FileType

        return bool(self.info().type != FileType.NotFound)

    def files(self, suffix: str) -> "list[Place]":
        """The files of a folder by name, without hidden ones."""
        from pyarrow.fs import FileSelector, FileType

        entries = self.system.get_file_info(FileSelector(self.path))
        paths = [
            entry.path
            for entry in entries
            if entry.type == FileType.File
            and entry.base_name.endswith(suffix)
            and not entry.base_name.startswith((".", "_"))
        ]
        return [Place(self.uri, path) for path in sorted(paths)]

    def read(self) -> bytes:
        """The contents of a file."""
        with self.system.open_input_stream(self.path) as file:
            return bytes(file.read())

    @contextmanager
    def writing(self) -> Iterator[IO[bytes]]:
        """A whole file to write, of which a reader never sees a part."""
        if not self.uri:
            with atomic.replacing(self.path) as local:
                yield local
            return
        draft = self.sibling(f".{self.name}.draft")
        with tempfile.TemporaryFile() as file:
            yield cast("IO[bytes]", file)
            file.seek(0)
            with self.system.open_output_stream(draft.path) as upload:
                while block := file.read(8 << 20):
                    upload.write(block)
        self.system.move(draft.path, self.path)

    def write(self, contents: bytes) -> None:
        """Write a whole file."""
        with self.writing() as file:
            file.write(contents)

    def listing(self) -> dict[str, set[str]]:
        """What the list of a folder names; see ``ascribe.steps.atomic.read_list``."""
        place = self.child(atomic.LIST)
        return atomic.read_list(place.read() if place.exists() else None, self)

    def make_folder(self) -> None:
        """Make the folder, if it is not there."""
        self.system.create_dir(self.path, recursive=True)

    def remove(self) -> None:
        """Remove the file, or the folder with its files."""
        from pyarrow.fs import FileType

        kind = self.info().type
        if kind == FileType.Directory:
            self.system.delete_dir(self.path)
        elif kind == FileType.File:
            self.system.delete_file(self.path)


@lru_cache
def _opened(uri: str) -> Any:
    """The file system of a URI, and the path in it."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem, LocalFileSystem

    try:
        return FileSystem.from_uri(uri) if uri else (LocalFileSystem(), "")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(without_credentials(error)) from None


# Outputs.


def check_output(out: Place, inputs: Iterable[Place], *, force: bool) -> None:
    """Refuse with ``ValueError`` to destroy an input, or files that no earlier run wrote.

    Args:
        out: a file, if its name ends in ``.parquet``; else a folder.
        inputs: what is read.
        force: whether the output may replace an input file, or the folder of an earlier run.
    """
    from pyarrow.fs import FileSelector, FileType

    if not out.uri:
        atomic.recover_folder(Path(out.path))
    is_file, ours, kind = out.name.endswith(".parquet"), f"{out.path}/", out.info().type
    for place in inputs:
        theirs = f"{place.path}/"
        overlaps = ours.startswith(theirs) or theirs.startswith(ours)
        may_replace = force and is_file and ours == theirs
        if overlaps and not may_replace and out.system.type_name == place.system.type_name:
            advice = "write elsewhere" + (f", or add {option('force', True)}" if is_file else "")
            raise InputError(f"{out} overlaps with {place}, which is read", hint=advice)
    if kind == FileType.NotFound or (is_file and kind != FileType.Directory):
        return
    if is_file or kind != FileType.Directory or (not out.uri and os.path.ismount(out.path)):
        found, wanted = ("folder", "file") if is_file else ("file or a mount point", "folder")
        raise InputError(f"{out} is a {found}", hint=f"name a {wanted} that can be replaced")
    entries = out.system.get_file_info(FileSelector(out.path, recursive=True))
    names = {e.path.removeprefix(ours) for e in entries if e.type != FileType.Directory}
    listed = {atomic.LIST}.union(*out.listing().values())
    if foreign := one_line(", ".join(map(repr, sorted(names - listed))), 200):
        what = f"the folder {out} is not empty, and no earlier run wrote {foreign}"
        raise InputError(what, hint="move that away, or write to another folder")
    if names and not force:
        raise InputError(
            f"the folder {out} is not empty",
            hint=f"add {option('force', True)} to replace an earlier output",
        )


def publish_folder(draft: Place, target: Place) -> None:
    """Put a complete folder of Parquet files in the place of another one.

    A store of objects has no folders to rename. There, new files get new names, and the list of the
    folder says which are unfinished; while these are there, ``open_archive`` refuses the folder.
    """
    if not target.uri:
        atomic.swap_folder(Path(draft.path), Path(target.path))
        return
    token, old, files = token_hex(4), target.listing(), draft.files(".parquet")
    new = {f"{file.name[:-8]}-{token}.parquet" for file in files}

    def write_list(files: set[str], unfinished: set[str]) -> None:
        lists = {"files": sorted(files), "unfinished": sorted(unfinished)}
        target.child(atomic.LIST).write(json.dumps(lists).encode())

    target.make_folder()
    write_list(old["files"], old["unfinished"] | new)
    for file, name in zip(files, sorted(new), strict=True):
        file.system.move(file.path, target.child(name).path)
    write_list(new, old["unfinished"] | old["files"])
    for file in target.files(""):
        if file.name in old["unfinished"] | old["files"]:
            file.remove()


@contextmanager
def sole_writer(target: Place) -> Iterator[None]:
    """Refuse a second writer of a place with ``BlockingIOError``.

    A local place is locked by a file beside it, which nobody removes. Elsewhere, and on disks
    without locks, a run writes a lease, and gives up if it then finds one of another run: at most
    one of two goes on, where a written file is listed at once. A killed run leaves its lease.
    """

    def refuse(what: str = "") -> None:
        raise BlockingIOError(11, f"another run is writing it{what}", str(target))

    if not target.uri:
        lock = Path(target.sibling(f".{target.name}.lock").path)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("ab") as file:
            if atomic.lock_file(file.fileno(), refuse):
                yield
                return
    folder = target.sibling(f".{target.name}.leases")
    folder.make_folder()
    own = folder.child(f"{token_hex(8)}-{socket.gethostname()}-{os.getpid()}")
    own.write(b"")
    try:
        for other in folder.files(""):
            if other.name != own.name:
                refuse(f"; if that was killed, remove its lease {other}")
        yield
    finally:
        own.remove()


# Intermediate results.


def seal(contents: bytes) -> bytes:
    """An intermediate result with its checksum."""
    return contents + crc32(contents).to_bytes(8, "little")


def unseal(contents: Any, name: str) -> memoryview:
    """What ``seal`` was given; ``TableError`` if it is damaged."""
    view = memoryview(contents)
    if len(view) < 8 or crc32(view[:-8]) != int.from_bytes(view[-8:], "little"):
        detail, hint = f"the intermediate result {name} is damaged", "run the command again"
        raise TableError([Problem(ProblemKind.UNREADABLE_FILE, detail, hint=hint)])
    return view[:-8]


def write_streams(place: Place, tables: "Iterable[pa.Table]") -> None:
    """Write tables as Arrow streams, then their ends and the number of these, with checksums.

    Of a table without rows there is no stream.
    """
    import pyarrow as pa

    options, ends = pa.ipc.IpcWriteOptions(compression="lz4"), []
    with place.writing() as file:
        for table in tables:
            if table.num_rows:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
                    stream.write_table(table)
                file.write(seal(sink.getvalue().to_pybytes()))
            ends.append(file.tell())
        file.write(seal(np.array([*ends, len(ends)], dtype=np.int64).tobytes()))


def read_streams(place: Place, first: int, step: int) -> "Iterator[pa.Table]":
    """Every ``step``-th table that ``write_streams`` was given, if it has rows, from one on."""
    import pyarrow as pa

    with place.system.open_input_file(place.path) as file:
        size = file.size()
        count = int.from_bytes(file.read_at(8, size - 16), "little")
        start = max(size - 8 * count - 16, 0)
        tail = unseal(file.read_at(size - start, start), place.name)
        ends = [0, *np.frombuffer(tail, dtype=np.int64)[:-1].tolist()]
        for number in range(first, count, step):
            if length := ends[number + 1] - ends[number]:
                contents = unseal(file.read_at(length, ends[number]), place.name)
                yield pa.ipc.open_stream(pa.py_buffer(contents)).read_all()


def code_of(kind: type) -> str:
    """A digest of the source of a class; if not Ascribe's, with what is imported, not installed."""
    names, files = {base.__module__.partition(".")[0] for base in kind.__mro__[:-1]}, set[Path]()
    for module in map(sys.modules.get, names):
        folders = map(Path, getattr(module, "__path__", ()))
        sources = {file for folder in folders for file in folder.rglob("*.py")}
        file = Path(getattr(module, "__file__", None) or "")
        files |= sources or {file, *file.parent.glob("*.py")}
    if names != {"ascribe"}:
        paths = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
        installed, modules = tuple(paths), [*sys.modules.values()]
        imported = [str(getattr(module, "__file__", None)) for module in modules]
        own = [Path(name) for name in imported if not name.startswith(installed)]
        files.update(filter(Path.is_file, own))
    # Of what was typed in, nothing shows that it is the same in the next call.
    texts = [file.read_bytes() if file.is_file() else token_bytes() for file in sorted(files)]
    return blake2b(b"\0".join(texts), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Chunk:
    """Row groups of one file that are read together.

    Attributes:
        file: number of the file.
        groups: the first row group, and the one after the last.
        start: number of the first row in the archive.
        rows: number of rows.
    """

    file: int
    groups: tuple[int, int]
    start: int
    rows: int


@dataclass(frozen=True)
class Archive:
    """A table of steps in one or more Parquet files, one after another.

    Attributes:
        files: the files, in the order of their rows.
        chunks: the parts in which they are read: row groups, until the archive is ``cut``.
        columns: the bytes of a row in each column, uncompressed, as the files count them.
    """

    files: tuple[Place, ...]
    chunks: tuple[Chunk, ...]
    columns: dict[str, float]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.chunks[-1].start + self.chunks[-1].rows if self.chunks else 0

    def cut(self, rows: int) -> "Archive":
        """The archive in chunks of at most this many rows, as far as row groups allow."""
        chunks: list[Chunk] = []
        for group in self.chunks:
            last = chunks[-1] if chunks else None
            if last and last.file == group.file and last.rows + group.rows <= rows:
                ends = (last.groups[0], group.groups[1])
                chunks[-1] = replace(last, groups=ends, rows=last.rows + group.rows)
            else:
                chunks.append(group)
        return replace(self, chunks=tuple(chunks))

    def batches(
        self, number: int, columns: Sequence[str], *, verify: bool = False, decode: bool = False
    ) -> "Iterator[tuple[int, pa.Table]]":
        """The rows of a chunk in batches, each with the number of its first row.

        Args:
            number: of the chunk.
            columns: the columns to read.
            verify: whether to check the seal of the file, if it is the file's first chunk.
            decode: whether to decode columns that are not the format's.

        Raises:
            TableError: if the file is damaged.
        """
        chunk = self.chunks[number]
        place, start = self.files[chunk.file], chunk.start
        with readable(place.name), place.system.open_input_file(place.path) as file:
            if verify and chunk.groups[0] == 0:
                check_seal(file, place.name)
            for table in read_row_groups(file, columns, range(*chunk.groups), decode=decode):
                yield start, table
                start += table.num_rows
            if start != chunk.start + chunk.rows:
                found = f"{start - chunk.start:,} rows found, {chunk.rows:,} announced"
                raise InputError(found)


def open_archive(location: str | Path) -> Archive:
    """The archive of a Parquet file, or of a folder of such files, by name.

    Args:
        location: a path, or a URI that pyarrow opens.

    Raises:
        TableError: if a file cannot be read, or files differ in their columns.
        OSError: if a file cannot be opened.
    """
    import pyarrow.parquet as pq
    from pyarrow.fs import FileType

    place = Place.of(location)
    info = place.info()
    if info.type == FileType.NotFound:
        raise FileNotFoundError(2, "No such file or directory", str(place))
    files = [place]
    if info.type == FileType.Directory:
        files = place.files(".parquet")
        if count := len(place.listing()["unfinished"] & {file.name for file in files}):
            detail = f"{count} of {len(files)} files in {place.name} are unfinished, says its list "
            detail += atomic.LIST
            hint = "run the command that writes them again, or remove the list"
            raise TableError([Problem(ProblemKind.UNREADABLE_FILE, detail, hint=hint)])
    if not files:
        detail = f"the folder {place.name} holds no .parquet file"
        raise TableError([Problem(ProblemKind.EMPTY_TABLE, detail, count=0)])
    chunks: list[Chunk] = []
    sizes: dict[str, float] = {}
    start, schema = 0, None
    for number, file in enumerate(files):
        with readable(file.name), file.system.open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            found, metadata = parquet.schema_arrow, parquet.metadata
        check_columns(found)
        if schema is not None and not schema.equals(found):
            detail = (
                f"{file.name} and {files[0].name} differ in their columns or the types of these"
            )
            raise TableError([Problem(ProblemKind.UNREADABLE_FILE, detail)])
        schema = schema or found
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            for column in map(group.column, range(group.num_columns)):
                name = column.path_in_schema.split(".")[0]
                sizes[name] = sizes.get(name, 0.0) + column.total_uncompressed_size
            if group.num_rows:
                chunks.append(Chunk(number, (index, index + 1), start, group.num_rows))
                start += group.num_rows
    names = [] if schema is None else schema.names
    columns = {name: sizes.get(name, 0.0) / max(start, 1) for name in names}
    return Archive(tuple(files), tuple(chunks), columns)


def write_table(place: Place, tables: "Iterable[pa.Table]") -> None:
    """Write tables as one sealed Parquet file, which is there as a whole or not at all."""
    with place.writing() as file:
        write_parquet(file, tables)
