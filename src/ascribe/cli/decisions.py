"""``ascribe decisions``: which decisions earned the reward, and how sure that is."""

import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

from rich.text import Text
from typer import Argument, Exit, Option

from ascribe.archives import is_archive, sample_archive
from ascribe.cli import options, screen
from ascribe.decisions import By, Decisions, Outcome, Scope, find_decisions
from ascribe.decisions.changed import (
    GATE,
    Changed,
    TaskChange,
    compare_files,
    failing_of,
    terms_of,
)
from ascribe.decisions.decision import signed
from ascribe.sessions.reading import SessionOptions, balance_of
from ascribe.steps.errors import AscribeError
from ascribe.steps.files import Rollouts
from ascribe.steps.hints import option
from ascribe.steps.problems import counted
from ascribe.steps.table import KNOWN_COLUMNS

OF_FILE = ("success", "certain", "sessions")
"""What a condition may name of a file without any comparison."""
MOST_TASKS, MOST_CHANGES = 8, 3
"""Tasks that are printed for two versions, and states, the surest changes first."""


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
    allow_missing: Annotated[
        int,
        Option(
            help="How many tasks --fail-if may go without: those of the old version that the new "
            "one has no session of, none with a reward, or one that begins otherwise; for one file "
            "those without any reward.",
            min=0,
        ),
    ] = 0,
    memory: options.Memory = 2.0,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Print the decisions that raised or lowered the reward, the most certain first.

    Compares sessions of a task that acted differently in the same state, by their final outcome;
    each session counts once. States rarely recur, so it also looks for the events, such as calling
    a tool, that separate won from lost attempts over all tasks.
    A decision is certain at a false discovery rate (q) of at most 10 %. With two files, prints what
    changed from the old version of the agent to the new one.

    With --fail-if, the exit code is 0 if the condition does not hold, 1 if it does, and 2 if that
    cannot be told: a wrong call, a file that cannot be read, tasks that are missing.

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
    terms = [] if fail_if is None else terms_of(fail_if, len(files))
    wanted = {*KNOWN_COLUMNS, "won", "rewritten"}.__contains__
    with _judging(fail_if):
        read, sample = _read(files, int(memory * 2**30), wanted, columns, sessions)
        with screen.exits(files[0]):
            if len(files) == 1:
                found = find_decisions(read[0], by=by, scope=scope, outcome=outcome)
                found = replace(found, notes=(*sample, *found.notes))
                described = _described(found)
                missing = dict.fromkeys(found.missing, "no session of it counts")
                shown = found.as_dict()
            else:
                changed = compare_files(*read)
                described, missing = changed.described, changed.missing
                shown = {"changes": described, "notes": changed.notes}
                shown["verdict"] = changed.verdict(fail_if or GATE)[0]
        failing = failing_of(terms, described)
        balances = [each.balance for each in read]
        shown |= {"missing": missing, "balance": balances, "failed": bool(failing)}
        if as_json:
            screen.print_json(shown)
        elif len(files) == 1:
            print_decisions(found)
        else:
            print_changed(changed, "" if failing else changed.verdict(fail_if or GATE)[0])
        if terms and not failing:
            if len(missing) > allow_missing:
                _refuse_missing(missing, allow_missing)
            if len(files) == 1 and not _comparable(terms, found):
                what = f"nothing was compared, so '{screen.safe(fail_if)}' has no answer"
                screen.wrong_call(what)
    if failing:
        numbers = (f"{name} {failing[0][name]:.3g}" for name, _, _ in terms)
        said = failing[0].get("text") or ", ".join(numbers)
        screen.wrong_call(f"failed: {screen.safe(fail_if)}: {screen.safe(said, 400)}", code=1)


def _read(
    files: Sequence[Path],
    memory: int,
    wanted: Callable[[str], bool],
    columns: options.Columns,
    sessions: SessionOptions,
) -> tuple[list[Rollouts], list[str]]:
    """The rollouts of each file; of one archive those that fit into memory, and a note on that."""
    if len(files) > 1 or columns or not is_archive(str(files[0]), memory):
        read = partial(screen.open_rollouts, wanted=wanted, columns=columns, **sessions)
        return [read(file) for file in files], []
    with screen.exits(files[0]), screen.progress(f"reading {screen.safe(files[0].name, 40)}"):
        rollouts, rows, size = sample_archive(files[0], memory, wanted, **sessions)
    balance = rollouts.balance or balance_of(rollouts.table)
    screen.print_balance(balance)
    sample = (
        f"A sample: {rows.size:,} of {size:,} rows ({rows.size / size:.2%}), of whole tasks, which "
        f"a hash of their names chose. A larger {option('memory')} reads more."
    )
    return [replace(rollouts, balance=balance)], [sample] if rows.size < size else []


@contextmanager
def _judging(condition: str | None) -> Iterator[None]:
    """With a condition, exit with code 2 for whatever goes wrong inside: 1 says that it holds."""
    try:
        yield
    except Exit as end:
        raise Exit(2) if condition is not None and end.exit_code == 1 else end from None
    except (OSError, AscribeError):
        raise
    except Exception:
        if condition is None:
            raise
        traceback.print_exc()
        raise Exit(2) from None


def _refuse_missing(missing: Mapping[str, str], allowed: int) -> NoReturn:
    """Say which tasks are missing, all of them, and exit with code 2."""
    listed = ", ".join(f"{screen.safe(task)} ({why})" for task, why in missing.items())
    said = f"more than the {allowed:,} allowed" if allowed else "so --fail-if cannot be judged"
    screen.wrong_call(
        f"{counted(len(missing), 'task')} cannot be compared, {said}: {listed}",
        f"let the agent try them, or allow it: --allow-missing {len(missing)}",
    )


def _comparable(terms: Sequence[tuple[str, str, float]], found: Decisions) -> bool:
    """Whether anything was tested that the condition asks for."""
    return any(name in OF_FILE for name, _, _ in terms) or any(
        not math.isnan(each.p) for each in found.decisions
    )


def _described(found: Decisions) -> list[dict[str, Any]]:
    """What a condition may name: of the file, and of each decision."""
    of_file: dict[str, Any] = {
        "success": found.success,
        "certain": len(found.certain),
        "sessions": found.sessions,
    }
    described = [of_file]
    for each in found.decisions:
        means: dict[str, Any] = {"better": each.better.mean, "worse": each.worse.mean}
        claimed = {"q": None} if each.doubt else {}  # nothing is claimed
        own = {"sessions": each.sessions, "certain": None}
        described.append({**each.as_dict(), **means, **own, **claimed})
    return described


def print_decisions(found: Decisions) -> None:
    """The sentence, the advice, every decision that could be tested, and what cannot be said."""
    screen.print_sentence(found)
    rows = []
    for each in found.decisions:
        if math.isnan(each.p):
            continue
        size, low, high = (signed(value, points=found.binary) for value in each.told)
        doubt = f": perhaps {each.doubt}" if each.doubt else ""
        cells = (size, f"{low} to {high}", f"{each.q:.2g}", screen.safe(each.text + doubt, 600))
        rows.append([Text(cell, style="" if each.certain else "dim") for cell in cells])
    if rows:
        numbers = ("difference", "90 % interval", "q")
        look: dict[str, Any] = {"box": None, "pad_edge": False, "header_style": "dim"}
        screen.out.print(screen.table_of((*numbers, "decision"), rows, right=numbers, **look))
    if found.untested:
        forks = f"{counted(found.untested, 'fork')} {'has' if found.untested == 1 else 'have'}"
        screen.print_summary(f"{forks} too few sessions for a test; --json lists some.")
    for note in found.notes:
        screen.say(note)


def print_changed(changed: Changed, verdict: str) -> None:
    """What two versions answer: the whole, tasks lost and gained, states, what is missing."""
    whole = changed.whole
    style = "" if not whole.certain else "red" if whole.drop > 0 else "green"
    said = f"{whole.text[:1].upper()}{whole.text[1:]}.{' Certain.' * whole.certain}"
    screen.say(said, f"bold {style}".strip())
    _print_tasks("Lost", "won less often than before", changed.lost, binary=changed.binary)
    if changed.finding is not None:
        count = counted(sum(each.explained for each in changed.lost), "lost task")
        told = f"{changed.finding.text[:1].upper()}{changed.finding.text[1:]}"
        screen.say(f"{count} with more of what goes along with losing. {told}.")
    _print_tasks("Gained", "won more often than before", changed.gained, binary=changed.binary)
    screen.say(f"The same: {counted(changed.same, 'task')}.")
    told_states = [each for each in changed.changes[1:] if not math.isnan(each.p)]
    for each in told_states[:MOST_CHANGES]:
        style = "" if not each.certain else "red" if each.drop > 0 else "green"
        line = f"{each.text[:1].upper()}{each.text[1:]}.{' Certain.' * each.certain}"
        screen.say(screen.safe(line, 230), style)
    if len(changed.changes) == 1:
        screen.say("No state was met by sessions of both versions.")
    elif more := len(changed.changes) - 1 - min(len(told_states), MOST_CHANGES):
        few = "with too few sessions to tell, or less sure; --json lists all."
        screen.print_summary(f"{counted(more, 'more state')} {few}")
    for note in changed.notes:
        screen.say(screen.safe(note, 400))
    if verdict:
        screen.say(f"Verdict: {screen.safe(verdict, 400)}.", "bold")


def _print_tasks(head: str, text: str, tasks: Sequence[TaskChange], *, binary: bool) -> None:
    """Some tasks, with what was won of their attempts before and now."""
    screen.say(f"{head}: {counted(len(tasks), 'task')} {text}." if tasks else f"{head}: no task.")
    for each in tasks[:MOST_TASKS]:
        sides = [
            f"{won:.0f} of {size}" if binary else f"{won / size:.3g} of {size}"
            for won, size in (each.old, each.new)
        ]
        named = screen.safe(each.task, 44)
        screen.say(f"  {named:<46}{sides[0]:>10} -> {sides[1]}{' *' * each.explained}")
    if len(tasks) > MOST_TASKS:
        screen.say(f"  and {len(tasks) - MOST_TASKS:,} more")
