"""Environments: the protocol, the environments of the papers, and adapters to others'."""

from ascribe_lab.envs.protocol import (
    INFO_KEYS,
    Branching,
    Environment,
    EpisodeOverError,
    Info,
    MissingExtraError,
    NotReproducibleError,
    Outcome,
    Replayed,
    Start,
    TextEnvironment,
    branching,
)
from ascribe_lab.envs.registry import ADAPTERS, ENVIRONMENTS, NEED_FILE, make

__all__ = [
    "ADAPTERS",
    "ENVIRONMENTS",
    "INFO_KEYS",
    "NEED_FILE",
    "Branching",
    "Environment",
    "EpisodeOverError",
    "Info",
    "MissingExtraError",
    "NotReproducibleError",
    "Outcome",
    "Replayed",
    "Start",
    "TextEnvironment",
    "branching",
    "make",
]
