"""Every number that an iteration tells has a documented name, and every documented name is told."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.engines.metrics import HELD_OUT, evaluation_summary, read_metrics, steps_to
from ascribe.estimators import RECIPES, recipe
from ascribe_lab.rollout import FailurePolicy, Trajectory
from ascribe_lab.rollout.pools import FailureKind
from ascribe_lab.train.iterations import Iteration, credit_iteration, iteration_metrics
from ascribe_lab.train.metrics_file import MetricsFile, iteration_line
from lab.tests.train.test_corrections import credited as corrected
from lab.tests.train.test_corrections import played as played_with_corrections
from lab.tests.train.test_iterations import groups, part
from tests.engines.explained import LOGGED, explained

DOCS = Path(__file__).parents[3] / "docs"

OF_ENGINES = {
    "rows",
    "rows_skipped",
    "rows_padded",
    "missing",
    "masked_turns",
    "from_tokens_share",
    "realigned_share",
    "seconds/PHASE",
    "stale_groups",
    *(f"versions/{of}_mean" for of in ("trajectory", "group", "lag")),
}
"""What an engine adds; the tests of the engines see to those."""


def iterations() -> list[Iteration]:
    """Iterations that tell all there is: by every recipe, with losses, teams and corrections."""
    every = groups("a", "b")
    some = [replace(one, family="other") if one.group == "b" else one for one in every]
    steps = sum(len(one.steps) for one in every)
    vectors = np.random.default_rng(0).normal(size=(steps, 8)).astype(np.float16)
    found = []
    for name in RECIPES:
        if name in ("ccpo", "ibpo") or RECIPES[name].columns:
            continue
        found.append(_credited(some, name, vectors))
    found.append(_credited(some, "gigpo", vectors, scale="equal"))
    found.append(_credited(some, "returns", None, memory=0.8))
    (whole,), _ = played_with_corrections()
    found.append(corrected([whole]))
    found.append(_credited(_team(), "ccpo", None, form="think_solve", minimum=0))
    return found


def _credited(
    trajectories: Sequence[Trajectory], name: str, vectors: Any, **parameters: Any
) -> Iteration:
    played = replace(part(trajectories, [("c", FailureKind.HUNG)]), fingerprints=vectors)
    return credit_iteration([played], recipe(name, **parameters), size=4, failures=FailurePolicy())


def _team() -> list[Trajectory]:
    """Two agents, each with what the team earns without it."""
    agents = ("thinker", "solver")
    return [
        replace(
            one,
            steps=tuple(
                replace(step, agent=agent)
                for agent, step in zip(agents, one.steps[-2:], strict=True)
            ),
            without=(0.25, 0.5),
        )
        for one in groups("a", "b")
    ]


def test_names_and_meanings_are_the_same_in_the_source_and_in_the_docs() -> None:
    told = {explained(name) for each in iterations() for name in iteration_metrics(each)}
    assert None not in told
    assert told | OF_ENGINES == set(LOGGED)


def test_the_pages_name_all_of_them_and_no_others() -> None:
    text = (DOCS / "engines" / "verl_reference.md").read_text(encoding="utf-8")
    named = re.findall(r"`(ascribe/[\w/]+)`", text)
    assert named
    assert [one for one in named if explained(one) is None] == []


def test_metrics_of_an_iteration_are_one_line(tmp_path: Path) -> None:
    """Also if some of them come later, as those of an evaluation do."""
    file = MetricsFile(tmp_path)
    file.add(1, {"seconds": 1.5, "loss": 0.25})
    file.add(1, {"seconds": 12.25, HELD_OUT: 0.5})
    file.add(2, {"seconds": 13.0, "loss": float("nan")})
    first = {"iteration": 1, "seconds": 12.25, "loss": 0.25, HELD_OUT: 0.5}
    assert read_metrics(tmp_path) == [first, {"iteration": 2, "seconds": 13.0, "loss": None}]
    resumed = MetricsFile(tmp_path, done=1)
    resumed.add(1, {"late": 1})
    assert read_metrics(tmp_path) == [first | {"late": 1}]


def test_the_iterations_to_a_threshold(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path)
    assert evaluation_summary(read_metrics(tmp_path), 0.5) is None
    for iteration, won in enumerate([0.125, None, 0.5, 0.75, 0.25]):
        file.add(iteration, {HELD_OUT: won})
    rows = read_metrics(tmp_path)
    assert [steps_to(rows, HELD_OUT, goal) for goal in (0.1, 0.5, 0.6, 0.9)] == [0, 2, 3, None]
    assert evaluation_summary(rows, 0.5) == (
        "Held-out tasks won: 12.5% in iteration 0, 75.0% at best (val@max, iteration 3), 25.0% in "
        "the last evaluation; 50.0% first reached in iteration 2."
    )


def test_an_iteration_of_training_is_one_line() -> None:
    metrics = {"seconds": 70.0, "ascribe/success": 0.25, "ascribe/return": 0.3, "loss": 0.0123}
    metrics |= {"ascribe/signal_share": 0.875, "ascribe/invalid_share": 0.1, "clip_ratio": 0.0}
    assert iteration_line(2, 20, metrics) == (
        "iteration 2/20: 25% of episodes won, return 0.3, 88% of steps with a signal, "
        "10% of actions invalid, loss 0.0123, 1:10 min so far, about 10:30 min left"
    )
    assert iteration_line(20, 20, metrics).endswith(", loss 0.0123, 1:10 min so far")
