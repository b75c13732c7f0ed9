"""IBPO: wrong trajectories shaped by comparing them with others of their task, as pure functions.

The way of one batch: ``draw_tuples`` puts trajectories beside each wrong one; an ``Operator`` says
how close each wrong one came; ``shape`` turns that into rewards; ``advantages`` compares those
inside the task; ``joint_rows`` adds the corrections as training rows of their own.
"""

from ascribe.estimators.correction.compare import (
    Compared,
    Consistency,
    Correction,
    Operator,
    Ranking,
    Signal,
)
from ascribe.estimators.correction.joint import JointRows, joint_rows
from ascribe.estimators.correction.ratio import sequence_ratio
from ascribe.estimators.correction.shape import NORM, Shaped, Shaping, advantages, shape
from ascribe.estimators.correction.tuples import Tuples, draw_tuples, every_tuple
from ascribe.estimators.correction.variance import Moments, moments

__all__ = [
    "NORM",
    "Compared",
    "Consistency",
    "Correction",
    "JointRows",
    "Moments",
    "Operator",
    "Ranking",
    "Shaped",
    "Shaping",
    "Signal",
    "Tuples",
    "advantages",
    "draw_tuples",
    "every_tuple",
    "joint_rows",
    "moments",
    "sequence_ratio",
    "shape",
]
