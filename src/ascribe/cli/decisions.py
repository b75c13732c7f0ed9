"""``ascribe decisions``: which decisions earned the reward, and how sure that is."""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text
from typer import Argument, Exit, Option

from ascribe.cli import options, screen
from ascribe.cli.plain import tell
from ascribe.decisions import (
    By,
    Decision,
    Decisions,
    Outcome,
    Scope,
    decisions_of,
    left_out,
    usable,
)
from ascribe.decisions.decision import signed
from ascribe.decisions.versions import Change, changes
from ascribe.sessions.formats import SessionOptions
from ascribe.steps.hints import unknown
from ascribe.steps.problems import counted
from ascribe.steps.table import KNOWN_COLUMNS

OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FIELDS = {
    1: ("success", "certain", "sessions", "difference", "low", "high", "p", "q", "better", "worse"),
    2: ("drop", "old", "new", "low", "high", "p", "q", "old_sessions", "new_sessions"),
}
"""What a condition may name, by the number of files."""


@options.reads_sessions
def decisions(
    files: Annotated[
        list[Path],
        Argument(
            help="A file of rollouts or sessions, - for standard input; or two files, of an old "
            "and a new version of the agent.",
            show_default=False,
            callback=screen.stdin_or,
        ),
    ],
    columns: options.Columns = [],  # noqa: B006 (typer copies it)
    sessions: SessionOptions = {},  # noqa: B006 (see options.reads_sessions)
    by: Annotated[
        By,
        Option(
            help="Which steps are in the same state: those with equal text, with an equal key "
            "(see ascribe states), or in one cluster of fingerprints (of n-grams if the file has "
            "none)."
        ),
    ] = "text",
    scope: Annotated[
        Scope,
        Option(
            help="What to compare: attempts at one task, or the sessions of the whole batch that "
            "were in the same state."
        ),
    ] = "task",
    outcome: Annotated[
        Outcome, Option(help="Compare sessions by their return, or by whether they succeeded.")
    ] = "return",
    fail_if: Annotated[
        str | None,
        Option(
            help="Exit with code 1 if this is true for the file or one of its decisions, such as "
            "'success < 0.8', or for two files 'drop > 0.1 and q < 0.1'.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Print the decisions that raised or lowered the reward, the most certain first.

    Compares sessions of a task that acted differently in the same state, by their final outcome;
    each session counts once. Where states rarely recur, compares kinds of decisions over all tasks.
    A decision is certain at a false discovery rate (q) of at most 10 %. With two files, prints what
    changed from the old version of the agent to the new one.

    Examples:
        ascribe decisions examples/conversations.jsonl
        ascribe decisions examples/conversations.jsonl --fail-if "success < 0.1"
        ascribe decisions old.jsonl new.jsonl --fail-if "drop > 0.1 and q < 0.1"
    """
    if len(files) > 2:
        screen.wrong_call(
            f"{len(files)} files are too many", "give one file, or two: the old and the new version"
        )
    if len(files) == 2 and (by, scope, outcome) != ("text", "task", "return"):
        screen.wrong_call("--by, --scope and --outcome are for one file", "leave them out for two")
    terms = [] if fail_if is None else _terms(fail_if, len(files))
    wanted = {*KNOWN_COLUMNS, "won", "rewritten"}
    read = [
        screen.open_rollouts(
            file, as_json=as_json, wanted=wanted.__contains__, columns=columns, **sessions
        )
        for file in files
    ]
    with screen.exits(files[0], as_json=as_json):
        if len(files) == 1:
            found = decisions_of(read[0], by=by, scope=scope, outcome=outcome)
            described = [_numbers(found), *(_flat(each) for each in found.decisions)]
            shown = found.as_dict()
        else:
            kept = [usable(rollouts) for rollouts in read]
            changed = changes(*(rollouts.table for rollouts, _ in kept))
            notes = left_out(sum(dropped for _, dropped in kept))
            described = [each.as_dict() for each in changed]
            shown = {"changes": described, "notes": notes}
    failing = _failing(terms, described)
    if as_json:
        balances = [each.balance and each.balance.as_dict() for each in read]
        screen.print_json({**shown, "balance": balances, "failed": bool(failing)})
    elif len(files) == 1:
        print_decisions(found)
    else:
        _print_changes(changed)
        _print_notes(notes)
    if failing:
        said = failing[0].get("text") or ", ".join(
            f"{name} {failing[0][name]:.3g}" for name, _, _ in terms
        )
        tell("error", f"failed: {screen.safe(fail_if)}: {screen.safe(said, 400)}")
        raise Exit(1)


def _terms(condition: str, files: int) -> list[tuple[str, str, float]]:
    """The comparisons of a condition such as ``drop > 0.1 and q < 0.1``; exits for any other."""
    terms = []
    for part in condition.split(" and "):
        match = re.fullmatch(r"\s*(\w+)\s*(<=|>=|<|>)\s*(-?[0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*", part)
        if match is None:
            screen.wrong_call(
                f"cannot read the condition '{screen.safe(part)}'",
                "write a name, <, <=, > or >=, and a number: drop > 0.1 and q < 0.1",
            )
        if match[1] not in FIELDS[files]:
            screen.wrong_call(unknown("name in --fail-if", screen.safe(match[1]), FIELDS[files]))
        terms.append((match[1], match[2], float(match[3])))
    return terms


def _failing(
    terms: Sequence[tuple[str, str, float]], described: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """What fulfils every term; nothing does without terms, or where a number is not known."""
    return [
        each
        for each in described
        if terms
        and all(
            each.get(name) is not None and OPERATORS[sign](each[name], value)
            for name, sign, value in terms
        )
    ]


def _numbers(found: Decisions) -> dict[str, Any]:
    return {
        "success": found.success,
        "certain": len(found.certain),
        "sessions": found.sessions,
    }


def _flat(decision: Decision) -> dict[str, Any]:
    means = {"better": decision.better.mean, "worse": decision.worse.mean}
    sessions = decision.better.sessions + decision.worse.sessions
    return {**decision.as_dict(), **means, "sessions": sessions, "certain": None}


def print_decisions(found: Decisions) -> None:
    """The sentence, the advice, every decision that could be tested, and what cannot be said."""
    print_sentence(found)
    tested = [each for each in found.decisions if not math.isnan(each.p)]
    if tested:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("difference", "90 % interval", "q"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("decision")
        for each in tested:
            ends = (signed(end, points=found.binary) for end in (each.low, each.high))
            table.add_row(
                signed(each.difference, points=found.binary),
                " to ".join(ends),
                f"{each.q:.2g}",
                Text(screen.safe(each.text, 600)),
                style="" if each.certain else "dim",
            )
        screen.out.print(table)
    if found.untested:
        forks = f"{counted(found.untested, 'fork')} {'has' if found.untested == 1 else 'have'}"
        screen.print_summary(
            Text(f"{forks} too few sessions for a test; --json lists some.", "dim")
        )
    _print_notes(found.notes)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        screen.out.print(Text(screen.safe(note, 1000)))


def print_sentence(found: Decisions) -> None:
    """The most certain decision, and what to do."""
    screen.out.print(Text(screen.safe(found.sentence, 1000), style="bold"))
    if found.advice:
        screen.out.print(Text(screen.safe(found.advice, 400)))


def _print_changes(changed: Sequence[Change]) -> None:
    for number, each in enumerate(changed):
        style = "" if not each.certain else "red" if each.drop > 0 else "green"
        line = Text(screen.safe(f"{each.text[:1].upper()}{each.text[1:]}.", 1000), style=style)
        if number == 0:
            line.stylize("bold")
        elif each.certain:
            line.append(" Certain.")
        screen.out.print(line)
    if len(changed) == 1:
        screen.out.print(Text("No state was met by sessions of both versions."))
