"""Help and errors as plain text: examples in every help, ``error:`` and ``hint:`` in two lines."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent, indent
from types import SimpleNamespace
from typing import Any, NoReturn, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException
from typer.models import CommandFunctionType

from ascribe.steps.errors import AscribeError

BLUE, ORANGE = (64, 140, 200), (224, 123, 44)
"""Ascribe's own colours, which can be read on light and dark terminals."""
COLORS: dict[str, str | tuple[int, int, int]] = {"error": "red", "warning": "yellow", "hint": BLUE}
VALUES = {"--set": "NAME=VALUE", "--column": "NAME=OWN"}
KINDS = {int: "N", float: "X", Path: "PATH", bool: ""}
NOUNS = {"--state": "state", "--format": "format", "--policy": "policy"}
"""Options that are named after what they choose."""
WIDTH = 100
"""Most columns of a help."""
spooled: list[Path] = []
"""Files with the content of standard input, or for standard output."""

WORDS = (
    (r"^Invalid value for (.*?): Input should ", r"\1 must "),
    (r"^Invalid value for (.*?): (Value error, )?", r"\1: "),
    (r"a valid integer.*", "a whole number"),
    (r"a valid number.*", "a number"),
    (r"greater than or equal to", "at least"),
    (r"less than or equal to", "at most"),
    (r"^Missing option", "missing option"),
    (r"^Missing argument", "missing"),
    (r"^Missing command", "missing command"),
    (r"^No such (\w+):? ", r"there is no \1 "),
    (r"^Got unexpected extra argument(\(s\))? \((.*)\)$", r"unexpected argument \2"),
    (r"^Option (\S+) requires an argument$", r"\1 needs a value"),
    (r"^Option (\S+) does not take a value$", r"\1 takes no value"),
)
"""What the parser says, and what is printed instead."""


def coloured(text: str, color: tuple[int, int, int]) -> str:
    """Bold text in a colour, for a terminal; ``NO_COLOR`` turns colours off."""
    return text if "NO_COLOR" in os.environ else typer.style(text, fg=color, bold=True)


def tell(kind: str, text: str) -> None:
    """Print ``kind: text`` on standard error, in one line that can be copied."""
    mark = f"{kind}:"
    if "NO_COLOR" not in os.environ:
        mark = typer.style(mark, fg=COLORS[kind], bold=True)
    try:
        typer.echo(f"{mark} {text}", err=True)
    except OSError:  # nobody reads it; the exit code still tells
        _to_nowhere(sys.stderr)


def named(text: object) -> str:
    """A path as it was given, without the credentials of a URI."""
    from ascribe.steps.problems import without_credentials  # with numpy, which a help does without

    shown = without_credentials(text)
    for path in spooled:
        shown = shown.replace(str(path), "-")
    return shown


def safe(text: object, most: int = 80) -> str:
    """Untrusted text, printable on one line, without the credentials of a URI."""
    from ascribe.steps.problems import one_line

    return one_line(named(text), most)


def tell_error(what: str | Exception, hint: str = "") -> None:
    """Print what is wrong and, in a second line, what to do; errors may hold text of others."""
    if isinstance(what, Exception):
        hint = hint or safe(getattr(what, "hint", ""), 1_000)
        what = safe(getattr(what, "problem", what), 1_000)
    tell("error", what)
    if hint:
        tell("hint", hint)


def fail(what: str | Exception, hint: str = "", code: int = 1) -> NoReturn:
    """Print what is wrong and what to do, and exit."""
    tell_error(what, hint)
    raise typer.Exit(code)


def tell_usage(error: TyperException) -> None:
    """Print what the parser finds wrong with a call, in plain words."""
    from ascribe.steps.hints import nearest, unknown

    message = re.sub(r" / '-\w'|'", "", str(error.format_message())).strip().rstrip(".")
    message, _, guess = message.partition(". Did you mean ")
    possible = getattr(error, "possibilities", None)
    if possible:
        message, guess = message.partition(" (Possible")[0], " or ".join(possible)
    for said, plain in WORDS:
        message = re.sub(said, plain, message)
    context = getattr(error, "ctx", None)
    hint = f"did you mean {guess.rstrip('?')}?" if guess else ""
    if choice := re.search(r"^(\S+): (.*) is not one of (.*)$", message):
        names = choice[3].split(", ")
        if choice[1] in NOUNS:
            tell_error(unknown(NOUNS[choice[1]], choice[2], names))
            return
        hint = nearest(choice[2], names).strip()
    if context and not hint:
        hint = f"{context.command_path} --help shows how to call it"
    tell_error(safe(message, 400), hint)


def _to_nowhere(stream: Any) -> None:
    """Drop what is still to be written, which would fail once more when Python ends."""
    with suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def unwritten(error: OSError) -> int:
    """The exit code if standard output cannot be written.

    Nothing is told about a reader that has gone away: it has read what it wanted.
    """
    _to_nowhere(sys.stdout)
    if not isinstance(error, BrokenPipeError):
        tell("error", f"cannot write to standard output: {error.strerror or error}")
    return 2


class PlainHelp:
    """Help and errors of a command or a group; its docstring may end with ``Examples:``."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the command; usage errors are printed as all others."""
        shown = sys.stdout
        try:
            code = super().main(*args, standalone_mode=False, **extra)  # type: ignore[misc]
            if standalone_mode and sys.stdout is not None:
                sys.stdout.flush()
        except SystemExit:
            if sys.stdout is shown:
                raise
            sys.stdout = shown  # typer replaces it where a pipe is closed, and exits with code 1
            code = unwritten(BrokenPipeError())
        except TyperException as error:
            if not standalone_mode:
                raise
            tell_usage(error)
            code = error.exit_code
        except AscribeError as error:
            if not standalone_mode:
                raise
            tell_error(error)
            code = 2
        except typer.Abort:
            tell("error", "stopped")
            code = 1
        except OSError as error:  # such as a name that is too long, or a full disk
            code = 2
            if isinstance(error, BrokenPipeError) or error.filename is None:
                code = unwritten(error)
            else:
                tell("error", error.strerror or type(error).__name__)
        if standalone_mode:
            sys.exit(code)
        return code

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, each with a word for its value."""
        return [_named(each) for each in super().get_params(ctx)]  # type: ignore[misc]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage without braces around arguments."""
        pieces = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in pieces]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """What it does, how it is called, details, examples, arguments and options."""
        text, _, examples = cleandoc(getattr(self, "help", None) or "").partition("Examples:\n")
        summary, _, details = text.strip().partition("\n\n")
        formatter.write_text(summary)
        formatter.write_paragraph()
        self.format_usage(ctx, formatter)  # type: ignore[attr-defined]
        if details:
            formatter.write_paragraph()
            formatter.write_text(details)
        if examples:
            formatter.write("\nExamples:\n" + indent(f"{dedent(examples).strip()}\n", "  "))
        self.format_options(ctx, formatter)  # type: ignore[attr-defined]


class PlainCommand(PlainHelp, TyperCommand):
    """A command with plain help and errors."""


class PlainGroup(PlainHelp, TyperGroup):
    """A group of commands with plain help and errors; alone it shows its help."""

    def overview(self, ctx: Any) -> str:
        """What is printed without a command."""
        return str(ctx.get_help())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments; without any, the overview is printed and the program ends."""
        if not args and not ctx.resilient_parsing:
            typer.echo(self.overview(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The commands, then the options."""
        self.format_commands(ctx, formatter)
        TyperCommand.format_options(self, ctx, formatter)  # type: ignore[arg-type]

    def panels(self) -> Mapping[str, Iterable[str]]:
        """The headings of the help, each with the commands under it."""
        return {"Commands": self.commands}

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """The commands with their summaries, by heading."""
        for heading, names in self.panels().items():
            if rows := [
                (name, cleandoc(self.commands[name].help or "").partition("\n\n")[0])
                for name in names
                if name in self.commands
            ]:
                with formatter.section(heading):
                    formatter.write_dl([(name, " ".join(said.split())) for name, said in rows])


class App(typer.Typer):
    """Commands with plain help and errors."""

    def __init__(self, *, cls: type[PlainGroup] = PlainGroup, **settings: Any) -> None:
        settings = {"add_completion": False, "pretty_exceptions_enable": False} | settings
        context = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}
        super().__init__(cls=cls, rich_markup_mode=None, context_settings=context, **settings)

    def command(
        self, *args: Any, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """As typer's, with plain help."""
        return super().command(*args, cls=PlainCommand, **settings)


def _named(parameter: Any) -> Any:
    """The parameter of a command, with a word for its value, or none if it is a flag."""
    kind = parameter.type_descriptor.annotation
    kind = next(iter(get_args(kind)), kind)  # of a list, what it holds
    named = KINDS.get(kind, "TEXT")
    if not parameter.opts[0].startswith("-"):
        named = parameter.name.upper()
        parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 (as typer calls it)
    if parameter.metavar is None:
        parameter.metavar = VALUES.get(parameter.opts[0], named)
    parameter._get_number_range_help_str = lambda: _range(parameter.min, parameter.max)
    parameter.get_runtime_param = lambda: SimpleNamespace(coerce=partial(_value, parameter))
    return parameter


def _value(parameter: Any, value: Any, **about: Any) -> Any:
    """The value of a parameter; texts and paths without typer's way, which imports pydantic."""
    kind = parameter.type_descriptor.annotation
    several = get_origin(kind) is list
    if value is None or value is parameter.default:
        return () if value is None and several else value
    kind = get_args(kind)[0] if several else kind
    read = [_plain_value(kind, each) for each in (value if several else [value])]
    if None in read:
        return type(parameter).get_runtime_param(parameter).coerce(value, **about)
    return read if several else read[0]


def _plain_value(kind: Any, value: Any) -> Any:
    """A text, a path or one of several names from its text; None for anything else."""
    if kind is str or value in get_args(kind):
        return value
    is_there = kind is Path and os.path.exists(value)  # noqa: PTH110 (nothing has too long a name)
    readable = kind is Path and (not is_there or os.access(value, os.R_OK))
    return Path(value) if readable else None


def _range(least: float | None, most: float | None) -> str | None:
    ends = {"at least": least, "at most": most}
    return ", ".join(f"{name} {end:g}" for name, end in ends.items() if end is not None) or None
