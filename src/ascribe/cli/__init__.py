"""The ``ascribe`` command: parse, call the library, print.

Exit codes: 0 success; 1 a problem in the rollouts; 2 a wrong call (unknown recipe, missing file).

A command's module is imported when the command is called, because together they import all of
Ascribe: ``ascribe --help`` shows the summaries below.
"""

import io
import re
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from ascribe.steps.hints import command_line
from ascribe.steps.plugins import PluginError, entry_points, load_path, load_point

COMMANDS = {
    "import": (
        "ascribe.cli.importing:import_",
        "Turn sessions that other tools wrote into a table of steps.",
    ),
    "check": (
        "ascribe.cli.check:check",
        "List everything that is wrong with a file of rollouts, and what to do about it.",
    ),
    "states": (
        "ascribe.cli.states:states",
        "Propose a canonical key for states: lists sorted, clocks and counters removed.",
    ),
    "credit": (
        "ascribe.cli.credit:credit",
        "Write the rollouts with their advantages, and show where the signal is.",
    ),
    "recipes": (
        "ascribe.cli.recipes:recipes",
        "List the recipes, or one of them with its parameters, defaults and presets.",
    ),
    "decisions": (
        "ascribe.cli.decisions:decisions",
        "Print which decisions earned or cost the reward, the most certain first.",
    ),
    "show": (
        "ascribe.cli.show:show",
        "Show one trajectory step by step: state, action, reward, advantage and its terms.",
    ),
    "report": (
        "ascribe.cli.report:report",
        "Write one HTML page that shows what earned the reward, and print the surest decisions.",
    ),
    "adapters": (
        "ascribe.cli.adapters:adapters",
        "Adapters for other trainers: whether one keeps the contract.",
    ),
}
"""Each command: where it is, and the first sentence of its help."""

LABORATORY = ("audit", "calibrate", "env", "eval", "pivots", "replay", "rollout", "train", "warmup")
"""Commands of the other package, ``ascribe-lab``."""


@cache
def commands() -> dict[str, tuple[str, str]]:
    """All commands: ``COMMANDS``, and those that installed packages add in the same form."""
    added: dict[str, tuple[str, str]] = {}
    for point in entry_points("ascribe.commands", ()).values():
        try:
            added |= load_point(point)
        except PluginError as error:  # the other commands work without that package
            print(error, file=sys.stderr)
    return added | COMMANDS


def load_command(name: str) -> Any:
    """The command, or group of commands, of a name; imports its module."""
    command = load_path(commands()[name][0])
    if isinstance(command, typer.Typer):
        group = typer.main.get_group(command)
        for one in group.commands.values():
            _plain_help(one)
        return _plain_help(group)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(command)
    return _plain_help(typer.main.get_command(alone))


VALUES = {"--set": "NAME=VALUE", "--column": "NAME=OWN"}
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
        if args[0] in LABORATORY and args[0] not in commands():
            ctx.fail(
                f"{args[0]} is a command of the laboratory, which is not installed: "
                "pip install ascribe-lab (in a clone: pip install ./lab)"
            )
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in commands() else command, rest

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; loaded if a shell asks for completions."""
        if ctx.resilient_parsing and cmd_name in commands():
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
for command_name, (_, summary) in sorted(commands().items(), key=lambda c: c[0] not in COMMANDS):
    app.command(command_name, help=summary)(lambda: None)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Step-level credit for reinforcement learning of LLM agents."""
    ctx.with_resource(command_line())
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
