"""Worlds whose true advantages are known, and the score of every recipe in them."""

from ascribe.audit.forms import FULL_FORMS, QUICK_FORMS, named
from ascribe.audit.rollouts import Batch, Conditions, rollouts
from ascribe.audit.run import FULL, QUICK, Audit, Estimate, Settings, audit
from ascribe.audit.scores import Scores
from ascribe.audit.tasks import Exact, Tasks
from ascribe.audit.worlds import WORLDS, World

__all__ = [
    "FULL",
    "FULL_FORMS",
    "QUICK",
    "QUICK_FORMS",
    "WORLDS",
    "Audit",
    "Batch",
    "Conditions",
    "Estimate",
    "Exact",
    "Scores",
    "Settings",
    "Tasks",
    "World",
    "audit",
    "named",
    "rollouts",
]
