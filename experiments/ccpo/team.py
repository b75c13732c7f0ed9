"""Counterfactual credit in simulated teams, where every agent's contribution is known.

Every figure is over 10,000 prompts with 4 rollouts each; `low` and `high` bound it with 95 %
confidence (over blocks of prompts), and `expected` is the same number computed exactly, over all
outcomes.

- `voting`: a helpful agent, two plain ones, a harmful one that is mostly wrong, and a follower that
  repeats the winner of the others. `contribution` is the mean of what the team earned more than it
  would have without the agent, `shared` the mean reward that it gets if all are paid alike,
  `shapley` the mean Shapley value.
- `think-solve`: a solver with a helpful, a redundant and a harmful thinker, and the trust of the
  solver at the end of the run.
- `variance`: of the policy gradient with counterfactual credit, as a ratio to that with the shared
  reward; without a baseline, as Theorem 5.3 compares them. `by_eq_26` is what Equation 26 says.
- `gradient`: the mean policy gradient of the first of three voters; `expected` is the true one.
  With copies, agents that share their draws, it misses. By place, agents differ in nothing else.
- `signal`: `grpo` is mean over standard deviation of the gradient of one prompt, with GRPO on the
  shared reward; the others are ratios to it.

`--docs` writes the committed results into results/team.md instead of running anything.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ascribe.estimators.ccpo import (
    STREAMS,
    Statistics,
    allocated,
    counterfactual,
    think_solve,
    within_prompts,
)
from ascribe.estimators.relative import Norm
from ascribe.steps.arrays import Bools, Floats, Ints
from benchmarks.common import Figures, Work, fill_page, interleaved, read_lines
from experiments.ccpo.coalitions import (
    Ties,
    Votes,
    contributions,
    outcome_bonus,
    shapley,
    side_by_side,
)

RESULTS = Path(__file__).parent / "results" / "team.jsonl"
PAGE = RESULTS.with_suffix(".md")

ROLLOUTS = 4
BATCH = 64
"""Prompts of one training step (Appendix C)."""
BLOCKS = 100
CHOICES = 4
POPULAR = 0.6
"""How often a wrong agent gives the wrong answer that others give too."""
GRPO = Norm("std")

# Voting.

VOTERS = {"helpful": 0.75, "plain": 0.5, "plain too": 0.5, "harmful": 0.15}
"""How often each is right, on a prompt of middling difficulty."""
DIFFICULTY = (-0.1, 0.0, 0.1)


@dataclass(frozen=True, eq=False)
class Village:
    """Voters, and a follower that reads them all and repeats the winner; silent if there is none.

    Answer 0 is right. Whoever is missing, the follower speaks again, and the others do not.
    """

    voters: Ints

    @property
    def reads(self) -> Bools:
        """The follower, who comes last, reads all others."""
        agents = self.voters.shape[1] + 1
        reads = side_by_side(agents)
        reads[-1, :-1] = True
        return reads

    def reward(self, present: Bools) -> Floats:
        """1 if the winner is right, a share if several are tied."""
        votes = np.where(present[..., :-1], self.voters, -1)
        counts = np.stack([(votes == choice).sum(axis=1) for choice in range(CHOICES)])
        clear = (counts == counts.max(axis=0)).sum(axis=0) == 1
        follower = np.where(clear & present[..., -1], counts.argmax(axis=0), -1)
        answers = np.column_stack([votes, follower])
        return Votes(answers, (answers == 0).astype(np.float64)).reward(np.ones(1, np.bool_))


def draw_votes(right: Floats, random: np.random.Generator) -> Ints:
    """Answers of agents that are right this often; 1 is the popular wrong answer."""
    wrong = np.where(
        random.random(right.shape) < POPULAR, 1, random.integers(2, CHOICES, right.shape)
    )
    return np.where(random.random(right.shape) < right, 0, wrong)


def all_votes(right: Floats) -> tuple[Ints, Floats]:
    """Every outcome of agents that are right this often, and how likely it is."""
    agents = right.size
    answers = np.stack(np.meshgrid(*[np.arange(CHOICES)] * agents, indexing="ij"), -1)
    answers = answers.reshape(-1, agents)
    other = (1.0 - POPULAR) / (CHOICES - 2)
    wrong = np.where(answers == 1, POPULAR, other) * (1.0 - right)
    return answers, np.where(answers == 0, right, wrong).prod(axis=1)


def village(prompts: int, random: np.random.Generator) -> tuple[Village, Floats]:
    """Rollouts, and how often each voter is right in each of them."""
    harder = np.repeat(random.choice(DIFFICULTY, prompts), ROLLOUTS)
    right = np.array(list(VOTERS.values())) - harder[:, None]
    return Village(draw_votes(right, random)), right


def expected_in_village(value: Callable[[Village], Floats]) -> Floats:
    """The exact mean of something, over all outcomes and difficulties."""
    means = []
    for harder in DIFFICULTY:
        answers, likely = all_votes(np.array(list(VOTERS.values())) - harder)
        means.append(likely @ value(Village(answers)))
    return np.mean(means, axis=0)


# Think, then solve.

SOLO = 0.45
THINKERS = {"helpful": 0.7, "redundant": 0.45, "harmful": 0.2}
"""How often the solver is right with each; alone it is right in 45 % of rollouts."""


def pairs(prompts: int, right: float, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Rewards of a thinker and a solver together, and of the solver alone."""
    harder = np.repeat(random.choice(DIFFICULTY, prompts), ROLLOUTS)
    draw = random.random((2, harder.size))
    return (draw[0] < right - harder).astype(float), (draw[1] < SOLO - harder).astype(float)


@dataclass(frozen=True)
class Thinker:
    """A thinker with one parameter: the logit of a good thought.

    Attributes:
        good: how often its thought is good.
        with_good: how often the team is right after a good thought.
        with_bad: how often it is right after a bad one.
        solo: how often the solver is right alone.
    """

    good: float
    with_good: float
    with_bad: float
    solo: float

    @property
    def best_baseline(self) -> float:
        """``b* = E[g² R] / E[g²]`` (Eq. 9), g the score of the thought."""
        return (1.0 - self.good) * self.with_good + self.good * self.with_bad

    @property
    def gradient(self) -> float:
        """Of the team's success."""
        return self.good * (1.0 - self.good) * (self.with_good - self.with_bad)

    @property
    def variance_ratio(self) -> float:
        """Of ``g (R_joint - R_solo)`` to ``g R_joint``, by Theorem 5.3."""
        squares = self.good * (1.0 - self.good)
        shared = squares * self.best_baseline - self.gradient**2
        gap = self.solo * (1.0 - self.solo) + (self.solo - self.best_baseline) ** 2
        return 1.0 + squares * (gap - self.best_baseline**2) / shared

    def play(self, rollouts: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Score of the thought, reward of the team, reward of the solver alone."""
        draw = random.random((3, rollouts))
        thought = draw[0] < self.good
        joint = draw[1] < np.where(thought, self.with_good, self.with_bad)
        return thought - self.good, joint.astype(float), (draw[2] < self.solo).astype(float)


EASY = Thinker(0.5, 0.9, 0.6, 0.6)
HARD = Thinker(0.5, 0.4, 0.1, 0.2)


# Numbers with intervals.


class Interval(NamedTuple):
    """A number, and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float


def interval(statistic: Callable[..., float], *columns: Floats) -> Interval:
    """A statistic of columns with one row per rollout or prompt, leaving out blocks in turn."""
    whole = statistic(*columns)
    block = np.arange(len(columns[0])) * BLOCKS // len(columns[0])
    left = [statistic(*(column[block != b] for column in columns)) for b in range(BLOCKS)]
    error = float(np.sqrt((BLOCKS - 1) * np.var(left)))
    return Interval(whole, whole - 1.96 * error, whole + 1.96 * error)


def mean(values: Floats) -> float:
    """The mean, as a plain number."""
    return float(values.mean())


def variance_ratio(ours: Floats, theirs: Floats) -> float:
    """How large the one variance is against the other."""
    return float(ours.var() / theirs.var())


def signal(per_prompt: Floats) -> float:
    """Mean over standard deviation."""
    return float(per_prompt.mean() / per_prompt.std())


def signal_ratio(ours: Floats, theirs: Floats) -> float:
    """How much stronger the one signal is."""
    return signal(ours) / signal(theirs)


def by_prompt(values: Floats) -> Floats:
    """Sums over the rollouts of each prompt."""
    return values.reshape(-1, ROLLOUTS, *values.shape[1:]).sum(axis=1)


def prompt_of(rollouts: int) -> Ints:
    """Labels of rollouts that stand prompt by prompt."""
    return np.arange(rollouts) // ROLLOUTS


# The experiments.


def voters_are_ordered(figures: Figures, prompts: int, random: np.random.Generator) -> None:
    """Contribution, shared reward and Shapley value of every agent of the village."""
    team, _ = village(prompts, random)
    everyone = np.ones(len(VOTERS) + 1, dtype=np.bool_)
    added, value, shared = contributions(team), shapley(team), team.reward(everyone)
    true_added, true_value = expected_in_village(contributions), expected_in_village(shapley)
    for agent, name in enumerate([*VOTERS, "follower"]):
        case = f"voting, {name}"
        found = interval(mean, added[:, agent])
        figures.emit_interval(case, "contribution", found, "reward", "higher", ends="")
        figures.emit(case, "expected", true_added[agent], "reward", "higher")
        figures.emit(case, "shapley", value[:, agent].mean(), "reward", "higher")
        figures.emit(case, "shapley_expected", true_value[agent], "reward", "higher")
        figures.emit(case, "shared", shared.mean(), "reward", "higher")


def thinkers_are_ordered(figures: Figures, prompts: int, random: np.random.Generator) -> None:
    """Contribution of every thinker, and the trust that the solver ends with."""
    for name, right in THINKERS.items():
        joint, solo = pairs(prompts, right, random)
        case, found = f"think-solve, {name} thinker", interval(mean, joint - solo)
        figures.emit_interval(case, "contribution", found, "reward", "higher", ends="")
        figures.emit(case, "expected", right - SOLO, "reward", "higher")
        figures.emit(case, "trust", train(joint, solo)[-1], "share", "higher")


def train(joint: Floats, solo: Floats) -> list[float]:
    """The trust of the solver after each training step of 64 prompts."""
    history, trusted = Statistics.start(STREAMS), []
    for start in range(0, joint.size, BATCH * ROLLOUTS):
        step = slice(start, start + BATCH * ROLLOUTS)
        prompt = prompt_of(joint[step].size)
        credit, history = think_solve(joint[step], solo[step], prompt, BATCH, history=history)
        trusted.append(credit.metrics["trust"])
    return trusted


def variance_is_as_proved(figures: Figures, prompts: int, random: np.random.Generator) -> None:
    """Theorem 5.3, for a pair and for voters."""
    for name, thinker in {"easy": EASY, "hard": HARD}.items():
        score, joint, solo = thinker.play(prompts * ROLLOUTS, random)
        found = interval(variance_ratio, score * (joint - solo), score * joint)
        case = f"variance, think-solve, {name} prompts"
        _emit_ratio(figures, case, found, thinker.variance_ratio)
        figures.emit(case, "by_eq_26", thinker.variance_ratio, "ratio", "lower")
    team, right = village(prompts, random)
    added, everyone = contributions(team), np.ones(len(VOTERS) + 1, dtype=np.bool_)
    for agent, name in enumerate(VOTERS):
        score = (team.voters[:, agent] == 0) - right[:, agent]
        ours, theirs = score * added[:, agent], score * team.reward(everyone)
        found = interval(variance_ratio, ours, theirs)
        expected, by_equation = voting_ratios(agent)
        case = f"variance, voting, {name}"
        _emit_ratio(figures, case, found, expected)
        figures.emit(case, "by_eq_26", by_equation, "ratio", "lower")


def voting_ratios(agent: int) -> tuple[float, float]:
    """The exact ratio of variances for a voter, and what Equation 26 says it is.

    Given the prompt, both estimators have the same mean, so only variances given the prompt differ.
    """
    everyone = np.ones(len(VOTERS) + 1, dtype=np.bool_)
    ours, theirs, gap, mean_ = 0.0, 0.0, 0.0, 0.0
    for harder in DIFFICULTY:
        right = np.array(list(VOTERS.values())) - harder
        answers, likely = all_votes(right)
        team, score = Village(answers), (answers[:, agent] == 0) - right[agent]
        reward, added = team.reward(everyone), contributions(team)[:, agent]
        squares = likely * score**2
        best = squares @ reward / squares.sum()
        ours += squares @ added**2 / len(DIFFICULTY)
        theirs += squares @ reward**2 / len(DIFFICULTY)
        gap += squares @ ((reward - added - best) ** 2 - best**2) / len(DIFFICULTY)
        mean_ += likely @ (score * reward) / len(DIFFICULTY)
    shared = theirs - mean_**2
    return float((ours - mean_**2) / shared), float(1.0 + gap / shared)


def _emit_ratio(figures: Figures, case: str, found: Interval, expected: float) -> None:
    figures.emit_interval(case, "variance_ratio", found, "ratio", "lower", ends="")
    figures.emit(case, "expected", expected, "ratio", "lower")


COPIES = {"three agents": (0, 1, 2), "one copy": (0, 0, 2), "three copies": (0, 0, 0)}
"""Whose draw each of three voters gives as its answer."""
ALIKE = 0.6
"""How often each of them is right."""


def gradient_is_unbiased(figures: Figures, prompts: int, random: np.random.Generator) -> None:
    """Three voters drawn apart, and with copies of the first; then one at each place."""
    answers = draw_votes(np.full((prompts * ROLLOUTS, 3), ALIKE), random)
    for name, source in COPIES.items():
        found = interval(mean, gradients(answers, source, 0)[0])
        _emit_gradient(figures, f"gradient, {name}", found, true_gradient(source, 0))
    for ties in ("share", "first"):
        for place in range(3):
            found = interval(mean, gradients(answers, (0, 1, 2), place, ties)[0])
            expected = true_gradient((0, 1, 2), place, ties)
            _emit_gradient(figures, f"gradient, ties {ties}, place {place}", found, expected)


def gradients(
    answers: Ints, source: tuple[int, ...], place: int, ties: Ties = "share"
) -> tuple[Floats, Floats]:
    """Gradient terms of each rollout, by the logit of one voter: counterfactual and shared."""
    given = answers[:, source]
    votes = Votes(given, (given == 0).astype(np.float64), ties)
    score = (answers[:, place] == 0) - ALIKE
    shared = votes.reward(np.ones(3, dtype=np.bool_))
    return score * contributions(votes)[:, place], score * shared


def true_gradient(source: tuple[int, ...], place: int, ties: Ties = "share") -> float:
    """The exact gradient of the team's success, by the logit of one voter."""
    answers, likely = all_votes(np.full(3, ALIKE))
    return float(likely @ gradients(answers, source, place, ties)[1])


def _emit_gradient(figures: Figures, case: str, found: Interval, expected: float) -> None:
    figures.emit_interval(case, "gradient", found, "reward", "higher", ends="")
    figures.emit(case, "expected", expected, "reward", "higher")


def signals_are_compared(figures: Figures, prompts: int, random: np.random.Generator) -> None:
    """Every way to make advantages, against GRPO on the shared reward."""
    for name, thinker in {"easy": EASY, "hard": HARD}.items():
        score, joint, solo = thinker.play(prompts * ROLLOUTS, random)
        prompt = prompt_of(joint.size)
        forms = {
            "ccpo": think_solve(joint, solo, prompt, prompts, history=Statistics.start(STREAMS))[
                0
            ].advantage[:, 0],
            "outcome_bonus": outcome_bonus(joint, solo, prompt, prompts).advantage[:, 0],
        }
        shared = within_prompts(joint[:, None], prompt, prompts, GRPO).advantage[:, 0]
        _emit_signals(figures, f"signal, think-solve, {name} prompts", score, shared, forms)

    team, right = village(prompts, random)
    names = [*VOTERS, "follower"]
    added, everyone = contributions(team), np.ones(len(names), dtype=np.bool_)
    reward, prompt = team.reward(everyone), prompt_of(len(right))
    shared = within_prompts(reward[:, None], prompt, prompts, GRPO).advantage[:, 0]
    start = Statistics.start(names)
    ways = {
        "ccpo": counterfactual(added, prompt, prompts, history=start)[0].advantage,
        "allocated": allocated(reward, added, prompt, prompts).advantage,
        "shapley": within_prompts(shapley(team), prompt, prompts, GRPO).advantage,
    }
    for agent, name in enumerate(VOTERS):
        score = (team.voters[:, agent] == 0) - right[:, agent]
        forms = {way: values[:, agent] for way, values in ways.items()}
        _emit_signals(figures, f"signal, voting, {name}", score, shared, forms)


def _emit_signals(
    figures: Figures, case: str, score: Floats, shared: Floats, forms: dict[str, Floats]
) -> None:
    theirs = by_prompt(score * shared)
    figures.emit(case, "grpo", signal(theirs), "1", "higher")
    for form, advantage in forms.items():
        found = interval(signal_ratio, by_prompt(score * advantage), theirs)
        figures.emit_interval(case, form, found, "ratio", "higher")


def time_is_taken(figures: Figures, prompts: int, random: np.random.Generator) -> None:
    """What crediting a batch costs."""
    answers = draw_votes(np.full((prompts * ROLLOUTS, 5), 0.6), random)
    rewards = (answers == 0).astype(np.float64)
    prompt, start = prompt_of(len(answers)), Statistics.start(list("abcde"))

    def credit(_: object) -> object:
        votes = Votes(answers, rewards)
        return counterfactual(contributions(votes), prompt, prompts, history=start)

    def values(_: object) -> object:
        return shapley(Votes(answers, rewards))

    works = {"ccpo": Work(lambda: None, credit), "shapley": Work(lambda: None, values)}
    for name, taken in interleaved(works, rounds=5).items():
        case = f"cost, {prompts:,} prompts, 4 rollouts, 5 agents, {name}"
        figures.emit(case, "cpu_seconds", taken.cpu, "s", "lower", goal=1.0)


# The page.

Cases = dict[str, dict[str, float]]


def kept() -> Cases:
    """The committed figures, by case and metric."""
    cases: Cases = {}
    for line in read_lines(RESULTS)[1:]:
        cases.setdefault(line["case"], {})[line["metric"]] = line["value"]
    return cases


def tables(cases: Cases) -> dict[str, str]:
    """Every table of the page, by the name of its place."""
    voting = {
        "agent": "{name}",
        "contribution": "{contribution:+.3f} ({low:+.3f} to {high:+.3f})",
        "expected": "{expected:+.3f}",
        "Shapley value": "{shapley:+.3f}",
        "shared reward": "{shared:+.3f}",
    }
    pair = {
        "pair": "{name}",
        "contribution": "{contribution:+.3f} ({low:+.3f} to {high:+.3f})",
        "expected": "{expected:+.3f}",
        "trust at the end": "{trust:.2f}",
    }
    ratio = {
        "team": "{name}",
        "variance against shared reward": "{variance_ratio:.3f} ({low:.3f} to {high:.3f})",
        "expected": "{expected:.3f}",
        "by Equation 26": "{by_eq_26:.3f}",
    }
    gradient = {
        "voters": "{name}",
        "gradient": "{gradient:.3f} ({low:.3f} to {high:.3f})",
        "true": "{expected:.3f}",
    }
    ccpo = "{ccpo:.2f} ({ccpo_low:.2f} to {ccpo_high:.2f})"
    in_pairs = {"pair": "{name}", "`think_solve`": ccpo, "`outcome_bonus`": "{outcome_bonus:.2f}"}
    in_votes = {
        "agent": "{name}",
        "`counterfactual`": ccpo,
        "`allocated`": "{allocated:.2f}",
        "Shapley value": "{shapley:.2f}",
    }
    return {
        "voting": table(cases, "voting, ", voting),
        "think-solve": table(cases, "think-solve, ", pair),
        "variance": table(cases, "variance, ", ratio),
        "gradient": table(cases, "gradient, ", gradient),
        "signal": table(cases, "signal, think-solve, ", in_pairs)
        + "\n"
        + table(cases, "signal, voting, ", in_votes),
    }


def table(cases: Cases, start: str, columns: dict[str, str]) -> str:
    """A Markdown table of the cases that start so: a line each, the columns as they are said."""
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    for case, metrics in cases.items():
        if case.startswith(start):
            name = case.removeprefix(start)
            cells = (said.format(name=name, **metrics) for said in columns.values())
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """The page with the tables of the committed results."""
    return fill_page(text, tables(kept()))


def main() -> None:
    """Run every experiment, or fill the page."""
    if "--docs" in sys.argv:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    with Figures("team") as figures:
        prompts = 2_000 if figures.quick else 10_000
        for seed, experiment in enumerate(
            (
                voters_are_ordered,
                thinkers_are_ordered,
                variance_is_as_proved,
                gradient_is_unbiased,
                signals_are_compared,
                time_is_taken,
            )
        ):
            experiment(figures, prompts, np.random.default_rng(seed))


if __name__ == "__main__":
    main()
