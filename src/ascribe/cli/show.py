"""``ascribe show``: one trajectory with its credit, as a coloured table."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import numpy as np
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
from ascribe.decisions.why import Reasons
from ascribe.estimators import DEFAULT
from ascribe.estimators.assign import assign
from ascribe.estimators.credit import credit_arrays, credit_columns
from ascribe.groups.exact import exact
from ascribe.groups.responses import readable
from ascribe.sessions.reading import SessionOptions
from ascribe.steps.arrays import Ints
from ascribe.steps.check import arrange
from ascribe.steps.files import Rollouts, is_credit_column
from ascribe.steps.problems import TableError, counted
from ascribe.steps.table import KNOWN_COLUMNS, StepTable


@options.reads_sessions
def show(
    file: options.File,
    trajectory: Annotated[
        str | None, Option(help="Name of the trajectory. Default: the first one.")
    ] = None,
    recipe: Annotated[
        str | None,
        Option(
            help="Name of a recipe to compute the credit with, or module:Name. Default: the credit "
            f"in the file, else {DEFAULT}.",
            autocompletion=options.complete_recipe,
        ),
    ] = None,
    preset: options.Preset = None,
    parameters: options.Parameters = [],  # noqa: B006 (typer copies it)
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Show one trajectory step by step, with its rewards and advantages.

    Takes the credit in the file unless a recipe is named, and computes one if there is none.

    Examples:
        ascribe show examples/conversations.jsonl
        ascribe show examples/trl_rooms/rollouts_00000.parquet --recipe gigpo --json
    """
    rollouts = screen.open_rollouts(
        file,
        wanted=lambda name: name in KNOWN_COLUMNS or is_credit_column(name),
        columns=columns,
        **sessions,
    )
    credit = _credit(rollouts, file, recipe, preset, parameters)
    rows = _rows(rollouts.table, trajectory)
    steps = rollouts.table.take(rows).to_dicts()
    for step, row in zip(steps, rows.tolist(), strict=True):
        step |= {name: column[row] for name, column in credit.items()}
    if as_json:
        screen.print_json(steps)
        return
    _print(steps, list(credit))
    given = [step.get("advantage") for step in steps]
    _say_why(rollouts.table, rows, given, by_state="advantage_step" in credit)
    if more := rollouts.table.trajectory.values.size - 1:
        others = counted(more, "more trajectory")
        screen.print_summary(f"{others}; choose one with --trajectory.")


def _say_why(table: StepTable, rows: Ints, credit: list[object], *, by_state: bool) -> None:
    """Print why the step with the lowest credit is suspect, if that is known."""
    known = [float(x) if isinstance(x, int | float) else math.nan for x in credit]
    given = np.array(known, np.float64)
    if not np.nanmin(given, initial=0.0) < np.nanmax(given, initial=-math.inf):
        return
    row = int(rows[np.nanargmin(given)])
    with suppress(TableError):  # the credit in the file may be of rows that have none
        steps = arrange(table)
        place = int(np.flatnonzero(steps.rows == row)[0])
        states = exact(steps.group, steps.state, table.state.values.size).labels
        if why := Reasons(table, states=states if by_state else None).of(place):
            screen.say(f"Step {table.step[row]} has the lowest credit: {why}.")


def _credit(
    rollouts: Rollouts,
    file: Path,
    name: str | None,
    preset: str | None,
    parameters: list[str],
) -> dict[str, list[object]]:
    """The credit columns of the whole table: computed, or read from the file."""
    if name is None and preset is None and not parameters and rollouts.credit.num_columns:
        try:
            return {c: rollouts.credit.column(c).to_pylist() for c in rollouts.credit.column_names}
        except (ValueError, OverflowError):  # times that Python cannot hold
            screen.wrong_call("the credit in the file has no numbers", "compute one with --recipe")
    estimator = options.make_recipe(name or DEFAULT, preset, parameters)
    with screen.exits(file):
        credit = assign(rollouts.table, estimator, "keep").credit
    for note in credit.notes:
        screen.print_note(note, "yellow")
    return {name: c.to_pylist() for name, c in credit_columns(credit_arrays(credit)).items()}


def _rows(table: StepTable, trajectory: str | None) -> Ints:
    """Rows of the trajectory by iteration and step, padding last."""
    if len(table) == 0:
        screen.wrong_call("the file has no rows")
    names = list(table.trajectory.values)
    if not names:
        screen.wrong_call("no row names its trajectory", "ascribe check says what to write")
    if trajectory is not None and trajectory not in names:
        first = ", ".join(screen.safe(name, 30) for name in names[:5])
        screen.wrong_call(
            f"there is no trajectory '{screen.safe(trajectory)}'",
            f"there are {len(names):,}, such as {first}",
        )
    codes, padding = table.trajectory.codes, table.flag("padding", default=False)
    real = codes[~padding & (codes >= 0)]
    code = int(real.min(initial=len(names) - 1)) if trajectory is None else names.index(trajectory)
    rows = np.flatnonzero(codes == code)
    iteration = np.zeros(len(table)) if table.iteration is None else table.iteration
    return rows[np.lexsort((table.step[rows], iteration[rows], padding[rows]))]


def _print(steps: list[dict[str, object]], credit: list[str]) -> None:
    named = [key for key in ("group", "trajectory") if steps[0][key] is not None]
    title = ", ".join(f"{key} {screen.safe(steps[0][key], 40)}" for key in named)
    advantages = {
        name: screen.safe(name.removeprefix("advantage_"), 30)
        for name in credit
        if name.startswith("advantage")
    }
    reasons = [name for name in credit if name.startswith("reason")]
    keys = [key for key in ("iteration", "step") if key in steps[0]]
    numbers = (*keys, "reward", *advantages.values())
    rows = []
    for step in steps:
        because = dict.fromkeys(
            screen.safe(step[name], 30) for name in reasons if step[name] != "credited"
        )
        action = screen.safe(readable(str(step["action"])), 40)
        rows.append(
            (
                *(step[key] for key in keys),
                screen.safe(step["state"], 40),
                Text(action, style="strike" if step.get("valid") is False else ""),
                f"{step['reward']:g}",
                *(_cell(step[name]) for name in advantages),
                Text(", ".join(because), style="dim"),
            )
        )
    headings = (*keys, "state", "action", "reward", *advantages.values(), "reason")
    screen.out.print(
        screen.table_of(headings, rows, right=numbers, whole=("reason",), title=Text(title))
    )


def _cell(value: object) -> Text:
    """A number in green or red; a dash where there is no credit."""
    if value is None:
        return Text("–", style="dim")
    if not isinstance(value, int | float) or math.isnan(value):
        return Text(screen.safe(value, 20))  # a file may have anything in its place
    return Text(f"{value:+.3f}", style="green" if value > 0 else "red" if value < 0 else "")
