"""``ascribe import``: conversations that other tools wrote, as a table of steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from ascribe.archives.places import Place, check_output
from ascribe.cli import options, screen
from ascribe.sessions import State
from ascribe.sessions.formats import FORMATS, Imported, import_files, import_parts
from ascribe.steps.atomic import replacing_folder
from ascribe.steps.files import write
from ascribe.steps.hints import unknown
from ascribe.steps.problems import Problem, ProblemKind, TableError, counted


def import_(
    files: Annotated[
        list[Path],
        Argument(
            help="Conversations: .jsonl, .jsonl.gz, .json, .eval, or folders of such files.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        Option(
            help="Where to write: .parquet, .jsonl or .jsonl.gz; or a folder, for conversations "
            "that do not fit into memory, which are written as several .parquet files."
        ),
    ],
    form: Annotated[
        str | None, Option("--from", help=f"The format; detected by default: {', '.join(FORMATS)}.")
    ] = None,
    group: Annotated[
        str | None, Option(help="Field that names the task; dots lead into objects: info.task.")
    ] = None,
    reward: Annotated[str | None, Option(help="Field that holds the reward.")] = None,
    state: Annotated[
        str, Option(help=f"What counts as the state: auto, {', '.join(get_args(State))}.")
    ] = "auto",
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Turn conversations that other tools wrote into a table of steps.

    Prints what was understood and, for each choice of the state, the share of steps that are alone
    in theirs and so get no step-level credit.
    """
    if out.suffix or out.is_file():
        screen.check_suffix(out)
        screen.keep_inputs(files, [out], force=force)
    else:
        with screen.exits(files[0]):
            check_output(Place.of(out), map(Place.of, files), force=force)
    choices: dict[str, State | None] = {"auto": None} | {name: name for name in get_args(State)}
    if state not in choices:
        screen.wrong_call(unknown("state", state, choices))
    if form is not None and form not in FORMATS:
        screen.wrong_call(unknown("format", form, FORMATS))
    with (
        screen.exits(files[0], as_json=as_json, out=out),
        screen.progress("importing") as progress,
    ):
        fields: dict[str, Any] = {"group": group, "reward": reward, "state": choices[state]}
        if out.suffix:
            imported = import_files(files, form, **fields, progress=progress)
            facts = _facts(imported)
            write(screen.to_arrow(imported), out)
        else:
            with replacing_folder(out) as folder:
                parts = import_parts(files, form, **fields, progress=progress)
                imported, facts = _write_parts(parts, folder)
    if as_json:
        screen.print_json({"out": str(out), **facts})
        return
    screen.out.print(_understood(imported.format, facts))
    screen.out.print(_states(imported))
    screen.out.print(Text(f"Wrote {screen.safe(out)}.", style="green"))


def _write_parts(parts: Iterator[Imported], folder: Path) -> tuple[Imported, dict[str, Any]]:
    """Write each table to a file of the folder; returns the first one, and the facts about all."""
    first, facts, groups = None, dict[str, Any](), set[str]()
    for number, imported in enumerate(parts):
        table = screen.to_arrow(imported)
        first = first or (imported, table.schema)
        if table.schema != first[1]:
            ours, others = (set(schema.names) for schema in (table.schema, first[1]))
            detail = f"some conversations have {', '.join(sorted(ours ^ others))}, others do not"
            problem = Problem(ProblemKind.BAD_RECORD, f"{detail}; import them separately")
            raise TableError([problem])
        write(table, folder / f"{number:05d}.parquet")
        groups |= set(imported.table.group.values)
        here = _facts(imported)
        counts = ("trajectories", "steps", "rewarded", "cut")
        facts = here | {name: facts.get(name, 0) + here[name] for name in counts}
    assert first is not None
    return first[0], facts | {"groups": len(groups), "alone": dict(first[0].alone)}


def _facts(imported: Imported) -> dict[str, Any]:
    table = imported.table
    rewarded = np.unique(table.trajectory.codes[table.reward > 0]).size
    return {
        "format": imported.format,
        "groups": int(table.group.values.size),
        "trajectories": int(table.trajectory.values.size),
        "steps": len(table),
        "rewarded": int(rewarded),
        "cut": int(table.flag("truncated", default=False).sum()),
        "alone": dict(imported.alone),
        "state": imported.state,
    }


def _understood(form: str, facts: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    table.add_row("format", FORMATS[form].title)
    table.add_row(
        "trajectories", f"{facts['trajectories']:,} in {counted(facts['groups'], 'group')}"
    )
    table.add_row("steps", f"{facts['steps']:,}")
    table.add_row("with a reward above 0", counted(facts["rewarded"], "trajectory"))
    table.add_row("cut by a limit", counted(facts["cut"], "trajectory"))
    return table


def _states(imported: Imported) -> Table:
    """The choices of the state, and the one that was taken."""
    table = Table()
    table.add_column("--state")
    table.add_column("steps alone in their state", justify="right")
    table.add_column("")
    for choice, share in imported.alone.items():
        table.add_row(choice, f"{share:.1%}", "taken" if choice == imported.state else "")
    return table
