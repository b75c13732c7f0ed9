"""``ascribe report``: what happened, what separates won from lost, and why, on one page."""

from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.cli.decisions import print_changed
from ascribe.estimators import DEFAULT
from ascribe.reports import Picture, html_file, picture, read_run, write_run
from ascribe.reports.verdict import Level
from ascribe.sessions.reading import SessionOptions

ROLLOUTS = "rollouts/rollouts_*.parquet"
"""Where a run keeps its rollouts, if ``output.rollouts`` is true."""

STYLES = {Level.BAD: "bold red", Level.WARNING: "yellow", Level.NOTE: "dim", Level.GOOD: "green"}
FINDINGS = 3
"""Findings that are printed."""


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
            f"Default: the recipe of the run, or events or {DEFAULT}, whichever suits the files.",
            autocompletion=options.complete_recipe,
            show_default=False,
        ),
    ] = None,
    preset: options.Preset = None,
    parameters: options.Parameters = [],  # noqa: B006 (typer copies it)
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    against: Annotated[
        Path | None,
        Option(
            help="File of an old version of the agent: shows which tasks the new one lost.",
            show_default=False,
        ),
    ] = None,
    one: Annotated[
        str | None,
        Option(
            "--session",
            help="Name of a session: print its costliest and its best step.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        str | None,
        Option(
            help="Name of a second recipe, to compare the first with.",
            autocompletion=options.complete_recipe,
        ),
    ] = None,
    compare_preset: Annotated[str | None, Option(help="Preset of the second recipe.")] = None,
    group_size: options.GroupSize = None,
    figures: Annotated[
        Path | None, Option(help="Folder to write each figure to, as SVG and PNG.")
    ] = None,
    tables: Annotated[
        Path | None, Option(help="Folder to write each table to, as CSV and Parquet.")
    ] = None,
    png: Annotated[
        Path | None,
        Option(help="File to write one picture to, for chat and slides: .png", show_default=False),
    ] = None,
    memory: options.Memory = 2.0,
    force: options.Force = False,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Write an HTML page: what happened, what separates won from lost, and why.

    The page needs no server and no network. It shows the share that was won, by task and version;
    what separates attempts that won from those that lost; every session with the steps that cost
    it most; and, with --against, what a new version of the agent lost and gained. For those who
    train it shows which steps give a signal. For the folder of a training run (output.folder) it
    also shows the metrics of each iteration; without output.rollouts, a run has only these.

    --figures and --png need the extra report.

    Examples:
        ascribe report examples/conversations.jsonl -o report.html
        ascribe report new.jsonl --against old.jsonl
        ascribe report examples/trl_rooms/rollouts_*.parquet --compare grpo
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
            inputs = files if against is None else [*files, against]
            screen.keep_inputs(inputs, [out, png], force=force)
            if recipe is not None or preset is not None or parameters:
                estimator = options.make_recipe(recipe or DEFAULT, preset, parameters)
            second = None if compare is None else options.make_recipe(compare, compare_preset, [])
            with screen.progress("reporting") as progress:
                page = picture(
                    files,
                    estimator,
                    against,
                    compare=second,
                    columns=renamed,
                    group_size=group_size,
                    memory=int(memory * 2**30),
                    run=run,
                    progress=progress,
                    **sessions,
                )
            shown = None if one is None else _session(page.answers, one)
            if tables is not None:
                names = [tables / f"{name}.parquet" for name in page.tables()]
                screen.keep_inputs(inputs, names, force=force)
            size = page.write(out, figures=figures, tables=tables, png=png)
    summary = None if run is None else run.summary
    if as_json:
        about = {"out": screen.named(out), "bytes": size, "run": summary}
        screen.print_json(about if page is None else about | _described(page))
        return
    if summary is not None:
        screen.say(summary)
    if page is None:
        alone = "The run kept no rollouts (output.rollouts), so the page has its metrics alone."
        screen.err.print(Text(alone))
    else:
        asked = recipe or preset or parameters or compare or run
        _print(page, shown, training=bool(asked))
    screen.print_wrote(out, f" ({size / 1e6:.1f} MB)")


def _described(page: Picture) -> dict[str, object]:
    return {
        "answers": page.answers,
        "read_as": list(page.notes),
        "diagnosis": page.facts.diagnosis,
        "comparison": page.comparison and page.comparison.sentence(),
    }


def _session(answers: dict[str, Any], name: str) -> dict[str, Any]:
    """The session of this name; exits if there is none."""
    named = {each["session"]: each for each in answers["sessions"]}
    if name not in named:
        some = ", ".join(screen.safe(each, 30) for each in [*named][:5])
        what = f"there is no session '{screen.safe(name)}'"
        screen.wrong_call(what, f"there are {len(named):,}, such as {some}")
    found: dict[str, Any] = named[name]
    return found


def _print(page: Picture, session: dict[str, Any] | None, *, training: bool) -> None:
    answers = page.answers
    happened, separates = answers["happened"], answers["separates"]
    if page.changed is None:
        screen.say(happened["sentence"], "bold")
        for balance in page.balances:
            if balance.left_out or len(page.balances) == 1:
                screen.say(balance.sentence)
            for each in balance.details():
                screen.print_note(each)
        screen.say(separates["sentence"], "bold")
        for row in [each for each in separates["rows"] if not each["turned"]][:FINDINGS]:
            screen.say(f"- {row['sentence']} {row['sure']}", "" if row["certain"] else "dim")
        for line in filter(None, [separates["needed"], separates["advice"]]):
            screen.say(line)
    else:
        print_changed(page.changed, answers["changed"]["verdict"])
    if session is not None:
        _print_session(session)
    screen.say(f"For training: {page.verdict.headline}")
    if training:
        _print_training(page)
    if page.comparison is not None:
        screen.say(page.comparison.sentence())
    for note in page.notes[:3]:
        screen.print_note(note)


def _print_training(page: Picture) -> None:
    """The situation and the findings, for those who chose a recipe."""
    for line in page.verdict.situation:
        screen.say(line)
    for finding in page.verdict.findings:
        if finding.message != page.verdict.headline:
            level = Text(f"{finding.level.name.lower()}: ", style=STYLES[finding.level])
            screen.out.print(level.append(screen.safe(finding.message, 400), style="default"))


def _print_session(session: dict[str, Any]) -> None:
    """The costliest and the best step of a session, the best first if it won."""
    ended = {True: "won", False: "lost", None: f"earned {session['outcome']:.3g}"}[session["won"]]
    screen.say(f"Session {session['session']} {ended} in {session['steps']:,} steps.", "bold")
    words = [("costliest", -1, "least helpful"), ("best", 1, "least harmful")]
    for word, sign, otherwise in words[::-1] if session["won"] else words:
        if step := session[word]:
            called = word if sign * step["credit"] > 0 else otherwise
            screen.say(f"Its {called} step is {step['step']}: {step['why']}.")
    if session["no_credit"]:
        screen.say(f"No step stands out: {session['no_credit']}.")
