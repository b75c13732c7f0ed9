"""``ascribe report``: where the credit went, on one page."""

from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.cli.credit import make_recipe
from ascribe.estimators import DEFAULT, Recipe
from ascribe.report import Picture, RefusedFileError, RunMetrics, picture, read_run, write_run
from ascribe.report.verdict import Level

ROLLOUTS = "rollouts/rollouts_*.parquet"
"""Where a run keeps its rollouts, if ``output.rollouts`` is true."""

STYLES = {Level.BAD: "bold red", Level.WARNING: "yellow", Level.NOTE: "dim", Level.GOOD: "green"}


def report(
    files: Annotated[
        list[Path],
        Argument(
            help="Rollouts: .parquet, .jsonl, .jsonl.gz or .csv, or conversations that ascribe "
            "import takes; several files are iterations, in order. Or the folder of a run.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, Option(help="The page to write: a .html file.")] = Path("report.html"),
    recipe: Annotated[
        str | None,
        Option(
            help="A recipe (ascribe recipes), or module:Name of your own. Default: that of the "
            f"run, or {DEFAULT}.",
            autocompletion=options.complete_recipe,
            show_default=False,
        ),
    ] = None,
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
    where the signal is lost, and a browser of trajectories that explains each advantage. Of the
    folder of a run (output.folder) it shows the metrics too: success on held-out tasks and the
    diagnostics of each iteration. A run without output.rollouts has nothing else to show.
    """
    if out.suffix not in (".html", ".htm"):
        screen.wrong_call(f"a report is an HTML page: give {screen.safe(out)} the suffix .html")
    run, own = _read_run(files)
    if run is not None:
        name, files = files[0].resolve().name, sorted(files[0].glob(ROLLOUTS))
        if not files:
            _write_run(run, name, out, as_json=as_json)
            return
    screen.keep_inputs(files, [out], force=force)
    if own is not None and recipe is None and preset is None and not parameters:
        estimator = own
    else:
        estimator = make_recipe(recipe or DEFAULT, preset, parameters)
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
                run=run,
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
    _print(page, out, size, as_json=as_json)


def _print(page: Picture, out: Path, size: int, *, as_json: bool) -> None:
    run = page.run
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
                "comparison": page.comparison and page.comparison.sentence(),
                "run": None if run is None else run.summary,
            }
        )
        return
    if run is not None and run.summary is not None:
        screen.out.print(Text(run.summary))
    for note in page.notes[:3]:
        screen.err.print(Text(screen.safe(note, 400), style="dim"))
    screen.out.print(Text(page.verdict.headline, style="bold"))
    for finding in page.verdict.findings:
        if finding.message == page.verdict.headline:
            continue
        line = Text(f"{finding.level.name.lower()}: ", style=STYLES[finding.level])
        screen.out.print(line.append(screen.safe(finding.message, 400), style="default"))
    if page.comparison is not None:
        screen.out.print(Text(screen.safe(page.comparison.sentence(), 400)))
    _say_wrote(out, size)


def _read_run(files: list[Path]) -> tuple[RunMetrics | None, Recipe | None]:
    """The metrics and the recipe of a run, if its folder is what is given."""
    folder = files[0]
    try:
        run = read_run(folder) if len(files) == 1 and folder.is_dir() else None
        if run is None:
            return None, None
        screen.find_own_code(run.config.method)
        return run, run.config.recipe()
    except OSError as error:
        screen.wrong_call(f"cannot read {screen.safe(folder)}: {error.strerror or error}")
    except (ImportError, ValueError) as error:
        screen.wrong_call(screen.safe(error, 400))


def _write_run(run: RunMetrics, name: str, out: Path, *, as_json: bool) -> None:
    """The page of a run that kept no rollouts."""
    try:
        size = write_run(run, name, out)
    except OSError as error:
        screen.wrong_call(f"cannot write {screen.safe(out)}: {error.strerror or error}")
    except ImportError as error:
        screen.wrong_call(screen.safe(error, 400))
    if as_json:
        screen.print_json({"out": str(out), "bytes": size, "run": run.summary})
        return
    screen.err.print(
        Text("The run kept no rollouts (output.rollouts), so the page has its metrics alone.")
    )
    if run.summary is not None:
        screen.out.print(Text(run.summary))
    _say_wrote(out, size)


def _say_wrote(out: Path, size: int) -> None:
    screen.out.print(Text(f"Wrote {screen.safe(out)} ({size / 1e6:.1f} MB).", style="green"))
