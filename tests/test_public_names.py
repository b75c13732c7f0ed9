"""The public names: those of the API page, which lists them with their modules."""

from importlib import import_module

import pytest

import ascribe
from tests.doctests import listed

pytestmark = pytest.mark.unit

ROOT = {
    *("RECIPES", "AscribeError", "Assignment", "CheckReport", "Credit", "Decisions", "Diagnosis"),
    *("GroupSelection", "Problem", "ProblemKind", "Reason", "Recipe", "Severity", "StepTable"),
    *("TableError", "Term", "assign", "check", "compare_versions", "diagnose", "find_decisions"),
    *("read", "recipe", "report", "select", "table_from_arrow", "table_to_arrow", "write_table"),
}
MODULES = {
    "ascribe.decisions": {"Decision", "Side"},
    "ascribe.decisions.versions": {"Change"},
    "ascribe.estimators.diagnostics": {"StateGroups", "ToolCredit", "credit_per_tool"},
    "ascribe.reports": {"Picture"},
    "ascribe.sessions": {
        *("Conversation", "Forest", "Link", "Merged", "Spans", "check_sequences", "from_calls"),
        *("from_messages", "from_sequences", "link", "loss_weights", "merge", "per_turn", "spread"),
    },
    "ascribe.sessions.forest": {"Position"},
    "ascribe.sessions.reading": {"Imported", "import_files", "write_credit"},
    "ascribe.sessions.reading.fields": {"Fields"},
    "ascribe.steps.files": {"Rollouts", "write"},
}
"""The documented modules, each with the names that ``ascribe`` itself does not have."""
MOST = 60


def test_the_api_page_lists_the_public_names() -> None:
    """There are few, and a new one is a decision: what is listed has to stay."""
    inside = [f"{module}.{name}" for module, names in MODULES.items() for name in names]
    public = [f"ascribe.{name}" for name in ROOT] + inside
    assert sorted(listed("ascribe")) == sorted(public)
    assert set(ascribe.__all__) == ROOT
    assert len(public) <= MOST


@pytest.mark.parametrize("name", MODULES)
def test_a_documented_module_exports_no_other_names(name: str) -> None:
    module = import_module(name)
    exported = set(getattr(module, "__all__", MODULES[name]))
    assert MODULES[name] <= exported <= MODULES[name] | ROOT
    assert all(hasattr(module, each) for each in exported)
