"""Rollouts: policies, pools of environments, and the run that brings them together."""

from ascribe_lab.models.policy import Request, Sample, Sampling, SamplingPolicy
from ascribe_lab.rollout.episode import (
    DroppedGroup,
    FailedEpisode,
    FailurePolicy,
    RolloutFailedError,
)
from ascribe_lab.rollout.journal import journal_beside, play_to_file
from ascribe_lab.rollout.record import arrow, save, table
from ascribe_lab.rollout.run import Clock, Plan, Rollout, Trajectory, rollout
from ascribe_lab.rollout.setup import Model, Setup, play
from ascribe_lab.rollout.summary import Success, success

__all__ = [
    "Clock",
    "DroppedGroup",
    "FailedEpisode",
    "FailurePolicy",
    "Model",
    "Plan",
    "Request",
    "Rollout",
    "RolloutFailedError",
    "Sample",
    "Sampling",
    "SamplingPolicy",
    "Setup",
    "Success",
    "Trajectory",
    "arrow",
    "journal_beside",
    "play",
    "play_to_file",
    "rollout",
    "save",
    "success",
    "table",
]
