"""Shell commands as data: read, never run.

``script`` reads a command line of the POSIX kind into pipelines of commands, and each command into
a form in which the order of flags, the way of quoting and the white space no longer show. What it
does not understand for certain it refuses: substitutions, subshells, loops, here-documents,
functions. Two refused texts are the same only if they are the same text.

Which flags take a value, and which overrule each other, is known of the commands in ``COMMANDS``.
The words of other commands keep their order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LONGEST = 20_000

ACTIVE, QUOTED = "\ue000", "\ue001"
"""Stand before a character that the shell acts on: outside quotes, and inside double quotes."""

RESERVED: Final = frozenset(
    {
        *("if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case"),
        *("esac", "in", "function", "select", "time", "coproc", "!", "{", "}", "[[", "]]"),
    }
)
OPERATORS: Final = ("&&", "||", "|&", ";;", "|", ";", "\n", "&", "(", ")")
REDIRECTION: Final = re.compile(r"(?:[0-9]+|&)?(?:>>|>\||>&|>|<&|<>|<)")


class NotUnderstood(ValueError):  # noqa: N818 (named for what is wrong)
    """A command line that might mean more than can be told."""


@dataclass(frozen=True)
class Known:
    """What is known of a command's flags.

    Attributes:
        values: letters of short flags that take a value.
        attached: letters of short flags whose value, if there is one, is in the same word.
        words: long flags that take a value.
        rivals: sets of letters of which the last given one wins; they keep their order.
    """

    values: str = ""
    attached: str = ""
    words: frozenset[str] = frozenset()
    rivals: tuple[str, ...] = ()


def _known(values: str = "", attached: str = "", words: str = "", *rivals: str) -> Known:
    return Known(values, attached, frozenset(words.split()), rivals)


COMMANDS: Final[dict[str, Known]] = {
    "cat": _known(),
    "chmod": _known("", "", "reference"),
    "chown": _known("", "", "reference from"),
    "cp": _known("tS", "", "target-directory suffix", "fin", "HLP"),
    "cut": _known("bcdf", "", "bytes characters delimiter fields output-delimiter"),
    "df": _known("tx", "", "type exclude-type", "hHk"),
    "diff": _known("U", "", "unified label", "uc"),
    "du": _known("dt", "", "max-depth threshold exclude", "hkmb"),
    "grep": _known(
        "efmABCdD",
        "",
        "regexp file max-count after-context before-context context include exclude exclude-dir",
        "EFGP",
        "hH",
        "rR",
    ),
    "head": _known("nc", "", "lines bytes", "qv"),
    "ls": _known("IwT", "", "ignore width tabsize sort time", "tSUXvf", "lC1xmgno", "Aa", "cu"),
    "mkdir": _known("m", "", "mode"),
    "mv": _known("tS", "", "target-directory suffix", "fin"),
    "pwd": _known("", "", "", "LP"),
    "rm": _known("", "", "", "fiI"),
    "rmdir": _known(),
    "sed": _known("efl", "i", "expression file line-length"),
    "sort": _known("koSTt", "", "key output buffer-size field-separator temporary-directory"),
    "tail": _known("ncs", "", "lines bytes pid sleep-interval", "qv"),
    "touch": _known("drt", "", "date reference time"),
    "uniq": _known("fsw", "", "skip-fields skip-chars check-chars"),
    "wc": _known("", "", "files0-from"),
    "git add": _known(),
    "git branch": _known("u", "", "set-upstream-to sort format", "dD", "mM"),
    "git checkout": _known("bB"),
    "git clone": _known("bo", "", "branch depth origin"),
    "git commit": _known("mFCc", "", "message file author date reuse-message"),
    "git diff": _known("", "U", "unified stat-width"),
    "git log": _known("nSGL", "", "max-count since until author grep format pretty"),
    "git pull": _known(),
    "git push": _known("o", "", "push-option"),
    "git status": _known("", "u"),
}
"""The commands whose flags may be given in any order."""


@dataclass(frozen=True)
class Command:
    """One command: assignments before it, its name, flags, operands, and where its streams go.

    Flags of known commands are sorted, rivals apart; of others they are among the operands.
    """

    assignments: tuple[str, ...]
    name: str
    flags: tuple[tuple[str, tuple[str | None, ...]], ...]
    rivals: tuple[str, ...]
    operands: tuple[str, ...]
    streams: tuple[tuple[str, str], ...]


Script = tuple[tuple[str, Command], ...]
"""Commands, each with the operator before it; the first has none."""


def script(text: str) -> Script:
    """The commands of a command line.

    Raises:
        NotUnderstood: if their meaning is not certain.
    """
    if len(text) > LONGEST:
        raise NotUnderstood("it is too long")
    found: list[tuple[str, Command]] = []
    before = ""
    for tokens, after in _parts(_tokens(text)):
        if tokens:
            found.append((before, _command(tokens)))
            before = after
        elif after not in (";", "") or (not after and before not in (";", "")):
            raise NotUnderstood("an operator has nothing beside it")
    if not found:
        raise NotUnderstood("there is no command")
    return tuple(found)


Token = tuple[str, str]
"""A kind, ``word``, ``operator`` or ``stream``, and what stands there."""


def _parts(tokens: Sequence[Token]) -> list[tuple[list[Token], str]]:
    """What lies between operators, with the operator after it; none after the last."""
    parts: list[tuple[list[Token], str]] = []
    here: list[Token] = []
    for kind, value in tokens:
        if kind == "operator":
            parts.append((here, value))
            here = []
        else:
            here.append((kind, value))
    return [*parts, (here, "")]


# Words.


def _tokens(text: str) -> list[Token]:
    """Words, operators and redirections. Line ends are operators like semicolons."""
    if ACTIVE in text or QUOTED in text or "\x00" in text:
        raise NotUnderstood("it holds characters that are used for marks")
    return _Scanner(text.replace("\\\n", "")).tokens()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: list[Token] = []

    def tokens(self) -> list[Token]:
        text = self.text
        while self.at < len(text):
            here = text[self.at]
            if here in " \t\r":
                self.at += 1
            elif here == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif not self._redirection() and not self._operator():
                self.found.append(("word", self._word()))
        return self.found

    def _redirection(self) -> bool:
        match = REDIRECTION.match(self.text, self.at)
        if match is None:
            return False
        self.at = match.end()
        if self.text.startswith(("<", "("), self.at):
            raise NotUnderstood("a here-document or the output of a command is read")
        self.found.append(("stream", match[0]))
        return True

    def _operator(self) -> bool:
        for operator in OPERATORS:
            if self.text.startswith(operator, self.at):
                if operator in ("(", ")", ";;", "&"):
                    raise NotUnderstood(f"it holds {operator}")
                self.at += len(operator)
                self.found.append(("operator", ";" if operator == "\n" else operator))
                return True
        return False

    def _word(self) -> str:
        parts: list[str] = []
        text = self.text
        while self.at < len(text) and text[self.at] not in " \t\r\n;|&()<>":
            here = text[self.at]
            if here == "'":
                parts.append(self._until("'"))
            elif here == '"':
                parts.append(self._double())
            elif here == "\\":
                if self.at + 1 == len(text):
                    raise NotUnderstood("it ends in a backslash")
                parts.append(text[self.at + 1])
                self.at += 2
            elif here == "$":
                parts.append(self._variable(ACTIVE))
            elif here == "`":
                raise NotUnderstood("it holds the output of a command")
            else:
                # A tilde counts at the beginning of a word alone, but nothing is lost by a mark.
                parts.append(f"{ACTIVE}{here}" if here in "*?[]{}~!" else here)
                self.at += 1
        return "".join(parts)

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise NotUnderstood("a quotation mark is not closed")
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def _double(self) -> str:
        parts: list[str] = []
        self.at += 1
        text = self.text
        while self.at < len(text):
            here = text[self.at]
            if here == '"':
                self.at += 1
                return "".join(parts)
            if here == "\\" and text[self.at + 1 : self.at + 2] in tuple('$`"\\'):
                parts.append(text[self.at + 1])
                self.at += 2
            elif here == "$":
                parts.append(self._variable(QUOTED))
            elif here == "`":
                raise NotUnderstood("it holds the output of a command")
            else:
                # History is expanded inside double quotes as well.
                parts.append(f"{QUOTED}{here}" if here == "!" else here)
                self.at += 1
        raise NotUnderstood("a quotation mark is not closed")

    def _variable(self, mark: str) -> str:
        match = _VARIABLE.match(self.text, self.at)
        if match is not None:
            self.at = match.end()
            return f"{mark}${{{match['plain'] or match['braced']}}}"
        if self.text[self.at + 1 : self.at + 2] in ("(", "{", "'", '"'):
            raise NotUnderstood("it holds the output of a command or more than a variable")
        self.at += 1
        return f"{mark}$"


_VARIABLE = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_][A-Za-z0-9_]*|[0-9?#@*!$-])|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


# Commands.


def _command(tokens: Sequence[Token]) -> Command:
    words: list[str] = []
    streams: list[tuple[str, str]] = []
    waiting = list(tokens)
    while waiting:
        kind, value = waiting.pop(0)
        if kind == "word":
            words.append(value)
        elif waiting and waiting[0][0] == "word":
            streams.append((value, waiting.pop(0)[1]))
        else:
            raise NotUnderstood("a stream leads nowhere")
    bare = [word.replace(ACTIVE, "") for word in words]
    start = next((i for i, word in enumerate(bare) if not _ASSIGNMENT.match(word)), len(words))
    assignments, rest = tuple(words[:start]), list(words[start:])
    if rest and bare[start] in RESERVED:
        raise NotUnderstood(f"it holds {bare[start]}")
    name = rest.pop(0) if rest else ""
    if name == "git" and rest and not rest[0].startswith("-"):
        name = f"git {rest.pop(0)}"
    known = COMMANDS.get(name)
    if known is None:
        return Command(assignments, name, (), (), tuple(rest), tuple(streams))
    flags, rivals, operands = _sorted_flags(rest, known)
    return Command(assignments, name, flags, rivals, operands, tuple(streams))


def _sorted_flags(
    words: Sequence[str], known: Known
) -> tuple[tuple[tuple[str, tuple[str | None, ...]], ...], tuple[str, ...], tuple[str, ...]]:
    """Flags with their values, by name; the order of those that overrule each other; the rest."""
    found: dict[str, list[str | None]] = {}
    order: list[str] = []
    operands: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            operands += waiting
            break
        if word.startswith("--"):
            name, equals, given = word.partition("=")
            value = given if equals else None
            if not equals and name[2:] in known.words:
                value = _next(waiting)
            found.setdefault(name, []).append(value)
            order.append(name)
        elif len(word) > 1 and word.startswith("-") and not word[1:].isdigit():
            for flag, attached in _letters(word[1:], waiting, known):
                found.setdefault(flag, []).append(attached)
                order.append(flag)
        elif word.startswith("-") and len(word) > 1:
            found.setdefault(word, []).append(None)
            order.append(word)
        else:
            operands.append(word)
    flags = tuple((name, tuple(values)) for name, values in sorted(found.items()))
    return flags, _rivals(order, known), tuple(operands)


def _letters(word: str, waiting: list[str], known: Known) -> list[tuple[str, str | None]]:
    """``-rf`` as ``-r`` and ``-f``; what follows a letter that takes a value is the value."""
    found: list[tuple[str, str | None]] = []
    for place, letter in enumerate(word):
        rest = word[place + 1 :]
        if letter in known.values:
            found.append((f"-{letter}", rest or _next(waiting)))
            break
        if letter in known.attached:
            found.append((f"-{letter}", rest or None))
            break
        if letter in (ACTIVE, QUOTED):
            raise NotUnderstood("a flag depends on what the shell puts in")
        found.append((f"-{letter}", None))
    return found


def _next(waiting: list[str]) -> str:
    if not waiting:
        raise NotUnderstood("a flag lacks its value")
    return waiting.pop(0)


def _rivals(order: Sequence[str], known: Known) -> tuple[str, ...]:
    """The flags that overrule each other, in order; none where at most one of a set is there."""
    kept: list[str] = []
    for letters in known.rivals:
        given = [flag for flag in order if len(flag) == 2 and flag[1] in letters]
        if len(set(given)) > 1:
            kept += given
    return tuple(kept)
