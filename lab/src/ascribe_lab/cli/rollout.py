"""``ascribe rollout`` and ``ascribe eval``: play episodes, and count how many are won."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, cast, get_args

from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
from ascribe.cli.plain import fail, tell
from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe.steps.problems import counted
from ascribe_lab.cli import play_options
from ascribe_lab.json_journal import JournalError
from ascribe_lab.models.http_client import ServerError
from ascribe_lab.rollout import (
    FailurePolicy,
    Model,
    Plan,
    Rollout,
    Sampling,
    Setup,
    Success,
    journal_beside,
    play,
    play_to_file,
    success,
)
from ascribe_lab.rollout.pools import PoolBrokenError
from ascribe_lab.rollout.record import States
from ascribe_lab.rollout.setup import PoolName


def prepare(
    env: play_options.Env,
    model: play_options.Model,
    seed: play_options.Seed = 0,
    backend: play_options.Backend = "transformers",
    dtype: play_options.Dtype = None,
    context: play_options.Context = None,
    tokenizer: play_options.Tokenizer = None,
    settings: play_options.EnvSettings = [],  # noqa: B006 (typer copies it)
    style: play_options.Style = "paper",
    max_tokens: play_options.MaxTokens = 512,
    max_turns: play_options.MaxTurns = None,
    pool: play_options.Pool = "processes",
    workers: play_options.Workers = 2,
    step_limit: play_options.StepLimit = 60.0,
    episode_limit: play_options.EpisodeLimit = None,
    memory_limit: play_options.MemoryLimit = None,
    _quiet: options.Quiet = False,
    *,
    temperature: float,
    groups: int = 1,
    size: int = 1,
    first: int | None = None,
) -> tuple[Setup, Model, Plan]:
    """The environment, the policy and the plan that options name.

    What comes before the star are the options of all commands that play. With ``first``, the
    groups are the tasks from this number on, as far as there are any.
    """
    screen.find_own_code(env)
    setup = Setup(
        env,
        screen.settings(settings),
        style,
        cast("PoolName", pool),
        workers,
        step_limit,
        memory_limit=memory_limit,
    )
    count, _ = setup.facts
    setup.agent  # noqa: B018 (raises for a wrong style before anything is played)
    tasks = None
    if first is not None:
        tasks = range(first, first + groups if count is None else min(first + groups, count))
        if not tasks:
            raise InputError(f"there is no task {first}", hint=f"there are {count}, counted from 0")
    plan = Plan(
        groups if tasks is None else len(tasks),
        size,
        setup.turns(max_turns),
        seed,
        name=env,
        tasks=tasks,
        sampling=Sampling(temperature, max_tokens=max_tokens),
        episode_limit=episode_limit,
    )
    return setup, Model(model, backend, dtype, context, tokenizer), plan


def with_play_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of ``prepare`` in place of its ``**shared``, for typer."""
    shared = signature(prepare).parameters.values()
    own = signature(command).parameters.values()
    parameters = [one for one in shared if one.kind is not Parameter.KEYWORD_ONLY]
    parameters += [one for one in own if one.kind is not Parameter.VAR_KEYWORD]
    parameters.sort(key=lambda one: one.default is not Parameter.empty)  # required ones come first
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _play(
    out: Path | None,
    failures: FailurePolicy,
    states: States = "observation",
    *,
    as_json: bool,
    **shared: Any,
) -> None:
    """Play episodes, write them, and print success, failures and speed."""
    try:
        played = _play_to(out, *prepare(**shared), failures, states)
    except (ImportError, OSError, ValueError, TypeError) as error:
        screen.wrong_call(error)
    _report(played, out, as_json=as_json)


@with_play_options
def rollout(
    out: Annotated[
        Path, Option("--out", "-o", help="File to write: .parquet, .jsonl or .jsonl.gz.")
    ],
    groups: Annotated[int, Option(help="Number of tasks.", min=1)] = 16,
    size: Annotated[int, Option(help="Number of episodes of each task.", min=1)] = 8,
    temperature: play_options.Temperature = 1.0,
    states: play_options.States = "observation",
    smallest_group: Annotated[
        int | None,
        Option(help="Drop groups with fewer completed episodes. Default: --size.", min=1),
    ] = None,
    retries: play_options.Retries = 2,
    as_json: options.Json = False,
    **shared: Any,
) -> None:
    """Play several episodes of each task, and write them to a file of rollouts.

    The same command continues a rollout that was stopped. The exit code is 1 if no episode was
    completed.

    Examples:
        ascribe rollout --env sokoban --model expert --groups 2 --size 2 -o played.parquet
        ascribe rollout --env textcraft --model smollm2 -o played.parquet
    """
    screen.check_suffix(out)
    if states not in get_args(States):
        screen.wrong_call(unknown("states", screen.safe(states), get_args(States)))
    shared |= {"groups": groups, "size": size, "temperature": temperature, "as_json": as_json}
    _play(out, FailurePolicy(retries, smallest_group), cast("States", states), **shared)


@with_play_options
def evaluate(
    tasks: Annotated[int, Option(help="Number of tasks.", min=1)] = 100,
    first: Annotated[int, Option(help="Number of the first task, counted from 0.", min=0)] = 0,
    repeats: Annotated[int, Option(help="Number of episodes of each task.", min=1)] = 1,
    temperature: play_options.Temperature = 0.4,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="File to write the episodes to: .parquet or .jsonl."),
    ] = None,
    retries: play_options.Retries = 2,
    as_json: options.Json = False,
    **shared: Any,
) -> None:
    """Play each task of a list, and print the success rate with a 95 % interval.

    Examples:
        ascribe eval --env sokoban --model random --tasks 4
        ascribe eval --env textcraft --model http://localhost:8000 --out played.parquet
    """
    if out is not None:
        screen.check_suffix(out)
    shared |= {"groups": tasks, "size": repeats, "first": first, "temperature": temperature}
    _play(out, FailurePolicy(retries, 1), as_json=as_json, **shared)


def _play_to(
    out: Path | None,
    setup: Setup,
    model: Model,
    plan: Plan,
    failures: FailurePolicy,
    states: States,
) -> Rollout:
    """Play the episodes and write them; exit 1 if the rollout cannot go on."""
    title = counted(plan.groups * plan.size, "episode")
    with screen.progress(title) as progress, stdout_to_stderr():
        if out is None:
            return play(setup, model, plan, failures=failures, progress=progress)
        try:
            return play_to_file(
                setup,
                model,
                plan,
                out,
                states=states,
                failures=failures,
                progress=progress,
                on_message=lambda line: screen.err.print(Text(screen.safe(line, 300))),
            )
        except BaseException as error:
            journal, hint = journal_beside(out), ""
            if journal.exists() and not isinstance(error, JournalError):
                hint = "run the same command again to continue with the episodes in "
                hint += screen.safe(journal)
            if isinstance(error, PoolBrokenError | ServerError):
                screen.wrong_call(error, hint, code=1)
            if isinstance(error, OSError) and str(error.filename) in {str(out), str(journal)}:
                screen.wrong_call(f"cannot write {screen.safe(out)}: {error.strerror}", hint)
            if hint:
                tell("hint", hint)
            raise


def _report(played: Rollout, out: Path | None, *, as_json: bool) -> None:
    """Print success, failures and speed; exit 1 if no episode was completed."""
    saved = out if played.trajectories else None
    rows = success(played)
    if as_json:
        clock = asdict(played.clock) | {"tokens_per_second": played.clock.tokens_per_second}
        screen.print_json(
            {
                "out": None if saved is None else str(saved),
                "success": [asdict(row) for row in rows],
                "failed": [asdict(episode) for episode in played.failed],
                "dropped": [group.group for group in played.dropped],
                "retries": played.retries,
                "clock": clock,
            }
        )
    else:
        _print(played, rows, saved)
    if not played.trajectories:
        fail("no episode was completed")


def _print(played: Rollout, rows: list[Success], saved: Path | None) -> None:
    for group in played.dropped:
        screen.out.print(Text(f"Dropped {screen.safe(group, 300)}", style="red"))
    if played.retries:
        screen.out.print(Text(f"Tried {counted(played.retries, 'episode')} again.", style="yellow"))
    table = Table()
    table.add_column("family")
    for name in ("tasks", "episodes", "success", "95 %", "reward", "turns", "valid"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if row.family == "all":
            table.add_section()
        table.add_row(
            Text(screen.safe(row.family, 40)),
            f"{row.tasks:,}",
            f"{row.episodes:,}",
            f"{row.rate:.1%}",
            f"{row.low:.0%} to {row.high:.0%}",
            f"{row.reward:.3g}",
            f"{row.turns:.1f}",
            f"{row.valid:.1%}",
        )
    screen.out.print(table)
    clock = played.clock
    times = f"{clock.seconds:.1f} s: policy {clock.policy_seconds:.1f} s"
    if clock.tokens:
        times += f" ({clock.tokens:,} tokens, {clock.tokens_per_second:,.0f} a second)"
    screen.print_note(f"{times}, environments {clock.environment_seconds:.1f} s.")
    if saved is not None:
        screen.print_wrote(saved)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send to standard error what other packages and their processes print meanwhile.

    Engines log to standard output, which is reserved for the result of the command.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
