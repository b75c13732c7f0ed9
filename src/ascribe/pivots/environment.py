"""Pivots as an environment: one turn, one response, and a reward from the verifier.

Protocol: the tasks are the turns of a file, each as often as it was in the traces; the observation
is a turn's history as JSON, which the agent ``pivots`` shows as a chat; the action is the whole
response; the reward is the verdict, 0 or 1; the episode ends with it. So a pivot is a group of
one-step episodes, and every engine that trains on episodes trains on pivots:

    environment:
      name: pivots
      options: {file: pivots.jsonl}

The file may hold candidates as well: then all of them are tasks, for comparison, or for supervised
learning on the same traces (``ascribe warmup --env pivots``): the expert repeats the demonstration.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.envs import ENVIRONMENTS
from ascribe.envs.protocol import Outcome, Start, TextEnvironment
from ascribe.pivots.candidates import Candidate, TurnFile, read_turns
from ascribe.pivots.verifiers import Spec, make_verifier


@dataclass
class PivotEpisode:
    """An episode: the turn, and the reason of the verdict once there is one."""

    turn: Candidate
    verdict: str = ""


RUNNING = ("effect", "progress")
"""Verifiers that run an environment, which their options name."""
NAMING = ("pivots", "team")
"""Environments whose own options may name code to run or a server."""


def verifier_of(turns: TurnFile) -> Spec:
    """The verifier that the file names, unless it would run the file's code or use its server."""
    spec: Spec | None = turns.facts.get("verifier")
    if spec is None:
        raise ValueError("the file names no verifier: give one")
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
    run = [spec[name] for name in RUNNING if name in spec]
    others = (value for name, value in spec.items() if name not in RUNNING)
    return all(map(_is_ours, run)) and "judge" not in spec and all(map(_is_harmless, others))


def _is_ours(options: Any) -> bool:
    """Whether options name an environment of Ascribe's that cannot name code or servers."""
    named = options.get("environment") if isinstance(options, dict) else None
    return isinstance(named, str) and named in ENVIRONMENTS and named not in NAMING


class Pivots(TextEnvironment[PivotEpisode]):
    """Pivots. See the module for the protocol.

    Args:
        file: from ``ascribe pivots select`` or ``extract``.
        verifier: a spec; None: the one that the pivots were selected with, if it is no judge and
            runs no environment but Ascribe's own.
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
        # Copies are profiled once but count here: otherwise a situation that is always the same,
        # such as the first of a task, would hardly be met.
        self.turns = [one for one in turns.candidates for _ in range(1 + one.copies)]
        self.tasks = len(self.turns)

    def _begin(self, task: int, generator: np.random.Generator) -> Start[PivotEpisode]:  # noqa: ARG002
        turn = self.turns[task]
        history = json.dumps(turn.messages, ensure_ascii=False)
        task_text = turn.messages[-1]["content"]
        return Start(PivotEpisode(turn), history, task_text, f"turn {turn.origin.turn}")

    def _act(self, episode: PivotEpisode, action: str) -> Outcome:
        verdict = self.verify(episode.turn, action)
        episode.verdict = verdict.reason
        return Outcome(
            verdict.reason,
            reward=verdict.reward,
            terminated=True,
            won=bool(verdict.accepted),
            valid=bool(action.strip()),
        )

    def _admissible(self, episode: PivotEpisode) -> None:  # noqa: ARG002
        return None

    def _state(self, episode: PivotEpisode, observation: str) -> str:  # noqa: ARG002
        return f"{episode.turn.id} {episode.verdict}".strip()

    def _expert(self, episode: PivotEpisode) -> str:
        return episode.turn.action.strip()
