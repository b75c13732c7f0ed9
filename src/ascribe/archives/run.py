"""Credit or check an archive in a memory budget: scan, scatter if need be, credit, write.

Every stage is a list of tasks that write their results to a folder beside the output. A run that
was killed goes on after the last task that was finished. The output is there as a whole, or not at
all.
"""

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ascribe.archives import workers
from ascribe.archives.convert import as_parquet, is_large_text
from ascribe.archives.partition import ROW, ArchiveParts, divide, gather, scan, scatter
from ascribe.archives.places import (
    Archive,
    Place,
    check_output,
    code_of,
    open_archive,
    publish_folder,
    read_streams,
    seal,
    sole_writer,
    unseal,
    write_streams,
    write_table,
)
from ascribe.estimators import Recipe, as_recipe
from ascribe.estimators.assign import credit_selected
from ascribe.estimators.credit import Reason, credit_arrays, credit_columns, join_notes
from ascribe.estimators.diagnostics import Diagnosis, added, diagnosis, sums
from ascribe.sessions.formats import CHECKED_COLUMNS, SessionOptions, check_carried, is_table
from ascribe.steps.arrays import Brief, Ints
from ascribe.steps.balance import Balance
from ascribe.steps.check import CheckReport, check, join_problems
from ascribe.steps.errors import InputError
from ascribe.steps.files import (
    Progress,
    Rollouts,
    as_written,
    is_credit_column,
    table_from_arrow,
    unknown_note,
    without_unused,
)
from ascribe.steps.hints import option
from ascribe.steps.problems import Problem, ProblemKind, TableError
from ascribe.steps.select import OnProblem, select
from ascribe.steps.table import KNOWN_COLUMNS, StepTable

if TYPE_CHECKING:
    import pyarrow as pa

PROCESS_BYTES = 160 << 20
"""Memory of a process before it has read anything."""
ROW_BYTES = 420
"""Memory of a row that is credited, in addition to four times its bytes in the file."""
ROWS_OF_WORKER = 200_000
"""Fewer rows are not worth the start of another process."""
PLAN = "plan.json"
"""File that says which run the intermediate results are of."""
LISTED_ROWS = 20
"""Rows of a problem that are listed."""


@dataclass(frozen=True)
class Job:
    """What the tasks of a run need to know; without a recipe, they check the rows.

    Attributes:
        at_once: whether rows are written as soon as they are credited, without being read again.
        absent: columns of the format that are empty in every row; it and the next three are known
            once all parts are credited.
        width: numbers of a fingerprint.
        kinds: names and types of the columns of the credit.
        parts: numbers of the parts that have a credit.
    """

    archive: Archive
    work: Place
    recipe: Recipe | None
    on_problem: OnProblem
    group_size: int | None
    columns: Sequence[str] = ()
    most_rows: int = 0
    partition: ArchiveParts | None = None
    at_once: bool = False
    absent: Sequence[str] = ()
    width: int = 0
    kinds: Sequence[tuple[str, str]] = ()
    parts: Sequence[int] = ()

    @property
    def by_group(self) -> bool:
        """Whether groups can be credited or checked separately."""
        return self.recipe is None or self.recipe.by_group


@dataclass(frozen=True, eq=False, repr=False)
class ArchiveCredit(Brief):
    """What was credited.

    Attributes:
        diagnosis: metrics of the credit.
        report: the problems of all parts.
        dropped_groups: groups that were dropped.
        dropped_rows: their rows.
        because: rows that were dropped for each kind of problem.
        left_out: columns of an earlier credit that were dropped.
        notes: what the recipe says about how it computed the credit.
        balance: what was left out of sessions on the way in.
    """

    diagnosis: Diagnosis
    report: CheckReport
    dropped_groups: int
    dropped_rows: int
    because: dict[str, int]
    left_out: list[str]
    notes: Sequence[str] = ()
    balance: Balance | None = None


def row_bytes(archive: Archive, columns: Sequence[str]) -> float:
    """About how much memory it takes to credit a row."""
    return ROW_BYTES + 4.0 * sum(archive.columns[name] for name in columns)


def is_archive(source: str, memory: int) -> bool:
    """Whether to process a table in parts: large, in a folder of files, or on another machine."""
    path = Path(source)
    if "://" in source or (path.is_dir() and any(map(is_table, path.glob("*.parquet")))):
        return True
    try:
        if path.suffix != ".parquet":
            return is_large_text(path, memory)
        archive = open_archive(source)
        return archive.rows * row_bytes(archive, [*archive.columns]) + PROCESS_BYTES > memory
    except (ValueError, OSError):
        return False  # the reader says what is wrong


def credit_archive(
    source: str | Path,
    out: str | Path,
    recipe: Recipe | str,
    on_problem: OnProblem = "raise",
    *,
    group_size: int | None = None,
    memory: int = 2 << 30,
    processes: int | None = None,
    ray: str | None = None,
    force: bool = False,
    progress: Progress = lambda _: None,
    **sessions: Unpack[SessionOptions],
) -> ArchiveCredit:
    """Credit a Parquet file, a folder of such files, or JSON lines or CSV, of any size.

    The output has the rows in the order of the archive, and is the same whatever the memory and the
    number of workers. It is one file if ``out`` ends in ``.parquet``, else a folder with a file for
    each part that was read. If the run is killed, the next call with the same arguments goes on
    where it ended.

    Args:
        source: a path, or a URI that pyarrow opens, such as ``s3://bucket/folder``.
        out: where to write; for a cluster, a place that all its nodes reach.
        recipe: the estimator, or its name.
        on_problem: what to do about problems, see ``ascribe.steps.select``.
        group_size: how many trajectories each group was meant to have, if known.
        memory: bytes that this process and its workers may use together; on a cluster, of a node.
        processes: workers on this machine; as many as it has cores, if the table is large.
        ray: address of a Ray cluster that does the work.
        force: whether to replace a file that is read, or a folder that an earlier run wrote.
        progress: called with the share that is done.
        **sessions: how to read sessions; arguments of ``ascribe.sessions.formats.import_files``.

    Raises:
        TableError: if the table is refused, or no group is left; nothing is written then.
        OSError: if a file cannot be read or written; what is done is kept for the next call.
        ValueError: if a recipe needs more of the table than fits, or files would be destroyed.
    """
    target, estimator = Place.of(out), as_recipe(recipe)
    with _work(target, [Place.of(source)], force=force) as work:
        parquet, tell, _, balance = as_parquet(source, work, progress, **sessions)
        with _open(parquet, memory, processes, ray) as (archive, each, count):
            request = Job(archive, work, estimator, on_problem, group_size)
            job = _prepare(request, memory, count)
            read = {*job.columns, *filter(is_credit_column, archive.columns)}
            at_once = not target.name.endswith(".parquet") and archive.columns.keys() == read
            job = replace(job, at_once=at_once)
            job, results = _parts(job, each, memory, _share(tell, 0.0, 0.7))
            layouts = [result.get("layout") for result in results if not result["refused"]]
            if job.at_once and any(layout != layouts[0] for layout in layouts):
                for number in range(len(results)):
                    job.work.child(f"part-{number}.json").remove()
                job.work.child("out").remove()
                job = replace(job, at_once=False)
                job, results = _parts(job, each, memory, _share(tell, 0.4, 0.7))
            outcome = _outcome(job, results)
            _write(job, results, target, each, _share(tell, 0.7, 1.0))
    return replace(outcome, balance=balance)


def check_archive(
    source: str | Path,
    *,
    group_size: int | None = None,
    memory: int = 2 << 30,
    processes: int | None = None,
    work: str | Path,
    progress: Progress = lambda _: None,
    **sessions: Unpack[SessionOptions],
) -> CheckReport:
    """Every problem of a Parquet file, a folder of such files, or JSON lines or CSV, of any size.

    What compares groups with each other, such as ``uneven_groups`` and ``state_across_tasks``,
    compares those of one part.

    Args:
        source: a path, or a URI that pyarrow opens.
        group_size: how many trajectories each group was meant to have, if known.
        memory: bytes to use.
        processes: workers on this machine; as many as it has cores, if the table is large.
        work: where to keep intermediate results; the folder is removed at the end.
        progress: called with the share that is done.
        **sessions: how to read sessions; arguments of ``ascribe.sessions.formats.import_files``.

    Raises:
        TableError: if the files cannot be read as a step table.
        OSError: if a file cannot be read or written.
    """
    with _work(Place.of(work)) as folder:
        parquet, tell, notes, _ = as_parquet(source, folder, progress, **sessions)
        with _open(parquet, memory, processes, None) as (archive, each, count):
            job = _prepare(Job(archive, folder, None, "keep", group_size), memory, count)
            job, results = _parts(job, each, memory, tell)
    _raise_refused(job, results)
    problems = _problems(results, "problems")
    return CheckReport(
        job.archive.rows, (*problems, *notes, *unknown_note(list(job.archive.columns)))
    )


# Stages.


@contextmanager
def _work(target: Place, inputs: Sequence[Place] = (), *, force: bool = False) -> Iterator[Place]:
    """The folder of intermediate results beside the output, for one run at a time.

    It is removed at the end, or if the table is refused; after other errors the next call goes on.
    """
    root = target.sibling(f".{target.name}.ascribe")
    check_output(target, inputs, force=force)
    with sole_writer(target):
        check_output(target, inputs, force=force)  # another run may have ended between the two
        root.make_folder()
        try:
            yield root
        except TableError:
            _discard(root)
            raise
        _discard(root)


@contextmanager
def _open(
    source: str | Path, memory: int, processes: int | None, ray: str | None
) -> Iterator[tuple[Archive, workers.Each, int]]:
    """The archive, how to run tasks, and how many run at a time on one machine."""
    archive = open_archive(source)
    if ray is not None:
        with workers.on_ray(ray) as (each, count):
            yield archive, each, count
        return
    if processes is None:
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        limits = (cores, memory // (3 * PROCESS_BYTES), archive.rows // ROWS_OF_WORKER)
        processes = max(min(limits), 1)
    with workers.local(processes) as each:
        yield archive, each, processes


def _prepare(request: Job, memory: int, count: int) -> Job:
    """The job for a request, whose ``work`` is the folder of intermediate results.

    Each job has a folder of its own in it, since workers of a killed run may still write.
    """
    archive, root, recipe = request.archive, request.work, request.recipe
    if not archive.rows:
        raise TableError([_empty_table(0)])
    if recipe is not None and recipe.has_history:
        raise InputError(
            f"{recipe.name} carries statistics from iteration to iteration, so the table must fit "
            f"into memory: raise {option('memory')}, or credit the iterations one by one with "
            f"{option('history')}"
        )
    uses_vectors = recipe is None or getattr(recipe, "fingerprint", "") == "given"
    columns = [name for name in KNOWN_COLUMNS if uses_vectors or name != "fingerprint"]
    if recipe is None:
        columns += CHECKED_COLUMNS
    columns = [name for name in columns if name in archive.columns]
    room = (memory - PROCESS_BYTES) / count - PROCESS_BYTES
    most_rows = max(int(room / row_bytes(archive, columns)), 1024)
    plan = {
        "files": [file.identity() for file in archive.files],
        "code": code_of(type(recipe or Recipe)),
        "recipe": repr((type(recipe), recipe and asdict(recipe))),
        "on_problem": request.on_problem,
        "group_size": request.group_size,
    }
    digest = blake2b(json.dumps(plan).encode(), digest_size=16).hexdigest()
    saved, work = root.child(PLAN), root.child(digest)
    old = json.loads(bytes(unseal(saved.read(), PLAN))) if saved.exists() else {}
    if old.get("work") == digest:
        most_rows = old["most_rows"]  # as the results that are there
    else:
        saved.remove()
        for name in {digest, old.get("work", digest)}:
            root.child(name).remove()
        work.make_folder()
        saved.write(seal(json.dumps({"work": digest, "most_rows": most_rows}).encode()))
    archive = archive.cut(max(most_rows // 2, 1024))
    return replace(request, archive=archive, work=work, columns=columns, most_rows=most_rows)


def _discard(root: Place) -> None:
    """Remove the folder of intermediate results; what a killed run left of it is not used again."""
    root.child(PLAN).remove()
    root.remove()


def _parts(
    job: Job, each: workers.Each, memory: int, progress: Progress
) -> tuple[Job, list[dict[str, Any]]]:
    """The results of every part."""
    chunks, work = range(len(job.archive.chunks)), job.work
    _stage(job, each, scan_task, chunks, "spans-{}.bin", tell=_share(progress, 0.0, 0.1))
    # A check compares groups with each other, as many as fit into memory.
    size = {} if job.recipe else {"part_rows": job.most_rows}
    limits = (job.most_rows, memory // 8)
    partition = divide(job.archive, work, *limits, by_group=job.by_group, **size)
    scattered = partition.bounds is None
    job = replace(job, partition=partition, at_once=job.at_once and not scattered)
    work.child("out").make_folder()
    if scattered:
        tell = _share(progress, 0.1, 0.5)
        _stage(job, each, scatter_task, chunks, "rows-{}.arrow", tell=tell)
    tell = _share(progress, 0.5 if scattered else 0.1, 1.0)
    _stage(job, each, credit_parts, partition.tasks, "part-{}.json", tell=tell)
    return job, [_load(work.child(f"part-{number}.json")) for number in range(partition.count)]


def _stage(
    job: Job,
    each: workers.Each,
    function: Callable[[Job, Any], None],
    tasks: Sequence[Any],
    done: str,
    *,
    tell: Progress,
) -> None:
    """Run the tasks that are not done: those whose last result is not in the folder."""
    folder, _, name = done.rpartition("/")
    place = job.work.child(folder) if folder else job.work
    names = {file.name for file in place.files(name.rpartition("}")[2])}
    last = [task[-1] if isinstance(task, range) else task for task in tasks]
    left = [t for t, number in zip(tasks, last, strict=True) if name.format(number) not in names]
    finished = len(tasks) - len(left)
    for _ in each(partial(function, job), left):
        finished += 1
        tell(finished / len(tasks))


def scan_task(job: Job, number: int) -> None:
    """Where the groups of a chunk are."""
    scan(job.archive, job.work, number, by_group=job.by_group)


def scatter_task(job: Job, number: int) -> None:
    """The rows of a chunk, by part."""
    assert job.partition is not None
    scatter(job.archive, job.work, number, job.columns, job.partition, by_group=job.by_group)


def credit_parts(job: Job, task: range) -> None:
    """The credit of the rows of parts, or their problems, and what there is to say about them."""
    done: list[tuple[int, Ints, dict[str, Any]]] = []
    tables = _credit_parts(job, task, done)
    if (first := next(tables, None)) is not None:
        place = job.work.child(f"out/{task.start:05d}.parquet")
        write_table(place, itertools.chain([first], tables))
    for number, rows, result in done:
        _finish(job, number, rows, result)


def _credit_parts(
    job: Job, task: range, done: list[tuple[int, Ints, dict[str, Any]]]
) -> "Iterator[pa.Table]":
    """Credit parts and note each in ``done``; yields their rows, if they are written at once."""
    import pyarrow as pa

    assert job.partition is not None
    starts = [*(chunk.start for chunk in job.archive.chunks), job.archive.rows]
    for number, arrow, rows in gather(job.archive, job.work, task, job.columns, job.partition):
        result: dict[str, Any] = {"problems": [], "padding": not rows.size}
        done.append((number, rows, result))
        if not rows.size:
            continue
        try:
            table = table_from_arrow(arrow)
            vectors = table.fingerprint
            result["columns"] = list(table.columns())
            result["width"] = 0 if vectors is None else int(vectors.shape[1])
            result["padding"] = bool(table.flag("padding", default=False).all())
            if job.recipe is None:
                if not result["padding"]:
                    result["problems"] = _check(job, table, arrow)
                continue
            arrays = _credit(job, job.recipe, table, result)
        except TableError as error:
            result["refused"] = error.problems
            continue
        kinds = result["kinds"] = [(name, values.dtype.str) for name, values in arrays.items()]
        if job.at_once:
            absent = sorted(set(KNOWN_COLUMNS) - set(result["columns"]))
            result["layout"] = [absent, result["width"], kinds]
            if result["layout"] == done[0][2].get("layout"):
                yield _with_credit(as_written(arrow, absent, result["width"]), arrays)
            continue
        credit = pa.table({ROW: pa.array(rows), **arrays})
        ends = itertools.pairwise(np.searchsorted(rows, starts).tolist())
        pieces = (credit.slice(low, high - low) for low, high in ends)
        write_streams(job.work.child(f"credit-{number}.arrow"), pieces)


def _check(job: Job, table: StepTable, arrow: "pa.Table") -> list[Problem]:
    """The problems of a part."""
    others = arrow.select([name for name in CHECKED_COLUMNS if name in arrow.column_names])
    carried = check_carried(Rollouts(table, others, others.select([])))
    return [*check(table, group_size=job.group_size).problems, *carried]


def _credit(job: Job, recipe: Recipe, table: StepTable, result: dict[str, Any]) -> dict[str, Any]:
    """The columns of the credit of a part."""
    padding = table.flag("padding", default=False)
    silent = np.where(padding, np.int8(Reason.PADDING), np.int8(Reason.DROPPED))
    none = {"advantage": np.zeros(len(table)), "reason": silent}
    if result["padding"]:
        return none
    selection = select(table, job.on_problem, group_size=job.group_size)
    keep = selection.keep
    result["problems"] = selection.report.problems
    result["dropped"] = (len(selection.dropped), int((~keep).sum()), selection.dropped_rows)
    if not keep.any():
        return none
    credit = credit_selected(table, recipe, keep)
    result["notes"] = list(credit.notes)
    kept = table if keep.all() else table.take(keep)
    result["sums"] = sums(kept, credit if keep.all() else credit.rows(keep))
    return credit_arrays(credit)


def _finish(job: Job, number: int, rows: Ints, result: dict[str, Any]) -> None:
    """Write the result of a part; problems have the row numbers of the archive."""
    import pyarrow as pa

    for name in ("problems", "refused"):
        listed = []
        for problem in result.get(name, ()):
            places = rows[problem.rows[:LISTED_ROWS]].tolist()
            more = problem.row_count - len(places)
            listed.append([problem.kind.name, problem.detail, places, problem.count, more])
        result[name] = listed
    job.work.child(f"part-{number}.json").write(seal(json.dumps(result).encode()))
    pa.default_memory_pool().release_unused()


def _load(place: Place) -> dict[str, Any]:
    """The result of a part."""
    result: dict[str, Any] = json.loads(bytes(unseal(place.read(), place.name)))
    for name in ("problems", "refused"):
        result[name] = [
            Problem(ProblemKind[kind], detail, np.array(rows, dtype=np.int64), count, more)
            for kind, detail, rows, count, more in result[name]
        ]
    result["kinds"] = [(name, kind) for name, kind in result.get("kinds", [])]
    return result


def _problems(results: Sequence[dict[str, Any]], name: str) -> list[Problem]:
    found = [problem for result in results for problem in result[name]]
    return join_problems(found, "part", LISTED_ROWS)


def _empty_table(rows: int) -> Problem:
    detail = "every row is padding" if rows else "no rows"
    return Problem(ProblemKind.EMPTY_TABLE, detail, count=0)


def _outcome(job: Job, results: Sequence[dict[str, Any]]) -> ArchiveCredit:
    """What is to say about the credit of all parts.

    Raises:
        TableError: if a part was refused, or no group is left.
    """
    _raise_refused(job, results)
    problems = _problems(results, "problems")
    because: Counter[str] = Counter()
    groups = rows = 0
    totals: Any = None
    for result in results:
        if "dropped" in result:
            more_groups, more_rows, causes = result["dropped"]
            groups, rows = groups + more_groups, rows + more_rows
            because.update(causes)
        if "sums" in result:
            totals = result["sums"] if totals is None else added(totals, result["sums"])
    if totals is None:
        raise TableError([p for p in problems if p.kind.label in because])
    names = {name for result in results for name, _ in result["kinds"]}
    left_out = [n for n in job.archive.columns if is_credit_column(n) and n not in names]
    report = CheckReport(job.archive.rows, tuple(problems))
    notes = join_notes([result["notes"] for result in results if "notes" in result])
    return ArchiveCredit(diagnosis(totals), report, groups, rows, dict(because), left_out, notes)


def _raise_refused(job: Job, results: Sequence[dict[str, Any]]) -> None:
    if refused := _problems(results, "refused"):
        raise TableError(refused)
    if all(result["padding"] for result in results):
        raise TableError([_empty_table(job.archive.rows)])
    present = [set(result["columns"]) for result in results if "columns" in result]
    if partly := sorted(
        set.union(*present) - set.intersection(*present) - {"fingerprint", "parent"}
    ):
        detail = f"column {', '.join(partly)} is empty in some rows"
        raise TableError([Problem(ProblemKind.PARTIAL_FLAG, detail, count=len(partly))])


# The output.


def _write(
    job: Job, results: Sequence[dict[str, Any]], target: Place, each: workers.Each, tell: Progress
) -> None:
    """Write the archive with its credit: one file, or a folder of them."""
    if not job.at_once:
        chunks = range(len(job.archive.chunks))
        columns = {name for result in results for name in result.get("columns", ())}
        unread = {"fingerprint"} - set(job.columns)
        job = replace(
            job,
            absent=sorted(set(KNOWN_COLUMNS) - columns - unread),
            width=max(result.get("width", 0) for result in results),
            kinds=max((result["kinds"] for result in results), key=len),
            parts=[number for number, result in enumerate(results) if result["kinds"]],
        )
        if target.name.endswith(".parquet"):

            def told() -> "Iterator[pa.Table]":
                for chunk in chunks:
                    yield from _credited(job, chunk)
                    tell((chunk + 1) / len(chunks))

            write_table(target, told())
            return
        _stage(job, each, write_task, chunks, "out/{:05d}.parquet", tell=tell)
    job.work.sibling(PLAN).remove()  # parts whose files are gone from here do not count as done
    publish_folder(job.work.child("out"), target)


def write_task(job: Job, number: int) -> None:
    """One file of the output: the rows of a chunk with their credit."""
    write_table(job.work.child(f"out/{number:05d}.parquet"), _credited(job, number))


def _credited(job: Job, chunk: int) -> "Iterator[pa.Table]":
    """The rows of a chunk, in batches, with the columns of their credit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first = job.archive.chunks[chunk].start
    none = pa.schema([(name, pa.from_numpy_dtype(kind)) for name, kind in job.kinds])
    tables = [none.empty_table()]
    for part in job.parts:
        place = job.work.child(f"credit-{part}.arrow")
        tables += read_streams(place, chunk, len(job.archive.chunks))
    # A part that was dropped as a whole has no terms: their columns are null, or not there.
    credit = pa.concat_tables(tables, promote_options="default").sort_by(ROW)
    arrays = {}
    for name, _ in job.kinds:
        column = credit.column(name)
        missing = credit.column("reason") if name.startswith("reason") else pa.scalar(0.0)
        arrays[name] = pc.coalesce(column, missing).to_numpy()
    for start, table in job.archive.batches(chunk, list(job.archive.columns), decode=True):
        here = slice(start - first, start - first + table.num_rows)
        rows = as_written(without_unused(table), job.absent, job.width)
        yield _with_credit(rows, {name: values[here] for name, values in arrays.items()})


def _with_credit(table: "pa.Table", arrays: dict[str, Any]) -> "pa.Table":
    for name, column in credit_columns(arrays).items():
        table = table.append_column(name, column)
    return table


def _share(progress: Progress, start: float, stop: float) -> Progress:
    """Progress of a stage as that of the whole."""
    return lambda share: progress(start + share * (stop - start))
