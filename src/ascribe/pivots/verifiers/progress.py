"""The verifier of progress: an action counts if less is left to do after it.

    left(s) = steps that the environment's expert takes from s to the goal
    accepted: left(s after the answer) < left(s)

Where two things must be done in either order, each of them is accepted; ``effect`` takes only the
one that was demonstrated.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import Any

from ascribe.agents import View, agent_for
from ascribe.envs import branching, make
from ascribe.envs.protocol import Info
from ascribe.pivots.candidates import Candidate, Scene
from ascribe.pivots.verifiers.effect import KEPT, World
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why, not_applicable, verdict


def progress(
    environment: str, options: Mapping[str, Any] | None = None, style: str = "paper"
) -> Verifier:
    """An action after which the environment's expert has fewer steps to the goal.

    Args:
        environment: one with an expert; named here, and never by the trace.
        options: those that the traces were made with.
        style: of the agent whose parser reads answers.

    Raises:
        ValueError: if the environment has no expert.
        OtherScene: when it is asked, if the options or the seed are not those of the traces.
    """
    agent = agent_for(environment, style)
    try:
        made = make(environment, **{**(options or {}), "expert": True})
    except TypeError as error:
        raise ValueError(f"{environment[:60]} has no expert, or other options: {error}") from error
    way = _Way(World(branching(made)))

    def verify(candidate: Candidate, answer: str) -> Verdict:
        if candidate.scene is None:
            return not_applicable("the trace does not say where the environment was")
        before = way.left(candidate.scene, None)
        if before == inf:
            return not_applicable("the expert knows no way from here")
        action = agent.decide(answer, View("", "")).action
        after = way.left(candidate.scene, action) if action else inf
        detail = f"{before:g} steps were left, and {after:g} are"
        return verdict(after < before, Why.PROGRESS, Why.NO_PROGRESS, detail)

    return verify


class _Way:
    def __init__(self, world: World) -> None:
        self.world = world
        self.left = lru_cache(KEPT * 16)(self._count)

    def _count(self, scene: Scene, action: str | None) -> float:
        """Steps that are left at a scene, or after an action there; infinite without a way."""
        environment, info, ended = self.world.environment, self.world.at(scene), False
        if action is not None:
            _, _, terminated, truncated, info = environment.step(action)
            ended = terminated or truncated
        steps = 0
        while not ended and (following := _expert(info)) is not None:
            _, _, terminated, truncated, info = environment.step(following)
            ended = terminated or truncated
            steps += 1
        return steps if info["won"] else inf


def _expert(info: Info) -> str | None:
    found: str | None = info.get("expert_action")
    return found
