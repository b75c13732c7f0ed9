"""``ascribe import``: conversations that other tools wrote, as a table of steps."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.sessions.reading import Imported, SessionOptions, import_files, import_parts
from ascribe.steps.check import arrange, no_response
from ascribe.steps.files import write
from ascribe.steps.problems import counted
from ascribe.steps.returns import episode_return

COUNTS = ("trajectories", "steps", "rows", "rewarded", "cut", "problems")
"""Facts that are summed over parts."""


@options.reads_sessions
def import_(
    files: Annotated[
        list[Path],
        Argument(
            help="Files of sessions (.jsonl, .jsonl.gz, .json, .eval or .parquet), folders of such "
            "files, or - for standard input.",
            show_default=False,
            callback=screen.stdin_or,
        ),
    ],
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            help="File to write: .parquet, .jsonl or .jsonl.gz; - for JSON lines on standard "
            "output; or a folder for several .parquet files, if the sessions do not fit into "
            "memory. Default: only print what was read.",
            callback=screen.stdout_or,
            show_default=False,
        ),
    ] = None,
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    explain: Annotated[
        bool,
        Option("--explain", help="Print which field became what, and two steps."),
    ] = False,
    force: options.Force = False,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Convert sessions that other tools wrote into a table of steps.

    Prints what it read and, for each choice of --state, the share of steps that have no other step
    in the same state to be compared with.

    Examples:
        ascribe import examples/conversations.jsonl -o steps.parquet
        ascribe import logs/ -o steps/ --reward score --group info.task
        cat examples/conversations.jsonl | ascribe import - -o - > steps.jsonl
    """
    if out is None:
        pass
    elif out.suffix or out.is_file():
        screen.check_suffix(out)
        screen.keep_inputs(files, [out], force=force)
    else:
        from ascribe.archives.places import Place, check_output

        with screen.exits(files[0]):
            check_output(Place.of(out), map(Place.of, files), force=force)
    sessions = {**sessions, "unrewarded": "reward" not in sessions}
    with (
        screen.exits(files[0], out),
        screen.progress("importing") as progress,
    ):
        if out is None or out.suffix:
            imported = import_files(files, **sessions, progress=progress)
            facts = _facts(imported)
            if out is not None:
                write(imported.to_arrow(), out)
        else:
            imported, facts = _write_parts(import_parts(files, **sessions, progress=progress), out)
    if as_json:
        about = {"out": out and screen.named(out), **facts, "balance": imported.balance}
        screen.print_json(about)
        return
    screen.print_balance(imported.balance)
    _print(imported, facts)
    if explain:
        _explain(imported)
    if advice := imported.advice():
        screen.print_note(advice)
    if not facts["labelled"]:
        screen.print_note(
            "No session has a reward, so nothing can be credited. Name its field with --reward "
            "FIELD, or a file with the columns session and reward with --reward FILE.csv."
        )
    if out is not None:
        screen.print_wrote(out)


def _write_parts(parts: Iterator[Imported], folder: Path) -> tuple[Imported, dict[str, Any]]:
    """Write each table to a file of the folder; returns the first one, and the facts about all."""
    from ascribe.archives.convert import write_sessions

    first = next(parts)
    totals: Counter[str] = Counter()
    groups: set[str] = set()
    readings: dict[str, str] = {}

    def counting() -> Iterator[Imported]:
        for imported in chain([first], parts):
            groups.update(imported.table.group.values)
            readings["title"] = imported.title  # which a later part adds to
            totals.update({name: _facts(imported)[name] for name in COUNTS})
            yield imported

    _, balance = write_sessions(counting(), folder)
    facts = _facts(first) | totals | readings | {"groups": len(groups)}
    return replace(first, balance=balance), facts


def _facts(imported: Imported) -> dict[str, Any]:
    table = imported.table
    rewarded, labelled = 0, not np.isnan(table.reward).any()
    if labelled:
        steps = arrange(table)
        returns = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
        rewarded = int((returns > 0).sum())
    return {
        "format": imported.format,
        "title": imported.title,
        "groups": int(table.group.values.size),
        "trajectories": int(table.trajectory.values.size),
        "steps": int((~no_response(table)).sum()),
        "rows": len(table),
        "rewarded": rewarded,
        "labelled": labelled,
        "cut": int(table.flag("truncated", default=False).sum()),
        "problems": len(imported.notes),
        "alone": dict(imported.alone),
        "state": imported.state,
    }


def _print(imported: Imported, facts: dict[str, Any]) -> None:
    """What was read, and the choices of the state with the one that was taken."""
    silent = facts["rows"] - facts["steps"]
    others = f", and {counted(silent, 'row')} of sessions without a response" if silent else ""
    rows = {
        "format": facts["title"],
        "trajectories": f"{facts['trajectories']:,} in {counted(facts['groups'], 'group')}",
        "steps": f"{facts['steps']:,}{others}",
        "with a return above 0": facts["labelled"] and counted(facts["rewarded"], "trajectory"),
        "cut by a limit": counted(facts["cut"], "trajectory"),
        "problems (see ascribe check)": facts["problems"] and f"{facts['problems']:,}",
    }
    screen.print_summary(screen.table_of(("", ""), ((k, v) for k, v in rows.items() if v)))
    alone = "steps alone in their state"
    choices = [
        (choice, f"{share:.1%}", "taken" if choice == imported.state else "")
        for choice, share in imported.alone.items()
    ]
    screen.print_summary(screen.table_of(("--state", alone, ""), choices, right=(alone,)))


def _explain(imported: Imported) -> None:
    """What the first session has with the field that it is from, and its first two steps."""
    steps, fields = imported.table, imported.balance.fields if imported.balance else {}
    rows = np.flatnonzero(steps.trajectory.codes == steps.trajectory.codes[0])
    found = {
        "task": steps.group.texts()[0],
        "session": steps.trajectory.texts()[0],
        "version": "" if steps.version is None else steps.version.texts()[0],
        "reward": f"{steps.reward[rows].sum():g}",
        "messages": f"{rows.size:,} responses",
    }
    taken = []
    for name, value in found.items():
        paths = fields.get(name) or (fields.get("actions") if name == "messages" else None)
        source = ", ".join(paths) if paths else f"as {imported.title} have it"
        taken.append((name, value, source))
    headings = ("column", "value", "field")
    screen.print_summary(screen.table_of(headings, taken, most=80, title="The first session"))
    states, actions = steps.state.texts(), steps.action.texts()
    first = rows[np.argsort(steps.step[rows], kind="stable")][:2]
    shown = [(steps.step[row], states[row] or "", actions[row] or "") for row in first]
    screen.print_summary(screen.table_of(("step", "state", "action"), shown, most=200))
