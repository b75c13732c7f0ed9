"""``ascribe warmup``: a short supervised start on what an expert would do."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.table import Table
from rich.text import Text

from ascribe.cli import screen
from ascribe.cli.rollout import (
    ContextOption,
    EnvOption,
    EnvSetting,
    PoolOption,
    SeedOption,
    StyleOption,
    TemperatureOption,
    TokensOption,
    TurnsOption,
    WorkersOption,
)
from ascribe.cli.screen import JsonFlag
from ascribe.engines.lessons import Demonstration, Teacher
from ascribe.engines.supervised import Schedule
from ascribe.engines.warmup import Report, Trial, Warmup, warm_up
from ascribe.rollout import Sampling, Setup, Success
from ascribe.rollout.setup import PoolName


def warmup(
    env: EnvOption,
    model: Annotated[str, typer.Option(help="A model folder, or smollm2.")],
    out: Annotated[Path, typer.Option(help="Folder to write the model to; new or empty.")],
    settings: EnvSetting = [],  # noqa: B006 (typer copies it)
    style: StyleOption = "plain",
    policy: Annotated[str, typer.Option(help="Who teaches: expert, or random actions.")] = "expert",
    episodes: Annotated[int, typer.Option(help="Episodes that the teacher plays.", min=1)] = 200,
    noise: Annotated[
        float,
        typer.Option(
            help="Share of decisions at which a random action is carried out; "
            "the expert's is taught all the same."
        ),
    ] = 0.0,
    steps: Annotated[int, typer.Option(help="Updates.", min=1)] = 20,
    batch: Annotated[int, typer.Option(help="Decisions of an update.", min=1)] = 8,
    learning_rate: Annotated[
        float, typer.Option(help="The highest; it rises over a tenth of the steps, then falls.")
    ] = 5e-5,
    seed: SeedOption = 0,
    context: ContextOption = None,
    device: Annotated[str, typer.Option(help="Where to train: cpu, cuda, cuda:1, ...")] = "cpu",
    trial: Annotated[
        int, typer.Option(help="Tasks to try the model on, before and after.", min=0)
    ] = 0,
    trial_settings: Annotated[
        list[str],
        typer.Option(
            "--trial-set", help="An option of the environment for those: split=eval. Repeatable."
        ),
    ] = [],  # noqa: B006 (typer copies it)
    temperature: TemperatureOption = 0.4,
    max_tokens: TokensOption = 64,
    max_turns: TurnsOption = None,
    pool: PoolOption = "processes",
    workers: WorkersOption = 2,
    as_json: JsonFlag = False,
) -> None:
    """Teach a model an environment's language: what an expert would say, for a few updates."""
    if pool not in get_args(PoolName):
        known = ", ".join(get_args(PoolName))
        screen.wrong_call(f"no pool {screen.safe(pool)!r}; there are: {known}")
    try:
        setup = Setup(env, screen.settings(settings), style, cast("PoolName", pool), workers)
        sampling = Sampling(temperature, max_tokens=max_tokens)
        tried = Trial(trial, screen.settings(trial_settings), sampling, max_turns)
        with _progress() as report:
            done = warm_up(
                model,
                setup,
                out,
                demonstration=Demonstration(
                    cast("Teacher", policy), episodes, noise, max_turns, seed
                ),
                schedule=Schedule(steps, batch, learning_rate, seed=seed),
                trial=tried if trial else None,
                context=context,
                device=device,
                report=report,
            )
    except (ImportError, OSError, ValueError, TypeError, RuntimeError) as error:
        screen.wrong_call(screen.safe(error, 400))
    if as_json:
        screen.print_json({"out": str(out), **_numbers(done)})
    else:
        _print(done, out)


@contextmanager
def _progress() -> Iterator[Report]:
    """A bar for each thing that is done, one after another."""
    with ExitStack() as stack:
        said: str | None = None
        bar: Any = None

        def report(what: str, share: float) -> None:
            nonlocal said, bar
            if what != said:
                stack.close()
                said, bar = what, stack.enter_context(screen.progress(what))
            bar(share)

        yield report


def _numbers(done: Warmup) -> dict[str, Any]:
    return {
        "lessons": done.lessons,
        "tokens": done.tokens,
        "first_loss": done.first_loss,
        "last_loss": done.last_loss,
        "losses": list(done.losses),
        "before": None if done.before is None else asdict(done.before),
        "after": None if done.after is None else asdict(done.after),
    }


def _print(done: Warmup, out: Path) -> None:
    table = Table(show_header=False)
    table.add_row("lessons", f"{done.lessons:,} decisions, {done.tokens:,} tokens of answers")
    table.add_row("loss", f"{done.first_loss:.3f} to {done.last_loss:.3f} nats a token")
    for when, row in (("before", done.before), ("after", done.after)):
        if row is not None:
            table.add_row(f"success {when}", _said(row))
    screen.out.print(table)
    screen.out.print(Text(f"Wrote {screen.safe(out)}.", style="green"))


def _said(row: Success) -> str:
    return (
        f"{row.rate:.1%} ({row.low:.0%} to {row.high:.0%}) of {row.tasks:,} tasks; "
        f"{row.valid:.1%} of decisions valid"
    )
