"""Credit or check an archive in a memory budget: scan, scatter, credit, write.

Every stage is a list of tasks that write their results to a folder beside the output. A run that
was killed goes on after the last task that was finished. The output is there as a whole, or not at
all.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ascribe.archives import workers
from ascribe.archives.convert import as_parquet, is_large_text, share_of
from ascribe.archives.partition import ROW, ArchiveParts, divide, gather, scan, scatter
from ascribe.archives.passes import Stored, read_arrays, write_arrays
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
from ascribe.estimators.credit import Credit, Reason, credit_arrays, credit_columns, join_notes
from ascribe.estimators.diagnostics import Diagnosis, added, diagnosis, sums
from ascribe.estimators.events import Asked, EventCredit, Fit, Found, cut_sessions
from ascribe.sessions.reading import CHECKED_COLUMNS, SessionOptions, check_carried, is_table
from ascribe.steps.arrays import Bools, Brief, Ints
from ascribe.steps.balance import Balance
from ascribe.steps.check import CheckReport, check, join_problems
from ascribe.steps.errors import InputError
from ascribe.steps.files import (
    Progress,
    Rollouts,
    as_written,
    is_credit_column,
    table_from_arrow,
    table_to_arrow,
    unknown_note,
    without_unused,
)
from ascribe.steps.hints import option
from ascribe.steps.problems import Problem, ProblemKind, TableError
from ascribe.steps.select import OnProblem, select
from ascribe.steps.table import KNOWN_COLUMNS, Coded, StepTable

if TYPE_CHECKING:
    import pyarrow as pa

PROCESS_BYTES = 160 << 20
"""Memory of a process before it has read anything."""
ROW_BYTES = 420
"""Memory of a row that is credited, in addition to four times its bytes in the file."""
PLAN = "plan.json"
"""File that says which run the intermediate results are of."""
LISTED_ROWS = 20
"""Rows of a problem that are listed."""


@dataclass(frozen=True)
class Job:
    """What the tasks of a run need to know; without a recipe, they check the rows.

    Attributes:
        parts: how the rows are divided into parts.
        fit: what a recipe learned from all parts.
        absent: columns of the format that are empty in every row; it and the next three are known
            once all parts are credited.
        width: numbers of a fingerprint.
        kinds: names and types of the columns of the credit.
        credited: numbers of the parts that have a credit.
    """

    archive: Archive
    work: Place
    recipe: Recipe | None
    on_problem: OnProblem
    group_size: int | None
    columns: Sequence[str] = ()
    most_rows: int = 0
    parts: ArchiveParts = field(default_factory=ArchiveParts)
    fit: Fit | None = None
    absent: Sequence[str] = ()
    width: int = 0
    kinds: Sequence[tuple[str, str]] = ()
    credited: Sequence[int] = ()

    @property
    def by_group(self) -> bool:
        """Whether groups can be credited or checked separately."""
        whole = isinstance(self.recipe, EventCredit)
        return self.recipe is None or whole or self.recipe.by_group


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
    ray: str | None = None,
    force: bool = False,
    progress: Progress = lambda _: None,
    **sessions: Unpack[SessionOptions],
) -> ArchiveCredit:
    """Credit a Parquet file, a folder of such files, or JSON lines or CSV, of any size.

    The output has the rows in the order of the archive, and is the same whatever the memory and the
    number of workers. It is one file if ``out`` ends in ``.parquet``, else a folder with a file for
    each chunk that was read. If the run is killed, the next call with the same arguments goes on
    where it ended.

    Args:
        source: a path, or a URI that pyarrow opens, such as ``s3://bucket/folder``.
        out: where to write; for a cluster, a place that all its nodes reach.
        recipe: the estimator, or its name.
        on_problem: what to do about problems, see ``ascribe.steps.select``.
        group_size: how many trajectories each group was meant to have, if known.
        memory: bytes to use; on a cluster, of a node.
        ray: address of a Ray cluster that does the work; ``local`` starts one on this machine.
        force: whether to replace a file that is read, or a folder that an earlier run wrote.
        progress: called with the share that is done.
        **sessions: how to read sessions; arguments of ``ascribe.sessions.reading.import_files``.

    Raises:
        TableError: if the table is refused, or no group is left; nothing is written then.
        OSError: if a file cannot be read or written; what is done is kept for the next call.
        ValueError: if a recipe needs more of the table than fits, or files would be destroyed.
    """
    target, estimator = Place.of(out), as_recipe(recipe)
    with _work(target, [Place.of(source)], force=force) as work:
        parquet, tell, _, balance = as_parquet(source, work, progress, **sessions)
        archive = open_archive(parquet)
        with workers.running(ray) as (each, count):
            request = Job(archive, work, estimator, on_problem, group_size)
            job = _prepare(request, memory, count)
            job, results = _parts(job, each, share_of(tell, 0.0, 0.7))
            outcome = _outcome(job, results)
            _write(job, results, target, each, share_of(tell, 0.7, 1.0))
    return replace(outcome, balance=balance)


def check_archive(
    source: str | Path,
    *,
    group_size: int | None = None,
    memory: int = 2 << 30,
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
        work: where to keep intermediate results; the folder is removed at the end.
        progress: called with the share that is done.
        **sessions: how to read sessions; arguments of ``ascribe.sessions.reading.import_files``.

    Raises:
        TableError: if the files cannot be read as a step table.
        OSError: if a file cannot be read or written.
    """
    with _work(Place.of(work)) as folder:
        parquet, tell, notes, _ = as_parquet(source, folder, progress, **sessions)
        job = Job(open_archive(parquet), folder, None, "keep", group_size)
        job, results = _parts(_prepare(job, memory, 1), map, tell)
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


def _prepare(request: Job, memory: int, count: int) -> Job:
    """The job for a request, whose ``work`` is the folder of intermediate results.

    Each job has a folder of its own in it, since workers of a killed run may still write.
    """
    archive, root, recipe = request.archive, request.work, request.recipe
    if not archive.rows:
        raise TableError([_empty_table(0)])
    if recipe is not None and recipe.has_history and not isinstance(recipe, EventCredit):
        raise _with_history(recipe)
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


def _with_history(recipe: Recipe) -> InputError:
    return InputError(
        f"{recipe.name} carries statistics from iteration to iteration, so the table must fit "
        f"into memory: raise {option('memory')}, or credit the iterations one by one with "
        f"{option('history')}"
    )


def _discard(root: Place) -> None:
    """Remove the folder of intermediate results; what a killed run left of it is not used again."""
    root.child(PLAN).remove()
    root.remove()


def _parts(job: Job, each: workers.Each, progress: Progress) -> tuple[Job, list[dict[str, Any]]]:
    """The results of every part."""
    chunks, work = range(len(job.archive.chunks)), job.work
    _stage(job, each, scan_task, chunks, "pairs-{}.bin", tell=share_of(progress, 0.0, 0.1))
    job = replace(job, parts=divide(job.archive, work, job.most_rows, by_group=job.by_group))
    tell = share_of(progress, 0.1, 0.5)
    _stage(job, each, scatter_task, chunks, "rows-{}.arrow", tell=tell)
    parts = range(job.parts.count)
    if isinstance(job.recipe, EventCredit):
        job = replace(job, fit=_fit(job, job.recipe, each, parts))
    _stage(job, each, credit_part, parts, "part-{}.json", tell=share_of(progress, 0.5, 1.0))
    return job, [_load(work.child(f"part-{number}.json")) for number in parts]


def _fit(job: Job, recipe: EventCredit, each: workers.Each, parts: range) -> Fit | None:
    """What is learned from all parts, in passes over them; None if no part can be credited."""
    _stage(job, each, survey_task, parts, "survey-{}.npz")
    surveys = {number: read_arrays(job.work.child(f"survey-{number}.npz")) for number in parts}
    surveys = {number: survey for number, survey in surveys.items() if survey}
    if not surveys:
        return None
    if np.unique(np.concatenate([survey["iterations"] for survey in surveys.values()])).size > 1:
        raise _with_history(recipe)

    sizes = {number: survey["digest"].size for number, survey in surveys.items()}
    passes = itertools.count()

    def over(function: Any, asked: Asked, **of_sessions: Any) -> list[Found]:
        own = dict(zip(sizes, cut_sessions([*sizes.values()], of_sessions), strict=True))
        name = f"found-{next(passes)}-{{}}.npz"
        _stage(job, each, partial(pass_task, (function, asked, own, name)), [*sizes], name)
        return [read_arrays(job.work.child(name.format(number))) for number in sizes]

    return recipe.fit([*surveys.values()], over)


def pass_task(what: tuple[Any, Asked, dict[int, Asked], str], job: Job, number: int) -> None:
    """Compute one pass over a part."""
    function, asked, own, name = what
    found = function(Stored(job.work, number), asked | own[number])
    write_arrays(job.work.child(name.format(number)), found)


def survey_task(job: Job, number: int) -> None:
    """Keep what the passes over a part and its credit need, and write what other parts must know.

    Credit needs no text, only which texts are equal.
    """
    assert isinstance(job.recipe, EventCredit)
    arrow, rows = gather(job.archive, job.work, number, job.parts.count)
    found: Found = {}
    if rows.size:
        with suppress(TableError):  # which the credit of the part says again
            table = table_from_arrow(arrow)
            keep, result = _selected(job, table, rows)
            if keep.any():
                part = table if keep.all() else table.take(keep)
                kept = Stored(job.work, number)
                found = job.recipe.survey(kept, part)
                found["iterations"] = [each for each, _, _ in part.iterations()]
                kept["rows"], kept["keep"], kept["result"] = rows, keep, json.dumps(result)
                state, action = _numbered(table.state), _numbered(table.action)
                bare = table_to_arrow(replace(table, state=state, action=action))
                write_streams(job.work.child(f"bare-{number}.arrow"), [bare])
    write_arrays(job.work.child(f"survey-{number}.npz"), found)


def _numbered(column: Coded) -> Coded:
    """The column with a number in place of each text."""
    return Coded(column.codes, np.arange(column.values.size).astype(str).astype(object))


def _stage(
    job: Job,
    each: workers.Each,
    function: Callable[[Job, int], None],
    tasks: Sequence[int],
    done: str,
    *,
    tell: Progress = lambda _: None,
) -> None:
    """Run the tasks that are not done: those whose result is not in the folder."""
    folder, _, name = done.rpartition("/")
    place = job.work.child(folder) if folder else job.work
    names = {file.name for file in place.files(name.rpartition("}")[2])}
    left = [number for number in tasks if name.format(number) not in names]
    finished = len(tasks) - len(left)
    for _ in each(partial(function, job), left):
        finished += 1
        tell(finished / len(tasks))


def scan_task(job: Job, number: int) -> None:
    """Where the groups of a chunk are."""
    scan(job.archive, job.work, number, by_group=job.by_group)


def scatter_task(job: Job, number: int) -> None:
    """The rows of a chunk, by part."""
    scatter(job.archive, job.work, number, job.columns, job.parts, by_group=job.by_group)


def credit_part(job: Job, number: int) -> None:
    """The credit of the rows of a part, or their problems, and what there is to say about them."""
    import pyarrow as pa

    bare, kept = job.work.child(f"bare-{number}.arrow"), Stored(job.work, number)
    result: dict[str, Any] = {"padding": True}
    try:
        if bare.exists():
            rows, keep, result = kept["rows"], kept["keep"], json.loads(str(kept["result"]))
            table = table_from_arrow(next(read_streams(bare, 0, 1)))
        else:
            arrow, rows = gather(job.archive, job.work, number, job.parts.count)
            if rows.size:
                table = table_from_arrow(arrow)
                keep, result = _selected(job, table, rows)
        if job.recipe is not None and rows.size:
            arrays = _credit(job, kept, table, keep, result)
            result["kinds"] = [(name, values.dtype.str) for name, values in arrays.items()]
            credit = pa.table({ROW: pa.array(rows), **arrays})
            starts = [*(chunk.start for chunk in job.archive.chunks), job.archive.rows]
            ends = itertools.pairwise(np.searchsorted(rows, starts).tolist())
            pieces = (credit.slice(low, high - low) for low, high in ends)
            write_streams(job.work.child(f"credit-{number}.arrow"), pieces)
        elif not result["padding"]:
            result["problems"] = _listed(_check(job, table, arrow), rows)
    except TableError as error:
        result["refused"] = _listed(error.problems, rows)
    job.work.child(f"part-{number}.json").write(seal(json.dumps(result).encode()))
    pa.default_memory_pool().release_unused()


def _selected(job: Job, table: StepTable, rows: Ints) -> tuple[Bools, dict[str, Any]]:
    """Which rows of a part are credited, and what there is to say about it."""
    vectors, padding = table.fingerprint, table.flag("padding", default=False)
    result: dict[str, Any] = {"columns": list(table.columns()), "padding": bool(padding.all())}
    result["width"] = 0 if vectors is None else int(vectors.shape[1])
    if job.recipe is None or result["padding"]:
        return np.zeros(len(table), dtype=np.bool_), result
    selection = select(table, job.on_problem, group_size=job.group_size)
    result["problems"] = _listed(selection.report.problems, rows)
    dropped = int((~selection.keep).sum())
    result["dropped"] = (len(selection.dropped), dropped, selection.dropped_rows)
    return selection.keep, result


def _listed(problems: Sequence[Problem], rows: Ints) -> list[Any]:
    """Problems as plain values, with the row numbers of the archive."""
    listed = []
    for problem in problems:
        places = rows[problem.rows[:LISTED_ROWS]].tolist()
        more = problem.row_count - len(places)
        listed.append([problem.kind.name, problem.detail, places, problem.count, more])
    return listed


def _check(job: Job, table: StepTable, arrow: "pa.Table") -> list[Problem]:
    """The problems of a part."""
    others = arrow.select([name for name in CHECKED_COLUMNS if name in arrow.column_names])
    carried = check_carried(Rollouts(table, others, others.select([])))
    return [*check(table, group_size=job.group_size).problems, *carried]


def _credit(
    job: Job, kept: Stored, table: StepTable, keep: Bools, result: dict[str, Any]
) -> dict[str, Any]:
    """The columns of the credit of a part."""
    if not keep.any():
        padding = table.flag("padding", default=False)
        silent = np.where(padding, np.int8(Reason.PADDING), np.int8(Reason.DROPPED))
        return {"advantage": np.zeros(len(table)), "reason": silent}
    assert job.recipe is not None
    compute: Callable[..., Credit] = job.recipe
    if isinstance(job.recipe, EventCredit) and job.fit is not None:
        compute = partial(job.recipe.credited, kept=kept, fit=job.fit)
    credit = credit_selected(table, compute, keep)
    result["notes"] = list(credit.notes)
    part = table if keep.all() else table.take(keep)
    result["sums"] = sums(part, credit if keep.all() else credit.rows(keep))
    return credit_arrays(credit)


def _load(place: Place) -> dict[str, Any]:
    """The result of a part."""
    result: dict[str, Any] = json.loads(bytes(unseal(place.read(), place.name)))
    for name in ("problems", "refused"):
        result[name] = [
            Problem(ProblemKind[kind], detail, np.array(rows, dtype=np.int64), count, more)
            for kind, detail, rows, count, more in result.get(name, ())
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
    chunks = range(len(job.archive.chunks))
    columns = {name for result in results for name in result.get("columns", ())}
    unread = {"fingerprint"} - set(job.columns)
    job = replace(
        job,
        absent=sorted(set(KNOWN_COLUMNS) - columns - unread),
        width=max(result.get("width", 0) for result in results),
        kinds=max((result["kinds"] for result in results), key=len),
        credited=[number for number, result in enumerate(results) if result["kinds"]],
    )
    if target.name.endswith(".parquet"):
        write_table(target, itertools.chain.from_iterable(_credited(job, n) for n in chunks))
        return
    job.work.child("out").make_folder()
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
    for part in job.credited:
        place = job.work.child(f"credit-{part}.arrow")
        tables += read_streams(place, chunk, len(job.archive.chunks))
    # A part that was dropped as a whole has no terms: their columns are null, or not there.
    credit = pa.concat_tables(tables, promote_options="default")
    places, arrays = credit.column(ROW).to_numpy() - first, {}
    for name, _ in job.kinds:
        column = credit.column(name)
        missing = credit.column("reason") if name.startswith("reason") else pa.scalar(0.0)
        values = pc.coalesce(column, missing).to_numpy()
        arrays[name] = np.empty_like(values)
        arrays[name][places] = values
    for start, table in job.archive.batches(chunk, list(job.archive.columns), decode=True):
        here = slice(start - first, start - first + table.num_rows)
        rows = as_written(without_unused(table), job.absent, job.width)
        own = {name: values[here] for name, values in arrays.items()}
        for name, column in credit_columns(own).items():
            rows = rows.append_column(name, column)
        yield rows
