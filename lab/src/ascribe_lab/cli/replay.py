"""``ascribe replay``: forks of a rollout, measured by playing on from both of their sides."""

from collections import Counter
from contextlib import closing
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
from ascribe.decisions import find_decisions
from ascribe.steps.problems import counted
from ascribe.steps.table import KNOWN_COLUMNS
from ascribe_lab.audit.replay import Replayed
from ascribe_lab.audit.replay import replay as play_forks
from ascribe_lab.cli import play_options
from ascribe_lab.cli.rollout import prepare, stdout_to_stderr, with_play_options
from ascribe_lab.rollout import FailurePolicy
from ascribe_lab.rollout.record import READ_BACK, trajectories

VERDICTS = {"confirmed": "green", "refuted": "bold red", "open": "", "refused": "red"}
"""What a measured difference may say of the estimate, and how that is printed."""


@with_play_options
def replay(
    file: options.File,
    count: Annotated[
        int, Option("--continuations", "-k", help="Episodes to play on from each action.", min=2)
    ] = 32,
    most: Annotated[
        int,
        Option("--forks", help="Number of decisions to measure, the most certain first.", min=1),
    ] = 20,
    temperature: play_options.Temperature = 1.0,
    retries: play_options.Retries = 2,
    as_json: options.Json = False,
    **shared: Any,
) -> None:
    """Measure decisions of a rollout: play on from both actions, and compare the results.

    Takes a file of ascribe rollout, and the options that it was played with, also the seed. The
    environment must reach the same state when the same actions are replayed; where it does not, the
    decision is refused. The exit code is 1 if all decisions are refused.

    Examples:
        ascribe replay played.parquet --env sokoban --model random -k 8
    """
    wanted = {*KNOWN_COLUMNS, *READ_BACK}
    rollouts = screen.open_rollouts(file, wanted=wanted.__contains__)
    with screen.exits(file):
        played = trajectories(rollouts)
        setup, model, plan = prepare(**shared, temperature=temperature)
        if model.needs_expert:
            setup = setup.with_expert()
        forks = find_decisions(rollouts.table).forks
        with (
            screen.progress("playing on") as progress,
            stdout_to_stderr(),
            closing(model.open(setup.agent)) as policy,
        ):
            found = play_forks(
                *(setup, policy, plan, forks[:most]),
                table=rollouts.table,
                played=played,
                count=count,
                failures=FailurePolicy(retries),
                progress=progress,
            )
    if as_json:
        screen.print_json([each.as_dict() for each in found])
    else:
        _print(found, len(forks))
    if found and all(each.refused for each in found):
        raise typer.Exit(1)


def _print(found: list[Replayed], all_forks: int) -> None:
    table = Table()
    table.add_column("fork")
    for name in ("estimate", "measured", "verdict"):
        table.add_column(name, justify="right")
    for each in found:
        points = each.fork.binary
        measured = screen.safe(each.refused, 200)
        if not each.refused:
            measured = _difference(each.difference, *each.interval, points=points)
        table.add_row(
            Text(screen.safe(each.fork.text, 200)),
            _difference(each.fork.difference, each.fork.low, each.fork.high, points=points),
            Text(measured),
            Text(each.verdict, style=VERDICTS[each.verdict]),
        )
    if found:
        screen.out.print(table)
    of = Counter(each.verdict for each in found)
    verdicts = ", ".join(f"{of[name]} {name}" for name in VERDICTS)
    text = f"{counted(len(found), 'fork')} of {all_forks:,}: {verdicts}."
    if of["refused"]:
        text += " Were environment, settings and seed those of the rollout?"
    screen.out.print(Text(text))


def _difference(value: float, low: float, high: float, *, points: bool) -> str:
    scale, unit = (100, " %") if points else (1, "")
    value, low, high = (round(scale * each, 0 if points else 2) for each in (value, low, high))
    return f"{value:+g}{unit}\n{low:+g} to {high:+g}"
