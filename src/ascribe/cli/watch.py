"""``ascribe watch``: the numbers of a run, while it goes on."""

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ascribe.cli import screen
from ascribe.cli.screen import JsonFlag
from ascribe.report.watch import RunMetrics, Series, read_run


def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run: output.folder of its config.")],
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print and stop.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the numbers of a training run, again and again while it goes on.

    They are those that the engines log, from the run's metrics.jsonl; end with Ctrl-C. With --json
    it looks once.
    """
    found = _look(run)
    if as_json:
        screen.print_json(None if found is None else asdict(found))
        return
    if once:
        screen.out.print(_shown(run, found))
        return
    with suppress(KeyboardInterrupt), Live(_shown(run, found), console=screen.out) as live:
        while True:
            time.sleep(every)
            live.update(_shown(run, _look(run)))


def _look(folder: Path) -> RunMetrics | None:
    try:
        return read_run(folder)
    except OSError as error:
        screen.wrong_call(f"cannot read {screen.safe(folder)}: {error.strerror or error}")
    except ValueError as error:
        screen.wrong_call(screen.safe(error, 400))


def _shown(folder: Path, found: RunMetrics | None) -> RenderableType:
    if found is None:
        return Text(f"{screen.safe(folder)} has no metrics yet.", style="dim")
    took = "" if found.seconds is None else f", after {found.seconds / 60:.0f} min"
    table = Table(title=Text(f"{screen.safe(folder)}: iteration {found.iteration:,}{took}"))
    table.add_column("number")
    table.add_column("now", justify="right")
    table.add_column("change", justify="right")
    table.add_column("over iterations", no_wrap=True)
    for each in found.series:
        table.add_row(each.label, _value(each), _change(each), each.sparkline())
    return table


def _value(each: Series) -> str:
    if each.last is None:
        return "–"
    return f"{each.last:.1%}" if each.is_share else f"{each.last:.4g}"


def _change(each: Series) -> str:
    if each.change is None:
        return ""
    return f"{100 * each.change:+.1f}" if each.is_share else f"{each.change:+.3g}"
