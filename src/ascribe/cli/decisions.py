"""``ascribe decisions``: which decisions earned the reward, and how sure that is."""

import math
import operator
import re
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
from ascribe.decisions import By, Decisions, Outcome, Scope, find_decisions, usable
from ascribe.decisions.decision import signed
from ascribe.decisions.versions import Change, compare_versions
from ascribe.sessions.reading import SessionOptions, balance_of
from ascribe.steps.errors import AscribeError
from ascribe.steps.files import Rollouts
from ascribe.steps.hints import option, unknown
from ascribe.steps.problems import counted, one_line
from ascribe.steps.table import KNOWN_COLUMNS

OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FIELDS = {
    1: ("success", "certain", "sessions", "difference", "low", "high", "p", "q", "better", "worse"),
    2: ("drop", "old", "new", "low", "high", "p", "q", "old_sessions", "new_sessions"),
}
"""What a condition may name, by the number of files."""
OF_FILE = ("success", "certain", "sessions")
"""Those that a file has without any comparison."""
MOST_CHANGES = 20
"""States that are printed for two versions, the surest changes first."""


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
    terms = [] if fail_if is None else _terms(fail_if, len(files))
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
                changed, missing, notes = _two_versions(*read)
                described = [each.as_dict() for each in changed]
                shown = {"changes": described, "notes": notes}
        failing = _failing(terms, described)
        balances = [each.balance for each in read]
        shown |= {"missing": missing, "balance": balances, "failed": bool(failing)}
        if as_json:
            screen.print_json(shown)
        elif len(files) == 1:
            print_decisions(found)
        else:
            _print_changes(changed)
            for note in notes:
                screen.say(note)
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


def _two_versions(
    old: Rollouts, new: Rollouts
) -> tuple[tuple[Change, ...], dict[str, str], list[str]]:
    """What changed, tasks of the old version that are not compared with the reason, and notes."""
    before, now = usable(old), usable(new)
    found = compare_versions(before.rollouts.table, now.rollouts.table)
    lost = dict.fromkeys(now.lost, "no session of the new version counts")
    missing = {task: lost.get(task, why) for task, why in found.missing.items()}
    attempted = {*map(str, before.rollouts.table.group.used().values)}
    for task in filter(attempted.__contains__, now.thin):
        missing.setdefault(task, "most sessions of the new version have no reward")
    parts = (("old", before), ("new", now))
    notes = [f"Of the {name} version: {note}" for name, part in parts for note in part.notes]
    for why in dict.fromkeys(missing.values()):
        tasks = [one_line(task, 60) for task, reason in missing.items() if reason == why]
        notes.append(f"Not compared: {counted(len(tasks), 'task')}, {why}: {', '.join(tasks)}.")
    if found.copies:
        notes.append(
            f"{counted(found.copies, 'session')} look like copies of another one. Nothing is surer "
            "than it is with each of them counted once."
        )
    return found.changes, missing, notes


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


def _print_changes(changed: Sequence[Change]) -> None:
    told = [each for each in changed[1:] if not math.isnan(each.p)][:MOST_CHANGES]
    for number, each in enumerate([changed[0], *told]):
        style = "" if not each.certain else "red" if each.drop > 0 else "green"
        line = Text(screen.safe(f"{each.text[:1].upper()}{each.text[1:]}.", 1000), style=style)
        if number == 0:
            line.stylize("bold")
        elif each.certain:
            line.append(" Certain.")
        screen.out.print(line)
    if len(changed) == 1:
        screen.say("No state was met by sessions of both versions.")
    elif more := len(changed) - 1 - len(told):
        few = "with too few sessions to tell, or less sure; --json lists all."
        screen.print_summary(f"{counted(more, 'more state')} {few}")
