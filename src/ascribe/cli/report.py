"""``ascribe report``: what earned the reward, and where the credit went, on one page."""

from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.estimators import DEFAULT
from ascribe.reports import Picture, html_file, picture, read_run, write_run
from ascribe.reports.verdict import Level
from ascribe.sessions.reading import SessionOptions

ROLLOUTS = "rollouts/rollouts_*.parquet"
"""Where a run keeps its rollouts, if ``output.rollouts`` is true."""

STYLES = {Level.BAD: "bold red", Level.WARNING: "yellow", Level.NOTE: "dim", Level.GOOD: "green"}


@options.reads_sessions
def report(
    files: Annotated[
        list[Path],
        Argument(
            help="Files of rollouts (.parquet, .jsonl, .jsonl.gz or .csv) or of sessions that "
            "ascribe import reads; several files are iterations, in order. Or the folder of a "
            "training run, or - for standard input.",
            show_default=False,
            callback=screen.stdin_or,
        ),
    ],
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            help="File to write: .html; - for standard output.",
            callback=screen.stdout_or,
        ),
    ] = Path("report.html"),
    recipe: Annotated[
        str | None,
        Option(
            help="Name of a recipe (see ascribe recipes), or module:Name for one of your own. "
            f"Default: the recipe of the run, or {DEFAULT}.",
            autocompletion=options.complete_recipe,
            show_default=False,
        ),
    ] = None,
    preset: options.Preset = None,
    parameters: options.Parameters = [],  # noqa: B006 (typer copies it)
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    against: Annotated[
        str | None,
        Option(
            help="Name of a second recipe, to compare the first with.",
            autocompletion=options.complete_recipe,
        ),
    ] = None,
    against_preset: Annotated[str | None, Option(help="Preset of the second recipe.")] = None,
    group_size: options.GroupSize = None,
    figures: Annotated[
        Path | None, Option(help="Folder to write each figure to, as SVG and PNG.")
    ] = None,
    tables: Annotated[
        Path | None, Option(help="Folder to write each table to, as CSV and Parquet.")
    ] = None,
    memory: options.Memory = 2.0,
    force: options.Force = False,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Write an HTML page about the rollouts, their decisions and their credit.

    The page needs no server and no network. It shows the decisions that raised or lowered the
    reward, a browser of trajectories that explains each advantage, and the steps that give no
    training signal. For the folder of a training run (output.folder) it also shows the metrics:
    success on held-out tasks and the diagnostics of each iteration. Without output.rollouts, a run
    has only these. Prints the most certain decisions.

    Needs the extra report.

    Examples:
        ascribe report examples/conversations.jsonl -o report.html
        ascribe report examples/trl_rooms/rollouts_*.parquet --against grpo
    """
    page = run = estimator = None
    with screen.exits(files[0], out):
        html_file(out)
        if len(files) == 1 and files[0].is_dir():
            run = read_run(files[0])
        renamed = screen.column_names(columns)
        if run is not None:
            name, files = files[0].resolve().name, sorted(files[0].glob(ROLLOUTS))
            screen.find_own_code(run.config.method)
            estimator = run.config.recipe()
        if run is not None and not files:
            size = write_run(run, name, out)
        else:
            screen.keep_inputs(files, [out], force=force)
            if estimator is None or recipe is not None or preset is not None or parameters:
                estimator = options.make_recipe(recipe or DEFAULT, preset, parameters)
            compared = None if against is None else options.make_recipe(against, against_preset, [])
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
                    **sessions,
                )
            if tables is not None:
                names = [tables / f"{name}.parquet" for name in page.tables()]
                screen.keep_inputs(files, names, force=force)
            size = page.write(out, figures=figures, tables=tables)
    summary = None if run is None else run.summary
    if as_json:
        about = {"out": screen.named(out), "bytes": size, "run": summary}
        screen.print_json(about if page is None else about | _described(page))
        return
    _print(page, summary)
    screen.print_wrote(out, f" ({size / 1e6:.1f} MB)")


def _described(page: Picture) -> dict[str, object]:
    return {
        "read_as": list(page.notes),
        "balance": page.balances,
        "decisions": page.decisions,
        "headline": page.verdict.headline,
        "advice": page.verdict.advice,
        "situation": page.verdict.situation,
        "verdict": page.verdict.rows(),
        "diagnosis": page.facts.diagnosis,
        "comparison": page.comparison and page.comparison.sentence(),
    }


def _print(page: Picture | None, summary: str | None) -> None:
    if summary is not None:
        screen.say(summary)
    if page is None:
        alone = "The run kept no rollouts (output.rollouts), so the page has its metrics alone."
        screen.err.print(Text(alone))
        return
    for balance in page.balances:
        screen.print_balance(balance)
    for note in page.notes[:3]:
        screen.print_note(note)
    screen.print_sentence(page.decisions)
    for each in page.decisions.certain[1:3]:
        screen.say(f"Also {each.text}: {each.how_sure}.")
    for line in (f"For training: {page.verdict.headline}", *page.verdict.situation):
        screen.say(line)
    for finding in page.verdict.findings:
        if finding.message != page.verdict.headline:
            level = Text(f"{finding.level.name.lower()}: ", style=STYLES[finding.level])
            screen.out.print(level.append(screen.safe(finding.message, 400), style="default"))
    if page.comparison is not None:
        screen.say(page.comparison.sentence())
