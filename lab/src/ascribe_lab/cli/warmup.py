"""``ascribe warmup``: a short supervised start on an expert's actions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import ValidationError
from rich.table import Table
from typer import Option

from ascribe.cli import options, screen
from ascribe.steps.problems import counted
from ascribe_lab.cli import play_options
from ascribe_lab.rollout import Setup
from ascribe_lab.rollout.setup import PoolName
from ascribe_lab.train.config import Layout
from ascribe_lab.train.warmup import Demonstration, Schedule, Teacher, warm_up


def warmup(
    env: play_options.Env,
    model: Annotated[str, Option(help="Model to train: a folder, or smollm2.")],
    out: Annotated[Path, Option("--out", "-o", help="New or empty folder to write the model to.")],
    settings: play_options.EnvSettings = [],  # noqa: B006 (typer copies it)
    style: play_options.Style = "plain",
    policy: Annotated[str, Option(help="Whose actions to learn: expert, or random.")] = "expert",
    episodes: Annotated[int, Option(help="Number of episodes to play for examples.", min=1)] = 200,
    noise: Annotated[
        float,
        Option(
            help="Share of steps at which a random action is played instead of the expert's; the "
            "model still learns the expert's."
        ),
    ] = 0.0,
    layout: Annotated[
        str, Option(help="Layout of the later training (update.layout): step, or trajectory.")
    ] = "step",
    steps: Annotated[int, Option(help="Number of updates.", min=1)] = 20,
    batch: Annotated[int, Option(help="Number of examples in an update.", min=1)] = 8,
    learning_rate: Annotated[
        float,
        Option(help="Highest learning rate; it rises over a tenth of the updates, then falls."),
    ] = 5e-5,
    seed: play_options.Seed = 0,
    context: play_options.Context = None,
    device: Annotated[str, Option(help="Device to train on: cpu, or cuda.")] = "cpu",
    max_turns: play_options.MaxTurns = None,
    pool: play_options.Pool = "processes",
    workers: play_options.Workers = 2,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Train a model on an expert's responses until its actions are valid.

    A short supervised start before reinforcement learning. Needs the extra trl.

    Examples:
        ascribe warmup --env textcraft --model smollm2 -o warm
    """
    screen.find_own_code(env)
    try:
        setup = Setup(env, screen.settings(settings), style, cast("PoolName", pool), workers)
        with _progress() as report:
            done = warm_up(
                model,
                setup,
                out,
                demonstration=Demonstration(
                    teacher=cast("Teacher", policy),
                    episodes=episodes,
                    noise=noise,
                    max_turns=max_turns,
                    seed=seed,
                    layout=cast("Layout", layout),
                ),
                schedule=Schedule(steps=steps, batch=batch, learning_rate=learning_rate, seed=seed),
                context=context,
                device=device,
                report=report,
            )
    except ValidationError as error:
        problem = error.errors()[0]
        location = ".".join(map(str, problem["loc"]))
        message = problem["msg"].replace("Input should", "must").removeprefix("Value error, ")
        screen.wrong_call(screen.safe(f"{location}: {message}" if location else message, 400))
    except (ImportError, OSError, ValueError, TypeError, RuntimeError) as error:
        screen.wrong_call(error)
    if as_json:
        losses = {"first_loss": done.first_loss, "last_loss": done.last_loss}
        screen.print_json({"out": str(out), **asdict(done), **losses})
        return
    table = Table(show_header=False)
    examples = f"{counted(done.examples, 'decision')}, {done.tokens:,} response tokens"
    table.add_row("examples", examples)
    table.add_row("loss", f"{done.first_loss:.3f} to {done.last_loss:.3f} nats a token")
    screen.out.print(table)
    screen.print_wrote(out)


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """A bar for each phase, one after another."""
    with ExitStack() as stack:
        current: str | None = None
        bar: Any = None

        def report(phase: str, share: float) -> None:
            nonlocal current, bar
            if phase != current:
                stack.close()
                current, bar = phase, stack.enter_context(screen.progress(phase))
            bar(share)

        yield report
