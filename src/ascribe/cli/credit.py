"""``ascribe credit``: advantages for a file of rollouts."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args

from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
from ascribe.conversations.formats import FORMATS, Imported, write_credit
from ascribe.diagnose import Diagnosis, diagnose
from ascribe.estimators import Recipe, recipe
from ascribe.estimators.assign import Assignment, assign, credit_columns
from ascribe.estimators.credit import Credit
from ascribe.steps.atomic import write_file
from ascribe.steps.files import Rollouts, table_to_arrow, write
from ascribe.steps.hints import unknown
from ascribe.steps.problems import TableError, counted
from ascribe.steps.select import GroupSelection, OnProblem
from ascribe.steps.strict_json import loads


def credit(
    file: options.File,
    out: Annotated[
        Path, Option(help="Where to write: .parquet, .jsonl or .jsonl.gz; .json for such a file.")
    ],
    recipe: options.Recipe = "gigpo",
    preset: options.Preset = None,
    parameters: options.Parameters = [],  # noqa: B006 (typer copies it)
    policy: Annotated[
        str, Option(help="What to do about errors: raise, drop (their groups) or keep.")
    ] = "raise",
    group_size: options.GroupSize = None,
    history: Annotated[
        Path | None,
        Option(
            help="Running statistics, for recipes that have them: read if the file is there, and "
            "written for the next file of rollouts."
        ),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write the rollouts with their advantages, and show where the signal is.

    Conversations of verifiers and rLLM are written as they were read, with the advantages in them,
    unless --out is a .parquet file.

    Adds the columns advantage and reason, and advantage_TERM and reason_TERM for each term of the
    recipe. An advantage is null where there is no credit; the reason says why.
    """
    estimator = make_recipe(recipe, preset, parameters)
    policies: dict[str, OnProblem] = {name: name for name in get_args(OnProblem)}
    if policy not in policies:
        screen.wrong_call(unknown("policy", policy, policies))
    if out.suffix != ".json":
        screen.check_suffix(out)
    screen.keep_inputs([file], [out, history], force=force)
    if history is not None and history.resolve() == out.resolve():
        screen.wrong_call("--out and --history name the same file; give each its own")
    inputs = {} if history is None else {"history": _statistics(estimator, history)}
    rollouts = screen.open_rollouts(file, as_json=as_json)
    with refusals(file, as_json=as_json):
        assigned = assign(
            rollouts.table, estimator, policies[policy], group_size=group_size, **inputs
        )
    left_out = _write(rollouts, assigned, file, out)
    if history is not None:
        with screen.written(history):
            write_file(history, json.dumps(assigned.credit.history))
    selection = assigned.selection
    kept = rollouts.table.take(selection.keep)
    diagnosis = diagnose(kept, assigned.credit.rows(selection.keep))
    if as_json:
        screen.print_json(
            {
                "file": str(file),
                "out": str(out),
                "recipe": repr(estimator),
                "dropped": {
                    "groups": len(selection.dropped),
                    "rows": int((~selection.keep).sum()),
                    "because": selection.dropped_rows,
                    "columns": left_out,
                },
                "problems": selection.report.counts(),
                "notes": assigned.credit.notes,
                "diagnosis": diagnosis.as_dict(),
            }
        )
        return
    print_notes(assigned.credit)
    if left_out:
        names = screen.safe(", ".join(left_out), 400)
        screen.out.print(Text(f"Dropped columns of an earlier credit: {names}.", style="yellow"))
    _print(selection, diagnosis, estimator, out)


@contextmanager
def refusals(file: Path, *, as_json: bool) -> Iterator[None]:
    """Stop with a message if the table is refused, or the recipe lacks something it needs."""
    try:
        yield
    except TableError as error:
        screen.refuse(error, as_json=as_json, file=file)
    except (ImportError, ValueError) as error:
        screen.wrong_call(screen.safe(error, 400))


def make_recipe(name: str, preset: str | None, parameters: list[str]) -> Recipe:
    """The recipe that the options name; stops with a message if there is none."""
    changes = screen.settings(parameters)
    if "preset" in changes:
        screen.wrong_call("--set changes parameters: name the preset with --preset")
    screen.find_own_code(name)
    try:
        return recipe(name, preset=preset, **changes)
    except (ValueError, TypeError, OverflowError) as error:
        screen.wrong_call(screen.safe(error, 400))


def print_notes(credit: Credit) -> None:
    """Print what the recipe says about how it computed a credit."""
    for note in credit.notes:
        screen.err.print(Text(screen.safe(note, 400), style="yellow"))


def _statistics(estimator: Recipe, path: Path) -> Any:
    """The statistics that an earlier call wrote; None if the file is not there yet."""
    if "history" not in estimator.inputs:
        screen.wrong_call(f"{estimator.name} has no running statistics; leave --history out")
    try:
        return loads(path.read_text(encoding="utf-8")) if path.exists() else None
    except (OSError, ValueError) as error:
        screen.wrong_call(f"cannot read {screen.safe(path)}: {screen.safe(error)}")


def _write(rollouts: Rollouts, assigned: Assignment, file: Path, out: Path) -> list[str]:
    """Write the table of steps or, in the form of the file it was read from, its conversations.

    Returns:
        Columns of an earlier credit that were dropped.
    """
    if isinstance(rollouts, Imported) and FORMATS[rollouts.format].put and _same_form(file, out):
        with screen.written(out):
            write_credit(file, rollouts, assigned.credit.advantage, out)
        return []
    screen.check_suffix(out)
    arrow = table_to_arrow(rollouts.table)
    for name in rollouts.carried.column_names:
        arrow = arrow.append_column(name, rollouts.carried.column(name))
    columns = credit_columns(assigned.credit)
    for name, column in columns.items():
        arrow = arrow.append_column(name, column)
    with screen.written(out):
        write(arrow, out)
    return [name for name in rollouts.credit.column_names if name not in columns]


def _same_form(file: Path, out: Path) -> bool:
    """Whether the file can be written again as it was read, and that was asked for."""
    if not file.is_file() or out.suffix == ".parquet":
        return False
    return (file.suffix == ".json") == (out.suffix == ".json")


def _print(selection: GroupSelection, diagnosis: Diagnosis, estimator: Recipe, out: Path) -> None:
    dropped = int((~selection.keep).sum())
    if selection.report.problems:
        counts = ", ".join(f"{name} {n:,}" for name, n in selection.report.counts().items())
        screen.out.print(Text(f"Problems (ascribe check says more): {counts}", style="yellow"))
    if dropped:
        groups = len(selection.dropped)
        lost = f"Dropped {counted(groups, 'group')}, {counted(dropped, 'row')}."
        screen.out.print(Text(lost, style="red"))
    table = Table(show_header=False)
    table.add_row("recipe", Text(repr(estimator)))
    table.add_row(
        "rows",
        f"{diagnosis.rows:,} in {diagnosis.trajectories:,} trajectories, "
        f"{diagnosis.groups:,} groups",
    )
    table.add_row("rows with a signal", f"{diagnosis.signal_share:.1%}")
    for name, share in diagnosis.term_share.items():
        table.add_row(
            f"share of the {name} term", f"{share:.1%} (rms {diagnosis.term_rms[name]:.3g})"
        )
    if diagnosis.states is not None:
        states = diagnosis.states
        table.add_row(
            "states",
            f"{states.count:,}, {states.mean_size:.1f} rows each; "
            f"{states.singleton_share_of_rows:.1%} of rows are alone in theirs",
        )
    table.add_row("mean advantage", f"{diagnosis.mean_advantage:+.4f}")
    table.add_row("groups with equal returns", f"{diagnosis.zero_variance_groups:,}")
    table.add_row("groups apart by penalties", f"{diagnosis.penalty_only_groups:,}")
    screen.out.print(table)
    screen.out.print(Text(f"Wrote {screen.safe(out)}.", style="green"))
