"""JSON lines and CSV, tables and sessions, larger than memory: written as Parquet, then read."""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

from ascribe.archives.places import Place, code_of
from ascribe.sessions.forest import MAIN
from ascribe.sessions.reading import (
    Imported,
    SessionOptions,
    are_sessions,
    import_parts,
    refuse_options,
)
from ascribe.steps.atomic import replacing_folder, write_file
from ascribe.steps.balance import Balance
from ascribe.steps.check import join_problems
from ascribe.steps.errors import InputError
from ascribe.steps.files import Progress, read_parts, write
from ascribe.steps.problems import Problem, ProblemKind, TableError
from ascribe.steps.strict_json import loads

if TYPE_CHECKING:
    import pyarrow as pa

EXPANSION = {".jsonl": 6, ".gz": 100, ".csv": 6}
"""About how many bytes of memory a table takes for each byte of its file."""


class AsParquet(NamedTuple):
    """A source that can be read in parts.

    Attributes:
        files: a Parquet file, a folder of such, or a URI.
        progress: the progress that is left.
        notes: problems of sessions that their table does not show, if they were read now.
        balance: what was left out of sessions.
    """

    files: str | Path
    progress: Progress
    notes: Sequence[Problem] = ()
    balance: Balance | None = None


def is_large_text(path: Path, memory: int) -> bool:
    """Whether a file of JSON lines or CSV takes more bytes of memory than these."""
    if path.suffix not in EXPANSION or not path.is_file():
        return False
    is_text = path.suffix == ".csv" or path.name.endswith((".jsonl", ".jsonl.gz"))
    return is_text and path.stat().st_size * EXPANSION[path.suffix] > memory


def as_parquet(
    source: str | Path, work: Place, progress: Progress, **sessions: Unpack[SessionOptions]
) -> "AsParquet":
    """The source itself; of JSON lines or CSV, a folder of Parquet files with its rows.

    The files stay for the next call, unless the source or Ascribe has changed.

    Raises:
        TableError: if the source cannot be read as a step table.
        OSError: if a file cannot be read or written.
        ValueError: if the output is not on a local disk, or a table has options for sessions.
    """
    place = Place.of(source)
    path = Path(place.path)
    if place.uri:
        refuse_options(place.name, **sessions)
        return AsParquet(source, progress)
    if not (imports := are_sessions(path, **sessions)) and not is_large_text(path, -1):
        return AsParquet(source, progress)
    if work.uri:
        raise InputError(f"write {path.name} as Parquet first, or the output to a local folder")
    folder = Path(work.path, "table")
    key = f"{place.identity()} {code_of(Place)} {sorted(sessions.items())}"
    if (reward := sessions.get("reward")) is not None and reward.endswith(".csv"):
        key += f" {Place.of(reward).identity()}"
    files = folder / blake2b(key.encode(), digest_size=16).hexdigest()
    notes: Sequence[Problem] = ()
    counts = files.with_suffix(".json")
    if not files.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if imports:
            imported = import_parts([path], **sessions, progress=share_of(progress, 0.0, 0.5))
            notes, seen = write_sessions(imported, files)
            write_file(counts, json.dumps(seen.as_dict()))
        else:
            _write_parts(read_parts(path, share_of(progress, 0.0, 0.5)), files, {})
    balance = Balance.of(loads(counts.read_text(encoding="utf-8"))) if counts.exists() else None
    return AsParquet(files, share_of(progress, 0.5, 1.0), notes, balance)


def share_of(progress: Progress, start: float, stop: float) -> Progress:
    """Progress of a stage as that of the whole."""
    return lambda share: progress(start + share * (stop - start))


def write_sessions(parts: Iterable[Imported], folder: Path) -> tuple[list[Problem], Balance]:
    """Write the tables of sessions as files of a new folder, all with the same columns.

    Returns:
        Problems that the tables do not show, and what was left out.

    Raises:
        OSError: if a file cannot be written.
    """
    notes: list[Problem] = []
    balance = Balance()

    def tables() -> "Iterator[pa.Table]":
        start = 0
        for part in parts:
            notes.extend(replace(note, rows=note.rows + start) for note in part.notes)
            start += len(part.table)
            nonlocal balance
            balance = part.balance or balance  # all parts share one
            yield part.to_arrow()

    # Sessions of one agent have no column for it, unless others of the same table have several.
    _write_parts(tables(), folder, {"agent": MAIN})
    return join_problems(notes, "part"), balance


def _write_parts(parts: Iterable["pa.Table"], folder: Path, absent: Mapping[str, str]) -> None:
    """Write every part as a file of a new folder; all have the same columns in the end.

    Args:
        parts: the tables.
        folder: the folder.
        absent: what a column holds in a part that does not have it, but null.

    Raises:
        TableError: if a column has types in two parts that do not fit together.
        OSError: if a file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas: list[pa.Schema] = []
    with replacing_folder(folder) as draft:
        for number, table in enumerate(parts):
            write(table, draft / f"{number:05d}.parquet")
            schemas.append(table.schema)
        whole = _common(schemas).empty_table()
        for number, schema in enumerate(schemas):
            if not schema.equals(whole.schema):
                file = draft / f"{number:05d}.parquet"
                table = pq.read_table(file)
                for name in absent.keys() & set(whole.column_names) - set(table.column_names):
                    values = pa.repeat(absent[name], table.num_rows)
                    table = table.append_column(name, values.cast(whole.schema.field(name).type))
                table = pa.concat_tables([whole, table], promote_options="permissive")
                write(table.replace_schema_metadata(schema.metadata), file)


def _common(schemas: "list[pa.Schema]") -> "pa.Schema":
    """The schema of a table whose parts have these."""
    import pyarrow as pa

    kinds: dict[str, set[pa.DataType]] = {}
    for field in (field for schema in schemas for field in schema):
        kinds.setdefault(field.name, set()).add(field.type)
    fields = []
    for name, found in kinds.items():
        try:
            if {pa.string(), pa.large_string()} <= found:  # text, and objects as JSON
                raise pa.ArrowTypeError
            options = [pa.schema([(name, kind)]) for kind in found]
            fields += pa.unify_schemas(options, promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            detail = (
                f"column {name!r} holds {' and '.join(sorted(map(str, found - {pa.null()})))}, and "
                "the table is too large to be read at once; write it as Parquet, without this "
                "column or with one type"
            )
            raise TableError([Problem(ProblemKind.WRONG_TYPE, detail)]) from None
    return pa.schema(fields)
