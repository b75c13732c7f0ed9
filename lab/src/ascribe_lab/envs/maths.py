r"""Maths: one question, one answer.

The observation is the question, the action is the answer, and the episode ends with it. Questions
come from a file of JSON lines in the form of GSM8K or of MATH. Of an answer, the last
``\boxed{...}`` counts; without one, what follows the last ``####``; else the whole text: as a
formula, or as a sentence in which ``math-verify`` (extra ``maths``) looks for the answer. It judges
in another process, see ``ascribe_lab.envs.maths_judge``. With ``judge="number"`` nothing need be
installed. ``docs/environments/games.md`` has the forms of the files, the limits and the licences.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.envs.maths_judge import judge
from ascribe_lab.envs.protocol import MissingExtraError, Outcome, Start, TextEnvironment, one_of
from ascribe_lab.envs.texts import Record, read_records

LONGEST_ANSWER = 10_000

SENTENCE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}\s|\s[A-Za-z]{2,}|(?<!\\)\$|\\\(|\\\[")
"""What a sentence has and a formula has not: words beside spaces, and marks around formulas."""

TEXT = re.compile(r"\\text\{[^{}]*\}")
"""Words that belong to a formula."""

NUMBER = re.compile(r"-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?")

OBSERVATIONS = {
    "right": "The answer is right.",
    "wrong": "The answer is wrong.",
    "unreadable": "There is no answer that can be read.",
}


@dataclass(frozen=True)
class MathProblem:
    """A question and its answer."""

    question: str
    gold: str
    family: str


@dataclass
class MathEpisode:
    """The problem, and whether it has been answered."""

    problem: MathProblem
    answered: bool = False


class Maths(TextEnvironment[MathEpisode]):
    """Maths. See ``docs/environments/games.md``.

    Args:
        file: JSON lines in the format of GSM8K or MATH.
        judge: how answers are compared: by ``math-verify``, or as a ``number`` if every gold answer
            is one.
        seconds: limit on the processor time for judging one answer, in seconds.
        expert: whether info has ``expert_action``.

    Raises:
        MissingExtraError: without the package ``math-verify``.
        ValueError: if a line of the file has no question or no answer, or no number for one where
            numbers are compared.
    """

    example_actions = (r"\boxed{42}", "The answer is 7.", r"\frac{1}{2}")

    def __init__(
        self,
        *,
        file: str | Path,
        judge: Literal["math-verify", "number"] = "math-verify",
        seconds: float = 3.0,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=1, expert=expert)
        one_of("judge", judge, ("math-verify", "number"))
        if judge == "math-verify" and find_spec("math_verify") is None:
            raise MissingExtraError("math-verify", "maths")
        if seconds <= 0:
            raise InputError(f"seconds must be more than 0, not {seconds}")
        self.judge, self.seconds = judge, seconds
        self.problems = read_problems(file)
        if judge == "number":
            for number, problem in enumerate(self.problems):
                if last_number(problem.gold) is None:
                    raise InputError(f"the answer of problem {number} is not a number")
        self.tasks = len(self.problems)

    def begin(self, task: int, generator: np.random.Generator) -> Start[MathEpisode]:  # noqa: ARG002
        problem = self.problems[task]
        return Start(MathEpisode(problem), problem.question, problem.question, problem.family)

    def act(self, episode: MathEpisode, action: str) -> Outcome:
        episode.answered = True
        verdict = "unreadable"
        if action.strip() and len(action) <= LONGEST_ANSWER:
            verdict = self._verdict(episode.problem.gold, action)
        right, valid = verdict == "right", verdict != "unreadable"
        return Outcome(OBSERVATIONS[verdict], float(right), terminated=True, won=right, valid=valid)

    def _verdict(self, gold: str, answer: str) -> str:
        if self.judge == "math-verify":
            return judge()(_boxed(gold), _legible(answer), self.seconds)
        number = last_number(final_answer(answer) or answer)
        if number is None:
            return "unreadable"
        return "right" if number == last_number(gold) else "wrong"

    def state_key(self, episode: MathEpisode, observation: str) -> str:
        return f"{episode.problem.question}\n{observation}" if episode.answered else observation

    def expert_action(self, episode: MathEpisode) -> str:
        return _boxed(episode.problem.gold)

    def right_action(self, episode: MathEpisode) -> str:
        return _boxed(episode.problem.gold)


def read_problems(file: str | Path) -> tuple[MathProblem, ...]:
    """The problems of a file; it is read again only if it has changed."""
    path = Path(file).resolve()
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, changed: int, size: int) -> tuple[MathProblem, ...]:  # noqa: ARG001
    problems = read_records(path, "problem", _problem)
    if not problems:
        raise InputError(f"{path.name} holds no problems")
    return tuple(problems)


def _problem(record: Record) -> MathProblem:
    keys = ("question", "problem", "answer", "solution", "subject", "type")
    texts = {key: record[key] for key in keys if record.get(key) is not None}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{key} is not text")
        text.encode("utf-8")  # half a surrogate pair is a ValueError
    question = texts.get("question") or texts.get("problem")
    if question is None:
        raise InputError("neither question nor problem")
    answer = texts.get("answer")
    if answer is not None:
        gold = final_answer(answer) or answer.strip()
    else:
        gold = final_answer(texts.get("solution", ""))
    if not gold:
        raise InputError("no answer")
    plain = "gsm8k" if answer is not None and "####" in answer else "maths"
    return MathProblem(question, gold, texts.get("subject") or texts.get("type") or plain)


def final_answer(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}``, else what follows the last ``####``, else None."""
    start = text.rfind(r"\boxed{")
    if start >= 0:
        depth = 0
        for place in range(start + len(r"\boxed"), len(text)):
            depth += (text[place] == "{") - (text[place] == "}")
            if depth == 0:
                return text[start + len(r"\boxed{") : place].strip()
    _, mark, after = text.rpartition("####")
    return after.strip().partition("\n")[0] if mark else None


def last_number(text: str) -> Decimal | None:
    """The last number in a text; ``1,200.50`` is one."""
    numbers = NUMBER.findall(text)
    return Decimal(numbers[-1].replace(",", "")) if numbers else None


def _legible(answer: str) -> str:
    """The answer in the form that math-verify reads: formulas boxed, sentences unchanged."""
    final = final_answer(answer)
    if final is not None:
        return _boxed(final)
    return answer if SENTENCE.search(TEXT.sub("", answer)) else _boxed(answer.strip())


def _boxed(formula: str) -> str:
    return rf"\boxed{{{formula}}}"
