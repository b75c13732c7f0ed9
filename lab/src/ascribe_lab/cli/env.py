"""``ascribe env``: list the environments, and check one against the contract."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.cli.plain import App
from ascribe.steps.problems import counted
from ascribe_lab.cli import play_options
from ascribe_lab.envs.faults import ContractFinding, ContractReport
from ascribe_lab.envs.registry import Entry, catalogue, list_options
from ascribe_lab.rollout.setup import Setup

env = App(
    name="env",
    help="""List the environments and their options, or check one of your own.

    Examples:
        ascribe env list
        ascribe env check sokoban
    """,
)


EnvironmentName = Annotated[
    str,
    Argument(
        help="Name of an environment (see ascribe env list), or package.module:factory.",
        show_default=False,
        autocompletion=play_options.complete_environment,
    ),
]


@env.command("list")
def list_environments(as_json: options.Json = False) -> None:
    """List the environments and adapters, and whether what each needs is installed.

    Examples:
        ascribe env list
    """
    entries = catalogue()
    if as_json:
        screen.print_json([asdict(entry) for entry in entries])
    else:
        screen.out.print(_overview(entries))
        screen.out.print("ascribe env options NAME lists the options of one.")
        screen.out.print("ascribe env check package.module:factory checks one of your own.")


@env.command("options")
def options_command(name: EnvironmentName, as_json: options.Json = False) -> None:
    """List the options of an environment: type, default and meaning.

    Set them with --set name=value for check, rollout, eval, warmup and train.

    Examples:
        ascribe env options sokoban
    """
    screen.find_own_code(name)
    try:
        listed = list_options(name)
    except (ImportError, ValueError) as error:
        screen.wrong_call(error)
    if as_json:
        screen.print_json([asdict(option) for option in listed])
        return
    table = Table()
    for column in ("--set", "type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for option in listed:
        default = "(required)" if option.required else _json(option.default)
        cells = (option.type, screen.safe(default, 60), screen.safe(option.meaning, 400))
        table.add_row(Text(option.name, style="bold"), *map(Text, cells))
    screen.out.print(table)


@env.command()
def check(
    name: EnvironmentName,
    settings: play_options.EnvSettings = [],  # noqa: B006 (typer copies it)
    seeds: Annotated[int, Option(help="Number of seeds to play.", min=1)] = 5,
    max_steps: Annotated[int, Option(help="Most steps of an episode.", min=1)] = 200,
    limit: Annotated[
        float, Option(help="Timeout of each part of the check, in seconds.", min=0.001)
    ] = 300.0,
    as_json: options.Json = False,
) -> None:
    """Check that an environment keeps the contract, and list each violation with its fix.

    The exit code is 0 if the environment keeps the contract, 1 if there is an error, 2 if there is
    no such environment, it is not installed, or it does not take the options.

    Examples:
        ascribe env check sokoban
        ascribe env check package.module:factory --set name=value
    """
    chosen = screen.settings(settings)
    screen.find_own_code(name)
    try:
        report = Setup(name, chosen).check_contract(seeds, max_steps, limit)
    except ValueError as error:
        screen.wrong_call(f"cannot make {screen.safe(name)}: {screen.safe(error, 300)}")
    if as_json:
        screen.print_json({"environment": name, "options": chosen, **report.as_dict()})
    else:
        if report.findings:
            screen.out.print(_finding_table(report.findings))
        screen.out.print(_verdict(name, report))
    if not report.kept:
        raise typer.Exit(1)


def _json(value: Any) -> str:
    """The value as ``--set`` takes it."""
    try:
        return json.dumps(value)
    except TypeError:
        return str(value)


def _overview(entries: list[Entry]) -> Table:
    table = Table()
    for column in ("name", "kind", "extra", "installed"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        installed = "yes" if entry.installed else f"no: {', '.join(entry.missing)}"
        style = "green" if entry.installed else "dim"
        extra = entry.extra or "none needed"
        table.add_row(Text(entry.name, style="bold"), entry.kind, extra, Text(installed, style))
    return table


def _finding_table(findings: Sequence[ContractFinding]) -> Table:
    table = Table(expand=False)
    table.add_column("finding", no_wrap=True)
    for column in ("first found", "times", "what to do"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        label = f"{finding.fault.label}\n{finding.severity.name.lower()}"
        table.add_row(
            Text(label, style=screen.STYLES[finding.severity]),
            Text(screen.safe(finding.detail, 300)),
            f"{finding.count:,}",
            Text(finding.fault.advice),
        )
    return table


def _verdict(name: str, report: ContractReport) -> Text:
    played = f"{counted(report.episodes, 'episode')}, {counted(report.steps, 'step')}"
    speed = f"{report.steps_per_second:,.0f} steps a second"
    verdict = "the contract is kept" if report.kept else "the contract is broken"
    style = "green" if report.kept else "red"
    return Text(f"{screen.safe(name)}: {verdict}. {played}, {speed}.", style=style)
