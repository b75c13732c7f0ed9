"""The verifier of effects: what the action does to the environment is what counts.

The environment is brought to where the turn was taken, the demonstrated action is carried out, then
the same is done with the answer's action; the keys of the two situations and the outcomes are
compared. Going back is a snapshot where the environment can, and a replay of the actions where it
cannot.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ascribe.agents import View, agent_for
from ascribe.envs import branching, make
from ascribe.envs.protocol import Branching, Info
from ascribe.pivots.candidates import Candidate, Scene
from ascribe.pivots.verifiers.verdict import Verdict, Verifier, Why, not_applicable

KEPT = 64
"""Moments that are kept; answers to one turn come one after another."""


class OtherScene(ValueError):  # noqa: N818 (named for what is wrong)
    """The environment is not where the trace says."""


def effect(
    environment: str, options: Mapping[str, Any] | None = None, style: str = "paper"
) -> Verifier:
    """An action that leaves the environment in the same state, with the same outcome.

    The environment is named here and not by the trace: a file must not say which code is run.

    An action that the environment does not understand is refused, even if nothing was to change.

    Args:
        environment: a key of ``ascribe.envs.ENVIRONMENTS``, or ``package.module:factory``.
        options: those that the traces were made with.
        style: of the agent whose parser reads answers.

    Raises:
        OtherScene: when it is asked, if the options or the seed are not those of the traces.
    """
    agent = agent_for(environment, style)
    world = World(branching(make(environment, **(options or {}))))

    def verify(candidate: Candidate, answer: str) -> Verdict:
        if candidate.scene is None:
            return not_applicable("the trace does not say where the environment was")
        wanted = world.after(candidate.scene, _said(candidate.action))
        found = world.after(candidate.scene, _said(answer))
        if found is None or wanted is None:
            return Verdict(False, Why.OTHER_EFFECT, "nothing was carried out")
        if found[1:] == wanted[1:] and (found.valid or not wanted.valid):
            return Verdict(True, Why.SAME_EFFECT)
        outcome = f"reward {found.reward:g}, {'won' if found.won else 'not won'}"
        return Verdict(False, Why.OTHER_EFFECT, f"{outcome}: {found.state}"[:200])

    def _said(answer: str) -> str | None:
        return agent.decide(answer, View("", "")).action

    return verify


class Effect(NamedTuple):
    """What an action did.

    The key of a situation is what the agent can see, so it need not tell a right answer from a
    wrong one; the outcome does.
    """

    valid: bool
    state: str
    terminated: bool
    won: bool
    reward: float
    """Of this step."""


class World:
    """An environment that can be brought to scenes."""

    def __init__(self, environment: Branching) -> None:
        self.environment = environment
        self._moment = lru_cache(KEPT)(self._go)
        self._effect = lru_cache(KEPT * 16)(self._try)

    def at(self, scene: Scene) -> Info:
        """Go to a scene; what the environment tells there besides the observation."""
        return self.environment.restore(self._moment(scene))[1]

    def after(self, scene: Scene, action: str | None) -> Effect | None:
        """What an action does at a scene; None if there is no action."""
        return None if not action else self._effect(scene, action)

    def _try(self, scene: Scene, action: str) -> Effect:
        self.at(scene)
        _, reward, terminated, _, info = self.environment.step(action)
        won = bool(info["won"])
        return Effect(bool(info["valid"]), str(info["state"]), terminated, won, float(reward))

    def _go(self, scene: Scene) -> Any:
        options = None if scene.task is None else {"task": scene.task}
        _, info = self.environment.reset(seed=scene.seed, options=options)
        for action in scene.actions:
            _, _, terminated, truncated, info = self.environment.step(action)
            if terminated or truncated:
                raise OtherScene("the episode is over before the turn" + ADVICE)
        if info["state"] != scene.state:
            raise OtherScene("the environment is in another state than the trace says" + ADVICE)
        return self.environment.snapshot()


ADVICE = (
    ": give the verifier the options that the traces were made with, and ascribe pivots extract "
    "their --seed (and --first, for traces of ascribe eval)"
)
