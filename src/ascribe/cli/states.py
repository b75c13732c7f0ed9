"""``ascribe states``: a canonical key for the states of a file of rollouts."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from typer import Option

from ascribe.cli import options, screen
from ascribe.groups.keys import KeyQuality, StateKey, Tried, choose, keyed, measure, tools_before
from ascribe.sessions.reading import SessionOptions
from ascribe.steps.check import check
from ascribe.steps.files import Rollouts, write
from ascribe.steps.hints import unknown
from ascribe.steps.problems import TableError, counted
from ascribe.steps.table import Coded

MEANINGS = {
    "states": "distinct states, task by task",
    "alone": "rows alone in their state",
    "predicts": "variance of returns predicted, held out",
    "consistency": "same state and action, same next state",
    "purity": "same state, same true state",
    "found": "same true state, same state",
}


@options.reads_sessions
def states(
    file: options.File,
    text: Annotated[str, Option(help="Column with the text of the states.")] = "state",
    truth: Annotated[
        str | None,
        Option(help="Column with the true states, to compare with the key.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            help="File to write, with the keys as states: .parquet, .jsonl or .jsonl.gz; - for "
            "JSON lines on standard output.",
            show_default=False,
            callback=screen.stdout_or,
        ),
    ] = None,
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    force: options.Force = False,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Propose a key that makes equal states equal: without clocks, counters and list order.

    Shows each rule that makes states equal, and how many steps have no other step in the same state
    before and after. A rule is refused if what it removes predicts returns or next states in
    held-out trajectories.

    Examples:
        ascribe states examples/conversations.jsonl
        ascribe states examples/trl_rooms/rollouts_00000.parquet -o keyed.parquet
    """
    if out is not None:
        screen.check_suffix(out)
        screen.keep_inputs([file], [out], force=force)
    rollouts = screen.open_rollouts(file, columns=columns, **sessions)
    with screen.exits(file):
        if len(rollouts.table) == 0:
            raise TableError(check(rollouts.table).problems)
    table = replace(rollouts.table, state=_column(rollouts, text))
    true = None if truth is None else _column(rollouts, truth)
    key, tried = choose(table)
    before, after = measure(table, truth=true), measure(table, key, true)
    if out is not None:
        keys = replace(table, state=keyed(table.state, key, tools_before(table)))
        with screen.written(out):
            write(replace(rollouts, table=keys).to_arrow(), out)
    if as_json:
        found = {"key": asdict(key), "rules": [each._asdict() for each in tried]}
        found |= {"before": asdict(before), "after": asdict(after)}
        about = {"file": screen.named(file), "rows": len(table), "balance": rollouts.balance}
        screen.print_json(about | found)
        return
    _print(file, len(table), key, tried, before, after)


def _column(rollouts: Rollouts, name: str) -> Coded:
    """A column of texts: of the format, or another one of the file."""
    column = rollouts.table.columns().get(name)
    if column is None and name in rollouts.carried.column_names:
        values = rollouts.carried.column(name).to_pylist()
        if all(value is None or isinstance(value, str) for value in values):
            return Coded.encode(values)
    if not isinstance(column, Coded):
        texts = [n for n, c in rollouts.table.columns().items() if isinstance(c, Coded)]
        known = (*texts, *rollouts.carried.column_names)
        screen.wrong_call(unknown("column of text", screen.safe(name), known))
    return column


def _print(
    file: Path,
    rows: int,
    key: StateKey,
    tried: list[Tried],
    before: KeyQuality,
    after: KeyQuality,
) -> None:
    rows_of = [
        (
            each.rule,
            "kept" if each.kept else "refused",
            *(" → ".join(map(_percent, pair)) for pair in (each.alone, each.predicts)),
            each.why,
        )
        for each in tried
    ]
    if rows_of:
        headings = ("rule", "", "rows alone", "returns predicted", "because")
        screen.out.print(screen.table_of(headings, rows_of))
    if key == StateKey():
        screen.say(f"{screen.safe(file)}: nothing to remove or to sort.")
    else:
        screen.say(f"Proposed key, with the rules: {', '.join(key.rules)}")
    measures = []
    for name, meaning in MEANINGS.items():
        values = [getattr(quality, name) for quality in (before, after)]
        if name == "states":
            measures.append((meaning, *(f"{value:,}" for value in values)))
        elif not all(map(math.isnan, values)):
            measures.append((meaning, *map(_percent, values)))
    screen.out.print(screen.table_of(("", "before", "after"), measures, right=("before", "after")))
    screen.say(f"{counted(rows, 'row')}.", "dim")


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.1%}"
