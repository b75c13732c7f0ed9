"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ascribe.cli import screen
from ascribe.sessions.formats import SessionOptions
from ascribe.sessions.formats.known import FORMATS
from ascribe.sessions.formats.states import CHOICES, Choice
from ascribe.steps.hints import unknown

Json = Annotated[bool, Option("--json", help="Print JSON and nothing else.")]
File = Annotated[
    Path,
    Argument(
        help="Rollouts: .parquet, .jsonl, .jsonl.gz or .csv, or sessions, as for ascribe import; "
        "- for standard input.",
        show_default=False,
        callback=screen.stdin_or,
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
        help="Rollouts: .parquet, .jsonl, .jsonl.gz or .csv, sessions, as for ascribe import, or a "
        "folder of .parquet files; also a URI, such as s3://bucket/folder, or - for standard "
        "input.",
        show_default=False,
        callback=screen.stdin_or,
    ),
]
From = Annotated[
    str | None,
    Option("--from", help=f"Format of sessions; detected by default: {', '.join(FORMATS)}."),
]
Group = Annotated[
    str | None,
    Option(help="Field of sessions that names the task; dots lead into objects: info.task."),
]
Reward = Annotated[
    str | None,
    Option(
        help="Field of sessions that holds the reward; or a .csv file with the columns session and "
        "reward."
    ),
]
State = Annotated[
    str, Option(help=f"What counts as the state in sessions: auto, {', '.join(CHOICES)}.")
]
Memory = Annotated[
    float,
    Option(help="GiB of memory to use; larger tables are processed in parts.", min=0.5),
]
Force = Annotated[bool, Option("--force", help="Replace an input, or an earlier output folder.")]
GroupSize = Annotated[
    int | None, Option(help="Expected number of trajectories in each group.", min=1)
]


def sessions(form: str | None, group: str | None, reward: str | None, state: str) -> SessionOptions:
    """The options for sessions as the library takes them; exits if there is no such value."""
    choices: dict[str, Choice | None] = {"auto": None} | {name: name for name in CHOICES}
    if state not in choices:
        screen.wrong_call(unknown("state", screen.safe(state), choices))
    if form is not None and form not in FORMATS:
        screen.wrong_call(unknown("format", screen.safe(form), FORMATS))
    return {"form": form, "group": group, "reward": reward, "state": choices[state]}


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
