"""Rollouts: policies, pools of environments, and the run that brings them together."""

from ascribe.models.policy import Policy, Request, Sample, Sampling
from ascribe.rollout.failures import DroppedGroup, FailurePolicy, GivenUp, RolloutFailed
from ascribe.rollout.record import arrow, save, table
from ascribe.rollout.run import Clock, Plan, Rollout, Trajectory, rollout
from ascribe.rollout.setup import Model, Setup, play
from ascribe.rollout.summary import Success, success, wilson

__all__ = [
    "Clock",
    "DroppedGroup",
    "FailurePolicy",
    "GivenUp",
    "Model",
    "Plan",
    "Policy",
    "Request",
    "Rollout",
    "RolloutFailed",
    "Sample",
    "Sampling",
    "Setup",
    "Success",
    "Trajectory",
    "arrow",
    "play",
    "rollout",
    "save",
    "success",
    "table",
    "wilson",
]
