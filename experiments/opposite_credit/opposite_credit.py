"""Equal decisions with opposite credit: does their share say how good the credit is?

Worlds of the audit, whose exact policy gradient is known, are played with more and more attempts at
each task. ``opposite_share`` is the share of steps for which another step of the task, with the
same state and the same action, has a credit of the opposite sign; ``gradient_cosine`` compares the
policy gradient of the credit with the exact one. Both are means over worlds. With more attempts
both rise, so that no threshold of the share separates good credit from bad. On the same steps, a
recipe that averages over equal actions has the lower share and the better gradient.
"""

import numpy as np

from ascribe import diagnose, recipe
from ascribe_lab.audit import WORLDS, Conditions, rollouts
from ascribe_lab.audit.scores import gradient_cosine, policy_gradient
from benchmarks import common

GAMMA, TASKS = 0.95, 20
RECIPES = {name: recipe(name) for name in ("grpo", "gigpo", "returns")}
RECIPES["sbc"] = recipe("sbc", preset="exact")


def main() -> None:
    """Measure and print."""
    with common.Figures("opposite_credit") as figures:
        worlds = list(WORLDS.items())[:2] if figures.quick else WORLDS.items()
        for size in (5, 20) if figures.quick else (5, 20, 80):
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in RECIPES}
            for seed, (_, world) in enumerate(worlds):
                random = np.random.default_rng((seed, size))
                tasks = world.tasks(TASKS, np.random.default_rng(seed), forms=1, wordings=1)
                exact = tasks.solve(GAMMA)
                batch = rollouts(tasks, exact, random, Conditions(size, paraphrase=0.0))
                truth = tasks.gradient(exact).reshape(1, -1)
                for name, by in RECIPES.items():
                    credit = by(batch.table)
                    gradient = policy_gradient(tasks, batch, credit.advantage).reshape(1, 1, -1)
                    share = diagnose(batch.table, credit).opposite_share
                    found[name].append((share, float(gradient_cosine(gradient, truth)[0])))
            for name, pairs in found.items():
                share, cosine = np.mean(pairs, axis=0)
                case = f"{name}, {size} attempts"
                figures.emit(case, "opposite_share", share, "share", "lower")
                figures.emit(case, "gradient_cosine", cosine, "cosine", "higher")


if __name__ == "__main__":
    main()
