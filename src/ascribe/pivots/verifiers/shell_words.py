"""Shell commands as data: read, never run.

``script`` reads a command line of the POSIX kind into pipelines of commands, and each command into
a form in which the order of flags, the way of quoting and the white space no longer show. What it
does not understand for certain it refuses: substitutions, subshells, loops, here-documents,
functions. Two refused texts are the same only if they are the same text.

Flags lose their order only where ``COMMANDS`` lists every one of them as free to move, as GNU and
git read them. The words of all other commands keep their order.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

LONGEST = 20_000

ACTIVE, QUOTED = "\ue000", "\ue001"
"""Stand before a character that the shell acts on: outside quotes, and inside double quotes."""

RESERVED: Final = frozenset(
    {
        *("if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case"),
        *("esac", "in", "function", "select", "time", "coproc", "!", "{", "}", "[[", "]]"),
        "alias",
    }
)
OPERATORS: Final = ("&&", "||", "|&", ";;", "|", ";", "\n", "&", "(", ")")
REDIRECTION: Final = re.compile(r"[0-9]?(?:>>|>\||>&|>|<&|<>|<)")


class NotUnderstood(ValueError):  # noqa: N818 (named for what is wrong)
    """A command line that might mean more than can be told."""


@dataclass(frozen=True)
class Known:
    """The flags of a command that may change places with each other: letters and long names.

    Attributes:
        switches: flags without a value.
        values: flags that take a value.
        attached: letters whose value, if there is one, is in the same word.
        rivals: sets of flags that overrule each other: with two of a set, all words keep their
            order.
    """

    switches: frozenset[str]
    values: frozenset[str]
    attached: str
    rivals: tuple[frozenset[str], ...]


def _known(
    switches: Iterable[str],
    values: Iterable[str] = (),
    *rivals: Iterable[str],
    attached: str = "",
) -> Known:
    return Known(
        frozenset(switches), frozenset(values), attached, tuple(frozenset(each) for each in rivals)
    )


COMMANDS: Final[dict[str, Known]] = {
    "cat": _known("AbeEnstTuv"),
    "chmod": _known("Rv"),
    "chown": _known("hRv"),
    "cp": _known("afprRTv", "t"),
    "cut": _known("s", "bcdf", "bcf"),
    "df": _known("ahilT"),
    "diff": _known("abBiNqruw"),
    "du": _known("achsx", ("d", "max-depth"), ("d", "max-depth")),
    "grep": _known("cEFhHiIlLnoPqrRsvwx", (*"ABCem", "include"), "EFP", "hH", "lL", "rR"),
    "head": _known("qv", ("n", "c", "lines", "bytes"), "qv", ("n", "c", "lines", "bytes")),
    "ls": _known("1aAdFhilrRsSt", "", "1l", "aA", "St"),
    "mkdir": _known("pv", "m"),
    "mv": _known("fTv", "t"),
    "rm": _known("dfrRv"),
    "rmdir": _known("pv"),
    "sed": _known("Enrsz", "e", "eE", "er", "ez", attached="i"),
    "sort": _known("bfhnrsuV", "kot"),
    "tail": _known("fqv", ("n", "c", "lines", "bytes"), "qv", ("n", "c", "lines", "bytes")),
    "touch": _known("acm", "dr"),
    "uniq": _known("cdiu"),
    "wc": _known("clLmw"),
    "git add": _known("Afnuv"),
    "git branch": _known("av"),
    "git checkout": _known("fq", "b"),
    "git clone": _known("q", ("b", "depth")),
    "git commit": _known((*"aqsv", "amend", "no-edit", "no-verify"), "m"),
    "git diff": _known(("cached", "staged", "stat")),
    "git log": _known(("graph", "oneline"), "n"),
    "git push": _known((*"fqu", "tags")),
    "git status": _known("bs"),
}
"""The commands of which some flags may be given in any order.

A flag that is not listed is not known to be free: its value, its place or its rivals may count.
"""

Flags = tuple[tuple[str, tuple[str | None, ...]], ...]


@dataclass(frozen=True)
class Command:
    """One command: assignments before it, its name, flags, operands, and where its streams go.

    Flags are sorted where each of them may move; else all words are among the operands.
    """

    assignments: tuple[str, ...]
    name: tuple[str, ...]
    flags: Flags
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
    if "POSIXLY_CORRECT" in text:
        raise NotUnderstood("flags may be read in another way")
    found: list[tuple[str, Command]] = []
    before = ""
    for tokens, after in _parts(_tokens(text)):
        if tokens:
            found.append((before, _command(tokens)))
            before = ";" if after == "\n" else after
        elif after != "\n" and (after or before not in (";", "")):
            raise NotUnderstood("an operator has nothing beside it")
    if not found:
        raise NotUnderstood("there is no command")
    return tuple(found)


class Token(NamedTuple):
    """A kind, ``word``, ``operator`` or ``stream``, what it means, and how a word is written."""

    kind: str
    value: str
    raw: str = ""


def _parts(tokens: Sequence[Token]) -> list[tuple[list[Token], str]]:
    """What lies between operators, with the operator after it; none after the last."""
    parts: list[tuple[list[Token], str]] = []
    here: list[Token] = []
    for token in tokens:
        if token.kind == "operator":
            parts.append((here, token.value))
            here = []
        else:
            here.append(token)
    return [*parts, (here, "")]


# Words.


def _tokens(text: str) -> list[Token]:
    """Words, operators, line ends among them, and redirections."""
    if ACTIVE in text or QUOTED in text or "\x00" in text:
        raise NotUnderstood("it holds characters that are used for marks")
    return _Scanner(text).tokens()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.found: list[Token] = []

    def tokens(self) -> list[Token]:
        text = self.text
        while self.at < len(text):
            here = text[self.at]
            if here in " \t":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif here == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif not self._redirection() and not self._operator():
                self.found.append(self._word())
        return self.found

    def _redirection(self) -> bool:
        match = REDIRECTION.match(self.text, self.at)
        if match is None:
            return False
        if self.text[self.at - 1 : self.at] in tuple("}0123456789"):
            raise NotUnderstood("what stands before may be the name of a stream")
        self.at = match.end()
        if self.text.startswith(("<", "("), self.at):
            raise NotUnderstood("a here-document or the output of a command is read")
        self.found.append(Token("stream", match[0]))
        return True

    def _operator(self) -> bool:
        for operator in OPERATORS:
            if self.text.startswith(operator, self.at):
                if operator in ("(", ")", ";;", "&"):
                    raise NotUnderstood(f"it holds {operator}")
                self.at += len(operator)
                self.found.append(Token("operator", operator))
                return True
        return False

    def _word(self) -> Token:
        parts: list[str] = []
        text, start = self.text, self.at
        while self.at < len(text) and text[self.at] not in " \t\n;|&()<>":
            here = text[self.at]
            if here == "'":
                parts.append(self._until("'"))
            elif here == '"':
                parts.append(self._double())
            elif here == "\\":
                if text[self.at + 1 : self.at + 2] in ("", "\n"):
                    raise NotUnderstood("a word, or all of it, ends in a backslash")
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
        value, raw = "".join(parts), text[start : self.at]
        if ACTIVE in value and _QUOTING.search(raw):
            # What is quoted takes part in no pattern: {a,b} is not {a\,b}, nor ~/a ~"/a".
            value = f"{ACTIVE}{raw}"
        return Token("word", value, raw)

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
            if text.startswith("\\\n", self.at):
                raise NotUnderstood("a line end is taken out of a word")
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
        if self.text[self.at + 1 : self.at + 2] in tuple("({['\"@*"):
            raise NotUnderstood("it holds the output of a command or more than a variable")
        self.at += 1
        return f"{mark}$"


_VARIABLE = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_][A-Za-z0-9_]*|[0-9?#!$-])|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})"
)
_QUOTING = re.compile(r"['\"\\]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


# Commands.


def _command(tokens: Sequence[Token]) -> Command:
    words: list[Token] = []
    streams: list[tuple[str, str]] = []
    waiting = list(tokens)
    while waiting:
        token = waiting.pop(0)
        if token.kind == "word":
            words.append(token)
        elif waiting and waiting[0].kind == "word":
            streams.append((token.value, waiting.pop(0).value))
        else:
            raise NotUnderstood("a stream leads nowhere")
    start = next((i for i, word in enumerate(words) if not _ASSIGNMENT.match(word.raw)), len(words))
    first = words[start].raw if start < len(words) else ""
    if first in RESERVED or _QUOTING.search(first):
        # A quoted name is no alias: \rm may do without the questions that rm asks.
        raise NotUnderstood(f"it holds {first}")
    values = tuple(word.value for word in words)
    split = start + (2 if first == "git" else 1)
    name, rest = values[start:split], values[split:]
    known = COMMANDS.get(" ".join(name))
    # git may take a word for a revision or a path, or refuse a flag, by what stands before it.
    read = None if known is None else _flags(rest, known, anywhere=first != "git")
    flags, operands = ((), rest) if read is None else read
    return Command(values[:start], name, flags, operands, tuple(streams))


def _flags(
    words: Sequence[str], known: Known, anywhere: bool
) -> tuple[Flags, tuple[str, ...]] | None:
    """Flags with their values, by name, and the rest; None if all words must keep their order.

    From the first word on that may be a flag or an operand, words keep their order; unless flags
    may stand anywhere, from the first operand on.
    """
    found: dict[str, list[str | None]] = {}
    operands: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if anywhere and _is_operand(word):
            operands.append(word)
        elif anywhere and word == "--" and all(map(_is_operand, waiting)):
            continue
        elif word.startswith("-") and word not in ("-", "--"):
            given = (_long if word.startswith("--") else _letters)(word, waiting, known)
            if given is None or any(_is_open(value or "") for _, value in given):
                return None
            for flag, value in given:
                found.setdefault(flag, []).append(value)
        else:
            operands += [word, *waiting]
            break
    if any(len(rivals & found.keys()) > 1 for rivals in known.rivals):
        return None
    return tuple((name, tuple(values)) for name, values in sorted(found.items())), tuple(operands)


def _is_operand(word: str) -> bool:
    """Whether the word is one operand, whatever the shell puts in; ``+1`` is a flag to some."""
    return not word.startswith(("-", "+")) and not _is_open(word)


def _is_open(word: str) -> bool:
    """Whether the shell may make several words of it, or none, or a flag."""
    return ACTIVE in word or word.startswith(QUOTED)


Given = list[tuple[str, str | None]] | None
"""The flags of a word with their values; None if one of them may not move."""


def _long(word: str, waiting: list[str], known: Known) -> Given:
    name, equals, value = word[2:].partition("=")
    if len(name) > 1 and name in known.values:
        return [(name, value if equals else _next(waiting))]
    return [(name, None)] if len(name) > 1 and name in known.switches and not equals else None


def _letters(word: str, waiting: list[str], known: Known) -> Given:
    """``-rf`` as ``-r`` and ``-f``; what follows a letter that takes a value is the value."""
    found: list[tuple[str, str | None]] = []
    for place, letter in enumerate(word[1:], start=2):
        rest = word[place:]
        if letter in (ACTIVE, QUOTED):
            raise NotUnderstood("a flag depends on what the shell puts in")
        if letter in known.values:
            return [*found, (letter, rest or _next(waiting))]
        if letter in known.attached:
            return [*found, (letter, rest or None)]
        if letter not in known.switches:
            return None
        found.append((letter, None))
    return found


def _next(waiting: list[str]) -> str:
    if not waiting:
        raise NotUnderstood("a flag lacks its value")
    return waiting.pop(0)
