"""Step-level credit for reinforcement learning of LLM agents: steps in, advantages out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascribe.diagnostics import Diagnosis, diagnose
    from ascribe.estimators import RECIPES, Recipe, recipe
    from ascribe.estimators.assign import Assignment, assign
    from ascribe.estimators.credit import Credit, Reason, Term
    from ascribe.reports import report
    from ascribe.steps.check import CheckReport, check
    from ascribe.steps.errors import AscribeError
    from ascribe.steps.files import read_table, table_from_arrow, table_to_arrow, write_table
    from ascribe.steps.problems import Problem, ProblemKind, Severity, TableError
    from ascribe.steps.select import GroupSelection, select
    from ascribe.steps.table import StepTable

    __version__: str

__all__ = [
    "RECIPES",
    "AscribeError",
    "Assignment",
    "CheckReport",
    "Credit",
    "Diagnosis",
    "GroupSelection",
    "Problem",
    "ProblemKind",
    "Reason",
    "Recipe",
    "Severity",
    "StepTable",
    "TableError",
    "Term",
    "assign",
    "check",
    "diagnose",
    "read_table",
    "recipe",
    "report",
    "select",
    "table_from_arrow",
    "table_to_arrow",
    "write_table",
]

_MODULES = {
    "ascribe.diagnostics": ("Diagnosis", "diagnose"),
    "ascribe.estimators": ("RECIPES", "Recipe", "recipe"),
    "ascribe.estimators.assign": ("Assignment", "assign"),
    "ascribe.estimators.credit": ("Credit", "Reason", "Term"),
    "ascribe.reports": ("report",),
    "ascribe.steps.check": ("CheckReport", "check"),
    "ascribe.steps.errors": ("AscribeError",),
    "ascribe.steps.files": ("read_table", "table_from_arrow", "table_to_arrow", "write_table"),
    "ascribe.steps.problems": ("Problem", "ProblemKind", "Severity", "TableError"),
    "ascribe.steps.select": ("GroupSelection", "select"),
    "ascribe.steps.table": ("StepTable",),
}
"""Where each name is; its module is imported when the name is first used."""


def __getattr__(name: str) -> object:
    """A public name, or ``__version__``, read from the installed package."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        from ascribe.steps.hints import DISTRIBUTION

        try:
            return version(DISTRIBUTION)
        except PackageNotFoundError:  # the source on the path, not installed
            return "0.0"
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, also those that were not used yet."""
    return sorted({*globals(), *__all__})
