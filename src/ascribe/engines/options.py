"""What becomes of the options of an engine that act on rewards or advantages.

Each engine has a list of ``Options`` for each class or file of it that holds such options. Where an
engine reads rewards or advantages before or after Ascribe does, each option has one of four
answers: *applied*, *no effect* (on Ascribe's advantages), *refused* before the first rollout, or
*untouched* (it does not touch rewards or advantages).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ascribe.steps.errors import InputError


@dataclass(frozen=True)
class Refused:
    """An option that would change credit in silence, or give a wrong update.

    Attributes:
        fine: the values that change nothing; all others are refused, unless ``wrong`` is given.
        why: what another value would do.
        instead: what to set or do.
        wrong: the values that are refused, where all others are fine: users may add values.
    """

    fine: tuple[Any, ...]
    why: str
    instead: str = ""
    wrong: tuple[Any, ...] = ()

    def problem(self, name: str, value: Any) -> str | None:
        """What is wrong with a value; None if nothing is."""
        listed = any(value is each or value == each for each in self.wrong or self.fine)
        if listed != bool(self.wrong):
            return None
        instead = self.instead or f"set it to {' or '.join(map(str, self.fine))}"
        return f"{name} is {value!r}: {self.why}; {instead}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one class or file of an engine.

    Attributes:
        source: the class or file that the list was made from; what the engine lacks, if there is
            nothing to read.
        prefix: what stands before the names in the engine's configuration.
        applied: options that act on Ascribe's advantages as they do on the engine's own, and how.
        no_effect: options that do not act on them, and why.
        refused: options of which some values are refused.
        untouched: options that touch neither rewards nor advantages.
    """

    source: str
    prefix: str = ""
    applied: Mapping[str, str] = field(default_factory=dict)
    no_effect: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Refused] = field(default_factory=dict)
    untouched: tuple[str, ...] = ()

    def unknown(self, names: Iterable[str]) -> list[str]:
        """The names that the list does not know, such as an option of a new release."""
        known = {*self.applied, *self.no_effect, *self.refused, *self.untouched}
        return sorted(set(names) - known)

    def problems(self, read: Callable[[str], Any]) -> Iterator[str]:
        """What is refused.

        Args:
            read: the value of an option by its name, with ``prefix``; raises ``AttributeError`` or
                ``KeyError`` if the release of the engine has no such option.
        """
        for name, refused in self.refused.items():
            try:
                value = read(f"{self.prefix}{name}")
            except (AttributeError, KeyError):
                continue
            if problem := refused.problem(f"{self.prefix}{name}", value):
                yield problem

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """The option, what becomes of it and why, for a page; without what is untouched."""
        for name, how in self.applied.items():
            yield f"{self.prefix}{name}", "applied", how
        for name, why in self.no_effect.items():
            yield f"{self.prefix}{name}", "no effect", why
        for name, refused in self.refused.items():
            values = " or ".join(f"`{value}`" for value in refused.wrong or refused.fine)
            word = "if" if refused.wrong else "unless"
            yield f"{self.prefix}{name}", f"refused {word} {values}", refused.why


def refuse(lists: Iterable[Options], read: Callable[[str], Any]) -> None:
    """Raise ``ValueError`` with every option that is refused; arguments of ``Options.problems``."""
    problems = [problem for each in lists for problem in each.problems(read)]
    if problems:
        raise InputError("\n".join(problems))
