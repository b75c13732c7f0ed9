"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]
File = Annotated[
    Path,
    Argument(
        help="Rollouts: .parquet, .jsonl, .jsonl.gz or .csv, or conversations that ascribe import "
        "takes.",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str],
    Option(
        "--column",
        help="What the file calls a column: --column reward=score. Repeatable.",
        show_default=False,
    ),
]
Source = Annotated[
    str,
    Argument(
        help="Rollouts: .parquet, .jsonl, .jsonl.gz or .csv, conversations for ascribe import, or "
        "a folder of .parquet files; also a URI, such as s3://bucket/folder.",
        show_default=False,
    ),
]
Memory = Annotated[
    float,
    Option(help="GiB of memory to use; larger tables are processed in parts.", min=0.5),
]
Force = Annotated[bool, Option("--force", help="Replace an input, or an earlier output folder.")]
GroupSize = Annotated[
    int | None, Option(help="Expected number of trajectories in each group.", min=1)
]


def complete_recipe(incomplete: str) -> list[str]:
    """The recipes that begin like this, for the shell."""
    from ascribe.estimators import RECIPES

    return [name for name in RECIPES if name.startswith(incomplete)]


Recipe = Annotated[
    str,
    Option(
        help="A recipe (ascribe recipes), or module:Name of your own.",
        autocompletion=complete_recipe,
    ),
]
Preset = Annotated[
    str | None, Option(help="The recipe as public code computes it; see: ascribe recipes.")
]
Parameters = Annotated[
    list[str], Option("--set", help="Change a parameter: --set gamma=1.0. Repeatable.")
]
