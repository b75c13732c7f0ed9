"""``ascribe report``: what earned the reward, and where the credit went, on one page."""

from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.cli.credit import make_recipe
from ascribe.cli.decisions import print_sentence
from ascribe.estimators import DEFAULT
from ascribe.reports import Picture, html_file, picture, read_run, write_run
from ascribe.reports.verdict import Level

ROLLOUTS = "rollouts/rollouts_*.parquet"
"""Where a run keeps its rollouts, if ``output.rollouts`` is true."""

STYLES = {Level.BAD: "bold red", Level.WARNING: "yellow", Level.NOTE: "dim", Level.GOOD: "green"}


def report(
    files: Annotated[
        list[Path],
        Argument(
            help="Rollouts: .parquet, .jsonl, .jsonl.gz or .csv, or sessions that ascribe import "
            "takes; several files are iterations, in order. Or the folder of a run; - for standard "
            "input.",
            show_default=False,
            callback=screen.stdin_or,
        ),
    ],
    out: Annotated[Path, Option("--out", "-o", help="The page to write: a .html file.")] = Path(
        "report.html"
    ),
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
    form: options.From = None,
    group: options.Group = None,
    reward: options.Reward = None,
    state: options.State = "auto",
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
    """Write one HTML page that shows what earned the reward, and print the surest decisions.

    The page needs no server and no network. It holds the decisions that earned or cost the reward,
    a browser of trajectories that explains each advantage, and for those who train where the signal
    is lost. Of the folder of a run (output.folder) it shows the metrics too: success on held-out
    tasks and the diagnostics of each iteration. A run without output.rollouts has nothing else to
    show.
    """
    sessions = options.sessions(form, group, reward, state)
    page = run = estimator = None
    with screen.exits(files[0], as_json=as_json, out=out):
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
                estimator = make_recipe(recipe or DEFAULT, preset, parameters)
            compared = None if against is None else make_recipe(against, against_preset, [])
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
        about = {"out": str(out), "bytes": size, "run": summary}
        screen.print_json(about if page is None else about | _described(page))
        return
    _print(page, summary)
    screen.out.print(Text(f"Wrote {screen.safe(out)} ({size / 1e6:.1f} MB).", style="green"))


def _described(page: Picture) -> dict[str, object]:
    return {
        "read_as": list(page.notes),
        "decisions": page.decisions.as_dict(),
        "headline": page.verdict.headline,
        "advice": page.verdict.advice,
        "situation": page.verdict.situation,
        "verdict": page.verdict.rows(),
        "diagnosis": page.facts.diagnosis.as_dict(),
        "comparison": page.comparison and page.comparison.sentence(),
    }


def _print(page: Picture | None, summary: str | None) -> None:
    if summary is not None:
        screen.out.print(Text(summary))
    if page is None:
        alone = "The run kept no rollouts (output.rollouts), so the page has its metrics alone."
        screen.err.print(Text(alone))
        return
    for note in page.notes[:3]:
        screen.print_note(note)
    print_sentence(page.decisions)
    for each in page.decisions.certain[1:3]:
        also = f"Also {each.text}: {each.how_sure}."
        screen.out.print(Text(screen.safe(also, 1000)))
    screen.out.print(
        Text("\n".join((f"For training: {page.verdict.headline}", *page.verdict.situation)))
    )
    for finding in page.verdict.findings:
        if finding.message == page.verdict.headline:
            continue
        line = Text(f"{finding.level.name.lower()}: ", style=STYLES[finding.level])
        screen.out.print(line.append(screen.safe(finding.message, 400), style="default"))
    if page.comparison is not None:
        screen.out.print(Text(screen.safe(page.comparison.sentence(), 400)))
