"""``ascribe pivots train``: train on pivots, and choose them anew as the policy moves."""

from typing import Annotated

import typer
from rich.text import Text

from ascribe.cli import screen
from ascribe.cli.rollout import BackendOption
from ascribe.cli.screen import JsonFlag
from ascribe.cli.train import (
    ConfigArgument,
    DryFlag,
    EngineOption,
    KeySetting,
    ResumeFlag,
    by_config,
    say_where,
)
from ascribe.engines.config import ConfigError
from ascribe.engines.rounds import ENVIRONMENT, Round, Rounds, refuse, train_in_rounds
from ascribe.engines.train import train, verify
from ascribe.pivots import LAMBDA_DIFF, CostEstimate, ProfilingError

ThresholdOption = Annotated[
    float, typer.Option(help="Keep turns with a mean reward below this (λ_diff).")
]
BatchOption = Annotated[int, typer.Option(help="Answers that are asked for at once.", min=1)]


def train_command(
    config: ConfigArgument,
    engine: EngineOption = "trl",
    settings: KeySetting = [],  # noqa: B006 (typer copies it)
    every: Annotated[
        int | None,
        typer.Option(help="Profile and select anew every so many iterations.", min=1),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Answers to each candidate.", min=2)] = 8,
    threshold: ThresholdOption = LAMBDA_DIFF,
    sample: Annotated[
        int | None,
        typer.Option(help="Profile so many candidates, drawn anew each time.", min=1),
    ] = None,
    batch: BatchOption = 64,
    backend: BackendOption = "transformers",
    dry_run: DryFlag = False,
    resume: ResumeFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Train on pivots by a config; print every value and who set it.

    With --every the file of the config holds candidates: the model is profiled, its pivots are
    selected, and it learns from them for so many iterations; then from the beginning. Ends with
    exit code 1 if there is no pivot at the start.
    """
    with by_config(config, engine, settings, as_json=as_json) as found:
        if found.environment.name != ENVIRONMENT:
            raise ConfigError(f"environment.name: must be {ENVIRONMENT} here")
        rounds = None
        if every is not None:
            rounds = Rounds(every, k, threshold, sample, batch, backend)
            refuse(found)
        if dry_run:
            verify(found, engine)
            return
        if rounds is None:
            train(found, engine, resume=resume)
        else:
            verify(found, engine)
            try:
                done = train_in_rounds(
                    found, engine, rounds, resume=resume, estimated=say_estimate, told=_tell
                )
            except ProfilingError as error:
                screen.err.print(Text(f"ascribe: {screen.safe(error, 400)}", style="red"))
                screen.err.print(Text("What was done is kept; the same command with --resume."))
                raise typer.Exit(1) from error
            if not done[-1].kept:
                screen.err.print(Text("No turn is a pivot any more.", style="bold red"))
            if not done[0].kept:
                raise typer.Exit(1)
        say_where(found)


def say_estimate(estimate: CostEstimate) -> None:
    """What is left to ask for, if anything is."""
    if estimate.answers:
        screen.err.print(Text(f"{estimate}."))


def _tell(done: Round) -> None:
    left_out = ", ".join(f"{count:,} {kind}" for kind, count in done.left_out.items())
    said = f"Round {done.number}: mean reward {done.mean:.3f}, kept {done.kept:,} of "
    said += f"{done.candidates:,} turns ({left_out}); {done.iterations:,} iterations."
    screen.err.print(Text(said))
