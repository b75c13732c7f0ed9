"""``ascribe report``: where the credit went, on one page."""

from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.cli.credit import make_recipe
from ascribe.report import RefusedFileError, picture
from ascribe.report.verdict import Level

STYLES = {Level.BAD: "bold red", Level.WARNING: "yellow", Level.NOTE: "dim", Level.GOOD: "green"}


def report(
    files: Annotated[
        list[Path],
        Argument(
            help="Rollouts: .parquet, .jsonl, .jsonl.gz or .csv, or conversations that ascribe "
            "import takes; several files are iterations, in order.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, Option(help="The page to write: a .html file.")] = Path("report.html"),
    recipe: options.Recipe = "gigpo",
    preset: options.Preset = None,
    parameters: options.Parameters = [],  # noqa: B006 (typer copies it)
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    against: Annotated[str | None, Option(help="Name of another recipe to compare with.")] = None,
    against_preset: Annotated[
        str | None, Option(help="Preset of the recipe to compare with.")
    ] = None,
    group_size: options.GroupSize = None,
    figures: Annotated[Path | None, Option(help="Folder for every figure as SVG and PNG.")] = None,
    tables: Annotated[
        Path | None, Option(help="Folder for every table as CSV and Parquet.")
    ] = None,
    memory: options.Memory = 2.0,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write one HTML page that shows where the credit went, and print the verdict.

    The page needs no server and no network. It holds a verdict in words, success and returns,
    where the signal is lost, and a browser of trajectories that explains each advantage.
    """
    if out.suffix not in (".html", ".htm"):
        screen.wrong_call(f"a report is an HTML page: give {screen.safe(out)} the suffix .html")
    screen.keep_inputs(files, [out], force=force)
    estimator = make_recipe(recipe, preset, parameters)
    renamed = screen.column_names(columns)
    compared = None if against is None else make_recipe(against, against_preset, [])
    try:
        with screen.progress("reporting") as progress:
            page = picture(
                files,
                estimator,
                compared,
                columns=renamed,
                group_size=group_size,
                memory=int(memory * 2**30),
                progress=progress,
            )
        if tables is not None:
            names = [tables / f"{name}.parquet" for name in page.tables()]
            screen.keep_inputs(files, names, force=force)
        size = page.write(out)
        if figures is not None:
            page.write_figures(figures)
        if tables is not None:
            page.write_tables(tables)
    except RefusedFileError as error:
        screen.refuse(error, as_json=as_json, file=error.path)
    except OSError as error:
        path = error.filename if isinstance(error.filename, str) else out
        screen.wrong_call(f"cannot open or write {screen.safe(path)}: {error.strerror or error}")
    except (ImportError, ValueError) as error:  # something that the recipe or the page needs
        screen.wrong_call(screen.safe(error, 400))
    if as_json:
        verdict = page.verdict
        screen.print_json(
            {
                "out": str(out),
                "bytes": size,
                "read_as": list(page.notes),
                "headline": verdict.headline,
                "advice": verdict.advice,
                "verdict": verdict.rows(),
                "diagnosis": page.facts.diagnosis.as_dict(),
                "comparisons": [c.sentence() for c in page.comparisons],
            }
        )
        return
    for note in page.notes[:3]:
        screen.err.print(Text(screen.safe(note, 400), style="dim"))
    screen.out.print(Text(page.verdict.headline, style="bold"))
    for finding in page.verdict.findings:
        if finding.message == page.verdict.headline:
            continue
        line = Text(f"{finding.level.name.lower()}: ", style=STYLES[finding.level])
        screen.out.print(line.append(screen.safe(finding.message, 400), style="default"))
    for comparison in page.comparisons:
        screen.out.print(Text(screen.safe(comparison.sentence(), 400)))
    screen.out.print(Text(f"Wrote {screen.safe(out)} ({size / 1e6:.1f} MB).", style="green"))
