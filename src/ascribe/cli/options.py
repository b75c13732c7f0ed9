"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ascribe.cli import screen
from ascribe.sessions.formats import SessionOptions
from ascribe.sessions.formats.known import FORMATS
from ascribe.sessions.formats.states import CHOICES, Choice
from ascribe.steps.hints import unknown

Json = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]
Quiet = Annotated[
    bool,
    Option(
        "--quiet",
        "-q",
        help="Print results and errors alone, without progress, notes and advice.",
        callback=screen.be_quiet,
    ),
]
File = Annotated[
    Path,
    Argument(
        help="A file of rollouts (.parquet, .jsonl, .jsonl.gz or .csv) or of sessions that ascribe "
        "import reads; - for standard input.",
        show_default=False,
        callback=screen.stdin_or,
    ),
]
Columns = Annotated[
    list[str],
    Option(
        "--column",
        help="The name of a column in your file: --column reward=score. Repeatable.",
        show_default=False,
    ),
]
Source = Annotated[
    str,
    Argument(
        help="A file of rollouts (.parquet, .jsonl, .jsonl.gz or .csv) or of sessions that ascribe "
        "import reads; a folder of .parquet files; a URI such as s3://bucket/folder; or - for "
        "standard input.",
        show_default=False,
        callback=screen.stdin_or,
    ),
]
From = Annotated[
    str | None,
    Option(
        "--format",
        help=f"Format of the sessions; recognised by default. One of {', '.join(FORMATS)}.",
        autocompletion=lambda: list(FORMATS),
    ),
]
Group = Annotated[
    str | None,
    Option(
        help="Field of a session that names its task. Dots lead into objects, such as info.task."
    ),
]
Reward = Annotated[
    str | None,
    Option(
        help="Field of a session that holds its reward, or a .csv file with the columns session "
        "and reward."
    ),
]
State = Annotated[
    str,
    Option(
        help=f"What to use as the state of a session's steps: auto, {', '.join(CHOICES)}.",
        autocompletion=lambda: ["auto", *CHOICES],
    ),
]
Memory = Annotated[
    float,
    Option(help="Memory to use, in GiB. Larger tables are processed in parts.", min=0.5),
]
Force = Annotated[
    bool, Option("--force", help="Overwrite a file that is read, or a folder of earlier outputs.")
]
GroupSize = Annotated[
    int | None,
    Option(help="Number of trajectories that each group should have; checked if given.", min=1),
]


def sessions(form: str | None, group: str | None, reward: str | None, state: str) -> SessionOptions:
    """The options for sessions as the library takes them; exits if there is no such value."""
    choices: dict[str, Choice | None] = {"auto": None} | {name: name for name in CHOICES}
    if state not in choices:
        screen.wrong_call(unknown("state", screen.safe(state), choices))
    if form is not None and form not in FORMATS:
        screen.wrong_call(unknown("format", screen.safe(form), FORMATS))
    return {"form": form, "group": group, "reward": reward, "state": choices[state]}


def complete_recipe() -> list[str]:
    """The recipes, for the shell."""
    from ascribe.estimators import RECIPES

    return list(RECIPES)


Recipe = Annotated[
    str,
    Option(
        help="Name of a recipe (see ascribe recipes), or module:Name for one of your own.",
        autocompletion=complete_recipe,
    ),
]
Preset = Annotated[
    str | None,
    Option(help="Named parameters of the recipe, as in public code (see ascribe recipes NAME)."),
]
Parameters = Annotated[
    list[str],
    Option("--set", help="Change a parameter of the recipe: --set gamma=1.0. Repeatable."),
]
