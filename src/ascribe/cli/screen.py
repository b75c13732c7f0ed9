"""Shared by all commands: the console, safe text, progress, and error exits."""

import atexit
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from ascribe.cli.plain import fail, tell_error
from ascribe.steps.balance import Balance
from ascribe.steps.errors import AscribeError
from ascribe.steps.files import SUFFIXES, Rollouts
from ascribe.steps.hints import duration, unknown
from ascribe.steps.problems import Severity, TableError, one_line, without_credentials
from ascribe.steps.strict_json import without_nan
from ascribe.steps.table import KNOWN_COLUMNS

if TYPE_CHECKING:
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

_spooled: list[Path] = []
"""Files with the content of standard input, or for standard output."""
_quiet = False
"""Whether progress, notes and advice are left out."""


def safe(text: object, most: int = 80) -> str:
    """Untrusted text, printable on one line, without the credentials of a URI."""
    return one_line(named(text), most)


def named(text: object) -> str:
    """A path as it was given, without the credentials of a URI."""
    shown = without_credentials(text)
    for path in _spooled:
        shown = shown.replace(str(path), "-")
    return shown


def be_quiet(value: bool) -> bool:
    """Leave out progress, notes and advice, or print them."""
    global _quiet  # noqa: PLW0603 (a command sets it once)
    _quiet = value
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
    _spooled.append(path)
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
    _spooled.append(path)
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
    text = json.dumps(without_nan(value), indent=2, ensure_ascii=True, allow_nan=False, default=str)
    print(text, file=out.file)


def wrong_call(message: str | Exception, hint: str = "", code: int = 2) -> NoReturn:
    """Print what is wrong with the call and what to do, and exit."""
    if isinstance(message, Exception):
        if isinstance(message, AscribeError):
            hint = hint or safe(message.hint, 1_000)
            message = message.problem
        message = safe(message, 1_000)
    fail(message, hint, code)


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
def exits(
    file: str | Path, *, as_json: bool = False, out: str | Path | None = None
) -> Iterator[None]:
    """Exit with a message for what goes wrong inside.

    With code 1 if the rollouts are refused; with code 2 if a file cannot be opened or written, or
    something else that the call named is not there.
    """
    try:
        yield
    except TableError as error:
        refuse(error, as_json=as_json, file=getattr(error, "path", file))
    except BrokenPipeError:
        raise
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else out or file
        verb = "open" if out is None else "open or write"
        wrong_call(f"cannot {verb} {safe(path)}: {error.strerror or error}")
    except (ImportError, ValueError) as error:
        wrong_call(error)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Exit with code 2 if this file or folder cannot be written inside."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        wrong_call(f"cannot write {safe(path)}: {error.strerror or error}")
    except TableError as error:
        wrong_call(f"cannot write {safe(path)}: {safe(error.problems[0].detail, 400)}")


def settings(texts: list[str], form: str = "--set takes name=value") -> dict[str, Any]:
    """The values of options like ``--set name=value``; a value is JSON if it parses, else text."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            wrong_call(f"{form}, not '{safe(text)}'")
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


def refuse(error: TableError, *, as_json: bool, file: str | Path) -> NoReturn:
    """Print why the rollouts were refused, and exit with code 1."""
    if as_json:
        worst = max((problem.severity for problem in error.problems), default=Severity.FATAL)
        print_json(
            {
                "file": named(file),
                "refused": True,
                "worst": worst.name.lower(),
                "problems": [problem.as_dict() for problem in error.problems],
            }
        )
    else:
        for problem in error.problems:
            numbers = ", ".join(f"{int(row):,}" for row in problem.rows[:3])
            more = f" and {problem.row_count - 3:,} more" if problem.row_count > 3 else ""
            rows = f"{'row' if problem.row_count == 1 else 'rows'} {numbers}{more} of "
            where = f"{rows if numbers else ''}{safe(file, 300)}"
            what = f"{safe(problem.detail, 300)} ({problem.kind.label}), {where}"
            tell_error(what, safe(problem.advice, 1_000))
        if error.fields:
            err.print(fields_table(error.fields))
        err.print(Text(f"{safe(file, 300)}: refused; nothing was computed."), soft_wrap=True)
    raise typer.Exit(1)


def fields_table(fields: Sequence[tuple[str, str, str]]) -> Table:
    """The fields of a record, with their types and the beginnings of their values."""
    table = Table("field", "type", "value", title="The first record")
    for path, kind, value in fields:
        table.add_row(safe(path), kind, safe(value))
    return table


def problem_table(problems: Any) -> Table:
    """A table of problems, worst first, with the first rows of each and what to do."""
    table = Table(show_lines=False, expand=False)
    table.add_column("problem", no_wrap=True)
    for name in ("found", "rows", "what to do"):
        table.add_column(name, overflow="fold")
    for problem in problems:
        style = STYLES[problem.severity]
        rows = ", ".join(str(int(row)) for row in problem.rows[:3])
        more = f", … ({problem.row_count:,})" if problem.row_count > 3 else ""
        table.add_row(
            Text(f"{problem.kind.label}\n{problem.severity.name.lower()}", style=style),
            Text(safe(problem.detail, 300)),
            Text(rows + more),
            Text(safe(problem.advice, 1_000)),
        )
    return table


def open_rollouts(
    file: Path,
    *,
    as_json: bool,
    wanted: Callable[[str], bool] = lambda _: True,
    columns: Sequence[str] = (),
    **sessions: Unpack["SessionOptions"],
) -> Rollouts:
    """Read columns of a file with a progress bar, or print what is wrong with it and exit."""
    from ascribe.sessions.reading import Imported, read

    renamed = column_names(columns)
    with exits(file, as_json=as_json), progress(f"reading {safe(file.name, 40)}") as report:
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
        err.print(Text(safe(balance.sentence, 1_000), style="yellow"))
    for each in balance.details():
        print_note(each)


def print_note(text: str, style: str = "dim") -> None:
    """Print what was understood on standard error; a command is not broken into lines."""
    if not _quiet:
        err.print(Text(safe(text, 2_000), style=style), soft_wrap=": ascribe " in text)


def print_wrote(path: object, more: str = "") -> None:
    """Print where the result is, unless that is standard output."""
    if not _quiet and (shown := safe(path)) != "-":
        out.print(Text(f"Wrote {shown}{more}.", style="green"))


def print_summary(*lines: Any) -> None:
    """Print what is worth knowing about a result that is in a file."""
    for line in lines:
        if not _quiet:
            out.print(line)


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
    text = TextColumn("{task.description}", markup=False)
    bar = Progress(
        *(text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()),
        console=err,
        transient=True,
    )
    task: TaskID | None = None

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
