"""Forks by their estimates and by replay, and judges that name the decisive step of a session.

A policy attempts each task many times; ``ascribe.decisions`` estimates what the forks were worth,
and ``ascribe_lab.audit.replay`` measures it: both sides are continued from the same decisions.

- ``rank_correlation``: of estimate and measurement, each fork counted from either side;
  ``of_sizes``: both as the side that the estimate calls better minus the other, so that signs do
  not help. Intervals are 90 % bootstraps over tasks. ``reliability``: rank correlation of two
  measurements with as many continuations; no estimate can do better than its root.
- ``clear``: share of forks whose measured difference is not 0, by its 90 % interval.
- ``sign_errors``: share of the clear forks whose better side is the worse one, by how sure the
  estimate was: certain (false discovery rate at most 0.1), p below 0.1, below 0.3, and the rest.
- ``decisive``: share of the sessions with a clear fork in which a judge names such a fork;
  ``largest``: in which it names the one with the largest measured difference of the session.

The scripted policy takes the expert's action or, with a probability drawn for each situation, one
of two that do not help. ``textcraft by observation`` takes the last message for the state, not what
is carried. SmolLM2-135M picks actions from a list. ``--work`` keeps what SmolLM2 played, and a run
that was stopped goes on there.
"""

import json
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ascribe import StepTable
from ascribe.decisions import Decision, find_decisions
from ascribe.steps.files import read
from ascribe_lab.audit.replay import Replayed, replay
from ascribe_lab.models.policy import Request, SamplingPolicy
from ascribe_lab.models.scripted import ScriptedPolicy
from ascribe_lab.rollout import Model, Plan, Sampling, Setup, play_to_file, rollout, table
from ascribe_lab.rollout.record import States, trajectories
from benchmarks import common
from experiments.replay.judges import grade, model_judge, simple_judges

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers")
# A judge may name any fork, so all are measured, also those that a report would not list.
import_module("ascribe.decisions.forks").MOST_UNTESTED = 1_000_000  # type: ignore[attr-defined]
TEXTCRAFT = Setup("textcraft", {"depth": 2}, "plain", "serial").with_expert()
SOKOBAN = Setup("sokoban", {"boxes": (1,)}, "plain", "serial").with_expert()
TURNS = {"textcraft": 8, "sokoban": 20}
CASES: list[tuple[str, Setup, int, int, States]] = [
    ("textcraft, 16 attempts", TEXTCRAFT, 60, 16, "environment"),
    ("textcraft, 64 attempts", TEXTCRAFT, 16, 64, "environment"),
    ("textcraft by observation, 16 attempts", TEXTCRAFT, 60, 16, "observation"),
    ("sokoban, 16 attempts", SOKOBAN, 40, 16, "environment"),
    ("sokoban, 64 attempts", SOKOBAN, 16, 64, "environment"),
]
CONTINUATIONS = 64
POLICY = "textcraft, SmolLM2, 12 attempts"
SMOLLM2 = Setup("textcraft", {"depth": 1}, "choices", "serial")


class Faulty(ScriptedPolicy):
    """The expert's action, or one of two others, as often as a situation tempts it."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.agent.render)
        self.known: dict[str, tuple[list[str], float]] = {}

    def _respond(self, request: Request) -> str:
        info, rng = request.info, np.random.default_rng(request.seed)
        # How much of an item is carried does not change what the policy is tempted by.
        situation = re.sub(r"\d+ ", "", f"{info['task']} {info['state']}")
        if situation not in self.known:
            own = np.random.default_rng(zlib.crc32(situation.encode()))
            actions = info["admissible_actions"]
            tempting = [actions[number] for number in own.permutation(len(actions))[:2]]
            self.known[situation] = tempting, own.random()
        tempting, how_much = self.known[situation]
        expert = info["expert_action"]
        astray = expert is None or rng.random() < how_much
        return self.write(str(rng.choice(tempting)) if astray else expert)


def main() -> None:
    """Measure and print."""
    work = {"type": Path, "help": "folder for what SmolLM2 played"}
    with common.Figures("replay", work=work) as figures, tempfile.TemporaryDirectory() as spare:
        folder = figures.options.work or Path(spare)
        for case, setup, tasks, size, states in CASES:
            if not figures.quick:
                scripted(figures, case, setup, (tasks, size), states)
            elif size == 16:
                scripted(figures, case, setup, (4, size), states, 16)
        if not figures.quick:
            smollm2(figures, folder)


def scripted(
    figures: common.Figures,
    case: str,
    setup: Setup,
    size: tuple[int, int],
    states: States,
    count: int = CONTINUATIONS,
    judge: SamplingPolicy | None = None,
) -> None:
    """One case with the scripted policy."""
    policy, name = Faulty(setup), setup.environment
    plan = Plan(*size, TURNS[name], name=name)
    with setup.open_pool(plan.groups * plan.size) as pool:
        played = rollout(plan, pool, setup.agent, policy)
    steps, by_name = table(played, states), {t.name: t for t in played.trajectories}
    figures.emit(case, "success", np.mean([t.won for t in played.trajectories]), "share", "higher")
    forks = find_decisions(steps).forks
    found = replay(setup, policy, plan, forks, table=steps, played=by_name, count=count)
    emit_forks(figures, case, found)
    judges = simple_judges(steps, forks, np.random.default_rng(0))
    if judge is not None:
        judges["SmolLM2"] = model_judge(judge, steps, by_name)
    emit_judges(figures, case, judges, steps, found)


def smollm2(figures: common.Figures, folder: Path) -> None:
    """SmolLM2 as policy and as judge; forks are kept as they are measured."""
    folder.mkdir(parents=True, exist_ok=True)
    file, kept = folder / "played.parquet", folder / "forks.jsonl"
    plan = Plan(8, 12, 4, name="textcraft", sampling=Sampling(max_tokens=2))
    model = Model("smollm2")
    if not file.exists():
        play_to_file(SMOLLM2, model, plan, file, states="environment")
    rollouts = read(file)
    steps, by_name = rollouts.table, trajectories(rollouts)
    won = np.mean([t.won for t in by_name.values()])
    figures.emit(POLICY, "success", won, "share", "higher")
    forks = find_decisions(steps).forks
    with closing(model.open(SMOLLM2.agent)) as policy:
        found = list(measured(policy, plan, steps, by_name, forks, kept))
        emit_forks(figures, POLICY, found)
        judges = simple_judges(steps, forks, np.random.default_rng(0))
        judges["SmolLM2"] = model_judge(policy, steps, by_name)
        emit_judges(figures, POLICY, judges, steps, found)
        case = "textcraft, judged by SmolLM2"
        scripted(figures, case, TEXTCRAFT, (16, 16), "environment", judge=policy)


def measured(
    policy: SamplingPolicy,
    plan: Plan,
    steps: StepTable,
    by_name: dict[str, Any],
    forks: Sequence[Decision],
    kept: Path,
) -> Iterator[Replayed]:
    """The forks, each kept in a file as soon as it is measured."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    known = {line.pop("fork"): line for line in map(json.loads, lines)}
    for fork in forks:
        if fork.text in known:
            returns = {name: np.array(values) for name, values in known[fork.text].items()}
            yield Replayed(fork, **returns)
            continue
        (one,) = replay(SMOLLM2, policy, plan, [fork], table=steps, played=by_name, count=16)
        if one.refused:
            raise RuntimeError(one.refused)
        returns = {name: getattr(one, name).tolist() for name in ("better", "worse", "filed")}
        with kept.open("a") as file:
            file.write(json.dumps({"fork": fork.text} | returns) + "\n")
        yield one


# Figures.


def emit_forks(figures: common.Figures, case: str, found: Sequence[Replayed]) -> None:
    """What the estimates of forks are worth."""
    figures.emit(case, "forks", len(found), "forks", "higher")
    estimate = np.array([each.fork.difference for each in found])
    truth = np.array([each.difference for each in found])
    task = np.unique([each.fork.task for each in found], return_inverse=True)[1]
    rng, drawn = np.random.default_rng(0), []
    for _ in range(1000):
        tasks = rng.integers(0, task.max() + 1, task.max() + 1)
        rows = np.concatenate([np.flatnonzero(task == number) for number in tasks])
        drawn.append(rank_correlations(estimate[rows], truth[rows]))
    ends = np.quantile(drawn, [0.05, 0.95], axis=0).T
    for number, metric in enumerate(("rank_correlation", "of_sizes")):
        values = rank_correlations(estimate, truth)[number], *ends[number]
        figures.emit_interval(case, metric, values, "correlation", "higher")
    halves = [[e.better[k::2].mean() - e.worse[k::2].mean() for e in found] for k in (0, 1)]
    half = rank_correlations(*map(np.array, halves))[0]
    figures.emit(case, "reliability", 2 * half / (1 + half), "correlation", "higher")
    groups: dict[str, list[Replayed]] = {}
    for each in found:
        p = each.fork.p
        sure = "certain" if each.fork.certain else "p < 0.1" if p < 0.1 else "p < 0.3"
        groups.setdefault(sure if each.fork.certain or p < 0.3 else "the rest", []).append(each)
    for name, own in groups.items():
        clear = [each for each in own if each.clear]
        figures.emit(f"{case}, {name}", "forks", len(own), "forks", "higher")
        figures.emit(f"{case}, {name}", "clear", len(clear) / len(own), "share", "higher")
        if clear:
            wrong = np.mean([each.difference < 0 for each in clear])
            figures.emit(f"{case}, {name}", "sign_errors", float(wrong), "share", "lower")


def rank_correlations(one: Any, other: Any) -> tuple[float, float]:
    """Spearman's rank correlation, from either side and as given; equal values share a rank."""
    found = []
    for sides in ((1, -1), (1,)):
        ranks = []
        for values in (one, other):
            both = np.concatenate([side * values for side in sides])
            _, place, count = np.unique(both, return_inverse=True, return_counts=True)
            ranks.append((np.cumsum(count) - (count - 1) / 2)[place])
        found.append(float(np.corrcoef(*ranks)[0, 1]))
    return found[0], found[1]


def emit_judges(
    figures: common.Figures,
    case: str,
    judges: dict[str, Any],
    steps: StepTable,
    found: Sequence[Replayed],
) -> None:
    """How often judges are right."""
    for name, named in judges.items():
        one, place = grade(named, steps, found), f"{case}, judge: {name}"
        figures.emit(place, "sessions", one.sessions, "sessions", "higher")
        values = one.decisive, one.low, one.high
        figures.emit_interval(place, "decisive", values, "share", "higher")
        figures.emit(place, "largest", one.largest, "share", "higher")


if __name__ == "__main__":
    main()
