"""What all commands share: the console, safe text, progress, and how errors are said."""

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from ascribe.steps.files import Rollouts, read
from ascribe.steps.problems import Problem, Severity, TableError, printable

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

STYLES = {
    Severity.NOTE: "dim",
    Severity.WARNING: "yellow",
    Severity.ERROR: "red",
    Severity.FATAL: "bold red",
}


def safe(text: object, width: int = 80) -> str:
    """Text of a model or an environment on one line: no control characters, at most ``width``."""
    shown = printable(str(text)[: 2 * width])
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def print_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinity, which JSON lacks, are null in it."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=True, allow_nan=False, default=str))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def wrong_call(message: str) -> NoReturn:
    """Say what was wrong with the call and what to do, and stop with exit code 2."""
    err.print(Text(f"ascribe: {message}", style="red"))
    raise typer.Exit(2)


def settings(texts: list[str], form: str = "--set takes name=value") -> dict[str, Any]:
    """What options such as ``--set name=value`` gave; a value is JSON if it can be, else text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            wrong_call(f"{form}, not {safe(text)!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def refuse(error: TableError, *, as_json: bool, file: Path) -> NoReturn:
    """Say why the rollouts were refused, and stop with exit code 1."""
    if as_json:
        worst = max((problem.severity for problem in error.problems), default=Severity.FATAL)
        print_json(
            {
                "file": str(file),
                "refused": True,
                "worst": worst.name.lower(),
                "problems": [problem.as_dict() for problem in error.problems],
            }
        )
    else:
        err.print(problem_table(error.problems))
        err.print(Text(f"{safe(file, 300)}: refused; nothing was computed.", style="bold red"))
    raise typer.Exit(1)


def problem_table(problems: Any) -> Table:
    """Problems, worst first, with the first rows of each and what to do."""
    table = Table(show_lines=False, expand=False)
    table.add_column("problem", no_wrap=True)
    for name in ("found", "rows", "what to do"):
        table.add_column(name, overflow="fold")
    for problem in problems:
        style = STYLES[problem.severity]
        table.add_row(
            Text(f"{problem.kind.label}\n{problem.severity.name.lower()}", style=style),
            Text(safe(problem.detail, 300)),
            Text(_rows(problem)),
            Text(problem.kind.advice),
        )
    return table


def open_rollouts(file: Path, *, as_json: bool) -> Rollouts:
    """Read a file with a progress bar, or stop with what is wrong with it."""
    try:
        with progress(f"reading {safe(file.name, 40)}") as report:
            return read(file, report)
    except OSError as error:
        wrong_call(f"cannot open {safe(file)}: {error.strerror or error}")
    except TableError as error:
        refuse(error, as_json=as_json, file=file)


@contextmanager
def progress(what: str, patience: float = 1.0) -> Iterator[Any]:
    """A bar on standard error that appears only if the work takes more than a second."""
    started = time.monotonic()
    said = TextColumn("{task.description}", markup=False)
    columns = (said, BarColumn(), TaskProgressColumn())
    # In a file there would be an empty line where a terminal shows the bar.
    bar = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
    task: TaskID | None = None

    def report(share: float) -> None:
        nonlocal task
        if task is None and time.monotonic() - started > patience:
            bar.start()
            task = bar.add_task(what, total=1.0)
        if task is not None:
            bar.update(task, completed=share)

    try:
        yield report
    finally:
        if task is not None:
            bar.stop()


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What other packages and their processes print meanwhile goes to standard error.

    Engines log to standard output, which belongs to what a command has to say.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _rows(problem: Problem) -> str:
    shown = ", ".join(str(int(row)) for row in problem.rows[:3])
    return f"{shown}, … ({problem.rows.size:,})" if problem.rows.size > 3 else shown
