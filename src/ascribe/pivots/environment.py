"""Pivots as an environment: one turn, one answer, and the verifier pays.

Protocol: the tasks are the turns of a file, each as often as it was in the traces; the observation
is a turn's history as JSON, which the agent ``pivots`` shows as the chat that it is; the action is
the whole answer; the reward is the verdict, 0 or 1; the episode ends with it. So a pivot is a group
of one-step episodes, and whatever trains on episodes trains on pivots:

    environment:
      name: pivots
      options: {file: pivots.jsonl}

The file may hold candidates as well: then all of them are tasks, for comparison, or for supervised
learning on the same traces (``ascribe warmup --env pivots``): the expert says what was shown there.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.envs import ENVIRONMENTS
from ascribe.envs.protocol import Outcome, Start, TextEnvironment
from ascribe.pivots.candidates import Candidate, Turns, read_turns
from ascribe.pivots.verifiers import Spec, make_verifier


@dataclass
class Asked:
    """An episode: the turn, and the reason of the verdict once there is one."""

    turn: Candidate
    verdict: str = ""


PLAYING = ("effect", "progress")
"""Verifiers that play in an environment, which their options name."""
NAMING = ("pivots", "team")
"""Environments whose own options may name code to run or a server to ask."""


def verifier_of(turns: Turns) -> Spec:
    """The verifier that the file names; none that would run the file's code or ask its server."""
    spec: Spec | None = turns.facts.get("verifier")
    if spec is None:
        raise ValueError("the file was selected by no verifier: give one")
    if not _is_harmless(spec):
        raise ValueError(
            "the file names a judge, or an environment that is not one of Ascribe's: "
            "give the verifier yourself, if you trust it"
        )
    return spec


def _is_harmless(spec: Any) -> bool:
    if isinstance(spec, list):
        return all(map(_is_harmless, spec))
    if not isinstance(spec, dict):
        return bool(spec != "judge")
    played = [spec[name] for name in PLAYING if name in spec]
    others = (value for name, value in spec.items() if name not in PLAYING)
    return all(map(_is_ours, played)) and "judge" not in spec and all(map(_is_harmless, others))


def _is_ours(options: Any) -> bool:
    """Whether options name a game of Ascribe's."""
    named = options.get("environment") if isinstance(options, dict) else None
    return isinstance(named, str) and named in ENVIRONMENTS and named not in NAMING


class Pivots(TextEnvironment[Asked]):
    """Pivots. See the module for the protocol.

    Args:
        file: from ``ascribe pivots select`` or ``extract``.
        verifier: a spec; None: the one that the pivots were selected with, if it is no judge and
            plays in no environment but Ascribe's own.
        expert: whether info carries ``expert_action``.

    Raises:
        ValueError: if the file holds no turns, or names no verifier and none is given.
    """

    example_actions = ("<action>look</action>", '{"name": "search", "arguments": {}}', "Yes.")

    def __init__(
        self, *, file: str | Path, verifier: Spec | None = None, expert: bool = False
    ) -> None:
        super().__init__(horizon=1, expert=expert)
        turns = read_turns(file)
        if not turns.candidates:
            raise ValueError(f"{Path(file).name} holds no turns")
        self.verify = make_verifier(verifier_of(turns) if verifier is None else verifier)
        # Copies were kept once, to be asked about once. They count here: else a situation that is
        # always the same, such as the first of a task, would hardly be met.
        self.turns = [one for one in turns.candidates for _ in range(1 + one.copies)]
        self.tasks = len(self.turns)

    def _begin(self, task: int, generator: np.random.Generator) -> Start[Asked]:  # noqa: ARG002
        turn = self.turns[task]
        history = json.dumps(turn.messages, ensure_ascii=False)
        asked = turn.messages[-1]["content"]
        return Start(Asked(turn), history, asked, f"turn {turn.origin.turn}")

    def _act(self, episode: Asked, action: str) -> Outcome:
        verdict = self.verify(episode.turn, action)
        episode.verdict = verdict.why.value
        accepted = bool(verdict.accepted)
        return Outcome(
            verdict.why.value,
            reward=verdict.reward,
            terminated=True,
            won=accepted,
            valid=bool(action.strip()),
        )

    def _admissible(self, episode: Asked) -> None:  # noqa: ARG002
        return None

    def _state(self, episode: Asked, observation: str) -> str:  # noqa: ARG002
        return f"{episode.turn.id} {episode.verdict}".strip()

    def _expert(self, episode: Asked) -> str:
        return episode.turn.action.strip()
