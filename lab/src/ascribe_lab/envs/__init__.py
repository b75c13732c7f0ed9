"""Environments: the protocol, the environments of the papers, and adapters to others'."""

from ascribe_lab.envs.protocol import (
    INFO_KEYS,
    Environment,
    EpisodeOverError,
    Info,
    MissingExtraError,
    Outcome,
    Start,
    TextEnvironment,
)
from ascribe_lab.envs.registry import ADAPTERS, ENVIRONMENTS, NEED_FILE, make

__all__ = [
    "ADAPTERS",
    "ENVIRONMENTS",
    "INFO_KEYS",
    "NEED_FILE",
    "Environment",
    "EpisodeOverError",
    "Info",
    "MissingExtraError",
    "Outcome",
    "Start",
    "TextEnvironment",
    "make",
]
