"""IBPO's shaping and the divergence point: what the theorem promises, and what it is worth.

`theorem`: variance of centred rewards with shaping over that without (Theorem A.2), at shares of
the λ up to which it should fall, in tasks of G trajectories that are right with chance p and whose
wrong ones are recovered with chance q; rewards 0 and 1, β = 0.5. `paper` is the paper's own bound,
G / (G - 1) times as far. `low` and `high` are 95 % intervals over seeds; goals say on which side of
1 they must lie. `chosen`: the same at the paper's choice, λ = 0.6. `corrections`: the limit when
the signal is the share of several corrections that are right, and each trajectory has its own
chance to be recovered, all chances alike. `standardised`: after the division by the standard
deviation (Eq. 18) the mean square is 1 whatever λ; what changes is which tasks give credit at all.

`audit`: in the worlds of `ascribe audit`, IBPO with consistency as its comparison beside `grpo`,
and `dr_grpo` with the divergence credit added, at two weights, beside `dr_grpo`; differences are
paired over blocks of tasks. `blame`: how many of the decisions that are blamed have a negative true
advantage, and how many of all decisions of the same trajectories; `low` and `high` are the interval
of the difference, over blocks that have such decisions. `speed`: CPU time on one core.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ascribe import StepTable
from ascribe.estimators import DrGRPO
from ascribe.estimators.credit import Credit, Reason, Term
from ascribe.estimators.ibpo import NORM, Tuples, consistency, draw_tuples, weight_limit
from ascribe.estimators.relative import Norm, relative
from ascribe.groups import Groups
from ascribe.groups.cluster import cluster
from ascribe.groups.exact import exact
from ascribe.steps.arrays import Bools, Codes8, Floats, Ints
from ascribe.steps.check import arrange
from ascribe.steps.returns import episode_return
from ascribe_lab.audit import QUICK, WORLDS, audit, rollouts, scored_recipe
from ascribe_lab.audit.run import interval
from benchmarks import common
from benchmarks.common import Figures, Work, interleaved
from experiments.ibpo.divergence import Divergence, Which, divergence, divergence_credit

BETA = 0.5
CHOSEN = 0.6
"""The paper's λ."""

RADIUS = 0.10
SUCCESS = 0.5
"""A trajectory of the audit's worlds is right if its return is above this."""


def bonuses(right: Bools, tuples: Tuples, signal: Floats, weight: float) -> Floats:
    """λ β s of each trajectory, 0 for those that are right or have nothing to be compared with."""
    bonus = np.zeros(right.size)
    bonus[tuples.target] = weight * BETA * np.where(tuples.complete, signal, 0.0)
    return bonus


def advantages(reward: Floats, group: Ints, count: int) -> tuple[Floats, Codes8]:
    """Rewards compared inside their tasks (Eq. 18), and reasons."""
    return relative(reward, group, count, NORM, Reason.GROUP_OF_ONE)


METRICS = ("cosine", "gradient_cosine", "gradient_direction", "gradient_variance")


def main() -> None:
    """Measure and print."""
    with Figures("correction") as figures:
        seeds, tasks = (10, 1000) if figures.quick else (30, 4000)
        theorem(figures, seeds, tasks)
        chosen(figures, seeds, tasks)
        corrections(figures, seeds, tasks)
        standardised(figures, seeds, tasks)
        audited(figures, blocks=2 if figures.quick else 10)
        blamed(figures, blocks=2 if figures.quick else 10)
        speed(figures, 10**4 if figures.quick else 10**6)


# The theorem.


@dataclass(frozen=True, eq=False)
class Sample:
    """Tasks of G trajectories: which are right, and how the corrections of the wrong ones ended."""

    group: Ints
    tasks: int
    reward: Floats
    bonus: Floats
    """At λ = 1."""

    @staticmethod
    def draw(
        seed: int, tasks: int, size: int, solved: float, recovered: float | None, number: int = 1
    ) -> "Sample":
        """A sample; without ``recovered`` each wrong trajectory has a chance of its own."""
        random = np.random.default_rng([seed, size, number])
        group = np.repeat(np.arange(tasks), size)
        right = random.random(group.size) < solved
        tuples = draw_tuples(right, group, tasks, random)
        chance = random.random((len(tuples), 1)) if recovered is None else recovered
        outcomes = (random.random((len(tuples), number)) < chance).astype(np.float64)
        bonus = bonuses(right, tuples, outcomes.mean(axis=1), 1.0)
        return Sample(group, tasks, right.astype(np.float64), bonus)

    def rewards(self, weight: float) -> Floats:
        """Shaped rewards at λ = ``weight``."""
        return self.reward + weight * self.bonus

    def ratio(self, weight: float) -> float:
        """Variance of centred rewards with shaping over that without."""
        plain, after = (
            values - values.reshape(self.tasks, -1).mean(axis=1)[self.group]
            for values in (self.reward, self.rewards(weight))
        )
        return float((after @ after) / (plain @ plain))


def limit(solved: float, recovered: float) -> float:
    """The λ below which the variance falls: 2 p / (β (1 - (1 - p) q)) for rewards 0 and 1."""
    return 2.0 * solved / (BETA * (1.0 - (1.0 - solved) * recovered))


def theorem(figures: Figures, seeds: int, tasks: int) -> None:
    """Inside the range the variance falls, outside it rises."""
    for size, solved, recovered in ((2, 0.3, 0.5), *product((8,), (0.1, 0.3, 0.6), (0.2, 0.8))):
        samples = [Sample.draw(seed, tasks, size, solved, recovered) for seed in range(seeds)]
        shares = {f"{share:g} of the limit": share for share in (0.25, 0.5, 0.9, 1.1, 2.0)}
        for name, share in (shares | {"paper": size / (size - 1)}).items():
            ratios = np.array([s.ratio(share * limit(solved, recovered)) for s in samples])
            emit_ratio(
                figures,
                f"theorem/G={size} p={solved:g} q={recovered:g}/{name}",
                ratios,
                falls=share < 1,
            )


def emit_ratio(figures: Figures, case: str, ratios: Floats, *, falls: bool | None) -> None:
    """A ratio of variances with its interval; one end of it has a goal where a side is promised."""
    found = interval(ratios)
    better = "higher" if falls is False else "lower"
    figures.emit(case, "ratio", found.value, "share", better)
    figures.emit(case, "low", found.low, "share", better, goal=1.0 if falls is False else None)
    figures.emit(case, "high", found.high, "share", better, goal=1.0 if falls else None)


def chosen(figures: Figures, seeds: int, tasks: int) -> None:
    """The paper's choice of λ in easy and in hard tasks."""
    for solved, recovered in product((0.05, 0.1, 0.2, 0.5), (0.2, 0.8)):
        case = f"chosen/G=8 p={solved:g} q={recovered:g}"
        samples = [Sample.draw(seed, tasks, 8, solved, recovered) for seed in range(seeds)]
        figures.emit(case, "limit", limit(solved, recovered), "λ", "higher")
        emit_ratio(figures, case, np.array([s.ratio(CHOSEN) for s in samples]), falls=None)


def corrections(figures: Figures, seeds: int, tasks: int) -> None:
    """Several corrections for each wrong trajectory make the signal less noisy."""
    for solved, number in product((0.1, 0.3), (1, 2, 8)):
        case = f"corrections/G=8 p={solved:g}/{number}"
        samples = [Sample.draw(seed, tasks, 8, solved, None, number) for seed in range(seeds)]
        limits = [weight_limit(s.reward, s.bonus, s.group, s.tasks) for s in samples]
        figures.emit(case, "limit", interval(np.array(limits)).value, "λ", "higher")
        emit_ratio(figures, case, np.array([s.ratio(CHOSEN) for s in samples]), falls=None)


def standardised(figures: Figures, seeds: int, tasks: int) -> None:
    """What is left of the theorem after Eq. 18."""
    for solved, weight in product((0.05, 0.3), (0.0, CHOSEN, 1.2)):
        squares, credited = [], []
        for seed in range(seeds):
            sample = Sample.draw(seed, tasks, 8, solved, 0.5)
            value, reason = advantages(sample.rewards(weight), sample.group, sample.tasks)
            has = reason == Reason.CREDITED
            squares.append(np.mean(value[has] ** 2))
            credited.append(np.mean(has))
        case = f"standardised/G=8 p={solved:g} q=0.5/λ={weight:g}"
        figures.emit(case, "mean_square", float(np.mean(squares)), "1", "lower")
        figures.emit(case, "tasks_with_credit", float(np.mean(credited)), "share", "higher")


# The audit.


def right_ones(table: StepTable) -> Bools:
    """Which trajectories of one of the audit's tables are right."""
    steps = arrange(table)
    return episode_return(steps.reward, steps.trajectory, steps.trajectory_count) > SUCCESS


def states(table: StepTable) -> Groups:
    """Clusters of states of one of the audit's tables."""
    steps = arrange(table)
    return cluster(table.fingerprint[steps.rows], steps.group, RADIUS)


def found_in(table: StepTable, groups: Groups, which: Which) -> Divergence:
    """Where the wrong trajectories of a table left the right ones."""
    steps = arrange(table)
    task = steps.group_of_trajectory
    return divergence(
        groups.labels, groups.count, steps.trajectory, right_ones(table), task, which=which
    )


@dataclass(frozen=True)
class Diverging:
    """``dr_grpo`` with the divergence credit added."""

    which: Which
    weight: float

    def __call__(self, table: StepTable) -> Credit:
        """Credit every row."""
        steps, groups = arrange(table), states(table)
        found = found_in(table, groups, self.which)
        values, reason = divergence_credit(found, groups.labels, groups.count, Norm("mean"))
        term = Term(
            steps.to_table_order(values, len(table), 0.0),
            steps.to_table_order(reason, len(table), Reason.PADDING),
            steps.to_table_order(groups.labels, len(table), -1),
            self.weight,
        )
        return Credit.of(DrGRPO()(table).terms | {"divergence": term}, repr(self))


@dataclass(frozen=True)
class Consistent:
    """IBPO with consistency as its comparison: no correction is decoded."""

    weight: float = CHOSEN

    def __call__(self, table: StepTable) -> Credit:
        """Credit every row."""
        steps, groups, right = arrange(table), states(table), right_ones(table)
        task, tasks = steps.group_of_trajectory, steps.group_count
        reward = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
        tuples = draw_tuples(right, task, tasks, np.random.default_rng(0), size=8)
        signal, _ = consistency(tuples, groups.labels, groups.count, steps.trajectory)
        shaped = reward + bonuses(right, tuples, signal, self.weight)
        value, reason = advantages(shaped, task, tasks)
        term = Term(
            steps.to_table_order(value[steps.trajectory], len(table), 0.0),
            steps.to_table_order(reason[steps.trajectory], len(table), Reason.PADDING),
            steps.to_table_order(steps.group, len(table), -1),
        )
        return Credit.of({"episode": term}, repr(self))


def audited(figures: Figures, blocks: int) -> None:
    """Scores against the truth, and differences paired over blocks."""
    beside = {
        "ibpo consistency": "grpo",
        "first 0.5": "dr_grpo",
        "first 1": "dr_grpo",
        "final 0.5": "dr_grpo",
        "final 1": "dr_grpo",
    }
    scored = {name: scored_recipe(name) for name in ("grpo", "dr_grpo", "gigpo_mean", "sbc")}
    scored |= {
        f"{which} {weight:g}": Diverging(which, weight)
        for which, weight in product(("first", "final"), (0.5, 1.0))
    }
    scored["ibpo consistency"] = Consistent()
    settings = replace(QUICK, updates=0, blocks=blocks)
    done = audit(scored, settings)
    for name in scored:
        for metric in METRICS:
            score = done.estimate("mean", name, 8, metric)
            better = "lower" if metric == "gradient_variance" else "higher"
            figures.emit(f"audit/{name}", metric, score.value, "score", better)
    for name, plain in beside.items():
        for world in ("mean", *settings.worlds):
            apart = done.difference(world, name, plain, 8, "gradient_cosine")
            case = f"audit/{world}: {name} minus {plain}"
            figures.emit(case, "gradient_cosine", apart.value, "difference", "higher")
            figures.emit(case, "low", apart.low, "difference", "higher")
            figures.emit(case, "high", apart.high, "difference", "higher")


def blamed(figures: Figures, blocks: int) -> None:
    """Whether decisions that are blamed are bad ones."""
    for world, which in product(WORLDS, ("first", "final")):
        found = [harmful(world, which, block) for block in range(blocks)]
        case = f"blame/{world}/{which}"
        decisions = sum(mine.size for mine, _ in found)
        figures.emit(case, "decisions", decisions, "decisions", "higher")
        shares = np.array([(mine.mean(), every.mean()) for mine, every in found if mine.size])
        if len(shares) < blocks / 2:  # too few to say anything
            continue
        apart = interval(shares[:, 0] - shares[:, 1])
        figures.emit(case, "blamed", float(shares[:, 0].mean()), "share", "higher")
        figures.emit(case, "all", float(shares[:, 1].mean()), "share", "higher")
        figures.emit(case, "low", apart.low, "difference", "higher")
        figures.emit(case, "high", apart.high, "difference", "higher")


def harmful(world: str, which: Which, block: int) -> tuple[Bools, Bools]:
    """Of each decision blamed, and of each one in the same trajectories: whether it did harm."""
    random = np.random.default_rng([block, *world.encode()])
    tasks = WORLDS[world].tasks(QUICK.tasks * QUICK.batches, random)
    batch = rollouts(tasks, tasks.solve(QUICK.gamma), random, QUICK.conditions(world, 8))
    steps = arrange(batch.table)
    harm = batch.advantage[steps.rows] < 0
    row = found_in(batch.table, states(batch.table), which).row
    return harm[row[row >= 0]], harm[(row >= 0)[steps.trajectory]]


# Speed.


def speed(figures: Figures, rows: int) -> None:
    """Shaping and divergence on a large table, everything before the states' labels left out."""
    table = common.steps(round(rows / common.ROWS_OF_GROUP), texts=False)
    steps = arrange(table)
    task, tasks = steps.group_of_trajectory, steps.group_count
    reward = episode_return(steps.reward, steps.trajectory, steps.trajectory_count)
    right = reward > SUCCESS
    groups = exact(steps.group, steps.state, table.state.values.size)

    def correct(_: object) -> object:
        random = np.random.default_rng(0)
        tuples = draw_tuples(right, task, tasks, random)
        outcomes = random.integers(0, 2, (len(tuples), 8)).astype(np.float64)
        shaped = reward + bonuses(right, tuples, outcomes.mean(axis=1), CHOSEN)
        return advantages(shaped, task, tasks)

    def consistent(_: object) -> object:
        tuples = draw_tuples(right, task, tasks, np.random.default_rng(0))
        return consistency(tuples, groups.labels, groups.count, steps.trajectory)

    def diverge(_: object) -> object:
        found = divergence(
            groups.labels, groups.count, steps.trajectory, right, task, which="first"
        )
        return divergence_credit(found, groups.labels, groups.count, Norm("mean"))

    works = {"correction": correct, "consistency": consistent, "divergence": diverge}
    timed = interleaved({name: Work(lambda: None, run) for name, run in works.items()}, rounds=5)
    for name, seconds in timed.items():
        case = f"speed/{len(table)} rows/{name}"
        figures.emit(case, "cpu_seconds", seconds.cpu, "s", "lower")
        figures.emit(case, "rows_per_second", len(table) / seconds.cpu, "rows/s", "higher")


if __name__ == "__main__":
    main()
