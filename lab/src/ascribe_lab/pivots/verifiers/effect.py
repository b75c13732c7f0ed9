"""Verifiers that try actions in an environment: ``effect`` and ``progress``.

Both bring the environment to the situation of the turn by replaying its actions.

    effect:    the state and the outcome are the same after the response's action and after the
               demonstrated one
    progress:  left(s after the action) < left(s), where left(s) is the number of steps that the
               environment's expert takes from s to the goal

Where two things must be done in either order, ``progress`` accepts each of them, and ``effect``
only the demonstrated one.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from ascribe.steps.errors import InputError
from ascribe_lab.agents import View, agent_for
from ascribe_lab.envs import Environment, Info, make
from ascribe_lab.pivots.candidates import Candidate, ReplayPoint
from ascribe_lab.pivots.verifiers.verdict import (
    Verdict,
    Verifier,
    not_applicable,
)

KEPT = 1024
"""Results that are kept; many responses give the same action."""

NO_SCENE = "the trace does not say where the environment was"


ADVICE = (
    "give the verifier the options that the traces were made with, and ascribe pivots extract "
    "their --seed (and --first, for traces of ascribe eval)"
)


def effect(
    environment: str, options: Mapping[str, Any] | None = None, style: str = "paper"
) -> Verifier:
    """An action that leaves the environment in the same state, with the same outcome.

    The environment is named here and not by the trace: a file must not decide which code is run.
    An action that the environment does not understand is refused, even if nothing was to change.

    Args:
        environment: a key of ``ascribe_lab.envs.ENVIRONMENTS``, or ``package.module:factory``.
        options: those that the traces were made with.
        style: of the agent whose parser reads responses.

    Raises:
        ValueError: when it is called, if the options or the seed are not the traces'.
    """
    agent = agent_for(environment, style)
    replay = Replay(make(environment, **(options or {})))

    def after(point: ReplayPoint, response: str) -> Effect | None:
        action = agent.decide(response, View("", "")).action
        return replay.effect(point, action) if action else None

    def verify(candidate: Candidate, response: str) -> Verdict:
        if candidate.scene is None:
            return not_applicable(NO_SCENE)
        demonstrated = after(candidate.scene, candidate.action)
        actual = after(candidate.scene, response)
        if actual is None or demonstrated is None:
            return Verdict(False, "other_effect", "nothing was carried out")
        if actual[1:] == demonstrated[1:] and (actual.valid or not demonstrated.valid):
            return Verdict(True, "same_effect")
        outcome = f"reward {actual.reward:g}, {'won' if actual.won else 'not won'}"
        return Verdict(False, "other_effect", f"{outcome}: {actual.state}"[:200])

    return verify


def progress(
    environment: str, options: Mapping[str, Any] | None = None, style: str = "paper"
) -> Verifier:
    """An action after which the environment's expert has fewer steps to the goal.

    Args:
        environment: one with an expert; named here, and never by the trace.
        options: those that the traces were made with.
        style: of the agent whose parser reads responses.

    Raises:
        ValueError: if the environment has no expert; and when it is called, if the options or the
            seed are not the traces'.
    """
    agent = agent_for(environment, style)
    try:
        expert = make(environment, **{**(options or {}), "expert": True})
    except (TypeError, ValueError) as error:
        raise InputError(f"{environment[:60]} has no expert, or other options: {error}") from error
    replay = Replay(expert)

    def verify(candidate: Candidate, response: str) -> Verdict:
        if candidate.scene is None:
            return not_applicable(NO_SCENE)
        before = replay.steps_left(candidate.scene, None)
        if before == inf:
            return not_applicable("the expert cannot reach the goal from here")
        action = agent.decide(response, View("", "")).action
        after = replay.steps_left(candidate.scene, action) if action else inf
        closer = after < before
        detail = f"{before:g} steps were left, and {after:g} are"
        return Verdict(closer, "progress" if closer else "no_progress", detail)

    return verify


class Effect(NamedTuple):
    """The effect of an action.

    The state key is what the agent can see, so it need not tell a right final answer from a wrong
    one; the outcome does.
    """

    valid: bool
    state: str
    terminated: bool
    won: bool
    reward: float
    """Of this step."""


class Replay:
    """An environment that can be brought to the situations of traces. Results are cached."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.effect = lru_cache(KEPT)(self._effect)
        self.steps_left = lru_cache(KEPT)(self._steps_left)

    def _effect(self, point: ReplayPoint, action: str) -> Effect:
        self._replay(point)
        _, reward, terminated, _, info = self.environment.step(action)
        won = bool(info["won"])
        return Effect(bool(info["valid"]), str(info["state"]), terminated, won, float(reward))

    def _steps_left(self, point: ReplayPoint, action: str | None) -> float:
        """The expert's steps to the goal, after an action if one is given; infinite without one."""
        info, ended = self._replay(point), False
        following = info.get("expert_action") if action is None else action
        steps = 0 if action is None else -1  # the given action is none of the expert's
        while not ended and following is not None:
            _, _, terminated, truncated, info = self.environment.step(following)
            ended = terminated or truncated
            following = info.get("expert_action")
            steps += 1
        return steps if info["won"] else inf

    def _replay(self, point: ReplayPoint) -> Info:
        options = None if point.task is None else {"task": point.task}
        seen, info = self.environment.reset(seed=point.seed, options=options)
        for action in point.actions:
            seen, _, terminated, truncated, info = self.environment.step(action)
            if terminated or truncated:
                raise InputError(f"the episode is over before the turn: {ADVICE}")
        if point.state not in (seen, info["state"]):  # rollouts write either
            reason = "the environment is in another state than the trace says"
            raise InputError(f"{reason}: {ADVICE}")
        return info
