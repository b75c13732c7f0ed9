"""The ``ascribe`` command: parse, call the library, print.

Exit codes: 0 success; 1 a problem in the rollouts; 2 a wrong call (unknown recipe, missing file).

A command's module is imported when the command is called, because together they import all of
Ascribe: ``ascribe --help`` shows the summaries below.
"""

import io
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any

import typer

from ascribe.cli.plain import BLUE, ORANGE, App, PlainGroup, coloured, tell
from ascribe.steps.errors import InputError
from ascribe.steps.hints import command_line, laboratory
from ascribe.steps.plugins import PluginError, entry_points, load_path, load_point

SUMMARIES = {
    "import": "Convert sessions that other tools wrote into a table of steps.",
    "check": "List the problems of a file of rollouts, and how to fix each.",
    "states": "Propose a key that makes equal states equal: without clocks, counters and list "
    "order.",
    "credit": "Compute an advantage for each step, and write the rollouts with it.",
    "recipes": "List the recipes, or show the parameters and presets of one.",
    "decisions": "Print the decisions that raised or lowered the reward, the most certain first.",
    "show": "Show one trajectory step by step, with its rewards and advantages.",
    "report": "Write an HTML page: what happened, what separates won from lost, and why.",
    "adapters": "Check an adapter for another trainer.",
}
PLACES = {"import": "importing:import_"}
"""Commands that are not in the module and function of their name."""
COMMANDS = {
    name: (f"ascribe.cli.{PLACES.get(name, f'{name}:{name}')}", text)
    for name, text in SUMMARIES.items()
}
"""Each command: where it is, and the first sentence of its help."""

LABORATORY = ("audit", "calibrate", "env", "eval", "pivots", "replay", "rollout", "train", "warmup")
"""Commands of the other package, ``ascribe-lab``."""

PANELS = {
    "Files": ("import", "check", "credit", "recipes", "decisions", "show", "report", "states"),
    "Training": ("train", "warmup", "pivots", "calibrate", "adapters"),
    "Laboratory": ("env", "rollout", "eval", "replay", "audit"),
}
"""The headings of the help, each with the commands under it."""

OVERVIEW = """\
{} computes which steps of an LLM agent earned the reward. It compares attempts at the same
task, from logs of sessions or from training, and gives each step an advantage.

Example: ascribe report sessions.jsonl -o report.html

{}

ascribe --help describes the commands, ascribe COMMAND --help one of them."""
"""What ``ascribe`` alone prints, with a line for each heading."""


@cache
def commands() -> dict[str, tuple[str, str]]:
    """All commands: ``COMMANDS``, and those that installed packages add in the same form."""
    added: dict[str, tuple[str, str]] = {}
    for point in entry_points("ascribe.commands", ()).values():
        try:
            added |= load_point(point)
        except PluginError as error:  # the other commands work without that package
            tell("warning", str(error))
    return added | COMMANDS


def load_command(name: str) -> Any:
    """The command, or group of commands, of a name; imports its module."""
    command = load_path(commands()[name][0])
    if isinstance(command, typer.Typer):
        return typer.main.get_group(command)
    alone = App()
    alone.command(name)(command)
    return typer.main.get_command(alone)


class Root(PlainGroup):
    """Commands that stand for others with their summaries until one is called."""

    def overview(self, ctx: Any) -> str:  # noqa: ARG002
        """What Ascribe does, with one example."""
        lines = [
            f"{coloured(f'{name}:'.ljust(13), BLUE)}{', '.join(each)}"
            for name, each in self.panels().items()
        ]
        return OVERVIEW.format(coloured("Ascribe", ORANGE), "\n".join(lines))

    def panels(self) -> Mapping[str, Iterable[str]]:
        """The headings of the help; commands of other packages come last."""
        listed = {name for names in PANELS.values() for name in names}
        found = {
            heading: [name for name in names if name in commands()]
            for heading, names in PANELS.items()
        }
        found["Other"] = [name for name in commands() if name not in listed]
        return {heading: names for heading, names in found.items() if names}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, loaded, and what is left of them."""
        if args[0] in LABORATORY and args[0] not in commands():
            what = f"{args[0]} is a command of the laboratory, which is not installed"
            raise InputError(what, hint=f"install it with: {laboratory()}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in commands() else command, rest


HELP = """Compute which steps of LLM agents earned the reward.

Examples:
    ascribe report sessions.jsonl -o report.html
    ascribe credit sessions.jsonl -o credited.jsonl
"""
app = App(name="ascribe", cls=Root, help=HELP, add_completion=True)
for command_name, (_, summary) in commands().items():
    app.command(command_name, help=summary)(lambda: None)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """The options of the program."""
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
