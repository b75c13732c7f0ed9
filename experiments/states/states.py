"""States by the observation, as in the papers, and by the environment's own key.

A random policy plays 4 tasks 8 times each. GiGPO (Figure 5) and BiPACE (Table 1, Figure 3) compare
steps by what the agent sees; ``rollout.states: environment`` compares them by the key of the whole
situation, such as the inventory of TextCraft, so that far more groups of steps have one member.
``singleton_share_of_groups`` is the papers' measure, ``matched_pairs`` the pairs of steps that can
be compared. The quick case has no WebShop.
"""

from typing import get_args

from ascribe.estimators import GiGPO
from ascribe.estimators.diagnostics import diagnose
from ascribe_lab.rollout import Plan, Setup
from ascribe_lab.rollout.record import States, table
from ascribe_lab.rollout.setup import Model, play
from benchmarks import common

GROUPS, SIZE = 4, 8

ENVIRONMENTS = ("textcraft", "sokoban", "webshop")


def main() -> None:
    """Measure and print."""
    with common.Figures("states") as figures:
        for name in ENVIRONMENTS[:-1] if figures.quick else ENVIRONMENTS:
            setup = Setup(name, {}, pool="serial")
            played = play(setup, Model("random"), Plan(GROUPS, SIZE, setup.turns(None)))
            for states in get_args(States):
                steps = table(played, states)
                found = diagnose(steps, GiGPO()(steps)).states
                assert found is not None
                case = f"{name} by {states}"
                share = found.singleton_share_of_groups
                figures.emit(case, "singleton_share_of_groups", share, "share", "lower")
                figures.emit(case, "mean_group_size", found.mean_size, "rows", "higher")
                figures.emit(case, "matched_pairs", found.matched_pairs, "pairs", "higher")


if __name__ == "__main__":
    main()
