"""``ascribe adapters``: check an adapter of another trainer against the contract."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text
from typer import Argument

from ascribe.cli import options, screen
from ascribe.cli.plain import App
from ascribe.engines.adapters.contract import check_adapter
from ascribe.steps.plugins import PluginError, load_path

adapters = App(
    name="adapters",
    help="""Check an adapter for another trainer.

    Examples:
        ascribe adapters check examples.adapter:ListAdapter
    """,
)


@adapters.command()
def check(
    name: Annotated[
        str,
        Argument(
            help="The adapter: package.module:Adapter, a class without required arguments.",
            show_default=False,
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Check that an adapter for another trainer keeps the contract.

    Credits small batches of the trainer's own objects, and compares the result with that for plain
    sequences. The exit code is 0 if the adapter keeps the contract, 1 if it breaks a part, 2 if
    there is no such adapter.

    Examples:
        ascribe adapters check examples.adapter:ListAdapter
    """
    screen.find_own_code(name)
    try:
        adapter = load_path(name)()
    except PluginError as error:
        screen.wrong_call(error)
    except Exception as error:
        screen.wrong_call(f"cannot make {screen.safe(name)}: {screen.safe(error, 300)}")
    results = check_adapter(adapter)
    kept = all(result.kept for result in results)
    if as_json:
        parts = [asdict(result) for result in results]
        screen.print_json({"adapter": name, "kept": kept, "parts": parts})
    else:
        verdicts = {True: Text("yes", style="green"), False: Text("no", style="red")}
        rows = [(each.name, verdicts[each.kept], each.detail) for each in results]
        screen.out.print(screen.table_of(("part of the contract", "kept", "found"), rows, most=300))
    if not kept:
        raise typer.Exit(1)
