"""Step-level credit for reinforcement learning of LLM agents: steps in, advantages out."""

from ascribe.diagnose import Diagnosis, diagnose
from ascribe.estimators import RECIPES, Recipe, recipe
from ascribe.estimators.assign import Assignment, assign
from ascribe.estimators.credit import Credit, Reason, Term
from ascribe.steps.check import DropGroup, Keep, Policy, Raise, Report, check
from ascribe.steps.problems import Kind, Problem, Severity, TableError
from ascribe.steps.table import StepTable

__version__ = "0.1.0"

__all__ = [
    "RECIPES",
    "Assignment",
    "Credit",
    "Diagnosis",
    "DropGroup",
    "Keep",
    "Kind",
    "Policy",
    "Problem",
    "Raise",
    "Reason",
    "Recipe",
    "Report",
    "Severity",
    "StepTable",
    "TableError",
    "Term",
    "assign",
    "check",
    "diagnose",
    "recipe",
]
