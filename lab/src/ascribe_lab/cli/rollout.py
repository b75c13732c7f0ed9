"""``ascribe rollout`` and ``ascribe eval``: play episodes, and count how many are won."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
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


def rollout(
    env: play_options.Env,
    model: play_options.Model,
    out: Annotated[Path, Option(help="Where to write: .parquet, .jsonl or .jsonl.gz.")],
    groups: Annotated[int, Option(help="How many tasks.", min=1)] = 16,
    size: Annotated[int, Option(help="How many episodes of each task.", min=1)] = 8,
    seed: play_options.Seed = 0,
    backend: play_options.Backend = "transformers",
    dtype: play_options.Dtype = None,
    context: play_options.Context = None,
    tokenizer: play_options.Tokenizer = None,
    settings: play_options.EnvSettings = [],  # noqa: B006 (typer copies it)
    style: play_options.Style = "paper",
    temperature: play_options.Temperature = 1.0,
    max_tokens: play_options.MaxTokens = 512,
    max_turns: play_options.MaxTurns = None,
    states: play_options.States = "observation",
    pool: play_options.Pool = "processes",
    workers: play_options.Workers = 2,
    step_limit: play_options.StepLimit = 60.0,
    episode_limit: play_options.EpisodeLimit = None,
    memory_limit: play_options.MemoryLimit = None,
    retries: play_options.Retries = 2,
    smallest_group: Annotated[
        int | None, Option(help="Trajectories that a group needs to count. Default: all.", min=1)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Play groups of episodes and write them to a file that check and credit read."""
    screen.check_suffix(out)
    if states not in get_args(States):
        screen.wrong_call(unknown("states", screen.safe(states), get_args(States)))
    with _wrong_calls():
        setup = _setup(env, settings, style, pool, workers, step_limit, memory_limit)
        plan = Plan(
            groups,
            size,
            setup.turns(max_turns),
            seed,
            name=env,
            sampling=Sampling(temperature, max_tokens=max_tokens),
            episode_limit=episode_limit,
        )
        policy = Model(model, backend, dtype, context, tokenizer)
        failures = FailurePolicy(retries, smallest_group)
        played = _play(setup, policy, plan, failures, out, cast("States", states))
    _report(played, out, as_json=as_json)


def evaluate(
    env: play_options.Env,
    model: play_options.Model,
    tasks: Annotated[int, Option(help="How many tasks.", min=1)] = 100,
    first: Annotated[int, Option(help="The number of the first task.", min=0)] = 0,
    repeats: Annotated[int, Option(help="Episodes of each task.", min=1)] = 1,
    seed: play_options.Seed = 0,
    backend: play_options.Backend = "transformers",
    dtype: play_options.Dtype = None,
    context: play_options.Context = None,
    tokenizer: play_options.Tokenizer = None,
    settings: play_options.EnvSettings = [],  # noqa: B006 (typer copies it)
    style: play_options.Style = "paper",
    temperature: play_options.Temperature = 0.4,
    max_tokens: play_options.MaxTokens = 512,
    max_turns: play_options.MaxTurns = None,
    out: Annotated[Path | None, Option(help="Also write the episodes to this file.")] = None,
    pool: play_options.Pool = "processes",
    workers: play_options.Workers = 2,
    step_limit: play_options.StepLimit = 60.0,
    episode_limit: play_options.EpisodeLimit = None,
    memory_limit: play_options.MemoryLimit = None,
    retries: play_options.Retries = 2,
    as_json: options.Json = False,
) -> None:
    """Print how many tasks are solved, by family, with a 95 % interval."""
    if out is not None:
        screen.check_suffix(out)
    with _wrong_calls():
        setup = _setup(env, settings, style, pool, workers, step_limit, memory_limit)
        count = setup.facts[0]
        end = first + tasks if count is None else min(first + tasks, count)
        if end <= first:
            raise ValueError(f"there is no task {first}; there are {count}, counted from 0")
        plan = Plan(
            end - first,
            repeats,
            setup.turns(max_turns),
            seed,
            name=env,
            tasks=range(first, end),
            sampling=Sampling(temperature, max_tokens=max_tokens),
            episode_limit=episode_limit,
        )
        policy = Model(model, backend, dtype, context, tokenizer)
        played = _play(setup, policy, plan, FailurePolicy(retries, smallest_group=1), out)
    _report(played, out, as_json=as_json)


@contextmanager
def _wrong_calls() -> Iterator[None]:
    """Report missing packages, files and wrong options as a wrong call."""
    try:
        yield
    except (ImportError, OSError, ValueError, TypeError) as error:
        screen.wrong_call(screen.safe(error, 400))


def _setup(
    env: str,
    settings: list[str],
    style: str,
    pool: str,
    workers: int,
    step_limit: float,
    memory_limit: float | None,
) -> Setup:
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
    setup.facts, setup.agent  # noqa: B018 (raises for a wrong option before anything is played)
    return setup


def _play(
    setup: Setup,
    model: Model,
    plan: Plan,
    failures: FailurePolicy,
    out: Path | None,
    states: States = "observation",
) -> Rollout:
    """Play the episodes and write them; exit 1 if the rollout cannot go on."""
    title = counted(plan.groups * plan.size, "episode")
    with screen.progress(title) as progress, _stdout_to_stderr():
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
            journal = journal_beside(out)
            if journal.exists() and not isinstance(error, JournalError):
                kept = f"The episodes so far are in {screen.safe(journal)}: "
                screen.err.print(Text(f"{kept}run the same command again to continue."))
            if isinstance(error, PoolBrokenError | ServerError):
                screen.err.print(Text(f"ascribe: {screen.safe(error, 400)}", style="red"))
                raise typer.Exit(1) from error
            if isinstance(error, OSError) and str(error.filename) in {str(out), str(journal)}:
                screen.wrong_call(f"cannot write {screen.safe(out)}: {error.strerror}")
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
        screen.err.print(Text("No episode was completed.", style="bold red"))
        raise typer.Exit(1)


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
    screen.err.print(Text(f"{times}, environments {clock.environment_seconds:.1f} s.", style="dim"))
    if saved is not None:
        screen.out.print(Text(f"Wrote {screen.safe(saved)}.", style="green"))


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
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
