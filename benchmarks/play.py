"""Which game an untrained SmolLM2-135M sometimes wins and sometimes loses.

A report on rollouts of an untrained model shows credit only if the episodes of some tasks differ.
Each case plays 4 tasks, 8 episodes each of the first and 4 of the others, with one thread and
temperature 1: ``success`` is the mean over tasks; ``mixed_groups`` is the share of tasks in which
20 to 80 % of the episodes succeed; ``valid`` the share of decisions that name an action that the
environment can carry out; ``signal`` the share of steps that gigpo credits; ``cpu_seconds`` the
processor time of the case, without that for loading the model. The quiz is a question of common
knowledge with four answers; it has one turn.
"""

import time
from collections import Counter

import common
import numpy as np

from ascribe import diagnose, recipe
from ascribe.envs.protocol import Outcome, Start, TextEnvironment
from ascribe.models import make_policy
from ascribe.rollout import Plan, Sampling, Setup, rollout, success, table

QUESTIONS = (
    ("What is the capital of France?", ("Paris", "Madrid", "Rome", "Berlin")),
    ("Which animal barks?", ("dog", "cat", "fish", "cow")),
    ("What is 2 + 3?", ("5", "4", "6", "7")),
    ("What colour is the sky on a clear day?", ("blue", "green", "red", "brown")),
    ("What is frozen water called?", ("ice", "steam", "sand", "oil")),
    ("Which of these can fly?", ("eagle", "dog", "shark", "snake")),
    ("How many days has a week?", ("seven", "five", "six", "ten")),
    ("What do bees make?", ("honey", "milk", "silk", "paper")),
)


class Quiz(TextEnvironment[int]):
    """A question with four answers in random order."""

    tasks = len(QUESTIONS)

    def __init__(self) -> None:
        super().__init__(horizon=1)

    def begin(self, task: int, generator: np.random.Generator) -> Start[int]:
        self._order = [int(place) for place in generator.permutation(4)]
        question, _ = QUESTIONS[task]
        return Start(task, question, "Answer the question.", "quiz")

    def act(self, episode: int, action: str) -> Outcome:
        right = action == QUESTIONS[episode][1][0]
        return Outcome("Right." if right else "Wrong.", float(right), terminated=True, won=right)

    def admissible(self, episode: int) -> list[str]:
        return [QUESTIONS[episode][1][place] for place in self._order]


CASES: dict[str, tuple[str, dict[str, object], str, int]] = {
    "textcraft, depth 1, choices": ("textcraft", {"depth": 1}, "choices", 4),
    "ezpoints, choices": ("ezpoints", {}, "choices", 4),
    "sokoban, one box, choices": ("sokoban", {"size": 5, "boxes": [1]}, "choices", 8),
    "quiz, choices": ("play:Quiz", {}, "choices", 1),
    "textcraft, depth 1, plain": ("textcraft", {"depth": 1}, "plain", 4),
}


def main() -> None:
    """Play every case and print."""
    with common.Figures("play") as figures:
        policy = make_policy("smollm2")
        cases = list(CASES)[:1] if figures.quick else list(CASES)
        groups = 4
        for case in cases:
            name, options, style, turns = CASES[case]
            chosen = case == next(iter(CASES))
            size = 8 if chosen and not figures.quick else 4
            setup = Setup(name, options, style, pool="serial")
            sampling = Sampling(1.0, max_tokens=8)
            plan = Plan(groups, size, turns, name="play", tasks=range(groups), sampling=sampling)
            started = time.process_time()
            with setup.open_pool(plan.groups * plan.size) as pool:
                played = rollout(plan, pool, setup.agent, policy)
            seconds = time.process_time() - started
            total = success(played)[-1]
            wins = Counter(t.group for t in played.trajectories if t.won)
            rates = [wins[plan.group_name(group)] / size for group in range(groups)]
            mixed = sum(0.2 <= rate <= 0.8 for rate in rates) / groups
            steps = table(played)
            signal = diagnose(steps, recipe("gigpo")(steps)).signal_share
            figures.emit(case, "success", total.rate, "share", "higher")
            figures.emit(case, "mixed_groups", mixed, "share", "higher", 0.25 if chosen else None)
            figures.emit(case, "valid", total.valid, "share", "higher")
            figures.emit(case, "signal", signal, "share", "higher")
            figures.emit(case, "turns", total.turns, "turns", "lower")
            figures.emit(case, "cpu_seconds", seconds, "s", "lower")
        policy.close()


if __name__ == "__main__":
    main()
