"""``ascribe audit``: every recipe against advantages that are known exactly."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ascribe.cli import screen

if TYPE_CHECKING:
    from ascribe.audit import Audit, Settings
    from ascribe.audit.run import Scored

LEADER = "sbc"
"""The recipe whose paired differences with the others are shown, unless one of your own is."""


def audit(
    recipe: Annotated[
        list[str],
        typer.Option(
            help="Score this recipe as well: a name, or module:Name of your own. Repeatable.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 (typer copies it)
    world: Annotated[
        list[str], typer.Option(help="Only in this world. Repeatable.", show_default=False)
    ] = [],  # noqa: B006 (typer copies it)
    size: Annotated[
        list[int], typer.Option(help="Only this group size. Repeatable.", min=2, show_default=False)
    ] = [],  # noqa: B006 (typer copies it)
    full: Annotated[
        bool, typer.Option("--full", help="Every recipe, sizes 4, 8 and 16: up to 15 minutes.")
    ] = False,
    blocks: Annotated[
        int | None, typer.Option(help="Independent blocks of tasks.", min=2, show_default=False)
    ] = None,
    paraphrase: Annotated[
        float | None,
        typer.Option(help="Chance of another wording of a state.", min=0, max=1),
    ] = None,
    noise: Annotated[
        float | None, typer.Option(help="Noise of fingerprints.", min=0, show_default=False)
    ] = None,
    blur: Annotated[
        float | None,
        typer.Option(
            help="How much fingerprints of all states look alike.",
            min=0,
            max=1,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.", min=0)] = 0,
    processes: Annotated[
        int, typer.Option(help="Processes that share the work; 0 takes one per core.", min=0)
    ] = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Draw a figure: NAME.png and NAME.svg.", show_default=False)
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write the tables as Markdown.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line and nothing else.")
    ] = False,
) -> None:
    """Score recipes in small worlds whose true advantages and gradients are known exactly.

    Shows how close each recipe comes to the exact advantage and the exact policy gradient, and how
    fast a policy learns from it. The quick audit takes under a minute.
    """
    from ascribe.audit import FULL, FULL_FORMS, QUICK, QUICK_FORMS, WORLDS
    from ascribe.audit.report import figure as draw
    from ascribe.audit.report import json_lines
    from ascribe.audit.report import page as written

    settings = FULL if full else QUICK
    unknown = [name for name in world if name not in WORLDS]
    if unknown:
        screen.wrong_call(f"no world {unknown[0]!r}; there are: {', '.join(WORLDS)}")
    changes = {
        "worlds": tuple(world),
        "sizes": tuple(size),
        "blocks": blocks,
        "paraphrase": paraphrase,
        "noise": noise,
        "blur": blur,
    }
    kept = {name: value for name, value in changes.items() if value not in (None, ())}
    settings = replace(settings, seed=seed, **kept)  # type: ignore[arg-type]
    settings = _learning_where_scored(settings)
    scored = _recipes((*(FULL_FORMS if full else QUICK_FORMS), *recipe))
    leader = recipe[-1] if recipe else LEADER
    found = _with_progress(scored, settings, processes or os.cpu_count() or 1)

    lines = list(json_lines(found, leader))
    if page is not None:
        _save(page, written(lines))
    if figure is not None:
        try:
            draw(lines, figure)
        except ImportError:
            screen.wrong_call("a figure needs matplotlib: install ascribe[figures]")
    if as_json:
        for line in lines:
            print(json.dumps(line))
        return
    _print(lines)
    took = f"{settings.blocks} blocks of {settings.tasks} tasks, {found.seconds:.0f} s."
    screen.out.print(Text(took, style="dim"))


def _learning_where_scored(settings: "Settings") -> "Settings":
    """Learning runs at a group size that is scored."""
    sizes = settings.sizes
    return replace(settings, learning_size=8 if 8 in sizes else sizes[0])


def _recipes(names: tuple[str, ...]) -> "dict[str, Scored]":
    from ascribe.audit import named

    here = str(Path.cwd())
    if here not in sys.path:  # so that module:Name finds a file in this folder, in every process
        sys.path.append(here)
    try:
        return {name: named(name) for name in names}
    except ValueError as error:
        screen.wrong_call(screen.safe(error, 400))


def _with_progress(scored: "dict[str, Scored]", settings: "Settings", processes: int) -> "Audit":
    from ascribe.audit import audit as run

    columns = (TextColumn("audit"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen.err, transient=True) as bar:
        job = bar.add_task("audit", total=None)

        def show(done: int, total: int) -> None:
            bar.update(job, completed=done, total=total)

        return run(scored, settings, processes=processes, progress=show)


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        screen.wrong_call(f"cannot write {screen.safe(path)}: {error.strerror or error}")


def _print(lines: list[dict[str, Any]]) -> None:
    from ascribe.audit.report import AuditTables

    tables = AuditTables(lines)
    for size in tables.sizes:
        screen.out.print(_table(f"Means over worlds, group size {size}", *tables.means(size)))
    size, metric = tables.learning_size(), "gradient_cosine"
    title = f"{metric}, group size {size}"
    screen.out.print(_table(title, *_turned(*tables.by_world(size, metric))))
    title = f"{metric}, paired differences (* leaves out zero), group size {size}"
    screen.out.print(_table(title, *_turned(*tables.differences(size, metric))))


def _turned(head: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A line for each world, so that the table fits a narrow terminal."""
    first, *others = (list(column) for column in zip(head, *rows, strict=True))
    return ["world", *first[1:]], others


def _table(title: str, head: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(head):
        table.add_column(name.replace("_", " "), overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
