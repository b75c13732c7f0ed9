"""``ascribe watch``: the metrics of a run in progress."""

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.report.watch import RunMetrics, read_run
from ascribe.steps.hints import duration


def watch(
    run: Annotated[Path, Argument(help="The folder of a run: output.folder of its config.")],
    every: Annotated[float, Option(help="Seconds between two updates, at least 0.1.")] = 5.0,
    once: Annotated[bool, Option("--once", help="Print once and stop.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show the metrics of a training run, and update them while it goes on.

    They are read from the run's metrics.jsonl, which the engines write. Stop with Ctrl-C. With
    --json they are read once.
    """
    if not 0.1 <= every <= 86_400:  # which is not true of NaN either
        screen.wrong_call(f"--every takes seconds from 0.1 to 86400, not {every}")
    metrics = _metrics(run)
    if as_json:
        screen.print_json(None if metrics is None else asdict(metrics))
        return
    if once:
        screen.out.print(_table(run, metrics))
        return
    with suppress(KeyboardInterrupt), Live(_table(run, metrics), console=screen.out) as live:
        while True:
            time.sleep(every)
            live.update(_table(run, _metrics(run)))


def _metrics(folder: Path) -> RunMetrics | None:
    try:
        return read_run(folder)
    except OSError as error:
        screen.wrong_call(f"cannot read {screen.safe(folder)}: {error.strerror or error}")
    except ValueError as error:
        screen.wrong_call(screen.safe(error, 400))


def _table(folder: Path, metrics: RunMetrics | None) -> RenderableType:
    if metrics is None:
        return Text(f"{screen.safe(folder)} has no metrics yet.", style="dim")
    elapsed = "" if metrics.seconds is None else f", after {duration(metrics.seconds)}"
    table = Table(
        title=Text(f"{screen.safe(folder.name)}: iteration {metrics.iterations[-1]:,}{elapsed}"),
        caption=None if metrics.summary is None else Text(metrics.summary),
        caption_justify="left",
    )
    table.add_column("metric")
    table.add_column("now", justify="right")
    table.add_column("change", justify="right")
    table.add_column("over iterations", no_wrap=True)
    for series in metrics.series:
        last, change, share = series.last, series.change, series.is_share
        value = "–" if last is None else f"{last:.1%}" if share else f"{last:.4g}"
        difference = "" if change is None else f"{100 * change:+.1f}" if share else f"{change:+.3g}"
        table.add_row(series.label, value, difference, series.sparkline())
    return table
