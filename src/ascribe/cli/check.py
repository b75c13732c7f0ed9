"""``ascribe check``: what is wrong with a file of rollouts."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
from ascribe.conversations.formats import CHECKED_COLUMNS, check_carried
from ascribe.steps.check import CheckReport
from ascribe.steps.check import check as check_table
from ascribe.steps.problems import Severity, counted
from ascribe.steps.table import KNOWN_COLUMNS


def check(
    file: options.File,
    group_size: options.GroupSize = None,
    strict: Annotated[bool, Option("--strict", help="Warnings also end with exit code 1.")] = False,
    as_json: options.Json = False,
) -> None:
    """List everything that is wrong with a file of rollouts, and what to do about it.

    Ends with exit code 0 if credit can be computed, 1 if a problem of severity error or fatal was
    found (with --strict: a warning), 2 if the file cannot be opened.
    """
    wanted = {*KNOWN_COLUMNS, *CHECKED_COLUMNS}
    rollouts = screen.open_rollouts(file, as_json=as_json, wanted=wanted.__contains__)
    checked = check_table(rollouts.table, group_size=group_size)
    problems = [*checked.problems, *check_carried(rollouts), *rollouts.notes]
    report = CheckReport(checked.rows, sorted(problems, key=lambda problem: -problem.severity))
    if as_json:
        screen.print_json({"file": str(file), "refused": False, **report.as_dict()})
    else:
        if report.problems:
            screen.out.print(screen.problem_table(report.problems))
        screen.out.print(_verdict(file, report))
    limit = Severity.WARNING if strict else Severity.ERROR
    if report.worst is not None and report.worst >= limit:
        raise typer.Exit(1)


def _verdict(file: Path, report: CheckReport) -> Text:
    rows = f"{screen.safe(file)}: {report.rows:,} rows, "
    if report.worst is None:
        return Text(rows + "no problems.", style="green")
    kinds = f"{counted(len(report.problems), 'kind')} of problem"
    kinds += f", the worst: {report.worst.name.lower()}."
    return Text(rows + kinds, style=screen.STYLES[report.worst])
