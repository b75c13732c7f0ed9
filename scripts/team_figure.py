"""Draw what a thinker and a solver are paid: shared against counterfactual reward.

Simulates a training run in which the thinker starts out harmful and ends up helpful, and writes
docs/figures/team.svg, after Figure 4 of CCPO. Needs the extra figures.
"""

import numpy as np
from figures import BLUE, RED, new_figure, save

from ascribe.estimators.ccpo import SOLVER, STREAMS, THINKER, Statistics, think_solve
from ascribe.steps.arrays import Floats

STEPS, PROMPTS, ROLLOUTS = 300, 64, 4
SOLO = 0.45
JOINT = (0.25, 0.75)
"""How often the two are right together, at the start and at the end."""
OUTCOMES = ((1, 1), (1, 0), (0, 1), (0, 0))


def main() -> None:
    """Simulate and draw."""
    draw(*simulate(np.random.default_rng(0)))


def simulate(random: np.random.Generator) -> tuple[Floats, Floats]:
    """Outcomes (together, alone) of every rollout, and what thinker and solver are paid."""
    history, outcomes, paid = Statistics.start(STREAMS), [], []
    prompt = np.arange(PROMPTS * ROLLOUTS) // ROLLOUTS
    for right in np.linspace(*JOINT, STEPS):
        drawn = random.random((2, prompt.size)) < [[right], [SOLO]]
        joint, solo = drawn.astype(np.float64)
        credit, history = think_solve(joint, solo, prompt, PROMPTS, history=history)
        outcomes.append(np.stack([joint, solo], axis=1))
        paid.append(credit.reward)
    return np.concatenate(outcomes), np.concatenate(paid)


def draw(outcomes: Floats, paid: Floats) -> None:
    """A row for each agent: shared reward on the left, counterfactual on the right."""
    figure = new_figure(9, 6)
    panels = figure.subplots(2, 2, sharex=True)
    cases = [(outcomes == case).all(axis=1) for case in OUTCOMES]
    for agent, name, colour in ((THINKER, "thinker", BLUE), (SOLVER, "solver", RED)):
        rewards = {"shared": outcomes[:, 0], "counterfactual": paid[:, agent]}
        for panel, (kind, values) in zip(panels[agent], rewards.items(), strict=True):
            boxes = panel.boxplot(
                [values[case] for case in cases], whis=(1, 99), showfliers=False, patch_artist=True
            )
            for box in boxes["boxes"]:
                box.set(facecolor=colour, alpha=0.35)
            for median in boxes["medians"]:
                median.set(color=colour, lw=2)
            panel.axhline(0, color="#999999", lw=0.8, zorder=0)
            panel.set_title(f"{name}, {kind} reward")
            panel.grid(axis="y", alpha=0.3)
            panel.set_ylim(-2.2, 2.2)
    words = {1: "right", 0: "wrong"}
    labels = [f"team {words[joint]},\nsolo {words[solo]}" for joint, solo in OUTCOMES]
    for panel in panels[-1]:
        panel.set_xticks(range(1, len(labels) + 1), labels)
    for panel in panels[:, 0]:
        panel.set_ylabel("reward")
    save(figure, "team")


if __name__ == "__main__":
    main()
