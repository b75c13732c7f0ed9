"""The base of every exception that a user sees: what is wrong, where, and what to do."""

from typing import Self


class AscribeError(Exception):
    """What cannot be done, where that is, and what to do about it.

    Each part is plain text; the command line escapes what could control a terminal.

    Attributes:
        what: what is wrong.
        where: the file, line or setting, or nothing.
        hint: what to type or change, or nothing.

    Example:
        >>> error = ascribe.AscribeError("3 is no discount", "gamma", "give a number from 0 to 1")
        >>> print(error)
        gamma: 3 is no discount; give a number from 0 to 1
    """

    def __init__(self, what: str, where: str = "", hint: str = "") -> None:
        super().__init__(what, where, hint)
        self.what, self.where, self.hint = what, where, hint

    @property
    def problem(self) -> str:
        """What is wrong, after the place."""
        return f"{self.where}: {self.what}" if self.where else self.what

    def __str__(self) -> str:
        return f"{self.problem}; {self.hint}" if self.hint else self.problem

    def within(self, where: str) -> Self:
        """The same error with a place before its own."""
        inside = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, inside, self.hint)


class InputError(AscribeError, ValueError):
    """An argument, a setting or a file has a value that cannot be used."""


class MissingPackageError(AscribeError, ImportError):
    """A package is missing, or has a release that cannot be used."""
