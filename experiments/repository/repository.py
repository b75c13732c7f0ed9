"""The environment ``repository``: how often states recur, what credit sees of it, and SmolLM2.

The policy ``faulty`` attempts each task many times, with ``live`` texts. States are what the shell
showed (``observation``), its key by ``ascribe.groups.keys.propose`` (``proposed``), and the files
and test results (``true``). ``imported`` is what ``ascribe import`` takes for states in the same
episodes as mini-swe-agent's files.

- ``alone``: share of steps alone in their state; ``purity`` and ``found``: of pairs of steps in one
  state, the share in one true state, and the other way round.
- ``gigpo_steps`` and ``sbc_steps``: share of rows that the recipe compares with others in their
  state (the reason of its step term).
- ``gigpo_alike`` and ``sbc_alike``: correlation of its advantages with those by true states.
- ``forks``, ``certain``: decisions in one state that ``ascribe decisions`` compares, and those that
  it is sure of, kinds of decisions included.

SmolLM2-135M writes commands (the prompts ``plain``), or chooses one of a list (``choices``): the
share of responses with a command, of steps whose command bash could carry out, and of episodes that
were solved; ``edited``: of episodes in which it
changed a file. ``--work`` keeps what was played, and a run that was stopped goes on there.
"""

import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from ascribe import StepTable, recipe
from ascribe.decisions import find_decisions
from ascribe.estimators.credit import Reason
from ascribe.groups.keys import keyed, measure, propose, tools_before
from ascribe.sessions.formats import import_files
from ascribe.steps.files import read
from ascribe.steps.table import Coded
from ascribe_lab.rollout import Model, Plan, Sampling, Setup, play_to_file
from ascribe_lab.rollout.mini_swe_agent import save_trajectories
from ascribe_lab.rollout.record import trajectories
from benchmarks import common

common.PACKAGES = ("ascribe-rl", "numpy", "pytest", "torch", "transformers")
WRITE = Setup("repository", {"live": True}, "plain", "processes")
CHOOSE = Setup("repository", {"live": True, "listed": True}, "choices", "processes")
SMOLLM2 = Model("smollm2", context=2048)
CASES = {
    "faulty": (WRITE, Model("faulty"), Plan(8, 16, 20, 3, "repository")),
    "SmolLM2 writes": (
        WRITE,
        SMOLLM2,
        Plan(4, 4, 6, 3, "repository", sampling=Sampling(max_tokens=24)),
    ),
    "SmolLM2 chooses": (
        CHOOSE,
        SMOLLM2,
        Plan(2, 4, 5, 3, "repository", sampling=Sampling(max_tokens=2)),
    ),
}


def main() -> None:
    """Play and measure."""
    work = {"type": Path, "help": "folder for what was played"}
    with common.Figures("repository", work=work) as figures, tempfile.TemporaryDirectory() as spare:
        folder = figures.options.work or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        if figures.quick:
            quick = (WRITE, Model("faulty"), Plan(2, 4, 20, 3, "repository"))
            measure_policy(figures, "faulty", *quick, folder)
            return
        for case, (setup, model, plan) in CASES.items():
            measure_policy(figures, case, setup, model, plan, folder)


def measure_policy(
    figures: common.Figures, case: str, setup: Setup, model: Model, plan: Plan, folder: Path
) -> None:
    """What a policy did, how often states recur, and what follows from that."""
    file, clock = folder / f"{case}.parquet", folder / f"{case}.json"
    if not file.exists():
        played = play_to_file(setup, model, plan, file, states="environment")
        clock.write_text(json.dumps(asdict(played.clock)))
    rollouts = read(file)
    own, episodes = rollouts.table, list(trajectories(rollouts).values())
    steps = [step for episode in episodes for step in episode.steps]
    seconds = json.loads(clock.read_text())
    figures.emit(case, "steps", len(steps), "1", "higher")
    for metric in ("policy", "environment"):
        value = seconds[f"{metric}_seconds"] / len(steps)
        figures.emit(case, f"{metric}_seconds_per_step", value, "s", "lower")
    for name, values in {
        "success": [episode.won for episode in episodes],
        "edited": [len({s.state.partition(",")[0] for s in t.steps}) > 1 for t in episodes],
        "with_command": [step.problem is None for step in steps],
        "valid": [step.valid for step in steps],
    }.items():
        figures.emit(case, name, np.mean(values), "share", "higher")
    shown = replace(own, state=Coded.encode(rollouts.carried["observation"].to_pylist()))
    key = propose(shown)
    print(case, key, file=sys.stderr)
    proposed = replace(shown, state=keyed(shown.state, key, tools_before(shown)))
    for name, each in {"observation": shown, "proposed": proposed, "true": own}.items():
        compare(figures, f"{case}, {name}", each, own)
    with tempfile.TemporaryDirectory() as written:
        save_trajectories(episodes, written)
        imported = import_files([written], reward="info.reward")
    figures.emit(f"{case}, imported", "alone", imported.alone[imported.state], "share", "lower")


def compare(figures: common.Figures, case: str, steps: StepTable, own: StepTable) -> None:
    """The figures of one choice of states."""
    quality = measure(steps, truth=own.state)
    goal = 0.2 if case == "faulty, proposed" else None
    figures.emit(case, "states", quality.states, "1", "lower")
    figures.emit(case, "alone", quality.alone, "share", "lower", goal)
    for metric in ("purity", "found"):
        if not np.isnan(getattr(quality, metric)):
            figures.emit(case, metric, getattr(quality, metric), "share", "higher")
    for name in ("gigpo", "sbc"):
        credit, true = recipe(name)(steps), recipe(name)(own)
        credited = np.mean(credit.terms["step"].reason == Reason.CREDITED)
        figures.emit(case, f"{name}_steps", credited, "share", "higher")
        if credit.advantage.any():
            alike = np.corrcoef(credit.advantage, true.advantage)[0, 1]
            figures.emit(case, f"{name}_alike", alike, "1", "higher")
    found = find_decisions(steps)
    figures.emit(case, "forks", len(found.forks), "1", "higher")
    figures.emit(case, "certain", len(found.certain), "1", "higher")
    for each in found.certain[:3]:
        print(f"{case}: {each.text}: {each.how_sure}", file=sys.stderr)


if __name__ == "__main__":
    main()
