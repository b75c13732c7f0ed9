"""``ascribe audit``: score every recipe against exact advantages."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import screen
from ascribe.steps.atomic import write_file
from ascribe.steps.hints import install, unknown

if TYPE_CHECKING:
    from ascribe.audit import Audit, Settings
    from ascribe.audit.run import Scored

LEADER = "sbc"
"""Paired differences are with this recipe, unless ``--recipe`` names another."""


def audit(
    recipe: Annotated[
        list[str],
        Option(
            help="Score this recipe as well: a name, or module:Name of your own. Repeatable.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 (typer copies it)
    world: Annotated[
        list[str], Option(help="Only in this world. Repeatable.", show_default=False)
    ] = [],  # noqa: B006 (typer copies it)
    size: Annotated[
        list[int], Option(help="Only this group size. Repeatable.", min=2, show_default=False)
    ] = [],  # noqa: B006 (typer copies it)
    full: Annotated[
        bool, Option("--full", help="Every recipe, sizes 4, 8 and 16: up to 15 minutes.")
    ] = False,
    blocks: Annotated[
        int | None, Option(help="Independent blocks of tasks.", min=2, show_default=False)
    ] = None,
    paraphrase: Annotated[
        float | None, Option(help="Probability that an observation is paraphrased.", min=0, max=1)
    ] = None,
    noise: Annotated[
        float | None, Option(help="Noise of fingerprints.", min=0, show_default=False)
    ] = None,
    blur: Annotated[
        float | None,
        Option(
            help="How similar the fingerprints of all states are.", min=0, max=1, show_default=False
        ),
    ] = None,
    seed: Annotated[int, Option(help="Seed of all randomness.", min=0)] = 0,
    processes: Annotated[
        int, Option(help="Processes that share the work; 0 takes one per core.", min=0)
    ] = 0,
    figure: Annotated[
        Path | None, Option(help="Draw a figure: NAME.png and NAME.svg.", show_default=False)
    ] = None,
    page: Annotated[
        Path | None, Option(help="Write the tables as Markdown.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print one JSON object per line and nothing else.")
    ] = False,
) -> None:
    """Score recipes in small worlds whose true advantages and gradients are known exactly.

    Shows how close each recipe comes to the exact policy gradient, and how fast a policy learns
    with it. The quick audit takes under a minute.
    """
    from ascribe.audit import FULL, FULL_FORMS, QUICK, QUICK_FORMS, WORLDS
    from ascribe.audit import report as reports

    if wrong := [name for name in world if name not in WORLDS]:
        screen.wrong_call(unknown("world", wrong[0], WORLDS))
    given = {
        "worlds": tuple(world),
        "sizes": tuple(size),
        "blocks": blocks,
        "paraphrase": paraphrase,
        "noise": noise,
        "blur": blur,
    }
    changes: dict[str, Any] = {k: v for k, v in given.items() if v not in (None, ())}
    chosen = replace(FULL if full else QUICK, seed=seed, **changes)
    if 8 not in chosen.sizes:  # policies learn at a group size that is scored
        chosen = replace(chosen, learning_size=chosen.sizes[0])
    scored = _recipes((*(FULL_FORMS if full else QUICK_FORMS), *recipe))
    try:
        result = _with_progress(scored, chosen, processes or os.cpu_count() or 1)
    except ValueError as error:  # of a recipe of the user's own
        screen.wrong_call(screen.safe(error, 400))

    lines = list(reports.json_lines(result, recipe[-1] if recipe else LEADER))
    if page is not None:
        with screen.written(page):
            write_file(page, reports.page(lines))
    if figure is not None:
        try:
            with screen.written(figure):
                reports.figure(lines, figure)
        except ImportError:
            screen.wrong_call(f"a figure needs matplotlib: {install('figures')}")
    if as_json:
        for line in lines:
            print(json.dumps(line))
        return
    _print(lines)
    footer = f"{chosen.blocks} blocks of {chosen.tasks} tasks, {result.seconds:.0f} s."
    screen.out.print(Text(footer, style="dim"))


def _recipes(names: tuple[str, ...]) -> "dict[str, Scored]":
    from ascribe.audit import scored_recipe

    screen.find_own_code(*names)
    try:
        return {name: scored_recipe(name) for name in names}
    except ValueError as error:
        screen.wrong_call(screen.safe(error, 400))


def _with_progress(scored: "dict[str, Scored]", settings: "Settings", processes: int) -> "Audit":
    from ascribe.audit import audit as run

    with screen.progress("audit") as bar:
        show = lambda done, total: bar(done / max(total, 1))  # noqa: E731 (two arguments to one)
        return run(scored, settings, processes=processes, progress=show)


def _print(lines: list[dict[str, Any]]) -> None:
    from ascribe.audit.report import PAIRED, AuditTables

    tables = AuditTables(lines)
    for size in tables.sizes:
        screen.out.print(_table(f"Means over worlds, group size {size}", *tables.means(size)))
    size = tables.learning_size()
    title = f"{' / '.join(PAIRED)} in each world, group size {size}"
    screen.out.print(_table(title, *_turned(*tables.by_world(size))))
    title = f"{' / '.join(PAIRED)}, paired differences (* excludes zero), group size {size}"
    screen.out.print(_table(title, *_turned(*tables.differences(size))))


def _turned(head: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """A line for each world, so that the table fits a narrow terminal."""
    names, *rows_by_world = (list(column) for column in zip(head, *rows, strict=True))
    return ["world", *names[1:]], rows_by_world


def _table(title: str, head: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(head):
        table.add_column(name.replace("_", " "), overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
