"""Decisions of simulated agents whose causes are known: false discoveries, power, coverage.

An agent attempts ten tasks, half of them easy, in at most two steps. A step calls one of five
tools, and may solve the task or ruin it; either ends the session. In half of the tasks ``search``
solves far more often and ``shell`` never solves and often ruins; ``browse``, ``think`` and ``list``
make no difference, and in the other tasks no tool does. Easy tasks are browsed in and hard ones
thought about, so that without strata ``browse`` looks good; and how a session ends decides how many
tools it calls and how many rows it has. What a decision is worth is known exactly, because the
state shows the task and the step.

A discovery (q at most 0.1) is false if the true difference is 0 or has the other sign. ``naive``
methods compare rows or sessions of the whole file, or sessions that ever called a tool inside their
task. Signs, which may be consequences, are not counted.
"""

import sys
from collections import defaultdict
from statistics import NormalDist

import common
import numpy as np

from ascribe import StepTable
from ascribe.decisions import LEVEL, Decision, find_decisions
from ascribe.decisions.contrasts import both_sides, discovery_rate, standard_score
from ascribe.decisions.decision import EVENT, FORK
from ascribe.estimators.diagnostics import wilson

TOOLS = ("search", "shell", "browse", "think", "list")
SOLVES, RUINS = np.array([0.5, -1.0, 0.0, 0.0, 0.0]), np.array([0.0, 0.6, 0.0, 0.0, 0.0])
"""Of each tool, where tools matter: what is added to its probability to solve, and to that to
ruin."""
TASKS, HORIZON = 10, 2
EASY, HARD, RUINED = 0.35, 0.12, 0.15
POLICY = {EASY: (0.25, 0.2, 0.35, 0.1, 0.1), HARD: (0.25, 0.2, 0.1, 0.35, 0.1)}
FILES, QUICK_FILES = 200, 10
NAIVE = ("rows", "sessions", "sessions in tasks")


class World:
    """Ten tasks: how easy each is, and whether tools matter in it."""

    def __init__(self, effects: bool) -> None:
        number = np.arange(TASKS)
        self.base = np.where(number % 2 == 0, EASY, HARD)
        self.policy = np.array([POLICY[base] for base in self.base])
        matter = effects & (number % 4 < 2)
        self.solves = np.maximum(self.base[:, None] + np.where(matter[:, None], SOLVES, 0.0), 0.0)
        self.ruins = RUINED + np.where(matter[:, None], RUINS, 0.0)
        self.q = np.zeros((TASKS, HORIZON, len(TOOLS)))
        later = np.zeros(TASKS)
        for step in reversed(range(HORIZON)):
            self.q[:, step] = self.solves + (1 - self.solves - self.ruins) * later[:, None]
            later = (self.policy * self.q[:, step]).sum(axis=1)

    def play(self, attempts: int, rng: np.random.Generator) -> StepTable:
        """A file of sessions."""
        columns: dict[str, list[object]] = defaultdict(list)
        for task in range(TASKS):
            for attempt in range(attempts):
                for step in range(HORIZON):
                    tool = int(rng.choice(len(TOOLS), p=self.policy[task]))
                    chance = rng.random()
                    solved = bool(chance < self.solves[task, tool])
                    ruined = bool(chance > 1 - self.ruins[task, tool])
                    columns["group"].append(f"task {task}")
                    columns["trajectory"].append(f"{task}/{attempt}")
                    columns["step"].append(step)
                    columns["state"].append(f"task {task}, step {step}")
                    columns["action"].append(f'{{"name": "{TOOLS[tool]}", "arguments": {{}}}}')
                    columns["reward"].append(float(solved))
                    if solved or ruined:
                        break
        return StepTable.from_columns(columns)


def coordinates(table: StepTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Task, step and tool of each row."""
    task = np.array([int(text.split()[1]) for text in map(str, table.group.texts())])
    tool = np.array([TOOLS.index(text.split('"')[3]) for text in map(str, table.action.texts())])
    return task, table.step, tool


def truth(world: World, table: StepTable, decision: Decision) -> float:
    """The true difference: of Q on both sides, inside states, weighted like the estimate."""
    task, step, tool = coordinates(table)
    rows = np.concatenate([decision.better.rows, decision.worse.rows])
    side = np.arange(rows.size) < decision.better.rows.size
    inside, state = both_sides(side, (task * HORIZON + step)[rows])
    value = world.q[task, step, tool][rows][inside]
    side, size, ones = side[inside], np.bincount(state), np.bincount(state, side[inside])
    weight = ones * (size - ones) / size
    means = (np.bincount(state, value * one) for one in (side, ~side))
    apart = np.subtract(*(m / n for m, n in zip(means, (ones, size - ones), strict=True)))
    difference = float((weight * apart).sum() / weight.sum())
    return difference if abs(difference) > 1e-9 else 0.0


def naive(table: StepTable, method: str) -> dict[int, tuple[float, float]]:
    """Difference and discovery rate of each tool without what the library does."""
    task, _, tool = coordinates(table)
    session = table.trajectory.codes
    won = np.bincount(session, table.reward).astype(np.float64)
    found = []
    for number in range(len(TOOLS)):
        if method == "rows":
            side, outcome, stratum = tool == number, won[session], np.zeros(tool.size, np.int64)
        else:
            side = np.bincount(session, tool == number) > 0
            outcome = won
            first = np.unique(session, return_index=True)[1]
            stratum = task[first] if "in tasks" in method else np.zeros(won.size, np.int64)
        inside, stratum = both_sides(side, stratum)
        outcome, side = outcome[inside], side[inside]
        centred = outcome - (np.bincount(stratum, outcome) / np.bincount(stratum))[stratum]
        difference = float(centred[side].mean() - centred[~side].mean())
        score = standard_score(outcome, side, stratum)
        found.append((difference, 2 * NormalDist().cdf(-score)))
    rates = discovery_rate([p for _, p in found])
    return {i: (d, float(q)) for i, ((d, _), q) in enumerate(zip(found, rates, strict=True))}


# The page.

PAGE = common.ROOT / "docs" / "decisions.md"
KEPT = common.RESULTS / "decisions.jsonl"


def filled(text: str) -> str:
    """The page with what the committed results say."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for line in common.read_lines(KEPT)[1:]:
        tools, attempts, *method = line["case"].split(", ")
        name = method[0] if method else line["metric"]
        name += " high" if line["metric"] == "its_95_high" else ""
        values[f"{tools} | {attempts.split()[0]}"][name] = line["value"]
    rows = ["| attempts per task | false discoveries | forks found | `search` found |"]
    rows.append("| ---: | ---: | ---: | ---: |")
    for case, of_case in values.items():
        tools, attempts = case.split(" | ")
        if tools == "some tools matter":
            names = ("decisions", "power_of_forks", "power_of_the_tool")
            false, forks, tool = (of_case[name] for name in names)
            rows.append(f"| {attempts} | {false:.3f} | {forks:.2f} | {tool:.2f} |")
    highest = max(of_case["decisions high"] for of_case in values.values())
    naive = [of_case["naive: rows"] for of_case in values.values()]
    held = [of_case["coverage_90"] for of_case in values.values()]
    said = (
        "*False discoveries* is the share of false ones among the decisions called certain: at "
        f"most {highest:.3f}\n(upper end of the 95 % interval), also where no tool matters. "
        f"Comparing rows of the whole file gives {min(naive):.2f} to {max(naive):.2f}.\n"
        f"The 90 % intervals hold {100 * min(held):.0f} to {100 * max(held):.0f} % of the "
        "true differences.\n"
    )
    return common.fill_page(text, {"decisions": "\n".join(rows) + f"\n\n{said}"})


def main() -> None:
    """Measure and print, or fill the page."""
    if "--docs" in sys.argv:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    with common.Figures("decisions") as figures:
        files = QUICK_FILES if figures.quick else FILES
        for effects in (False, True):
            world = World(effects)
            for attempts in (5, 20) if figures.quick else (5, 20, 80):
                name = "some tools matter" if effects else "no tool matters"
                case = f"{name}, {attempts} attempts"
                false: dict[str, list[float]] = defaultdict(list)
                covered, forks_found, tools_found, certain = [], [], [], []
                for seed in range(files):
                    rng = np.random.default_rng((seed, attempts, effects))
                    table = world.play(attempts, rng)
                    every = find_decisions(table).decisions
                    found = [each for each in every if not each.sign]
                    true = [truth(world, table, each) for each in found]
                    wrong = [t <= 0 for t, each in zip(true, found, strict=True) if each.certain]
                    false["decisions"].append(float(np.mean(wrong)) if wrong else 0.0)
                    certain.append(len(wrong))
                    covered += [e.low <= t <= e.high for e, t in zip(found, true, strict=True)]
                    forks_found += [
                        each.certain
                        for each, t in zip(found, true, strict=True)
                        if each.kind == FORK and t > 0.1
                    ]
                    tools_found.append(
                        any(
                            each.certain and each.kind == EVENT and "search" in each.better.action
                            for each in found
                        )
                    )
                    for method in NAIVE:
                        rates = naive(table, method)
                        finds = [(i, d) for i, (d, q) in rates.items() if q <= LEVEL]
                        right = {0: 1, 1: -1} if effects else {}
                        wrong = [right.get(i, 0) * d <= 0 for i, d in finds]
                        false[f"naive: {method}"].append(float(np.mean(wrong)) if wrong else 0.0)
                for method, shares in false.items():
                    goal = LEVEL if method == "decisions" else None
                    share = float(np.mean(shares))
                    figures.emit(
                        f"{case}, {method}", "false_discovery_rate", share, "share", "lower", goal
                    )
                    high = wilson(share, len(shares))[1]
                    figures.emit(f"{case}, {method}", "its_95_high", high, "share", "lower")
                figures.emit(case, "coverage_90", float(np.mean(covered)), "share", "higher", 0.87)
                figures.emit(case, "certain", float(np.mean(certain)), "a file", "higher")
                if effects:
                    power = float(np.mean(forks_found)) if forks_found else 0.0
                    figures.emit(case, "power_of_forks", power, "share", "higher")
                    found_tool = float(np.mean(tools_found))
                    figures.emit(case, "power_of_the_tool", found_tool, "share", "higher")


if __name__ == "__main__":
    main()
