"""The ``ascribe`` command: parse, call the library, print.

Exit codes: 0 success; 1 a problem in the rollouts; 2 a wrong call (unknown recipe, missing file).
"""

import io
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from ascribe.cli.audit import audit
from ascribe.cli.calibrate import calibrate
from ascribe.cli.check import check
from ascribe.cli.credit import credit
from ascribe.cli.env import env
from ascribe.cli.importing import import_
from ascribe.cli.pivots import pivots
from ascribe.cli.recipes import recipes
from ascribe.cli.report import report
from ascribe.cli.rollout import evaluate, rollout
from ascribe.cli.show import show
from ascribe.cli.train import train
from ascribe.cli.warmup import warmup
from ascribe.cli.watch import watch

app = typer.Typer(
    name="ascribe",
    help="Step-level credit for reinforcement learning of LLM agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(import_, check, credit, recipes, show, report, audit, calibrate),
    *(rollout, evaluate, warmup, train, watch),
)
NAMES: dict[Callable[..., None], str] = {import_: "import", evaluate: "eval"}
for command in COMMANDS:
    app.command(NAMES.get(command))(command)
app.add_typer(env, name="env")
app.add_typer(pivots, name="pivots")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Step-level credit for reinforcement learning of LLM agents."""
    if version:
        from ascribe import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for limited terminals
    app()
