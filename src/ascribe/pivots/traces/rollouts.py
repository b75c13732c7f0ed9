"""Ascribe's own files: what ``ascribe rollout --model expert`` and any other rollout wrote.

The prompt of each row is the state, its response the action. What the environment was told before
makes the scene, so that the effect of another action can be tried.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascribe.agents.clean import replace_surrogates
from ascribe.models.policy import mix_seeds
from ascribe.pivots.calls import safe
from ascribe.pivots.candidates import Candidate, Message, Origin, Scene, candidate
from ascribe.pivots.faults import TraceFault, TraceProblem
from ascribe.steps.files import read
from ascribe.steps.problems import TableError
from ascribe.steps.strict_json import loads


@dataclass(frozen=True)
class Play:
    """How the episodes of a file were begun, for scenes.

    Attributes:
        seed: what ``ascribe rollout`` or ``ascribe eval`` was given as ``--seed``.
        first: what ``ascribe eval`` was given as ``--first``; None for a rollout.
        lost: whether turns of episodes that were not won are demonstrations too.
    """

    seed: int = 0
    first: int | None = None
    lost: bool = False


def turns(path: Path, play: Play) -> tuple[list[Candidate], int, list[TraceProblem]]:
    """The candidates of a file, the number of its traces, and what was left out or wrong."""
    file = replace_surrogates(path.name)
    try:
        rollouts = read(path)
    except TableError as error:
        found = [TraceProblem(TraceFault.BAD_TABLE, str(p), file) for p in error.problems]
        return [], 0, found
    missing = {"prompt", "response"} - set(rollouts.carried.column_names)
    if missing:
        detail = f"there is no column {' and no column '.join(sorted(missing))}"
        return [], 0, [TraceProblem(TraceFault.NO_TRANSCRIPT, detail, file)]
    rows = rollouts.table.to_dicts()
    for name in ("prompt", "response", "won"):
        if name in rollouts.carried.column_names:
            for row, value in zip(rows, rollouts.carried.column(name).to_pylist(), strict=True):
                row[name] = value
    return _Reader(file, rows, play).read()


class _Reader:
    def __init__(self, file: str, rows: Sequence[dict[str, Any]], play: Play) -> None:
        self.file, self.play = file, play
        self.traces: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        for line, row in enumerate(rows, start=1):
            if not row.get("padding"):
                self.traces[row["trajectory"]].append((line, row))
        self.problems: list[TraceProblem] = []
        self.left_out: Counter[TraceFault] = Counter()

    def read(self) -> tuple[list[Candidate], int, list[TraceProblem]]:
        found = [one for name in sorted(self.traces) for one in self._trace(name)]
        said = {
            TraceFault.LOST_TRACE: "episodes were not won",
            TraceFault.INVALID_TURN: "turns were not valid",
            TraceFault.EMPTY_TURN: "turns hold nothing",
        }
        for fault, count in self.left_out.items():
            self.problems.append(TraceProblem(fault, f"{count:,} {said[fault]}", self.file))
        return found, len(self.traces), self.problems

    def _trace(self, name: str) -> list[Candidate]:
        rows = sorted(self.traces[name], key=lambda numbered: numbered[1]["step"])
        if rows[-1][1].get("won") is False and not self.play.lost:
            self.left_out[TraceFault.LOST_TRACE] += 1
            return []
        found: list[Candidate] = []
        actions: list[str] = []
        for turn, (line, row) in enumerate(rows):
            response = row["response"] or ""
            if not response.strip():
                self.left_out[TraceFault.EMPTY_TURN] += 1
            elif row.get("valid") is False:
                self.left_out[TraceFault.INVALID_TURN] += 1
            else:
                try:
                    messages = _messages(row["prompt"])
                except ValueError as error:
                    fault = TraceFault.BAD_PROMPT
                    self.problems.append(TraceProblem(fault, str(error), self.file, line))
                    return []
                origin = Origin(self.file, name, turn, len(rows))
                scene = self._scene(row, actions)
                found.append(candidate(messages, replace_surrogates(response), origin, scene=scene))
            if row["action"]:
                actions.append(row["action"])
        return found

    def _scene(self, row: dict[str, Any], actions: list[str]) -> Scene | None:
        """None for groups that no plan of Ascribe named, or without a state."""
        number = row["group"].rpartition("/")[2]
        if not number.isascii() or not number.isdigit() or row["state"] is None:
            return None
        task = None if self.play.first is None else self.play.first + int(number)
        return Scene(mix_seeds(self.play.seed, int(number)), task, tuple(actions), row["state"])


def _messages(prompt: Any) -> list[Message]:
    if not isinstance(prompt, str):
        raise ValueError("there is no prompt")
    value = loads(prompt)
    if not isinstance(value, list) or not value:
        raise ValueError("it is no list of messages")
    for message in value:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            raise ValueError("a message has a role and a content, and nothing else")
        if not all(isinstance(text, str) for text in message.values()):
            raise ValueError("a message is not text")
    return [{"role": said["role"], "content": safe(said["content"])} for said in value]
