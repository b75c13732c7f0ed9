"""``ascribe credit``: advantages for a file of rollouts."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from ascribe.archives import ArchiveCredit, credit_archive, is_archive
from ascribe.cli import options, screen
from ascribe.estimators import DEFAULT, Recipe
from ascribe.estimators.assign import Assignment, assign
from ascribe.estimators.credit import credit_arrays, credit_columns
from ascribe.estimators.diagnostics import diagnose
from ascribe.sessions.reading import Imported, SessionOptions, write_credit
from ascribe.sessions.reading.format import named
from ascribe.steps.atomic import write_file
from ascribe.steps.files import Rollouts, write
from ascribe.steps.problems import counted
from ascribe.steps.select import OnProblem
from ascribe.steps.strict_json import loads


@options.reads_sessions
def credit(
    source: options.Source,
    out: Annotated[
        str,
        Option(
            "--out",
            "-o",
            help="File to write: .parquet, .jsonl or .jsonl.gz; .json if the input is .json; - for "
            "JSON lines on standard output. A folder if the input is one, or is larger than "
            "--memory.",
            callback=screen.stdout_or,
        ),
    ],
    recipe: options.Recipe = DEFAULT,
    preset: options.Preset = None,
    parameters: options.Parameters = [],  # noqa: B006 (typer copies it)
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    policy: Annotated[
        OnProblem,
        Option(help="What to do with groups that have errors: raise (stop), drop or keep."),
    ] = "raise",
    group_size: options.GroupSize = None,
    history: Annotated[
        Path | None,
        Option(
            help="File with the state that a recipe carries from one file of rollouts to the next: "
            "read if it exists, then written."
        ),
    ] = None,
    interval: Annotated[
        bool,
        Option(
            "--interval",
            help="Add the columns advantage_low and advantage_high: a 90 % interval for the true "
            "advantage of each decision, in units of the return, with discount 0.95.",
        ),
    ] = False,
    memory: options.Memory = 2.0,
    ray: Annotated[
        str | None,
        Option(
            help="Compute on all cores of this machine (local) or on a Ray cluster: its address, "
            "or auto for one that runs."
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Compute an advantage for each step, and write the rollouts with it.

    The output has the columns of the input and, in addition, advantage and reason, and
    advantage_TERM and reason_TERM for each term of the recipe. Where there is no credit, the
    advantage is null and the reason says why.

    Sessions of verifiers and rLLM keep their format, with advantages in it, unless the output is a
    .parquet file or has intervals.

    Examples:
        ascribe credit examples/conversations.jsonl -o credited.jsonl
        ascribe credit examples/conversations.jsonl -o credited.parquet --recipe gigpo --set gamma=1
        cat examples/conversations.jsonl | ascribe credit - -o - > credited.jsonl
    """
    estimator = options.make_recipe(recipe, preset, parameters)
    limit = int(memory * 2**30)
    if ray is not None or "://" in out or is_archive(source, limit):
        if history is not None or interval:
            name = "--interval" if interval else "--history"
            screen.wrong_call(f"{name} needs a table that fits into --memory")
        screen.refuse_columns(columns)
        if out.endswith((".jsonl", ".jsonl.gz", ".json")):
            what = "a table that is larger than --memory is written to .parquet or a folder"
            screen.wrong_call(what)
        again = "run the same command again: it continues from what is done"
        with screen.exits(source, out, again), screen.progress("crediting") as progress:
            credited = credit_archive(
                source,
                out,
                estimator,
                on_problem=policy,
                group_size=group_size,
                memory=limit,
                ray=ray,
                force=force,
                progress=progress,
                **sessions,
            )
        screen.print_balance(credited.balance)
    else:
        file, written = Path(source), Path(out)
        if written.suffix != ".json":
            screen.check_suffix(written)
        screen.keep_inputs([file], [written, history], force=force)
        if history is not None and history.resolve() == written.resolve():
            screen.wrong_call("--out and --history name the same file", "give each its own")
        inputs = {} if history is None else {"history": _statistics(estimator, history)}
        rollouts = screen.open_rollouts(file, columns=columns, **sessions)
        with screen.exits(source):
            assigned = assign(rollouts.table, estimator, policy, group_size=group_size, **inputs)
        left_out = _write(rollouts, assigned, file, written, interval=interval)
        if history is not None:
            with screen.written(history):
                write_file(history, json.dumps(assigned.credit.history))
        selection = assigned.selection
        kept = rollouts.table.take(selection.keep)
        credited = ArchiveCredit(
            diagnose(kept, assigned.credit.rows(selection.keep)),
            selection.report,
            len(selection.dropped),
            int((~selection.keep).sum()),
            selection.dropped_rows,
            left_out,
            assigned.credit.notes,
            rollouts.balance,
        )
    if as_json:
        dropped = {
            "groups": credited.dropped_groups,
            "rows": credited.dropped_rows,
            "because": credited.because,
            "columns": credited.left_out,
        }
        about = {
            "file": screen.named(source),
            "out": screen.named(out),
            "recipe": estimator.name,
            "parameters": asdict(estimator),
            "dropped": dropped,
            "problems": credited.report.counts(),
            "notes": credited.notes,
            "balance": credited.balance,
            "diagnosis": credited.diagnosis,
        }
        screen.print_json(about)
        return
    for note in credited.notes:
        screen.print_note(note, "yellow")
    if credited.left_out:
        names = ", ".join(credited.left_out)
        screen.print_summary(f"Dropped columns of an earlier credit: {names}.", "yellow")
    _print(credited, estimator)
    screen.print_wrote(out)


def _statistics(estimator: Recipe, path: Path) -> Any:
    """The statistics that an earlier call wrote; None if the file is not there yet."""
    if not estimator.has_history:
        screen.wrong_call(f"{estimator.name} carries no state", "leave out --history")
    with screen.exits(path):
        return loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _write(
    rollouts: Rollouts, assigned: Assignment, file: Path, out: Path, *, interval: bool
) -> list[str]:
    """Write the table of steps or, in the form of the file it was read from, its conversations.

    Returns:
        Columns of an earlier credit that were dropped.
    """
    same_form = file.is_file() and (file.suffix == ".json") == (out.suffix == ".json")
    same_form &= out.suffix != ".parquet" and not interval
    if isinstance(rollouts, Imported) and named(rollouts.format).put and same_form:
        with screen.written(out):
            write_credit(file, rollouts, assigned.credit.advantage, out)
        return []
    screen.check_suffix(out)
    arrow = rollouts.to_arrow()
    arrays = credit_arrays(assigned.credit)
    if interval:
        low, high = assigned.credit.interval(rollouts.table)
        arrays |= {"advantage_low": low, "advantage_high": high}
    columns = credit_columns(arrays)
    for name, column in columns.items():
        arrow = arrow.append_column(name, column)
    with screen.written(out):
        write(arrow, out)
    return [name for name in rollouts.credit.column_names if name not in columns]


def _in_words(estimator: Recipe) -> str:
    """The recipe's name, and the parameters that are not its defaults."""
    changed = [
        f"{field.name} {screen.as_set(getattr(estimator, field.name))}"
        for field in fields(estimator)
        if getattr(estimator, field.name) != field.default
    ]
    return f"{estimator.name}, {', '.join(changed) or 'with its default parameters'}"


def _print(credited: ArchiveCredit, estimator: Recipe) -> None:
    found = credited.diagnosis
    if credited.report.problems:
        counts = ", ".join(f"{name} {n:,}" for name, n in credited.report.counts().items())
        screen.print_summary(f"Problems (see ascribe check): {counts}", "yellow")
    if credited.dropped_rows:
        groups, rows = credited.dropped_groups, credited.dropped_rows
        because = ", ".join(f"{name} {n:,}" for name, n in credited.because.items())
        lost = f"Left out: {counted(groups, 'group')}, {counted(rows, 'row')} ({because})."
        screen.print_summary(lost, "red")
    groups_of = f"{counted(found.trajectories, 'trajectory')}, {counted(found.groups, 'group')}"
    facts = {
        "recipe": _in_words(estimator),
        "rows": f"{found.rows:,} in {groups_of}",
        "rows with a signal": f"{found.signal_share:.1%}",
    }
    for name, share in found.term_share.items():
        facts[f"share of the {name} term"] = f"{share:.1%} (rms {found.term_rms[name]:.3g})"
    if (states := found.states) is not None:
        facts["states"] = (
            f"{states.count:,}, {states.mean_size:.1f} rows each; "
            f"{states.singleton_share_of_rows:.1%} of rows have no other row in the same state"
        )
    facts |= {
        "mean advantage": f"{found.mean_advantage:+.4f}",
        "groups with equal returns": f"{found.zero_variance_groups:,}",
        "groups apart by penalties": f"{found.penalty_only_groups:,}",
    }
    screen.print_summary(screen.table_of(("", ""), facts.items()))
