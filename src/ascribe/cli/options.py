"""Options and arguments that several commands share."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from ascribe.cli import screen
from ascribe.sessions.reading.format import formats, others
from ascribe.sessions.reading.states import CHOICES
from ascribe.steps.hints import command_line

if TYPE_CHECKING:
    from ascribe.estimators import Recipe as Estimator

Json = Annotated[
    bool,
    Option("--json", help="Print one JSON document instead of text.", callback=screen.be_json),
]
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


SESSIONS: dict[str, tuple[Any, str]] = {
    "form": (
        "",
        f"Format of the sessions; recognised by default. One of {', '.join(formats())}.",
    ),
    "group": (
        "",
        "Field of a session that names its task. Dots lead into objects, such as info.task.",
    ),
    "reward": (
        "",
        "Field of a session that holds its reward, or a .csv file with the columns session and "
        "reward.",
    ),
    "state": (
        ("auto", *CHOICES),
        f"What to use as the state of a session's steps: auto, {', '.join(CHOICES)}.",
    ),
    "rewards": (
        ("auto", "call", "session"),
        "What the rewards of model calls belong to: call (those of a session add up) or session; "
        "auto: to calls if any session has different ones.",
    ),
    "copies": (
        ("all", "once"),
        "Sessions that equal an earlier one of the task in all words: all count, or count them "
        "once. Proven copies, such as by their call ids, always count once.",
    ),
    "crashed": (
        ("count", "drop"),
        "Sessions that crashed, where the file says so: count, or drop.",
    ),
    "skip_bad": (False, "Read past files and records that cannot be read, and count them."),
    "same_task": (
        False,
        "Compare all sessions of a group: they attempt one task, however they begin.",
    ),
    "messages": ("", "Field of a session that holds its messages, or steps with an action each."),
    "actions": ("", "Field of a session that holds its actions, if it has no messages."),
    "observations": ("", "Field of a session that holds what was observed after each action."),
    "session": ("", "Field of a session that holds its name."),
    "version": ("", "Field of a session that says who acted, such as the model."),
    "outcome_map": ("", "What words are worth as rewards: solved=1,partial=0.5,failed=0."),
}
"""What each of ``SessionOptions`` takes, and its help: one of several names, of which the first is
the default; any text; or nothing, for a flag."""
NAMES = {
    "form": ["--format"],
    "group": ["--group", "--task"],
    "session": ["--session-field"],
}


def _parameter(name: str, takes: Any, text: str) -> Parameter:
    """The parameter of a command for one of ``SESSIONS``."""
    flags = NAMES.get(name, [f"--{name.replace('_', '-')}"])
    one_of: Any = Literal
    kind: Any = str | None
    default = None
    if takes is False:
        kind, default = bool, False
    elif takes:
        default = takes[0]
        kind = one_of[tuple(filter(None, takes))]
        kind = kind if default else kind | None
    complete = complete_format if name == "form" else None
    annotation = Annotated[kind, Option(*flags, help=text, autocompletion=complete)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def complete_format() -> list[str]:
    """The formats, for the shell."""
    return [*formats(), *others()]


def _worth(text: str) -> dict[str, float]:
    """What words are worth."""
    pairs = [each.rpartition("=") for each in text.split(",")]
    try:
        return {word.strip(): float(number) for word, _, number in pairs}
    except ValueError:
        form = "give each word a number: --outcome-map solved=1,failed=0"
        screen.wrong_call(f"cannot read what words are worth: {screen.safe(text)}", form)


def reads_sessions(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options for sessions in the place of its parameter ``sessions``."""
    own = signature(command)
    options = {name: _parameter(name, *each) for name, each in SESSIONS.items()}
    parameters: list[Parameter] = []
    for each in own.parameters.values():
        shown = options.values() if each.name == "sessions" else [each]
        parameters += [one.replace(kind=Parameter.KEYWORD_ONLY) for one in shown]

    @wraps(command)
    def called(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        sessions = {name: v for name, v in given.items() if v != options[name].default}
        if "outcome_map" in sessions:
            sessions["outcome_map"] = _worth(sessions["outcome_map"])
        with command_line(command.__name__.removesuffix("_")):
            command(**values, sessions=sessions)

    called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def complete_recipe() -> list[str]:
    """The recipes, for the shell."""
    from ascribe.estimators import RECIPES

    return list(RECIPES)


def make_recipe(name: str, preset: str | None, parameters: list[str]) -> "Estimator":
    """The recipe that the options name; stops with a message if there is none."""
    from ascribe.estimators import recipe

    changes = screen.settings(parameters)
    if "preset" in changes:
        screen.wrong_call("--set changes parameters: name the preset with --preset")
    screen.find_own_code(name)
    try:
        return recipe(name, preset=preset, **changes)
    except (ValueError, TypeError, OverflowError) as error:
        shows = f"ascribe recipes {screen.safe(name)} shows what it takes"
        screen.wrong_call(error, "" if getattr(error, "hint", "") else shows)


RECIPE = "Name of a recipe (see ascribe recipes), or module:Name for one of your own."
Recipe = Annotated[str, Option(help=RECIPE, autocompletion=complete_recipe)]
Preset = Annotated[
    str | None,
    Option(help="Named parameters of the recipe, as in public code (see ascribe recipes NAME)."),
]
Parameters = Annotated[
    list[str],
    Option("--set", help="Change a parameter of the recipe: --set gamma=1.0. Repeatable."),
]
