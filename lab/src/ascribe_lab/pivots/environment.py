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
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.envs.protocol import Outcome, Start, TextEnvironment
from ascribe_lab.envs.registry import check_file_options
from ascribe_lab.pivots.candidates import Candidate, TurnFile, read_turns
from ascribe_lab.pivots.verifiers import Spec, make_verifier


@dataclass
class PivotEpisode:
    """An episode: the turn, and the reason of the verdict once there is one."""

    turn: Candidate
    verdict: str = ""


RUNNING = ("effect", "progress")
"""Verifiers that run an environment, which their options name."""


def verifier_of(turns: TurnFile) -> Spec:
    """The verifier that the file names; ValueError if it names one that a file must not choose."""
    spec: Spec | None = turns.facts.get("verifier")
    if spec is None:
        raise InputError("the file names no verifier: give one")
    try:
        _check_spec(spec)
    except ValueError as error:
        raise InputError(
            f"the file's verifier is refused: {error}",
            hint="give the verifier yourself, if you trust it",
        ) from error
    return spec


def _check_spec(spec: Any) -> None:
    """Refuse a judge, and environments and options that a data file must not choose."""
    if spec == "judge" or (isinstance(spec, dict) and "judge" in spec):
        raise InputError("it calls a judge's server")
    if isinstance(spec, list):
        for part in spec:
            _check_spec(part)
    elif isinstance(spec, dict):
        for name, options in spec.items():
            if name not in RUNNING:
                _check_spec(options)
            elif isinstance(options, dict):
                check_file_options(options.get("environment"), options.get("options") or {})


class Pivots(TextEnvironment[PivotEpisode]):
    """Pivots. See the module for the protocol.

    Args:
        file: from ``ascribe pivots select`` or ``extract``.
        verifier: a spec; None: the one that the file names. A file may name no judge, only
            Ascribe's own environments, and of their options only ``file_options``.
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
            raise InputError(f"{Path(file).name} holds no turns")
        self.verify = make_verifier(verifier_of(turns) if verifier is None else verifier)
        # Copies are profiled once but count here: otherwise a situation that is always the same,
        # such as the first of a task, would hardly be met.
        self.turns = turns.candidates
        self._ends = list(accumulate(1 + one.copies for one in turns.candidates))
        self.tasks = self._ends[-1]

    def begin(self, task: int, generator: np.random.Generator) -> Start[PivotEpisode]:  # noqa: ARG002
        turn = self.turns[bisect(self._ends, task)]
        history = json.dumps(turn.messages, ensure_ascii=False)
        task_text = turn.messages[-1]["content"]
        return Start(PivotEpisode(turn), history, task_text, f"turn {turn.origin.turn}")

    def act(self, episode: PivotEpisode, action: str) -> Outcome:
        verdict = self.verify(episode.turn, action)
        episode.verdict = verdict.reason
        return Outcome(
            verdict.reason,
            reward=verdict.reward,
            terminated=True,
            won=bool(verdict.accepted),
            valid=bool(action.strip()),
        )

    def admissible(self, episode: PivotEpisode) -> None:  # noqa: ARG002
        return None

    def state_key(self, episode: PivotEpisode, observation: str) -> str:  # noqa: ARG002
        return f"{episode.turn.id} {episode.verdict}".strip()

    def expert_action(self, episode: PivotEpisode) -> str:
        return episode.turn.action.strip()
