"""Findings of events: how often one is false, and how large it must be to be found.

Four logs of real agents keep their sessions, and get outcomes drawn from the null model that was
fitted to theirs: a task and a version have an effect, no event has. So whatever is certain is
false. Further files are simulated: two agents of unlike strength and habits with one attempt a
task each, and agents that mostly ask for help after a mistake that lost the session already, which
must not be called a turn. Last, a turn is planted that adds .2 or .4 to the chance to win.

Every file has a seed; those in ``--done FILE`` are not computed again. The logs lie in the folder
``real`` of ``ASCRIBE_TEST_DATA``.
"""

import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import common
import numpy as np
from null_decisions import MOST, TOOLS, Sessions, agents, call

from ascribe.decisions import _settled, find_decisions
from ascribe.decisions.attempts import Attempts, attempts
from ascribe.decisions.findings import findings
from ascribe.decisions.forks import forks
from ascribe.decisions.residuals import fit, telling
from ascribe.estimators.diagnostics import wilson
from ascribe.sessions.reading import import_files

FILES = 200
LOGS = ("tau2_telecom", "tau_bench", "tau2_airline", "tau_bench_retail")
Random = np.random.Generator


@cache
def log(name: str) -> tuple[Attempts, Any]:
    """A log, and the chance of each session to win by the effects of its task and version."""
    tried = attempts(
        import_files([Path(os.environ["ASCRIBE_TEST_DATA"]) / "real" / name]).table, outcome="won"
    )
    version = np.zeros(tried.outcome.size, dtype=np.int64)
    version = version if tried.version is None else tried.version
    chance = np.full(tried.outcome.size, tried.outcome.mean())
    told = telling(tried.stratum, version)
    stratum = np.unique(tried.stratum[told], return_inverse=True)[1].ravel()
    outcome = tried.outcome[told]
    chance[told] = outcome - fit(stratum, version[told]).residuals(outcome)
    return tried, chance


def of_log(rng: Random, name: str) -> bool:
    """Whether anything is certain in a log with outcomes of the null model."""
    tried, chance = log(name)
    won = rng.random(chance.size) < chance
    drawn = replace(tried, outcome=won.astype(np.float64), won=won)
    found = _settled(forks(drawn, np.random.default_rng(0))[0])
    return any(
        each.certain for each in _settled([*found, *findings(drawn, np.random.default_rng(0))])
    )


def of_agents(rng: Random) -> bool:
    """Whether anything is certain of two agents with unlike habits that tried each task once."""
    return bool(find_decisions(agents(rng, 50, 1, (0.2, 0.7))).certain)


def follows(rng: Random, mistake: str) -> bool:
    """Whether asking for help is called a turn, though only those mostly ask who went wrong."""
    sessions = Sessions()
    for task in range(50):
        right = int(rng.integers(4))
        for _ in range(8):
            wrong = bool(rng.random() < 0.4)
            value = (right + wrong * int(rng.integers(1, 4))) % 4
            if mistake != "a wrong value":
                value = right
            number = int(rng.integers(1 << 30))
            steps = [(f"Task {task}", call("search", at=number))]
            if mistake != "a check left out" or not wrong:
                steps.append((f"result {number}", call("check", item=task)))
            steps.append((f"checked {number}", call("change", item=task, to=value)))
            if rng.random() < (0.8 if wrong else 0.1):
                refused = wrong and mistake == "a refused call"
                steps.append((f"{'Error: no' if refused else 'ok'} {number}", call("ask")))
            steps += [(f"ok, {number}", call("close", at=number)), (f"closed {number}", "done")]
            sessions.add(f"task {task}", steps, float(rng.random() < (0.1 if wrong else 0.8)))
    return any(each.turn and "`ask`" in each.event.action for each in _certain(sessions))


def planted(rng: Random, times: int, effect: float) -> bool:
    """Whether a turn is found that adds so much to the chance to win."""
    sessions = Sessions()
    for task in range(50):
        base = rng.uniform(0.1, 0.9 - effect)
        for _ in range(times):
            good, number = bool(rng.random() < 0.5), int(rng.integers(1 << 30))
            tools = [TOOLS[at] for at in rng.integers(4, size=int(rng.integers(3, 7)))]
            if good:
                tools.insert(int(rng.integers(1, 3)), "verify")
            steps = [
                (
                    f"{task} {number} {n}" if n else f"Task {task}",
                    call(tool, at=int(rng.integers(9))),
                )
                for n, tool in enumerate(tools)
            ]
            won = float(rng.random() < base + effect * good)
            sessions.add(f"task {task}", [*steps, (f"end {number}", "done")], won)
    return any(each.turn and "`verify`" in each.event.action for each in _certain(sessions))


def _certain(sessions: Sessions) -> Any:
    return find_decisions(sessions.table()).certain


NULL: dict[str, Callable[[Random], bool]] = {
    "two agents, one attempt each": of_agents,
    **{
        f"asking after {mistake}": partial(follows, mistake=mistake)
        for mistake in ("a refused call", "a wrong value", "a check left out")
    },
    **{f"null model of {name}": partial(of_log, name=name) for name in LOGS},
}
"""What must not be found."""
POWER: dict[str, Callable[[Random], bool]] = {
    f"planted {effect}, {times} attempts": partial(planted, times=times, effect=effect)
    for effect in (0.2, 0.4)
    for times in (4, 10, 30)
}


def hit(name: str, seed: int) -> bool:
    """The answer for one file."""
    return (NULL | POWER)[name](np.random.default_rng((seed, 4)))


def main() -> None:
    """Measure and print."""
    done = {"type": Path, "help": "keep what was found in each file here, and go on from there"}
    files = {"type": int, "default": FILES, "help": "files of a kind"}
    with (
        common.Figures("findings", done=done, files=files) as figures,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
    ):
        count = 4 if figures.quick else figures.options.files
        kept, path = dict[tuple[str, int], bool](), figures.options.done
        if path is not None and path.exists():
            kept = {(e["case"], e["seed"]): e["hit"] for e in map(json.loads, path.open())}
        for name in NULL | POWER:
            logs = "null model" in name and "ASCRIBE_TEST_DATA" not in os.environ
            seeds = range(0 if logs else count if name in NULL else min(count, 60))
            todo = [seed for seed in seeds if (name, seed) not in kept]
            for seed, found in zip(todo, pool.map(partial(hit, name), todo), strict=True):
                kept[name, seed] = found
                if path is not None:
                    with path.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"case": name, "seed": seed, "hit": found}) + "\n")
            hits = [kept[name, seed] for seed in seeds]
            if name in NULL and hits:
                goal = MOST if len(hits) == FILES else None
                figures.emit(name, "files_found", sum(hits), f"of {len(hits)}", "lower", goal)
            elif hits:
                share = float(np.mean(hits))
                ends = wilson(share, len(hits))
                figures.emit_interval(name, "found", (share, *ends), "share", "higher")


if __name__ == "__main__":
    main()
