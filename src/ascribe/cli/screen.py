"""Shared by all commands: the console, safe text, progress, and error exits."""

import atexit
import json
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ascribe.cli import plain
from ascribe.steps.balance import Balance
from ascribe.steps.errors import AscribeError
from ascribe.steps.files import SUFFIXES, Rollouts
from ascribe.steps.hints import duration, nearest, unknown
from ascribe.steps.problems import Problem, Severity, TableError
from ascribe.steps.strict_json import without_nan
from ascribe.steps.table import KNOWN_COLUMNS

if TYPE_CHECKING:
    from ascribe.decisions import Decisions
    from ascribe.sessions.reading import SessionOptions


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line, which knows the exit code; Rich exits with code 1."""
        raise BrokenPipeError


out = _Console(highlight=False)
err = _Console(stderr=True, highlight=False)

FIRST_LINE, MOST_WAIT = 10.0, 300.0
"""Seconds until the first line of progress without a terminal, and at most between two."""

STYLES = {
    Severity.NOTE: "dim",
    Severity.WARNING: "yellow",
    Severity.ERROR: "red",
    Severity.FATAL: "bold red",
}


MAX_STDIN = 2**34
"""Bytes that standard input may have."""
MAGIC = {b"PAR1": ".parquet", b"\x1f\x8b": ".jsonl.gz", b"PK\x03\x04": ".eval"}
"""How binary files begin, and the suffix of their format."""

_quiet = False
"""Whether progress, notes and advice are left out."""
_json = False
"""Whether a command prints one JSON document, also if it refuses a table."""


safe, named = plain.safe, plain.named


def be_quiet(value: bool) -> bool:
    """Leave out progress, notes and advice, or print them."""
    global _quiet  # noqa: PLW0603 (a command sets it once)
    _quiet = value
    return value


def be_json(value: bool) -> bool:
    """Print one JSON document instead of text, or text."""
    global _json  # noqa: PLW0603 (a command sets it once)
    _json = value
    return value


def stdin_or(value: Any) -> Any:
    """The path, or paths, of an argument; in the place of ``-`` a file with standard input.

    The file is removed when Python exits. Its format is recognised by how it begins.
    """
    from ascribe.sessions.reading.files import is_document

    if isinstance(value, list):
        if [str(each) for each in value].count("-") > 1:
            wrong_call("standard input can be read once", "name - once")
        return [stdin_or(each) for each in value]
    if str(value) != "-":
        return value
    if sys.stdin is None:
        wrong_call("standard input is closed", "name a file")
    folder = TemporaryDirectory(prefix="ascribe-")
    atexit.register(folder.cleanup)
    path = Path(folder.name, "stdin.jsonl")
    with path.open("wb") as file:
        while block := sys.stdin.buffer.read(1 << 20):
            if file.tell() + len(block) > MAX_STDIN:
                wrong_call(f"standard input has more than {MAX_STDIN:,} bytes", "name a file")
            file.write(block)
    with path.open("rb") as file:
        line = file.readline(1 << 16)
    suffix = next((suffix for magic, suffix in MAGIC.items() if line.startswith(magic)), "")
    if not suffix and b"," in line and not line.lstrip(b"\xef\xbb\xbf \t").startswith((b"{", b"[")):
        suffix = ".csv"
    if suffix or is_document(path):
        path = path.rename(path.with_name(f"stdin{suffix or '.json'}"))
    plain.spooled.append(path)
    return type(value)(path)


def stdout_or(ctx: typer.Context, value: Any) -> Any:
    """The path of an output; for ``-`` a file that goes to standard output when the command ends.

    Everything else that the command prints then goes to standard error.
    """
    if value is None or str(value) != "-":
        return value
    folder = TemporaryDirectory(prefix="ascribe-")
    suffix = ".html" if ctx.info_name == "report" else ".jsonl"
    path = Path(folder.name, f"stdout{suffix}")
    plain.spooled.append(path)
    out.stderr = True

    def finish() -> None:
        out.stderr = False
        with folder:
            if path.exists():
                with path.open("rb") as file:
                    shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()

    ctx.call_on_close(finish)
    return type(value)(path)


def print_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinity, which JSON lacks, are null in it."""
    shown = without_nan(value)
    print(json.dumps(shown, indent=2, allow_nan=False, default=_plain), file=out.file)


def _plain(value: Any) -> Any:
    """A value that JSON lacks: what it says of itself, or its text."""
    return without_nan(value.as_dict()) if hasattr(value, "as_dict") else str(value)


def wrong_call(what: str | Exception, hint: str = "", code: int = 2) -> NoReturn:
    """Print what is wrong with the call and what to do, and exit."""
    plain.fail(what, hint, code)


def check_suffix(path: Path) -> None:
    """Exit with code 2 unless this can be a file of rollouts, by its suffix."""
    if not path.name.endswith(SUFFIXES):
        suffixes = ", ".join(SUFFIXES[:-1])
        wrong_call(
            f"cannot tell the format of {safe(path)}",
            f"give it one of the suffixes {suffixes} or {SUFFIXES[-1]}",
        )
    if path.is_dir():
        wrong_call(f"{safe(path)} is a folder", "name a file that can be replaced")


def keep_inputs(inputs: Iterable[Path], outputs: Iterable[Path | None], *, force: bool) -> None:
    """Exit with code 2 if an output would overwrite an input and ``--force`` was not given."""
    existing = [path.resolve() for path in outputs if path is not None and path.exists()]
    for path in inputs:
        is_read = path.exists() and any(map(path.samefile, existing))
        if path.is_dir():
            is_read = any(output.is_relative_to(path.resolve()) for output in existing)
        if is_read and not force:
            wrong_call(
                f"{safe(path)} is read, and would be overwritten",
                "write to another file, or add --force",
            )


def find_own_code(*names: str) -> None:
    """Let ``module:Name`` of a command line name a module of the current folder.

    Only if a name has that form: a folder that holds nothing but data must not lend modules.
    """
    folder = str(Path.cwd())
    if any(":" in name for name in names) and folder not in sys.path:
        sys.path.append(folder)


@contextmanager
def exits(file: str | Path, out: str | Path | None = None, hint: str = "") -> Iterator[None]:
    """Say which file an error inside is about: the one that is read, or the one that is written.

    Exits with code 2 if a file cannot be opened or written, or something else that the call named
    is not there. A table that is refused ends the command with code 1.
    """
    try:
        yield
    except TableError as error:
        refuse(error, getattr(error, "path", file))
    except (AscribeError, BrokenPipeError):
        raise
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else out or file
        verb = "open" if out is None else "write" if out == file else "open or write"
        if isinstance(error, FileNotFoundError) and Path(path).parent.is_dir():
            beside = [each.name for each in Path(path).parent.iterdir()]
            plain_names = [name for name in beside if quote(name) == name]  # no hint runs another's
            hint = hint or nearest(Path(path).name, plain_names).strip()
        wrong_call(f"cannot {verb} {safe(path)}: {safe(error.strerror or error, 200)}", hint)
    except ModuleNotFoundError as error:
        wrong_call(error, hint or (f"pip install {error.name}" if error.name else ""))
    except (ImportError, ValueError) as error:
        wrong_call(error)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Exit with code 2 if this file or folder cannot be written inside."""
    with exits(path, path):
        try:
            yield
        except TableError as error:
            wrong_call(f"cannot write {safe(path)}: {safe(error.problems[0].detail, 400)}")


def settings(texts: list[str], form: str = "--set takes name=value") -> dict[str, Any]:
    """The values of options like ``--set name=value``; a value is JSON if it parses, else text."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            wrong_call(f"{form}, not '{safe(text)}'", "write the name, = and the value: gamma=0.9")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def as_set(value: Any) -> str:
    """A value as ``--set`` takes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def column_names(texts: Sequence[str]) -> dict[str, str]:
    """The values of ``--column name=own``: what the file calls a column of the format."""
    columns = {}
    for text in texts:
        name, _, own = text.partition("=")
        if not name or not own:
            wrong_call(f"--column takes name=own, such as reward=score, not '{safe(text)}'")
        if name not in KNOWN_COLUMNS:
            wrong_call(unknown("column", safe(name), KNOWN_COLUMNS))
        columns[name] = own
    return columns


def refuse_columns(columns: Sequence[str]) -> None:
    """Exit with code 2 if columns are to be renamed in a table that is read in parts."""
    if columns:
        wrong_call("--column needs a table that fits into --memory")


def refuse(error: TableError, file: str | Path) -> NoReturn:
    """Print why the rollouts were refused, and exit with code 1."""
    if _json:
        worst = max((problem.severity for problem in error.problems), default=Severity.FATAL)
        problems = [problem.as_dict() for problem in error.problems]
        about = {"file": named(file), "refused": True, "worst": worst.name.lower()}
        print_json(about | {"problems": problems})
        raise typer.Exit(1)
    for problem in error.problems:
        numbers, shown = _rows(problem), safe(file, 300)
        rows = f"{'row' if problem.row_count == 1 else 'rows'} {numbers} of " if numbers else ""
        what = f"{safe(problem.detail, 300)} ({problem.kind.label}), {rows}{shown}"
        plain.tell_error(what, safe(problem.advice, 1_000))
    if fields := error.fields or getattr(error.__cause__, "fields", ()):
        title = "The first record"
        err.print(table_of(("field", "type", "value"), fields, title=title, most=80))
    err.print(Text(f"{safe(file, 300)}: refused; nothing was computed."), soft_wrap=True)
    raise typer.Exit(1)


def print_problems(problems: Iterable[Problem]) -> None:
    """Print problems, worst first, with the first rows of each and what to do."""
    rows = [
        (
            Text(
                f"{problem.kind.label}\n{problem.severity.name.lower()}", STYLES[problem.severity]
            ),
            safe(problem.detail, 300),
            _rows(problem),
            safe(problem.advice, 1_000),
        )
        for problem in problems
    ]
    if rows:
        headings = ("problem", "found", "rows", "what to do")
        out.print(table_of(headings, rows, whole=("problem",)))


def _rows(problem: Problem) -> str:
    """The first rows of a problem, and how many more there are."""
    more = f" and {problem.row_count - 3:,} more" if problem.row_count > 3 else ""
    return ", ".join(f"{int(row):,}" for row in problem.rows[:3]) + more


def table_of(
    headings: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
    most: int = 400,
    **look: Any,
) -> Table:
    """A table to print; texts of others are made safe.

    Args:
        headings: of the columns; with empty ones alone, none are shown.
        rows: a cell for each heading: a ``Text`` as it is, anything else up to ``most`` characters.
        right: columns of numbers, at the right.
        whole: columns that are not broken into lines, as those of numbers are not.
        most: characters of a cell.
        **look: as for ``rich.table.Table``.
    """
    table = Table(show_header=any(headings), **look)
    for heading in headings:
        justify: Literal["right", "left"] = "right" if heading in right else "left"
        no_wrap = heading in right or heading in whole
        table.add_column(Text(heading), justify=justify, no_wrap=no_wrap, overflow="fold")
    for row in rows:
        table.add_row(*(c if isinstance(c, Text) else Text(safe(c, most)) for c in row))
    return table


def open_rollouts(
    file: Path,
    *,
    wanted: Callable[[str], bool] = lambda _: True,
    columns: Sequence[str] = (),
    **sessions: Unpack["SessionOptions"],
) -> Rollouts:
    """Read columns of a file with a progress bar, or print what is wrong with it and exit."""
    from ascribe.sessions.reading import Imported, read

    renamed = column_names(columns)
    with exits(file), progress(f"reading {safe(file.name, 40)}") as report:
        rollouts = read(file, report, wanted, renamed, **sessions)
    if isinstance(rollouts, Imported):
        print_note(f"{safe(file)}: {rollouts.sentence()}")
    print_balance(rollouts.balance)
    if isinstance(rollouts, Imported) and (advice := rollouts.advice()):
        print_note(advice)
    return rollouts


def print_balance(balance: Balance | None) -> None:
    """Print what was left out, also under ``--quiet``, and what counts in an unusual way."""
    if balance is None:
        return
    if balance.left_out:
        say(balance.sentence, "yellow", console=err)
    for each in balance.details():
        print_note(each)


def say(text: object, style: str = "", *, console: Console | None = None) -> None:
    """Print a text, in which there may be texts of others; a command is not broken into lines."""
    line = Text(safe(text, 2_000), style=style)
    (console or out).print(line, soft_wrap=": ascribe " in line.plain)


def print_sentence(found: "Decisions") -> None:
    """The most certain decision, and what to do."""
    say(found.sentence, "bold")
    if found.advice:
        say(found.advice)


def print_note(text: str, style: str = "dim") -> None:
    """Print what was understood on standard error, unless ``--quiet``."""
    if not _quiet:
        say(text, style, console=err)


def print_wrote(path: object, more: str = "") -> None:
    """Print where the result is, unless that is standard output."""
    if safe(path) != "-":
        print_summary(f"Wrote {safe(path)}{more}.", "green")


def print_summary(shown: str | Table, style: str = "dim") -> None:
    """Print what is worth knowing about a result, unless ``--quiet``."""
    if _quiet:
        return
    if isinstance(shown, str):
        say(shown, style)
    else:
        out.print(shown)


@contextmanager
def progress(title: str, patience: float = 1.0) -> Iterator[Any]:
    """Progress on standard error, with the time that is left, if the work takes a while.

    A bar in a terminal, after a second; elsewhere, such as in a log of SLURM, a line now and then.
    """
    started = time.monotonic()
    if _quiet:
        yield lambda _: None
        return
    if not err.is_terminal:
        yield _progress_lines(title, started)
        return
    from rich import progress as rich

    text = rich.TextColumn("{task.description}", markup=False)
    columns = (rich.BarColumn(), rich.TaskProgressColumn(), rich.TimeRemainingColumn())
    bar = rich.Progress(text, *columns, console=err, transient=True)
    task: rich.TaskID | None = None

    def report(share: float) -> None:
        nonlocal task
        if task is None and time.monotonic() - started > patience:
            bar.start()
            task = bar.add_task(title, total=1.0)
        if task is not None:
            bar.update(task, completed=share)

    try:
        yield report
    finally:
        if task is not None:
            bar.stop()


def _progress_lines(title: str, started: float) -> Callable[[float], None]:
    """Prints a line after 10 seconds, and waits twice as long after each, up to 5 minutes."""
    wait = FIRST_LINE
    next_line = started + wait

    def report(share: float) -> None:
        nonlocal wait, next_line
        now = time.monotonic()
        if now < next_line or not 0 < share < 1:
            return
        wait = min(2 * wait, MOST_WAIT)
        next_line = now + wait
        spent = now - started
        left = duration(spent * (1 - share) / share)
        line = f"{title}: {share:.0%} after {duration(spent)}, about {left} left"
        err.print(Text(line, style="dim"), soft_wrap=True)

    return report
