"""Step-level credit for reinforcement learning of LLM agents: steps in, advantages out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ascribe.decisions import Decisions, find_decisions
    from ascribe.decisions.versions import compare_versions
    from ascribe.estimators import RECIPES, Recipe, recipe
    from ascribe.estimators.assign import Assignment, assign
    from ascribe.estimators.credit import Credit, Reason, Term
    from ascribe.estimators.diagnostics import Diagnosis, diagnose
    from ascribe.reports import report
    from ascribe.sessions.reading.imports import read
    from ascribe.steps.check import CheckReport, check
    from ascribe.steps.errors import AscribeError
    from ascribe.steps.files import table_from_arrow, table_to_arrow, write_table
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
    "Decisions",
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
    "compare_versions",
    "diagnose",
    "find_decisions",
    "read",
    "recipe",
    "report",
    "select",
    "table_from_arrow",
    "table_to_arrow",
    "write_table",
]

_MODULES = {
    "ascribe.decisions": ("Decisions", "find_decisions"),
    "ascribe.decisions.versions": ("compare_versions",),
    "ascribe.estimators.diagnostics": ("Diagnosis", "diagnose"),
    "ascribe.estimators": ("RECIPES", "Recipe", "recipe"),
    "ascribe.estimators.assign": ("Assignment", "assign"),
    "ascribe.estimators.credit": ("Credit", "Reason", "Term"),
    "ascribe.reports": ("report",),
    "ascribe.sessions.reading.imports": ("read",),
    "ascribe.steps.check": ("CheckReport", "check"),
    "ascribe.steps.errors": ("AscribeError",),
    "ascribe.steps.files": ("table_from_arrow", "table_to_arrow", "write_table"),
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
