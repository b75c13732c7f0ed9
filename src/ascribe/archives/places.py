"""Files and folders on any file system that pyarrow opens, and archives: tables in such files."""

import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascribe.steps.atomic import replacing
from ascribe.steps.files import check_columns, check_seal, read_row_groups, readable, write_parquet
from ascribe.steps.problems import Problem, ProblemKind, TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa


@dataclass(frozen=True)
class Place:
    """A file or folder: a local path, or a URI that pyarrow opens, such as ``s3://bucket/key``.

    Attributes:
        uri: where the file system is; empty for local files.
        path: the path in that file system.
    """

    uri: str
    path: str

    @staticmethod
    def of(location: str | Path) -> "Place":
        """The place of a path or URI."""
        text = str(location)
        if "://" not in text:
            return Place("", str(Path(text).absolute()))
        from pyarrow.fs import FileSystem

        return Place(text, FileSystem.from_uri(text)[1])

    @property
    def system(self) -> Any:
        """The file system."""
        return _system(self.uri)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    def child(self, name: str) -> "Place":
        """A file or folder in this folder."""
        return Place(self.uri, f"{self.path.rstrip('/')}/{name}")

    def sibling(self, name: str) -> "Place":
        """A file or folder beside this one."""
        folder = self.path.rstrip("/").rpartition("/")[0]
        return Place(self.uri, f"{folder}/{name}")

    def info(self) -> Any:
        """What pyarrow knows about it: type, size and time."""
        return self.system.get_file_info(self.path)

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

    def write(self, contents: Any) -> None:
        """Write a whole file, of which a reader never sees a part."""
        if not self.uri:
            with replacing(self.path) as local:
                local.write(contents)
            return
        with self.system.open_output_stream(self.path) as file:
            file.write(contents)

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
def _system(uri: str) -> Any:
    from pyarrow.fs import FileSystem, LocalFileSystem

    return FileSystem.from_uri(uri)[0] if uri else LocalFileSystem()


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
        row_groups: every row group as a chunk.
        chunks: the parts in which they are read.
        columns: the bytes of a row in each column, uncompressed, as the files count them.
    """

    files: tuple[Place, ...]
    row_groups: tuple[Chunk, ...]
    chunks: tuple[Chunk, ...]
    columns: dict[str, float]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.chunks[-1].start + self.chunks[-1].rows if self.chunks else 0

    def cut(self, rows: int) -> "Archive":
        """The archive in chunks of at most this many rows, as far as row groups allow."""
        chunks: list[Chunk] = []
        for group in self.row_groups:
            last = chunks[-1] if chunks else None
            if last and last.file == group.file and last.rows + group.rows <= rows:
                ends = (last.groups[0], group.groups[1])
                chunks[-1] = replace(last, groups=ends, rows=last.rows + group.rows)
            else:
                chunks.append(group)
        return replace(self, chunks=tuple(chunks))

    def batches(
        self, number: int, columns: list[str], *, verify: bool = False
    ) -> "Iterator[tuple[int, pa.Table]]":
        """The rows of a chunk in batches, each with the number of its first row.

        Args:
            number: of the chunk.
            columns: the columns to read.
            verify: whether to check the seal of the file, if it is the file's first chunk.

        Raises:
            TableError: if the file is damaged.
        """
        chunk = self.chunks[number]
        place, start = self.files[chunk.file], chunk.start
        with readable(place.name), place.system.open_input_file(place.path) as file:
            if verify and chunk.groups[0] == 0:
                check_seal(file, place.name)
            for table in read_row_groups(file, columns, range(*chunk.groups)):
                yield start, table
                start += table.num_rows
            if start != chunk.start + chunk.rows:
                found = f"{start - chunk.start:,} rows found, {chunk.rows:,} announced"
                raise ValueError(found)


def open_archive(location: str | Path, rows_of_chunk: int) -> Archive:
    """The archive of a Parquet file, or of a folder of such files, by name.

    Args:
        location: a path, or a URI that pyarrow opens.
        rows_of_chunk: rows to read together; a row group is never split.

    Raises:
        TableError: if a file cannot be read, or files differ in their columns.
        OSError: if a file cannot be opened.
    """
    import pyarrow.parquet as pq
    from pyarrow.fs import FileType

    place = Place.of(location)
    info = place.info()
    if info.type == FileType.NotFound:
        raise FileNotFoundError(2, "No such file or directory", str(location))
    files = place.files(".parquet") if info.type == FileType.Directory else [place]
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
    row_groups = tuple(chunks)
    return Archive(tuple(files), row_groups, row_groups, columns).cut(rows_of_chunk)


def write_table(place: Place, tables: "Iterable[pa.Table]") -> None:
    """Write tables as one sealed Parquet file, which is there as a whole or not at all."""
    if not place.uri:
        with replacing(place.path) as file:
            write_parquet(file, tables)
        return
    with tempfile.TemporaryFile() as file:
        write_parquet(file, tables)
        file.seek(0)
        draft = place.sibling(f".{place.name}.draft")
        with draft.system.open_output_stream(draft.path) as upload:
            while block := file.read(8 << 20):
                upload.write(block)
        draft.system.move(draft.path, place.path)
