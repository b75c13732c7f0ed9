"""``ascribe check``: what is wrong with a file of rollouts."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.text import Text
from typer import Option

from ascribe.archives import check_archive, is_archive
from ascribe.cli import options, screen
from ascribe.estimators.situations import place
from ascribe.sessions.reading import CHECKED_COLUMNS, SessionOptions, check_carried
from ascribe.steps.check import CheckReport, without_reward
from ascribe.steps.check import check as check_table
from ascribe.steps.discount import USUAL
from ascribe.steps.problems import Severity, counted
from ascribe.steps.table import KNOWN_COLUMNS


@options.reads_sessions
def check(
    source: options.Source,
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    group_size: options.GroupSize = None,
    strict: Annotated[bool, Option("--strict", help="Exit with code 1 for warnings too.")] = False,
    memory: options.Memory = 2.0,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """List the problems of a file of rollouts, and how to fix each.

    The exit code is 0 if credit can be computed, 1 if there is an error (with --strict: or a
    warning), and 2 if the file cannot be opened.

    Examples:
        ascribe check examples/conversations.jsonl
        ascribe check examples/trl_rooms/rollouts_00000.parquet --group-size 4
        ascribe check rollouts.csv --column reward=score --json
    """
    situation: tuple[str, ...] = ()
    balance = None
    if is_archive(source, int(memory * 2**30)):
        screen.refuse_columns(columns)
        with (
            screen.exits(source),
            screen.progress("checking") as progress,
            TemporaryDirectory() as folder,
        ):
            report = check_archive(
                source,
                group_size=group_size,
                memory=int(memory * 2**30),
                work=Path(folder) / "check",
                progress=progress,
                **sessions,
            )
    else:
        wanted = {*KNOWN_COLUMNS, *CHECKED_COLUMNS}
        rollouts = screen.open_rollouts(
            Path(source), wanted=wanted.__contains__, columns=columns, **sessions
        )
        balance = rollouts.balance and rollouts.balance.as_dict()
        checked = check_table(rollouts.table, group_size=group_size)
        problems = [*checked.problems, *check_carried(rollouts), *rollouts.notes]
        report = CheckReport(checked.rows, sorted(problems, key=lambda problem: -problem.severity))
        if checked.worst is None or checked.worst < Severity.FATAL:
            left_out = without_reward(rollouts.table, checked.problems)
            rewarded = rollouts.table.take(~left_out) if left_out.any() else rollouts.table
            situation = place(rewarded).sentences(USUAL)
    if as_json:
        about = {"file": screen.named(source), "refused": False, **report.as_dict()}
        screen.print_json(about | {"situation": situation, "balance": balance})
    else:
        screen.print_problems(report.problems)
        screen.out.print(Text("\n").join([_verdict(source, report), *map(Text, situation)]))
    limit = Severity.WARNING if strict else Severity.ERROR
    if report.worst is not None and report.worst >= limit:
        raise typer.Exit(1)


def _verdict(file: str, report: CheckReport) -> Text:
    rows = f"{screen.safe(file)}: {counted(report.rows, 'row')}, "
    if report.worst is None:
        return Text(rows + "no problems.", style="green")
    kinds = f"{counted(len(report.problems), 'kind')} of problem"
    kinds += f", the worst: {report.worst.name.lower()}."
    return Text(rows + kinds, style=screen.STYLES[report.worst])
