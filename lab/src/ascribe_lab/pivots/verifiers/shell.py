r"""The verifier of shell commands. It reads them and never runs them.

``parse`` reads a command line of the POSIX kind into commands in a form that hides the order of
flags, the way of quoting and white space. It refuses whatever might mean more than it can tell:
substitutions, subshells, loops, here-documents, functions. Refused texts are equal only if they are
the same text. A word that the shell expands (``$a``, ``*.py``, ``~``) is compared as it is written,
so ``$HOME`` and ``${HOME}`` count as different.

Python's ``shlex`` does not do: it drops which characters were quoted, and keeps the backslash of
``"\$"``.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from getopt import GetoptError, gnu_getopt
from typing import Final, NamedTuple

from ascribe.steps.errors import InputError
from ascribe_lab.pivots.candidates import Candidate
from ascribe_lab.pivots.verifiers.verdict import Verdict, Verifier, act, calls_in

LONGEST = 20_000

ARGUMENTS = ("command", "cmd", "keystrokes", "script")
"""Names under which tools take a command."""

_KEYSTROKES = re.compile(r"[^\t\n]*\n")
"""Keystrokes that are one line. Text typed after it may go to the program that it started."""

_BLOCK = re.compile(r"```(?:sh|bash|shell)?\n(.*?)\n?```", re.DOTALL)


def shell() -> Verifier:
    """A command that means the same: flags in any order, quoting and white space aside.

    The command is the argument ``command``, ``cmd``, ``keystrokes`` or ``script`` of the only tool
    call, whose other arguments must be the same; else the response's code block; else the action.
    Other calls, other blocks and more than one of them are compared as they are.
    """

    def verify(candidate: Candidate, response: str) -> Verdict:
        same = _reading(response) == _reading(candidate.action)
        return Verdict(same, "same_command" if same else "other_command")

    return verify


@lru_cache(maxsize=4_096)
def _reading(response: str) -> tuple[object, "tuple[Command, ...] | str"]:
    """What stands beside the command, and the command: parsed, or as it is if it is refused."""
    calls = calls_in(response)
    if calls == ():
        return None, _in_text(act(response))
    if calls is not None and len(calls) == 1:
        values = calls[0].values
        for name in ARGUMENTS:
            text = values.get(name)
            if isinstance(text, str):
                others = {key: value for key, value in values.items() if key != name}
                beside = (calls[0].name, name, repr(sorted(others.items())))
                whole = name == "keystrokes" and not _KEYSTROKES.fullmatch(text)
                return beside, text if whole else _parsed(text)
    return None, act(response)


def _in_text(text: str) -> "tuple[Command, ...] | str":
    if "```" not in text:
        return _parsed(text)
    block = _BLOCK.search(text) if text.count("```") == 2 else None
    return _parsed(block[1]) if block else text


def _parsed(text: str) -> "tuple[Command, ...] | str":
    try:
        return parse(text)
    except UnsupportedShellError:
        return text


# Flags that may change places.


class FlagTable(NamedTuple):
    """The flags of a command that may change places with each other, by their letters."""

    switches: str
    """Flags without a value."""
    values: str = ""
    """Flags that take a value."""
    rivals: tuple[str, ...] = ()
    """Sets of flags that overrule each other: with two of a set, all words keep their order."""


COMMANDS: Final[dict[str, FlagTable]] = {
    "cat": FlagTable("AbeEnstTuv"),
    "chmod": FlagTable("Rv"),
    "chown": FlagTable("hRv"),
    "cp": FlagTable("afprRTv", "t"),
    "cut": FlagTable("s", "bcdf", ("bcf",)),
    "df": FlagTable("ahilT"),
    "diff": FlagTable("abBiNqruw"),
    "du": FlagTable("achsx", "d"),
    "grep": FlagTable("cEFhHiIlLnoPqrRsvwx", "ABCem", ("EFP", "hH", "lL", "rR")),
    "head": FlagTable("qv", "nc", ("qv", "nc")),
    "ls": FlagTable("1aAdFhilrRsSt", "", ("1l", "aA", "St")),
    "mkdir": FlagTable("pv", "m"),
    "mv": FlagTable("fTv", "t"),
    "rm": FlagTable("dfrRv"),
    "rmdir": FlagTable("pv"),
    "sed": FlagTable("Enrsz", "e", ("eE", "er", "ez")),
    "sort": FlagTable("bfhnrsuV", "kot"),
    "tail": FlagTable("fqv", "nc", ("qv", "nc")),
    "touch": FlagTable("acm", "dr"),
    "uniq": FlagTable("cdiu"),
    "wc": FlagTable("clLmw"),
}
"""The commands some of whose flags may stand in any order, as GNU reads them.

A flag that is not listed may depend on its place, so with one all words keep their order.
"""

RESERVED: Final = frozenset(
    {
        *("if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case"),
        *("esac", "in", "function", "select", "time", "coproc", "!", "{", "}", "[[", "]]"),
        "alias",
    }
)


# Reading.


class UnsupportedShellError(InputError):
    """A command line whose meaning cannot be told for certain."""


Flags = tuple[tuple[str, tuple[str, ...]], ...]
"""Names of flags and their values, empty for switches."""


class Command(NamedTuple):
    """One command, and the operator before it; the first has none.

    Flags are sorted where each of them may move; else all words are among the operands. Words that
    the shell expands begin with a NUL.
    """

    operator: str
    assignments: tuple[str, ...]
    name: tuple[str, ...]
    flags: Flags
    operands: tuple[str, ...]
    redirections: tuple[tuple[str, str], ...]


_WORD = r"""(?:'[^']*'|"(?:[^"\\`]|\\[^\n])*"|\\[^\n]|[^\s'"\\`;|&()<>])+"""
_TOKEN = re.compile(
    rf"""(?P<skip>[ \t]+|(?<![^ \t\n])\\\n|\#[^\n]*)
    |(?P<redirection>(?<![0-9}}])[0-9]?(?:>>|>\||>&|<&|<>|[<>])(?![<(]))
    |(?P<operator>&&|\|\||\|&|[|;\n])
    |(?P<word>{_WORD})""",
    re.VERBOSE,
)
_PIECE = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^'"\\]+""", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$(?:[(\['\"@*]|\{(?![A-Za-z_][A-Za-z0-9_]*\}))")
_QUOTING = re.compile(r"['\"\\]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


def parse(text: str) -> tuple[Command, ...]:
    """The commands of a command line.

    Raises:
        UnsupportedShellError: if their meaning is not certain.
    """
    if len(text) > LONGEST or "\0" in text or "POSIXLY_CORRECT" in text:
        raise UnsupportedShellError("it is too long, or flags may be read in another way")
    commands: list[Command] = []
    tokens: list[tuple[str, str]] = []
    before, place = "", 0
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None or token.lastgroup is None:
            raise UnsupportedShellError(f"character {place} begins no word or operator")
        place = token.end()
        if token.lastgroup != "operator":
            tokens += [(token.lastgroup, token[0])] if token.lastgroup != "skip" else []
        elif tokens:
            commands.append(_command(before, tokens))
            before, tokens = ";" if token[0] == "\n" else token[0], []
        elif token[0] != "\n":
            raise UnsupportedShellError("an operator has nothing before it")
    if tokens:
        commands.append(_command(before, tokens))
    elif before not in (";", ""):
        raise UnsupportedShellError("an operator has nothing after it")
    if not commands:
        raise UnsupportedShellError("there is no command")
    return tuple(commands)


def _command(operator: str, tokens: Sequence[tuple[str, str]]) -> Command:
    words: list[str] = []
    redirections: list[tuple[str, str]] = []
    waiting = iter(tokens)
    for kind, text in waiting:
        if kind == "word":
            words.append(text)
        else:
            following, target = next(waiting, ("", ""))
            if following != "word":
                raise UnsupportedShellError("a redirection has no target")
            redirections.append((text, _value(target)))
    start = next((i for i, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    first = words[start] if start < len(words) else ""
    if first in RESERVED or _QUOTING.search(first):
        # A quoted name is no alias: \rm may do without the questions that rm asks.
        raise UnsupportedShellError(f"it holds {first}")
    values = tuple(map(_value, words))
    rest = values[start + 1 :]
    moved = _sorted_flags(rest, COMMANDS[first]) if first in COMMANDS else None
    flags, operands = moved or ((), rest)
    name = values[start : start + 1]
    return Command(operator, values[:start], name, flags, operands, tuple(redirections))


def _value(word: str) -> str:
    """The word without quotes, or as it is written after a NUL if the shell expands it."""
    pieces = _PIECE.findall(word)
    visible = "".join(map(_visible, pieces))
    if _SUBSTITUTION.search(visible):
        raise UnsupportedShellError("it holds the output of a command or more than a variable")
    if re.search(r"[$!*?\[\]{}~]", visible):
        return f"\0{word}"
    return "".join(map(_unquoted, pieces))


def _visible(piece: str) -> str:
    """The characters that the shell may expand."""
    if piece[0] in "'\\":
        return "''"
    if piece[0] != '"':
        return piece
    inside = re.sub(r"\\.", "x", piece, flags=re.DOTALL)
    return inside if re.search("[$!]", inside) else '""'


def _unquoted(piece: str) -> str:
    if piece[0] == '"':
        return re.sub(r'\\([$`"\\])', r"\1", piece[1:-1])
    return {"'": piece[1:-1], "\\": piece[1:]}.get(piece[0], piece)


def _sorted_flags(words: Sequence[str], table: FlagTable) -> tuple[Flags, tuple[str, ...]] | None:
    """Flags with their values, by name, and the operands; None if all words must keep their order.

    Words keep their order from the first that the shell expands, since it may become a flag.
    """
    # After ``--`` flags are operands, other long flags are not in the table, and ``+1`` is a flag
    # to some commands.
    if any(word.startswith(("--", "+", "\0-")) for word in words):
        return None
    place = next((i for i, word in enumerate(words) if word.startswith("\0")), len(words))
    try:
        letters = table.switches + "".join(f"{letter}:" for letter in table.values)
        pairs, operands = gnu_getopt(list(words[:place]), letters)
    except GetoptError:
        return None
    flags: dict[str, list[str]] = {}
    for flag, value in pairs:
        flags.setdefault(flag.lstrip("-"), []).append(value)
    if any(len(flags.keys() & set(rivals)) > 1 for rivals in table.rivals):
        return None
    return tuple((name, tuple(flags[name])) for name in sorted(flags)), (*operands, *words[place:])
