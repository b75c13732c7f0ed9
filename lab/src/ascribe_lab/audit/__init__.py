"""Worlds whose true advantages are known, and the score of every recipe in them."""

from ascribe_lab.audit.rare import ALL_WORLDS
from ascribe_lab.audit.run import (
    FULL,
    FULL_FORMS,
    QUICK,
    QUICK_FORMS,
    Audit,
    Interval,
    Settings,
    audit,
    scored_recipe,
)
from ascribe_lab.audit.tasks import AuditBatch, Conditions, Exact, TabularTasks, rollouts
from ascribe_lab.audit.worlds import WORLDS, World

__all__ = [
    "ALL_WORLDS",
    "FULL",
    "FULL_FORMS",
    "QUICK",
    "QUICK_FORMS",
    "WORLDS",
    "Audit",
    "AuditBatch",
    "Conditions",
    "Exact",
    "Interval",
    "Settings",
    "TabularTasks",
    "World",
    "audit",
    "rollouts",
    "scored_recipe",
]
