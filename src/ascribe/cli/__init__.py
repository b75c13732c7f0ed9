"""The ``ascribe`` command: parse, call the library, print.

Exit codes: 0 success; 1 a problem in the rollouts; 2 a wrong call (unknown recipe, missing file).

A command's module is imported when the command is called, because together they import all of
Ascribe: ``ascribe --help`` shows the summaries below.
"""

import io
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup

COMMANDS = {
    "import": "Turn conversations that other tools wrote into a table of steps.",
    "check": "List everything that is wrong with a file of rollouts, and what to do about it.",
    "states": "Propose a canonical key for states: lists sorted, clocks and counters removed.",
    "credit": "Write the rollouts with their advantages, and show where the signal is.",
    "recipes": "List the recipes, or one of them with its parameters, defaults and presets.",
    "show": "Show one trajectory step by step: state, action, reward, advantage and its terms.",
    "report": "Write one HTML page that shows where the credit went, and print the verdict.",
    "audit": "Score recipes where the truth is known: in small worlds, or for your own policy.",
    "calibrate": "Choose the layer, the pooling and the radius of a model's fingerprints for "
    "BiPACE.",
    "rollout": "Play groups of episodes and write them to a file that check and credit read.",
    "eval": "Print how many tasks are solved, by family, with a 95 % interval.",
    "warmup": "Train a model for a few updates on an expert's responses, so that its actions are "
    "valid.",
    "train": "Train by a config; print every value and who set it.",
    "env": "Environments: which there are, and whether one keeps the contract.",
    "adapters": "Adapters for other trainers: whether one keeps the contract.",
    "pivots": "PivotRL: from expert traces to the turns that are worth training on.",
}
"""Each command with the first sentence of its help."""

PLACES = {"import": ("importing", "import_"), "eval": ("rollout", "evaluate")}
"""The module and the function of a command, where they are not called what it is called."""


def load_command(name: str) -> Any:
    """The command, or group of commands, of a name; imports its module."""
    module, attribute = PLACES.get(name, (name, name))
    command = getattr(import_module(f"ascribe.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        group = typer.main.get_group(command)
        for one in group.commands.values():
            _plain_help(one)
        return _plain_help(group)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(command)
    return _plain_help(typer.main.get_command(alone))


VALUES = {"--set": "NAME=VALUE", "--trial-set": "NAME=VALUE", "--column": "NAME=OWN"}
KINDS = {int: "N", float: "X", Path: "PATH", bool: ""}


def _plain_help(command: Any) -> Any:
    """Let paragraphs of the help fill their lines, and name values in words, not by types."""
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
    parameters = command.get_params
    command.get_params = lambda ctx: [_name_value(each) for each in parameters(ctx)]
    return command


def _name_value(parameter: Any) -> Any:
    """The parameter of a command, with a word for its value, or none if it is a flag."""
    kind = parameter.type_descriptor.annotation
    kind = next(iter(get_args(kind)), kind)  # of a list, what it holds
    named = KINDS.get(kind, "TEXT")
    if not parameter.opts[0].startswith("-"):
        named = parameter.name.upper()
        parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 (as typer calls it)
    if parameter.metavar is None:
        parameter.metavar = VALUES.get(parameter.opts[0], named)
    return parameter


class CommandGroup(TyperGroup):
    """Commands that stand for others with their summaries until one is called."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, each with a word for its value."""
        return [_name_value(each) for each in super().get_params(ctx)]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, loaded, and what is left of them."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else command, rest

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; loaded if a shell asks for completions."""
        if ctx.resilient_parsing and cmd_name in COMMANDS:
            return load_command(cmd_name)
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="ascribe",
    cls=CommandGroup,
    help="Step-level credit for reinforcement learning of LLM agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for summary in COMMANDS.items():
    app.command(summary[0], help=summary[1])(lambda: None)


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
    app(prog_name="ascribe")  # also as python -m ascribe
