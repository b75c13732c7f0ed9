"""Options and arguments that several commands share."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, cast

from typer import Argument, Option

from ascribe.cli import screen
from ascribe.sessions.reading import SessionOptions
from ascribe.sessions.reading.format import formats
from ascribe.sessions.reading.states import CHOICES
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
        help=f"Format of the sessions; recognised by default. One of {', '.join(formats())}.",
        autocompletion=lambda: list(formats()),
    ),
]
Group = Annotated[
    str | None,
    Option(
        "--group",
        "--task",
        help="Field of a session that names its task. Dots lead into objects, such as info.task.",
    ),
]
Reward = Annotated[
    str | None,
    Option(
        help="Field of a session that holds its reward, or a .csv file with the columns session "
        "and reward."
    ),
]
Messages = Annotated[
    str | None,
    Option(help="Field of a session that holds its messages, or steps with an action each."),
]
Actions = Annotated[
    str | None,
    Option(help="Field of a session that holds its actions, if it has no messages."),
]
Observations = Annotated[
    str | None, Option(help="Field of a session that holds what was observed after each action.")
]
Session = Annotated[str | None, Option(help="Field of a session that holds its name.")]
Version = Annotated[
    str | None, Option(help="Field of a session that says who acted, such as the model.")
]
OutcomeMap = Annotated[
    str | None,
    Option(help="What words are worth as rewards: solved=1,partial=0.5,failed=0."),
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


Rewards = Annotated[
    str,
    Option(
        help="What the rewards of model calls belong to: call (those of a session add up) or "
        "session; auto: to calls if any session has different ones.",
        autocompletion=lambda: ["auto", "call", "session"],
    ),
]
Copies = Annotated[
    str,
    Option(
        help="Sessions that equal an earlier one of the task in all words: all count, or count "
        "them once. Proven copies, such as by their call ids, always count once.",
        autocompletion=lambda: ["all", "once"],
    ),
]
Crashed = Annotated[
    str,
    Option(
        help="Sessions that crashed, where the file says so: count, or drop.",
        autocompletion=lambda: ["count", "drop"],
    ),
]
SkipBad = Annotated[
    bool,
    Option("--skip-bad", help="Read past files and records that cannot be read, and count them."),
]
SameTask = Annotated[
    bool,
    Option(
        "--same-task",
        help="Compare all sessions of a group: they attempt one task, however they begin.",
    ),
]


def _session_options(
    form: From = None,
    group: Group = None,
    reward: Reward = None,
    state: State = "auto",
    rewards: Rewards = "auto",
    copies: Copies = "all",
    crashed: Crashed = "count",
    skip_bad: SkipBad = False,
    same_task: SameTask = False,
    messages: Messages = None,
    actions: Actions = None,
    observations: Observations = None,
    session: Session = None,
    version: Version = None,
    outcome_map: OutcomeMap = None,
) -> SessionOptions:
    """The options for sessions as the library takes them, those that were changed."""
    _known("state", state, ("auto", *CHOICES))
    _known("format", form, (None, *formats()))
    _known("choice of --rewards", rewards, ("auto", "call", "session"))
    _known("choice of --copies", copies, ("all", "once"))
    _known("choice of --crashed", crashed, ("count", "drop"))
    given = {"form": form, "group": group, "reward": reward, "state": state, "rewards": rewards}
    given |= {"copies": copies, "crashed": crashed, "messages": messages, "actions": actions}
    given |= {"observations": observations, "session": session, "version": version}
    chosen = {name: v for name, v in given.items() if v not in (None, "auto", "all", "count")}
    flags = {"skip_bad": skip_bad, "same_task": same_task}
    set_ = {name: True for name, is_set in flags.items() if is_set}
    words = {} if outcome_map is None else {"outcome_map": _worth(outcome_map)}
    return cast("SessionOptions", {**chosen, **set_, **words})


def _worth(text: str) -> dict[str, float]:
    """What words are worth; exits for what does not say it."""
    pairs = [each.rpartition("=") for each in text.split(",")]
    try:
        return {word.strip(): float(number) for word, _, number in pairs}
    except ValueError:
        screen.wrong_call(f"{screen.safe(text)} is not of the form solved=1,partial=0.5,failed=0")


def _known(kind: str, name: str | None, known: Sequence[str | None]) -> None:
    """Exit unless a name is among those that are known."""
    if name not in known:
        screen.wrong_call(unknown(kind, screen.safe(name), filter(None, known)))


def reads_sessions(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options for sessions in the place of its parameter ``sessions``."""
    own = signature(command)
    options = signature(_session_options).parameters
    parameters: list[Parameter] = []
    for each in own.parameters.values():
        parameters += options.values() if each.name == "sessions" else [each]

    @wraps(command)
    def called(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        command(**values, sessions=_session_options(**given))

    called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


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
