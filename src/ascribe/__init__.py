"""Step-level credit for reinforcement learning of LLM agents: steps in, advantages out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ascribe.diagnose import Diagnosis, diagnose
from ascribe.estimators import RECIPES, Recipe, recipe
from ascribe.estimators.assign import Assignment, assign
from ascribe.estimators.credit import Credit, Reason, Term
from ascribe.steps.check import CheckReport, check
from ascribe.steps.files import read_table, table_from_arrow, table_to_arrow, write_table
from ascribe.steps.problems import Problem, ProblemKind, Severity, TableError
from ascribe.steps.select import GroupSelection, select
from ascribe.steps.table import StepTable

if TYPE_CHECKING:
    from ascribe.reports import report as report

__all__ = [
    "RECIPES",
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


def __getattr__(name: str) -> Any:
    """``report``, which loads much, and ``__version__``, when they are asked for."""
    if name == "report":
        return import_module("ascribe.reports").report
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    from ascribe.steps.hints import DISTRIBUTION

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # the source on the path, not installed
        return "0.0"
